package warpsim

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// instruction reads a line of the current block.
func (f *parser) instruction(line string) error {
	c := &cursor{line}
	var to operand
	if strings.HasPrefix(line, "%") {
		name, text, _ := strings.Cut(line, " = ")
		to, c = f.names[name], &cursor{text}
	}
	op := c.word()
	var do inst
	var err error
	switch {
	case op == "br" || op == "ret":
		return f.terminator(op, c)
	case op == "phi":
		return f.phi(to, c)
	case op == "alloca":
		return nil // its slots are the variable
	case op == "load":
		do, err = f.load(to, c)
	case op == "store":
		do, err = f.store(c)
	case op == "call":
		do, err = f.call(to, c)
	case op == "getelementptr":
		do, err = f.address(to, c)
	case op == "icmp" || op == "fcmp":
		do, err = f.compare(op, to, c)
	case op == "select":
		do, err = f.choose(to, c)
	case conversions[op] != nil:
		do, err = f.convert(op, to, c)
	case strings.HasSuffix(op, "element") || op == "extractvalue" || op == "shufflevector":
		do, err = f.pieces(op, to, c)
	case arithmetic[op] != nil:
		do, err = f.binary(op, to, c)
	case op == "fneg":
		var x operand
		if x, err = f.typed(c); err == nil {
			sign := uint64(1) << (x.t.scalar().bits - 1)
			do = map1(to, x, func(x uint64) uint64 { return x ^ sign })
		}
	default:
		err = fmt.Errorf("instruction %s is not known here", op)
	}
	if err == nil {
		f.cur.insts = append(f.cur.insts, do)
	}
	return err
}

// each computes every scalar of a value in every lane that acts.
func each(to operand, of func(w *warp, lane, i int) uint64) inst {
	return func(w *warp, active uint32) error {
		for lane := range lanesOf(active) {
			for i := range to.t.lanes() {
				to.set(w, lane, i, of(w, lane, i))
			}
		}
		return nil
	}
}

// map1 and map2 compute the scalars of a value from those of one or two others.
func map1(to, x operand, of func(x uint64) uint64) inst {
	return func(w *warp, active uint32) error {
		for i := range to.t.lanes() {
			out, in := to.all(w, i), x.all(w, i)
			if active == everyLane {
				for lane := range out {
					out[lane] = of(in[lane])
				}
				continue
			}
			for lane := range lanesOf(active) {
				out[lane] = of(in[lane])
			}
		}
		return nil
	}
}

func map2(to, x, y operand, of func(x, y uint64) uint64) inst {
	return func(w *warp, active uint32) error {
		for i := range to.t.lanes() {
			out, a, b := to.all(w, i), x.all(w, i), y.all(w, i)
			if active == everyLane {
				for lane := range out {
					out[lane] = of(a[lane], b[lane])
				}
				continue
			}
			for lane := range lanesOf(active) {
				out[lane] = of(a[lane], b[lane])
			}
		}
		return nil
	}
}

// move copies scalar number from of a value to scalar number i of another.
func move(w *warp, active uint32, to *operand, i int, x *operand, from int) {
	out, in := to.all(w, i), x.all(w, from)
	if active == everyLane {
		*out = *in
		return
	}
	for lane := range lanesOf(active) {
		out[lane] = in[lane]
	}
}

func (f *parser) label(c *cursor) (*block, error) {
	if !c.take("label %") {
		return nil, fmt.Errorf("want a label, at %q", c.s)
	}
	return f.block(c.word()), nil
}

func (f *parser) terminator(op string, c *cursor) error {
	if op == "ret" {
		return nil
	}
	if strings.HasPrefix(strings.TrimSpace(c.s), "label") {
		b, err := f.label(c)
		f.cur.branch.to = []*block{b}
		return err
	}
	cond, err := f.typed(c)
	if err != nil {
		return err
	}
	f.cur.branch.cond = &cond
	for range 2 {
		c.take(",")
		b, err := f.label(c)
		if err != nil {
			return err
		}
		f.cur.branch.to = append(f.cur.branch.to, b)
	}
	return nil
}

