package ir

import "fmt"

// Elementwise primitives. Operands have equal rank with equal extents or 1, or
// rank 0. Arithmetic is exact on the operands and rounded once to the result's
// dtype; min and max return NaN if an operand is NaN.

func unary(name, doc string, dts []DType) *OpDef {
	return &OpDef{
		Name: name, Group: "elementwise", Doc: doc,
		Operands: []OperandDef{{Name: "x"}}, Results: []string{"y"},
		Infer: func(o *Op) ([]Type, error) {
			return []Type{o.Args[0].Type}, o.want(0, -1, dts...)
		},
		Flops: resultSize,
	}
}

// inexact marks a primitive whose value is rounded twice, or summed in another
// order, by anything that is not the evaluator.
func inexact(d *OpDef) *OpDef {
	d.Limit = Limit{Kind: LastPlace, Bound: 0.999, Why: "computed in f64 and rounded once, but f64 itself rounds"}
	return d
}

func binary(name, doc string, dts []DType, result func(DType) DType) *OpDef {
	return &OpDef{
		Name: name, Group: "elementwise", Doc: doc,
		Operands: []OperandDef{{Name: "x"}, {Name: "y"}}, Results: []string{"z"},
		Infer: func(o *Op) ([]Type, error) {
			x, y := o.Args[0].Type, o.Args[1].Type
			if err := firstErr(o.want(0, -1, dts...), o.want(1, -1, dts...)); err != nil {
				return nil, err
			}
			if x.DType != y.DType {
				return nil, fmt.Errorf("dtypes differ: %s and %s", x, y)
			}
			dims, err := broadcastDims(x, y)
			return []Type{T(result(x.DType), dims...)}, err
		},
		Flops: resultSize,
	}
}

func resultSize(o *Op) int64 {
	n, _ := o.Results[0].Type.Size()
	return int64(n)
}

func same(d DType) DType { return d }
func toBool(DType) DType { return Bool }

func init() {
	mustRegister(
		unary("neg", "-x.", numbers),
		unary("abs", "|x|.", numbers),
		inexact(unary("exp", "e^x.", floats)),
		inexact(unary("log1p", "ln(1+x).", floats)),
		unary("sqrt", "Square root.", floats),
		inexact(unary("rsqrt", "1/sqrt(x).", floats)),
		inexact(unary("sigmoid", "1/(1+e^-x).", floats)),
		inexact(unary("cos", "Cosine of x radians.", floats)),
		inexact(unary("sin", "Sine of x radians.", floats)),
		unary("not", "Logical negation.", []DType{Bool}),
		binary("add", "x + y.", numbers, same),
		binary("sub", "x - y.", numbers, same),
		binary("mul", "x * y.", numbers, same),
		binary("div", "x / y; the floor of the quotient for integers, where y = 0 is an error.", numbers, same),
		binary("mod", "x - y*floor(x/y): the sign of y; y = 0 is an error.", ints, same),
		binary("min", "The smaller; NaN if either is NaN.", numbers, same),
		binary("max", "The larger; NaN if either is NaN.", numbers, same),
		binary("and", "Logical and.", []DType{Bool}, same),
		binary("or", "Logical or.", []DType{Bool}, same),
		binary("eq", "x = y.", numbers, toBool),
		binary("ne", "x != y.", numbers, toBool),
		binary("lt", "x < y.", numbers, toBool),
		binary("le", "x <= y.", numbers, toBool),
		binary("gt", "x > y.", numbers, toBool),
		binary("ge", "x >= y.", numbers, toBool),
		&OpDef{
			Name: "select", Group: "elementwise", Doc: "x where cond, else y; the value not chosen has no effect, NaN included.",
			Operands: []OperandDef{{Name: "cond"}, {Name: "x"}, {Name: "y"}}, Results: []string{"z"},
			Infer: func(o *Op) ([]Type, error) {
				c, x, y := o.Args[0].Type, o.Args[1].Type, o.Args[2].Type
				arith := append([]DType{Bool}, numbers...)
				if err := firstErr(o.want(0, -1, Bool), o.want(1, -1, arith...), o.want(2, -1, arith...)); err != nil {
					return nil, err
				}
				if x.DType != y.DType {
					return nil, fmt.Errorf("dtypes differ: %s and %s", x, y)
				}
				dims, err := broadcastDims(c, x, y)
				return []Type{T(x.DType, dims...)}, err
			},
		},
		&OpDef{
			Name: "cast", Group: "elementwise",
			Doc:      "Rounds to another dtype: floats to nearest even (8- and 4-bit formats saturate), e8m0 up to the next power of two, floats to integers toward zero (out of range is an error), integers exactly or an error, bool as 0 and 1.",
			Operands: []OperandDef{{Name: "x"}}, Results: []string{"y"},
			Attrs: []AttrDef{{Name: "to", Kind: AttrDType, Doc: "result dtype"}},
			Infer: func(o *Op) ([]Type, error) {
				to := o.DType("to")
				if to == Bool {
					return nil, fmt.Errorf("cast to bool: compare with ne instead")
				}
				return []Type{o.Args[0].Type.As(to)}, o.want(0, -1, everyDType...)
			},
		},
	)
}
