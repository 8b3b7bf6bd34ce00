package emu

import "slices"

//go:generate go run ./internal/genvalu

// Vector ALU. The loops over the lanes are generated (valu_loops.go, from the tables
// in internal/genvalu); these functions tie them to operands and modifiers.

type (
	// narrowLoop has operands of one word.
	narrowLoop func(d, a, b, c *Vec)
	// wideLoop has operands of up to two words: the low one, the high one.
	wideLoop func(d0, d1, a0, a1, b0, b1, c0, c1 *Vec)
)

// valuRow is a row of the generated table. types are those of the result and of the
// sources; the saturated loop is the one under clamp.
type valuRow struct {
	types                   []elem
	narrow, narrowSaturated narrowLoop
	wide, wideSaturated     wideLoop
}

// gfx950Only are the instructions of the generated table that gfx942 lacks.
var gfx950Only = []string{
	"v_cvt_f32_bf16", "v_cvt_pk_bf16_f32", "v_cvt_pk_f16_f32", "v_maximum3_f32", "v_minimum3_f32",
}

func init() {
	rows, rows950 := map[string]compile{}, map[string]compile{}
	for op, r := range valuRows {
		if slices.Contains(gfx950Only, op) {
			rows950[op] = r.compile
		} else {
			rows[op] = r.compile
		}
	}
	define(rows)
	define(rows950, "gfx950")
}

// accumulates tells the instructions whose third source is their destination.
func accumulates(op string) bool {
	switch op {
	case "v_fmac_f32", "v_fmac_f64", "v_dot2c_i32_i16", "v_dot4c_i32_i8", "v_dot8c_i32_i4":
		return true
	}
	return false
}

// operation is a vector instruction's operands.
type operation struct {
	n   int // sources
	src [3]*source
	dst destination
}

func (r valuRow) compile(c *compiler) step {
	o := c.operation(0, 1, r.types)
	narrow, wide := r.narrow, r.wide
	if r.narrowSaturated != nil || r.wideSaturated != nil {
		if c.flag("clamp") {
			narrow, wide = r.narrowSaturated, r.wideSaturated
		}
	}
	return o.step(narrow, wide)
}

// operation compiles the operands of an instruction of the given types, the result
// first: the destination is operand dst, the sources are those from operand first.
func (c *compiler) operation(dst, first int, types []elem) *operation {
	o := &operation{n: len(types) - 1}
	named := o.n
	if accumulates(c.in.Op) {
		named--
	}
	for i := range named {
		o.src[i] = c.vectorSource(first+i, i, types[i+1])
	}
	o.dst = c.destination(dst, types[0])
	if named < o.n {
		o.src[named] = &source{n: types[0].words(), reg: o.dst.reg, accumulates: c.indexed}
		c.readsVector(dst, o.dst.reg, types[0].words(), 0)
	}
	switch c.in.Enc {
	case EncDPP:
		if named > 2 {
			c.fail("this encoding of %s is not supported", c.in.Op)
		}
		o.src[0].dpp = c.dpp()
		o.dst.dpp = o.src[0].dpp
	case EncSDWA:
		if named > 2 || named < o.n || slices.ContainsFunc(types[1:], func(e elem) bool { return e.words() != 1 }) {
			c.fail("this encoding of %s is not supported", c.in.Op)
			break
		}
		for i := range named {
			o.src[i].part = c.sdwaSource(first+i, i)
		}
		if o.dst.part = c.sdwaDest(); o.dst.part != nil && o.dst.words != 1 {
			c.fail("dst_sel chooses a part of a pair of registers")
		}
	default:
		c.halves(o, types)
	}
	if types[0].float() {
		c.outputModifiers(o, types[0])
	}
	for i := range named {
		c.readsPart(first+i, o.src[i].part)
	}
	c.writesPart(o.dst.part)
	return o
}

// step makes the instruction of one of the loops; the other is nil.
func (o *operation) step(narrow narrowLoop, wide wideLoop) step {
	if wide != nil {
		return o.wideStep(wide)
	}
	if !o.dst.simple() {
		return o.generalStep(narrow)
	}
	d, a, b, c := o.dst.reg, o.src[0], o.src[1], o.src[2]
	switch o.n {
	case 1:
		return func(w *wave) {
			x := a.word(w, 0, 0)
			if e := w.exec(); e == ^uint64(0) {
				narrow(&w.v[d], x, x, x)
			} else {
				narrow(&w.result[0], x, x, x)
				write(&w.v[d], &w.result[0], e)
			}
		}
	case 2:
		return func(w *wave) {
			x, y := a.word(w, 0, 0), b.word(w, 0, 2)
			if e := w.exec(); e == ^uint64(0) {
				narrow(&w.v[d], x, y, y)
			} else {
				narrow(&w.result[0], x, y, y)
				write(&w.v[d], &w.result[0], e)
			}
		}
	}
	return func(w *wave) {
		x, y, z := a.word(w, 0, 0), b.word(w, 0, 2), c.word(w, 0, 4)
		if e := w.exec(); e == ^uint64(0) {
			narrow(&w.v[d], x, y, z)
		} else {
			narrow(&w.result[0], x, y, z)
			write(&w.v[d], &w.result[0], e)
		}
	}
}

// generalStep has a destination with modifiers.
func (o *operation) generalStep(narrow narrowLoop) step {
	return func(w *wave) {
		var p [3]*Vec
		for i := range o.n {
			p[i] = o.src[i].word(w, 0, 2*i)
		}
		narrow(&w.result[0], p[0], p[1], p[2])
		o.dst.store(w)
	}
}

func (o *operation) wideStep(wide wideLoop) step {
	simple := o.dst.simple() && o.dst.words == 2
	return func(w *wave) {
		var p [3][2]*Vec
		for i := range o.n {
			p[i] = o.src[i].words(w, i)
		}
		if simple && w.exec() == ^uint64(0) {
			wide(&w.v[o.dst.reg], &w.v[o.dst.reg+1], p[0][0], p[0][1], p[1][0], p[1][1], p[2][0], p[2][1])
			return
		}
		wide(&w.result[0], &w.result[1], p[0][0], p[0][1], p[1][0], p[1][1], p[2][0], p[2][1])
		o.dst.store(w)
	}
}