func (f *parser) phi(to operand, c *cursor) error {
	t, err := c.typ()
	if err != nil {
		return err
	}
	p := phi{to: to, from: map[*block]operand{}}
	for c.take("[") {
		o, err := f.operand(c, t)
		if err != nil {
			return err
		}
		c.take(",")
		c.take("%")
		p.from[f.block(c.word())] = o
		c.take("]")
		c.take(",")
	}
	f.cur.phis = append(f.cur.phis, p)
	return nil
}

// access reads the pointer of a load or store, and how memory lies there.
func (f *parser) access(c *cursor, t *typ) (p operand, size int, err error) {
	if p, err = f.typed(c); err != nil {
		return p, 0, err
	}
	return p, t.scalar().size(), nil
}

func (f *parser) load(to operand, c *cursor) (inst, error) {
	c.take("atomic")
	t, err := c.typ()
	if err != nil {
		return nil, err
	}
	c.take(",")
	p, size, err := f.access(c, t)
	if err != nil {
		return nil, err
	}
	n := t.lanes()
	if p.t.as == 0 {
		return each(to, func(w *warp, lane, i int) uint64 { return p.get(w, lane, i) }), nil
	}
	return func(w *warp, active uint32) error {
		for lane := range lanesOf(active) {
			b, err := w.memory(p.t.as, p.get(w, lane, 0), n*size, lane, false)
			if err != nil {
				return err
			}
			for i := range n {
				to.set(w, lane, i, get(b[i*size:(i+1)*size]))
			}
		}
		return nil
	}, nil
}

func (f *parser) store(c *cursor) (inst, error) {
	c.take("atomic")
	x, err := f.typed(c)
	if err != nil {
		return nil, err
	}
	c.take(",")
	p, size, err := f.access(c, x.t)
	if err != nil {
		return nil, err
	}
	n := x.t.lanes()
	if p.t.as == 0 {
		return func(w *warp, active uint32) error {
			for lane := range lanesOf(active) {
				for i := range n {
					p.set(w, lane, i, x.get(w, lane, i))
				}
			}
			return nil
		}, nil
	}
	return func(w *warp, active uint32) error {
		for lane := range lanesOf(active) {
			b, err := w.memory(p.t.as, p.get(w, lane, 0), n*size, lane, true)
			if err != nil {
				return err
			}
			for i := range n {
				put(b[i*size:(i+1)*size], x.get(w, lane, i))
			}
		}
		return nil
	}, nil
}

// address is an element of what a pointer points to, or, with a first index of 0, of
// an array there.
func (f *parser) address(to operand, c *cursor) (inst, error) {
	c.take("inbounds")
	t, err := c.typ()
	if err != nil {
		return nil, err
	}
	c.take(",")
	p, err := f.typed(c)
	if err != nil {
		return nil, err
	}
	var index []operand
	for c.take(",") {
		i, err := f.typed(c)
		if err != nil {
			return nil, err
		}
		index = append(index, i)
	}
	sizes := []int{t.size()}
	if len(index) == 2 && t.kind == array {
		sizes = append(sizes, t.elem.size())
	}
	if len(sizes) != len(index) {
		return nil, fmt.Errorf("%d indices", len(index))
	}
	return each(to, func(w *warp, lane, _ int) uint64 {
		at := p.get(w, lane, 0)
		for j, i := range index {
			at += uint64(signed(i.get(w, lane, 0), i.t.bits)) * uint64(sizes[j])
		}
		return at
	}), nil
}

// arithmetic has the operations on two numbers of a type.
var arithmetic = map[string]func(t *typ, x, y uint64) uint64{
	"add":  func(_ *typ, x, y uint64) uint64 { return x + y },
	"sub":  func(_ *typ, x, y uint64) uint64 { return x - y },
	"mul":  func(_ *typ, x, y uint64) uint64 { return x * y },
	"and":  func(_ *typ, x, y uint64) uint64 { return x & y },
	"or":   func(_ *typ, x, y uint64) uint64 { return x | y },
	"xor":  func(_ *typ, x, y uint64) uint64 { return x ^ y },
	"shl":  func(_ *typ, x, y uint64) uint64 { return x << y },
	"lshr": func(_ *typ, x, y uint64) uint64 { return x >> y },
	"ashr": func(t *typ, x, y uint64) uint64 { return uint64(signed(x, t.bits) >> y) },
	"udiv": func(_ *typ, x, y uint64) uint64 { return x / max(1, y) },
	"urem": func(_ *typ, x, y uint64) uint64 { return x % max(1, y) },
	"sdiv": func(t *typ, x, y uint64) uint64 {
		if y == 0 {
			return 0
		}
		return uint64(signed(x, t.bits) / signed(y, t.bits))
	},
	"fadd": func(t *typ, x, y uint64) uint64 { return fromFloat(t, toFloat(t, x)+toFloat(t, y)) },
	"fsub": func(t *typ, x, y uint64) uint64 { return fromFloat(t, toFloat(t, x)-toFloat(t, y)) },
	"fmul": func(t *typ, x, y uint64) uint64 { return fromFloat(t, toFloat(t, x)*toFloat(t, y)) },
	"fdiv": func(t *typ, x, y uint64) uint64 { return fromFloat(t, toFloat(t, x)/toFloat(t, y)) },
}

