package warpsim

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// kind is a kind of LLVM type.
type kind byte

const (
	integer kind = iota
	float
	pointer
	vector
	array
	void
	tuple // a struct whose fields are alike
)

// typ is an LLVM type.
type typ struct {
	kind kind
	bits int // of an integer or float; bfloat is the float of 16
	n    int // elements of a vector, array or tuple
	elem *typ
	as   int // address space of a pointer
}

// lanes is the number of scalars of a value.
func (t *typ) lanes() int {
	if t.kind == vector || t.kind == tuple {
		return t.n
	}
	return 1
}

// scalar is the type of one of them.
func (t *typ) scalar() *typ {
	if t.kind == vector || t.kind == tuple {
		return t.elem
	}
	return t
}

// size is the number of bytes in memory.
func (t *typ) size() int {
	switch t.kind {
	case vector, array, tuple:
		return t.n * t.elem.size()
	case pointer:
		return 8
	}
	return (t.bits + 7) / 8
}

// cursor reads a line of IR.
type cursor struct {
	s string
}

func (c *cursor) space() { c.s = strings.TrimLeft(c.s, " \t") }

// take skips a prefix and reports whether it was there.
func (c *cursor) take(prefix string) bool {
	c.space()
	if !strings.HasPrefix(c.s, prefix) {
		return false
	}
	c.s = c.s[len(prefix):]
	return true
}

// word is the text up to a space, comma or bracket.
func (c *cursor) word() string {
	c.space()
	n := strings.IndexAny(c.s, " \t,()[]{}<>*")
	if n < 0 {
		n = len(c.s)
	}
	w := c.s[:n]
	c.s = c.s[n:]
	return w
}

func (c *cursor) typ() (*typ, error) {
	c.space()
	t := &typ{}
	switch {
	case c.take("<"), c.take("["):
		n, err := strconv.Atoi(c.word())
		if err != nil || !c.take("x") {
			return nil, fmt.Errorf("type at %q", c.s)
		}
		e, err := c.typ()
		if err != nil {
			return nil, err
		}
		t.kind, t.n, t.elem = vector, n, e
		if !c.take(">") {
			if t.kind = array; !c.take("]") {
				return nil, fmt.Errorf("type at %q", c.s)
			}
		}
	case c.take("{"):
		t.kind = tuple
		for !c.take("}") {
			e, err := c.typ()
			if err != nil {
				return nil, err
			}
			if t.elem != nil && *e != *t.elem {
				return nil, fmt.Errorf("a struct of fields that differ, at %q", c.s)
			}
			t.n, t.elem = t.n+1, e
			c.take(",")
		}
	default:
		w := c.word()
		switch {
		case w == "void":
			t.kind = void
		case w == "float":
			t.kind, t.bits = float, 32
		case w == "double":
			t.kind, t.bits = float, 64
		case w == "bfloat":
			t.kind, t.bits = float, 16
		case strings.HasPrefix(w, "i"):
			n, err := strconv.Atoi(w[1:])
			if err != nil || n < 1 || n > 64 {
				return nil, fmt.Errorf("unknown type %q", w)
			}
			t.bits = n
		default:
			return nil, fmt.Errorf("unknown type %q", w)
		}
	}
	for {
		as := 0
		if c.take("addrspace(") {
			n, err := strconv.Atoi(c.word())
			if err != nil || !c.take(")") {
				return nil, fmt.Errorf("address space at %q", c.s)
			}
			as = n
		}
		if !c.take("*") {
			return t, nil
		}
		t = &typ{kind: pointer, elem: t, as: as, bits: 64}
	}
}

// constant reads a constant of type t, as the bits of its scalars; ok is false if
// there is the name of a value.
func (c *cursor) constant(t *typ) (bits []uint64, ok bool, err error) {
	c.space()
	switch {
	case strings.HasPrefix(c.s, "%"), strings.HasPrefix(c.s, "@"):
		return nil, false, nil
	case c.take("zeroinitializer"), c.take("poison"):
		return make([]uint64, t.lanes()), true, nil
	case t.kind == vector && c.take("<"):
		for !c.take(">") {
			e, err := c.typ()
			if err != nil {
				return nil, false, err
			}
			b, _, err := c.constant(e)
			if err != nil {
				return nil, false, err
			}
			bits = append(bits, b...)
			c.take(",")
		}
		return bits, true, nil
	}
	w := c.word()
	b, err := scalarConstant(t, w)
	return []uint64{b}, true, err
}

func scalarConstant(t *typ, w string) (uint64, error) {
	switch {
	case t.kind == float:
		x, err := strconv.ParseFloat(w, 64)
		if hex, is := strings.CutPrefix(w, "0x"); is {
			var b uint64
			b, err = strconv.ParseUint(hex, 16, 64)
			x = math.Float64frombits(b)
		}
		if err != nil {
			return 0, fmt.Errorf("constant %q: %w", w, err)
		}
		return fromFloat(t, x), nil
	case w == "true":
		return 1, nil
	case w == "false":
		return 0, nil
	case strings.HasPrefix(w, "u0x"):
		b, err := strconv.ParseUint(w[3:], 16, 64)
		return mask(b, t.bits), err
	}
	n, err := strconv.ParseInt(w, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("constant %q: %w", w, err)
	}
	return mask(uint64(n), t.bits), nil
}

func mask(x uint64, bits int) uint64 {
	if bits >= 64 {
		return x
	}
	return x & (1<<bits - 1)
}

func signed(x uint64, bits int) int64 { return int64(x<<(64-bits)) >> (64 - bits) }

// toFloat is the number that bits of a float type mean.
func toFloat(t *typ, b uint64) float64 {
	switch t.bits {
	case 16:
		return float64(math.Float32frombits(uint32(b) << 16))
	case 32:
		return float64(math.Float32frombits(uint32(b)))
	}
	return math.Float64frombits(b)
}

// fromFloat rounds to nearest even. To bf16 it rounds what f32 holds: no caller has
// more.
func fromFloat(t *typ, x float64) uint64 {
	switch t.bits {
	case 16:
		b := math.Float32bits(float32(x))
		if x != x {
			return uint64(b>>16 | 0x40)
		}
		return uint64((b + 0x7FFF + b>>16&1) >> 16)
	case 32:
		return uint64(math.Float32bits(float32(x)))
	}
	return math.Float64bits(x)
}
