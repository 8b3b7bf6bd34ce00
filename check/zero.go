package check

import (
	"math"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// keepsCodes are ops whose results are the numbers of their operands.
var keepsCodes = map[string]bool{
	"quantize": true, "dequantize": true, "pack_rows": true, "unpack_rows": true, "gather_rows": true,
	"cast": true, "reshape": true, "concat": true, "slice": true,
}

// ofCodes are the results of an op that are numbers of 8-bit codes, found from the
// decomposition. Kernels of chips whose 8-bit floats are e4m3fnuz, which has no -0,
// give 0 there (the op table, fake_quant).
func ofCodes(o *ir.Op, g *ir.Graph) ([]bool, error) {
	e, err := ir.Expand(g)
	if err != nil {
		return nil, err
	}
	made := map[*ir.Value]bool{}
	for _, op := range e.Ops {
		codes := op.Def.Name == "quantize" && op.DType("to") == ir.F8E4M3 || op.Def.Name == "pack_rows"
		for _, a := range op.Args {
			codes = codes || made[a] && keepsCodes[op.Def.Name]
		}
		for _, r := range op.Results {
			made[r] = codes
		}
	}
	list := make([]bool, len(o.Results))
	for i := range e.Outputs {
		list[i] = made[e.Outputs[i].Value]
	}
	return list, nil
}

// withoutMinusZero is want with 0 where it has -0 and got has 0.
func withoutMinusZero(want, got *eval.Tensor) *eval.Tensor {
	if got == nil || len(want.F) != len(got.F) {
		return want
	}
	out := want
	for i, x := range want.F {
		if x == 0 && math.Signbit(float64(x)) && math.Float32bits(got.F[i]) == 0 {
			if out == want {
				out = want.Clone()
			}
			out.F[i] = 0
		}
	}
	return out
}