func (f *parser) binary(op string, to operand, c *cursor) (inst, error) {
	for _, flag := range []string{"nuw", "nsw", "exact"} {
		c.take(flag + " ")
	}
	x, err := f.typed(c)
	if err != nil {
		return nil, err
	}
	c.take(",")
	y, err := f.operand(c, x.t)
	if err != nil {
		return nil, err
	}
	t, of := x.t.scalar(), arithmetic[op]
	return map2(to, x, y, func(x, y uint64) uint64 { return mask(of(t, x, y), t.bits) }), nil
}

func (f *parser) compare(op string, to operand, c *cursor) (inst, error) {
	pred := c.word()
	x, err := f.typed(c)
	if err != nil {
		return nil, err
	}
	c.take(",")
	y, err := f.operand(c, x.t)
	if err != nil {
		return nil, err
	}
	t := x.t.scalar()
	var of func(a, b uint64) bool
	if op == "icmp" {
		signedOf := func(f func(a, b int64) bool) func(a, b uint64) bool {
			return func(a, b uint64) bool { return f(signed(a, t.bits), signed(b, t.bits)) }
		}
		of = map[string]func(a, b uint64) bool{
			"eq": func(a, b uint64) bool { return a == b }, "ne": func(a, b uint64) bool { return a != b },
			"slt": signedOf(func(a, b int64) bool { return a < b }), "sle": signedOf(func(a, b int64) bool { return a <= b }),
			"sgt": signedOf(func(a, b int64) bool { return a > b }), "sge": signedOf(func(a, b int64) bool { return a >= b }),
		}[pred]
	} else {
		of = map[string]func(a, b uint64) bool{
			"oeq": func(a, b uint64) bool { return toFloat(t, a) == toFloat(t, b) }, "une": func(a, b uint64) bool { return toFloat(t, a) != toFloat(t, b) },
			"olt": func(a, b uint64) bool { return toFloat(t, a) < toFloat(t, b) }, "ole": func(a, b uint64) bool { return toFloat(t, a) <= toFloat(t, b) },
			"ogt": func(a, b uint64) bool { return toFloat(t, a) > toFloat(t, b) }, "oge": func(a, b uint64) bool { return toFloat(t, a) >= toFloat(t, b) },
		}[pred]
	}
	if of == nil {
		return nil, fmt.Errorf("predicate %s is not known here", pred)
	}
	return map2(to, x, y, func(x, y uint64) uint64 {
		if of(x, y) {
			return 1
		}
		return 0
	}), nil
}

func (f *parser) choose(to operand, c *cursor) (inst, error) {
	in, err := f.list(c, 3)
	if err != nil {
		return nil, err
	}
	return each(to, func(w *warp, lane, i int) uint64 {
		at := i
		if in[0].t.kind != vector {
			at = 0
		}
		if in[0].get(w, lane, at) == 1 {
			return in[1].get(w, lane, i)
		}
		return in[2].get(w, lane, i)
	}), nil
}

