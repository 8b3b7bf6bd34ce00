package kernel

import (
	"fmt"
	"strings"

	"github.com/llir/llvm/ir"
	"github.com/llir/llvm/ir/constant"
	"github.com/llir/llvm/ir/types"
	"github.com/llir/llvm/ir/value"
)

// What llir v0.3.6, which knows LLVM 14's grammar, cannot print: added through
// its exported interfaces, without touching printed text.

// bfloatType is LLVM's bfloat.
type bfloatType struct{}

var bfloat types.Type = bfloatType{}

func (bfloatType) String() string          { return "bfloat" }
func (bfloatType) LLString() string        { return "bfloat" }
func (bfloatType) Equal(u types.Type) bool { _, ok := u.(bfloatType); return ok }
func (bfloatType) Name() string            { return "" }
func (bfloatType) SetName(string)          {}

// rawConst is a constant given by its text, such as "splat (i32 7)".
type rawConst struct {
	typ  types.Type
	text string
}

func (c *rawConst) String() string   { return c.typ.String() + " " + c.text }
func (c *rawConst) Type() types.Type { return c.typ }
func (c *rawConst) Ident() string    { return c.text }
func (*rawConst) IsConstant()        {}

// splat is a vector constant with equal elements.
func splat(t *types.VectorType, c constant.Constant) constant.Constant {
	var b strings.Builder
	b.WriteByte('<')
	for i := range t.Len {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(c.String())
	}
	b.WriteByte('>')
	return &rawConst{t, b.String()}
}

// iota64 is <0, 1, 2, ...> * stride.
func iota64(n int, stride int64) constant.Constant {
	var s []string
	for i := range n {
		s = append(s, fmt.Sprintf("i64 %d", int64(i)*stride))
	}
	return &rawConst{types.NewVector(uint64(n), types.I64), "<" + strings.Join(s, ", ") + ">"}
}

func pointer(elem types.Type, as types.AddrSpace) *types.PointerType {
	return &types.PointerType{ElemType: elem, AddrSpace: as}
}

// intrinsic declares an LLVM intrinsic once per module and calls it.
func (k *K) intrinsic(name string, ret types.Type, args ...value.Value) value.Value {
	var f *ir.Func
	for _, g := range k.m.Funcs {
		if g.Name() == name {
			f = g
		}
	}
	if f == nil {
		params := make([]*ir.Param, len(args))
		for i, a := range args {
			params[i] = ir.NewParam("", a.Type())
		}
		f = k.m.NewFunc(name, ret, params...)
	}
	return k.b.NewCall(f, args...)
}

// mangle is the type suffix of an overloaded intrinsic.
func mangle(t types.Type) string {
	switch t := t.(type) {
	case *types.VectorType:
		return fmt.Sprintf("v%d%s", t.Len, mangle(t.ElemType))
	case *types.IntType:
		return fmt.Sprintf("i%d", t.BitSize)
	case *types.FloatType:
		if t.Kind == types.FloatKindDouble {
			return "f64"
		}
		return "f32"
	case *types.PointerType:
		return fmt.Sprintf("p%d", t.AddrSpace)
	}
	return "bf16"
}
