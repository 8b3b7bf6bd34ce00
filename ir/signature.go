package ir

import (
	"fmt"
	"math"
	"strconv"
)

// AppendSignature appends what an op is but for its place and the values of its operands:
// name, attributes, types of operands, and the values of constants, which are part of what
// is computed. mark, if not nil, adds what else tells operand i apart, or "".
func (op *Op) AppendSignature(b []byte, mark func(i int) string) []byte {
	b = append(b, op.Def.Name...)
	for _, a := range op.Attrs {
		b = append(append(append(b, ' '), a.Key...), '=')
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
	for i, x := range op.Args {
		b = x.Type.appendKey(append(b, ' '))
		if c := x.Constant(); c != nil {
			b = strconv.AppendUint(append(b, '='), math.Float64bits(c.Float("value")), 16)
		}
		if mark != nil {
			b = append(b, mark(i)...)
		}
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