// conversions change a scalar from one type to another.
var conversions = map[string]func(from, to *typ, x uint64) uint64{
	"zext":     func(_, _ *typ, x uint64) uint64 { return x },
	"sext":     func(from, to *typ, x uint64) uint64 { return mask(uint64(signed(x, from.bits)), to.bits) },
	"trunc":    func(_, to *typ, x uint64) uint64 { return mask(x, to.bits) },
	"fpext":    func(from, to *typ, x uint64) uint64 { return fromFloat(to, toFloat(from, x)) },
	"fptrunc":  func(from, to *typ, x uint64) uint64 { return fromFloat(to, toFloat(from, x)) },
	"fptosi":   func(from, to *typ, x uint64) uint64 { return mask(uint64(int64(toFloat(from, x))), to.bits) },
	"sitofp":   func(from, to *typ, x uint64) uint64 { return fromFloat(to, float64(signed(x, from.bits))) },
	"uitofp":   func(_, to *typ, x uint64) uint64 { return fromFloat(to, float64(x)) },
	"bitcast":  func(_, _ *typ, x uint64) uint64 { return x },
	"inttoptr": func(_, _ *typ, x uint64) uint64 { return x },
	"ptrtoint": func(_, _ *typ, x uint64) uint64 { return x },
}

func (f *parser) convert(op string, to operand, c *cursor) (inst, error) {
	x, err := f.typed(c)
	if err != nil {
		return nil, err
	}
	if op == "bitcast" && x.t.lanes() != to.t.lanes() {
		return recast(to, x), nil
	}
	from, of := x.t.scalar(), conversions[op]
	return map1(to, x, func(x uint64) uint64 { return of(from, to.t.scalar(), x) }), nil
}

// recast regroups the bits of a value to scalars of another size.
func recast(to, x operand) inst {
	have, want := x.t.scalar().bits, to.t.scalar().bits
	return each(to, func(w *warp, lane, i int) uint64 {
		var out uint64
		for at := 0; at < want; at += min(have, want) {
			bit := i*want + at
			out |= mask(x.get(w, lane, bit/have)>>(bit%have), min(have, want)) << at
		}
		return out
	})
}

// pieces takes vectors apart and puts them together.
func (f *parser) pieces(op string, to operand, c *cursor) (inst, error) {
	switch op {
	case "extractvalue":
		x, err := f.typed(c)
		c.take(",")
		at, bad := strconv.Atoi(c.word())
		if err != nil || bad != nil {
			return nil, fmt.Errorf("extractvalue: %v %v", err, bad)
		}
		return func(w *warp, active uint32) error {
			move(w, active, &to, 0, &x, at)
			return nil
		}, nil
	case "extractelement":
		in, err := f.list(c, 2)
		if err != nil {
			return nil, err
		}
		if in[1].bits == nil {
			return nil, fmt.Errorf("an index that is no constant")
		}
		return func(w *warp, active uint32) error {
			move(w, active, &to, 0, &in[0], int(in[1].bits[0]))
			return nil
		}, nil
	case "insertelement":
		in, err := f.list(c, 3)
		if err != nil {
			return nil, err
		}
		if in[2].bits == nil {
			return nil, fmt.Errorf("an index that is no constant")
		}
		return func(w *warp, active uint32) error {
			for i := range to.t.lanes() {
				if i == int(in[2].bits[0]) {
					move(w, active, &to, i, &in[1], 0)
				} else {
					move(w, active, &to, i, &in[0], i)
				}
			}
			return nil
		}, nil
	}
	in, err := f.list(c, 3)
	if err != nil || in[2].bits == nil {
		return nil, fmt.Errorf("shuffle by what is no constant: %v", err)
	}
	n := in[0].t.n
	return func(w *warp, active uint32) error {
		for i := range to.t.lanes() {
			if at := int(in[2].bits[i]); at < n {
				move(w, active, &to, i, &in[0], at)
			} else {
				move(w, active, &to, i, &in[1], at-n)
			}
		}
		return nil
	}, nil
}

