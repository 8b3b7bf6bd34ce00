package emu

import "strings"

// maskLoop compares the lanes of two operands and returns a bit per lane. Operands of
// one word have the low one only.
type maskLoop func(a0, a1, b0, b1 *Vec) uint64

// compareRow is a relation of a type, of the generated table.
type compareRow struct {
	of elem
	do maskLoop
}

// constantRelations ignore their operands; tru is the name of t for floats.
var constantRelations = map[string]uint64{"f": 0, "t": ^uint64(0), "tru": ^uint64(0)}

func init() {
	rows := map[string]compile{}
	add := func(name string, f func(exec bool) compile) {
		rows["v_cmp_"+name], rows["v_cmpx_"+name] = f(false), f(true)
	}
	for name, r := range compareRows {
		add(name, func(x bool) compile { return vcmp([2]elem{r.of, r.of}, r.do, x) })
		_, of, _ := strings.Cut(name, "_")
		for relation, mask := range constantRelations {
			if relation == "t" && of[0] == 'f' || relation == "tru" && of[0] != 'f' || rows["v_cmp_"+relation+"_"+of] != nil {
				continue
			}
			constant := func(*Vec, *Vec, *Vec, *Vec) uint64 { return mask }
			add(relation+"_"+of, func(x bool) compile { return vcmp([2]elem{r.of, r.of}, constant, x) })
		}
	}
	for of, do := range classLoops {
		add("class_"+map[elem]string{f16: "f16", f32: "f32", f64: "f64"}[of], func(x bool) compile { return vcmp([2]elem{of, b32}, do, x) })
	}
	define(rows)
}

// vcmp writes a mask to a pair of scalar registers; v_cmpx writes it to EXEC too. The
// bits of lanes that are switched off are zero.
func vcmp(types [2]elem, do maskLoop, writesExec bool) compile {
	return func(c *compiler) step {
		d := c.scalarDest(0, 2)
		if writesExec {
			c.writes(regEXEC)
		}
		a, b := c.vectorSource(1, 0, types[0]), c.vectorSource(2, 1, types[1])
		switch c.in.Enc {
		case EncSDWA:
			a.part, b.part = c.sdwaSource(1, 0), c.sdwaSource(2, 1)
			c.readsPart(1, a.part)
			c.readsPart(2, b.part)
			if types[0].words() != 1 {
				c.fail("this encoding of %s is not supported", c.in.Op)
			}
		default:
			c.encodings(EncE32, EncE64)
		}
		if types[0].words() == 1 {
			return func(w *wave) {
				x, y := a.word(w, 0, 0), b.word(w, 0, 2)
				m := do(x, x, y, y) & w.exec()
				w.setS64(d, m)
				if writesExec {
					w.setExec(m)
				}
			}
		}
		return func(w *wave) {
			x, y := a.words(w, 0), b.words(w, 1)
			m := do(x[0], x[1], y[0], y[1]) & w.exec()
			w.setS64(d, m)
			if writesExec {
				w.setExec(m)
			}
		}
	}
}

// The classes of v_cmp_class, as bits of its second source.
const (
	classSignalingNaN = 1 << iota
	classQuietNaN
	classNegInf
	classNegNormal
	classNegDenormal
	classNegZero
	classPosZero
	classPosDenormal
	classPosNormal
	classPosInf
)

var classLoops = map[elem]maskLoop{
	f32: func(a, _, b, _ *Vec) (m uint64) {
		for i := range a {
			m = m>>1 | uint64(b2u(floatClass(uint64(a[i])<<32, 8)&b[i] != 0))<<63
		}
		return m
	},
	f16: func(a, _, b, _ *Vec) (m uint64) {
		for i := range a {
			m = m>>1 | uint64(b2u(floatClass(uint64(a[i])<<48, 5)&b[i] != 0))<<63
		}
		return m
	},
	f64: func(a0, a1, b, _ *Vec) (m uint64) {
		for i := range a0 {
			m = m>>1 | uint64(b2u(floatClass(uint64(a0[i])|uint64(a1[i])<<32, 11)&b[i] != 0))<<63
		}
		return m
	},
}

// floatClass classifies a float of so many exponent bits, which is at the upper end of x.
func floatClass(x uint64, exponentBits uint) uint32 {
	mantissa := x << 1 << exponentBits
	exponent := x << 1 >> (64 - exponentBits)
	negative := x>>63 != 0
	pick := func(neg, pos uint32) uint32 {
		if negative {
			return neg
		}
		return pos
	}
	switch {
	case exponent == 1<<exponentBits-1 && mantissa>>63 != 0:
		return classQuietNaN
	case exponent == 1<<exponentBits-1 && mantissa != 0:
		return classSignalingNaN
	case exponent == 1<<exponentBits-1:
		return pick(classNegInf, classPosInf)
	case exponent != 0:
		return pick(classNegNormal, classPosNormal)
	case mantissa != 0:
		return pick(classNegDenormal, classPosDenormal)
	}
	return pick(classNegZero, classPosZero)
}
