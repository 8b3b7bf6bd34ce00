package ir

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Signature is what an op is but for its place and the values of its operands: name,
// attributes, types of operands, and the values of constants, which are part of what is
// computed. mark adds what else tells operand i apart, or "".
func (op *Op) Signature(mark func(i int) string) string {
	var s strings.Builder
	s.WriteString(op.Def.Name)
	for _, a := range op.Attrs {
		fmt.Fprintf(&s, " %s=%v", a.Key, a.Val)
	}
	for i, a := range op.Args {
		fmt.Fprintf(&s, " (%s", a.Type)
		if c := a.Constant(); c != nil {
			fmt.Fprintf(&s, " = %v", c.Float("value"))
		}
		s.WriteString(mark(i) + ")")
	}
	return s.String()
}

// AppendKey appends to b what tells ops of one name, with equal attributes and operands
// of equal types, from others: for tables of what was computed of an op.
func (op *Op) AppendKey(b []byte) []byte {
	b = append(b, op.Def.Name...)
	for _, a := range op.Attrs {
		b = append(b, ' ')
		switch v := a.Val.(type) {
		case int:
			b = strconv.AppendInt(b, int64(v), 10)
		case float64:
			b = strconv.AppendUint(b, math.Float64bits(v), 16)
		case bool:
			b = strconv.AppendBool(b, v)
		case string:
			b = strconv.AppendQuote(b, v)
		case []int:
			for _, n := range v {
				b = append(strconv.AppendInt(b, int64(n), 10), ',')
			}
		case DType:
			b = append(b, byte('A'+v))
		case Dim:
			b = v.appendKey(b)
		case []Dim:
			for _, d := range v {
				b = append(d.appendKey(b), ',')
			}
		default:
			b = fmt.Appendf(b, "%T %v", v, v)
		}
	}
	for _, x := range op.Args {
		b = x.Type.appendKey(append(b, ' '))
	}
	return b
}

func (t Type) appendKey(b []byte) []byte {
	b = append(b, byte('A'+t.DType))
	for _, d := range t.Dims {
		b = append(d.appendKey(b), ',')
	}
	if q := t.Quant; q != nil {
		b = fmt.Appendf(b, "/%d,%d,%d", q.Block[0], q.Block[1], q.Scale)
	}
	return b
}

func (d Dim) appendKey(b []byte) []byte {
	if d.x != nil {
		b = append(append(b, d.x.key...), '+')
	}
	return strconv.AppendInt(b, d.n, 10)
}

// Constant is the op that makes a value, if that is const; else nil.
func (v *Value) Constant() *Op {
	if v.Kind == OpResult && v.Op.Def.Name == "const" {
		return v.Op
	}
	return nil
}