// functions have the intrinsics on scalars, each lane by itself, by name.
var functions = map[string]func(t *typ, x []uint64) uint64{
	"llvm.fabs":    func(t *typ, x []uint64) uint64 { return fromFloat(t, math.Abs(toFloat(t, x[0]))) },
	"llvm.sqrt":    func(t *typ, x []uint64) uint64 { return fromFloat(t, math.Sqrt(toFloat(t, x[0]))) },
	"llvm.floor":   func(t *typ, x []uint64) uint64 { return fromFloat(t, math.Floor(toFloat(t, x[0]))) },
	"llvm.rint":    func(t *typ, x []uint64) uint64 { return fromFloat(t, math.RoundToEven(toFloat(t, x[0]))) },
	"llvm.fma":     fusedMultiplyAdd,
	"llvm.minimum": func(t *typ, x []uint64) uint64 { return fromFloat(t, min(toFloat(t, x[0]), toFloat(t, x[1]))) },
	"llvm.maximum": func(t *typ, x []uint64) uint64 { return fromFloat(t, max(toFloat(t, x[0]), toFloat(t, x[1]))) },
	"llvm.maxnum":  func(t *typ, x []uint64) uint64 { return fromFloat(t, maxNumber(toFloat(t, x[0]), toFloat(t, x[1]))) },
	"llvm.cttz":    func(_ *typ, x []uint64) uint64 { return uint64(bits.TrailingZeros64(x[0])) },
	"llvm.ctpop":   func(_ *typ, x []uint64) uint64 { return uint64(bits.OnesCount64(x[0])) },
	"llvm.nvvm.ex2.approx.ftz": func(t *typ, x []uint64) uint64 {
		return flushed(t, math.Exp2(toFloat(t, flushed(t, toFloat(t, x[0])))))
	},
	"llvm.nvvm.rcp.approx.ftz": func(t *typ, x []uint64) uint64 { return flushed(t, 1/toFloat(t, flushed(t, toFloat(t, x[0])))) },
	"llvm.nvvm.rsqrt.approx.ftz": func(t *typ, x []uint64) uint64 {
		return flushed(t, 1/math.Sqrt(toFloat(t, flushed(t, toFloat(t, x[0])))))
	},
	"llvm.nvvm.prmt": func(_ *typ, x []uint64) uint64 { return permute(uint32(x[0]), uint32(x[1]), uint32(x[2])) },
}

// fusedMultiplyAdd rounds f64 once. Of f32 numbers f64 holds the product, and rounds
// the sum before f32 does, which tells in one of 2^29 sums.
func fusedMultiplyAdd(t *typ, x []uint64) uint64 {
	return fromFloat(t, math.FMA(toFloat(t, x[0]), toFloat(t, x[1]), toFloat(t, x[2])))
}

// maxNumber is the larger number: NaN is none, unless both are.
func maxNumber(x, y float64) float64 {
	if x > y || y != y {
		return x
	}
	return y
}

// flushed is an f32 with 0 for subnormal numbers.
func flushed(t *typ, x float64) uint64 {
	if math.Abs(x) < 0x1p-126 {
		x = math.Copysign(0, x)
	}
	return fromFloat(t, x)
}

func permute(a, b, selector uint32) uint64 {
	all := uint64(b)<<32 | uint64(a)
	var out uint64
	for i := range 4 {
		n := selector >> (4 * i) & 15
		byt := all >> (8 * (n & 7)) & 0xFF
		if n&8 != 0 {
			byt = -(byt >> 7) & 0xFF
		}
		out |= byt << (8 * i)
	}
	return out
}

// arguments reads what a call passes, in parentheses.
func (f *parser) arguments(c *cursor) ([]operand, error) {
	c.take("(")
	var args []operand
	for !c.take(")") {
		a, err := f.typed(c)
		if err != nil {
			return nil, err
		}
		args = append(args, a)
		c.take(",")
	}
	return args, nil
}

// call reads a call of an intrinsic.
func (f *parser) call(to operand, c *cursor) (inst, error) {
	if _, err := c.typ(); err != nil {
		return nil, err
	}
	if c.take("asm") {
		return f.assembly(to, c)
	}
	c.take("@")
	name := c.word()
	args, err := f.arguments(c)
	if err != nil {
		return nil, err
	}
	if do := warpCall(name, to, args); do != nil {
		return do, nil
	}
	of := functions[name]
	if of == nil {
		of = functions[name[:max(0, strings.LastIndex(name, "."))]]
	}
	if of == nil {
		return nil, fmt.Errorf("intrinsic %s is not known here", name)
	}
	x := make([]uint64, len(args))
	return each(to, func(w *warp, lane, i int) uint64 {
		for j := range x {
			x[j] = args[j].get(w, lane, i)
		}
		return of(to.t.scalar(), x)
	}), nil
}
