package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(
		&Form{Name: "swiglu", Op: "swiglu", Match: always, Lower: lowerSwiGLU},
		&Form{Name: "expert_mfma", Op: "expert", Match: onMFMA(matchMatrixExpert), Lower: lowerMatrixExpert},
		&Form{Name: "expert_mma", Op: "expert", Match: onMMA(matchMatrixExpert), Lower: lowerMatrixExpert},
		&Form{Name: "expert", Op: "expert", Match: matchExpert, Lower: lowerExpert},
		&Form{Name: "moe_experts_mfma", Op: "moe_experts", Match: onMFMA(matchMatrixExpert), Lower: lowerMatrixMoE},
		&Form{Name: "moe_experts_mma", Op: "moe_experts", Match: onMMA(matchMatrixExpert), Lower: lowerMatrixMoE},
		&Form{Name: "moe_experts", Op: "moe_experts", Match: matchExpert, Lower: lowerMoE},
		&Form{Name: "moe_experts_add_mfma", Op: "moe_experts_add", Match: onMFMA(matchMatrixExpert), Lower: lowerMatrixMoE},
		&Form{Name: "moe_experts_add_mma", Op: "moe_experts_add", Match: onMMA(matchMatrixExpert), Lower: lowerMatrixMoE},
		&Form{Name: "moe_experts_add", Op: "moe_experts_add", Match: matchExpert, Lower: lowerMoE},
	)
}

func lowerSwiGLU(l Lowering, o *ir.Op) error {
	shape := dims(o.Args[0])
	inner := shape[len(shape)-1]
	swiglu(l, l.Buf(o.Args[0]), l.Buf(o.Args[1]), l.Buf(o.Args[2]), l.Buf(o.Results[0]), product(shape)/inner, inner, o.Float("limit"))
	return nil
}

// swiglu: one group per row; weight has one element per row.
func swiglu(l Lowering, g, u, weight, y Ref, rows, inner int, limit float64) {
	l.Launch(Launch{
		Name: "swiglu", Spec: fmt.Sprintf("i%d limit%g", inner, limit), Grid: rows, Work: int64(rows * inner * 16),
		In: []Ref{g, u, weight}, Out: []Ref{y},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			at := k.Mul(k.Group(), k.Int(inner))
			g, u, y := b[0].At(at), b[1].At(at), b[3].At(at)
			w := b[2].Load(k.Group())
			k.Lanes(k.Int(inner), func(i kernel.V) { y.Store(i, swigluOf(k, g.Load(i), u.Load(i), w, limit)) })
		},
	})
}

// swigluOf is weight * silu(g) * u with both clamped, limit 0 for not.
func swigluOf(k *kernel.K, g, u, weight kernel.V, limit float64) kernel.V {
	if limit > 0 {
		lim := k.Float(limit)
		g = k.MinNaN(g, lim)
		u = k.MinNaN(k.MaxNaN(u, k.Neg(lim)), lim)
	}
	return k.Mul(weight, k.Mul(k.Mul(g, k.Sigmoid(g)), u))
}

// matchExpert takes both experts' ops: w1 and w3 are multiplied side by side.
func matchExpert(o *ir.Op, _ *target.Target) string {
	if w1, w3 := o.Args[1].Type, o.Args[2].Type; w1.Quant.Block != w3.Quant.Block {
		return fmt.Sprintf("w1 and w3, %s and %s, have different blocks", w1, w3)
	}
	return wholeBlocks(o.Args[1:4])
}

// wholeBlocks refuses weights whose blocks end inside a vector.
func wholeBlocks(ws []*ir.Value) string {
	for _, w := range ws {
		k := extent(w.Type.Dims[w.Type.Rank()-1])
		if b := w.Type.Quant.Block[1]; k%b != 0 || b%32 != 0 || k%expertActBlock != 0 {
			return fmt.Sprintf("blocks of %s do not divide its last axis into whole vectors", w.Type)
		}
	}
	return ""
}

// expertActBlock is the activation block between the experts' products.
const expertActBlock = 128

func lowerExpert(l Lowering, o *ir.Op) error {
	x, w1 := dims(o.Args[0]), dims(o.Args[1])
	t, d, inner := x[0], x[1], w1[0]
	xq := activations(l, o, t*d)
	product := func(x Ref, w *ir.Value, y Ref, n, k int) matProduct {
		return matProduct{x: x, w: l.Buf(w), scales: l.Scales(w), block: w.Type.Quant.Block, y: y, m: t, n: n, k: k}
	}
	a, aq := l.Scratch(ir.BF16, t*inner), l.Scratch(ir.F32, t*inner)
	gate := product(xq, o.Args[1], a, inner, d)
	gate.up = &upProduct{w: l.Buf(o.Args[2]), scales: l.Scales(o.Args[2]), weight: l.Buf(o.Args[4]), limit: o.Float("limit")}
	matmul(l, gate)
	actQuant(l, a, aq, t*inner, expertActBlock)
	matmul(l, product(aq, o.Args[3], l.Buf(o.Results[0]), d, inner))
	return nil
}
