package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	for _, op := range []string{"rope_row", "rms_norm_rope", "head_rms_norm_rope"} {
		register(&Form{Name: op, Op: op, Match: matchRopeRow, Lower: lowerRopeRow, Joins: true})
	}
}

func matchRopeRow(o *ir.Op, t *target.Target) string {
	if why := matchHadamard(o, t); why != "" {
		return why // the row lies in shared memory, as hadamard's
	}
	return matchRowStages(o, t)
}

// matchRowStages is about what follows rope.
func matchRowStages(o *ir.Op, t *target.Target) string {
	switch {
	case o.DType("to") == ir.BF16:
		return ""
	case o.Bool("packed"):
		return matchPackRows(o, t)
	}
	return matchFakeQuant(o, t)
}

// lowerRopeRow: one group per row, which stays in shared memory between the steps.
// Every step rounds as its own op does.
func lowerRopeRow(l Lowering, o *ir.Op) error {
	launchRopeRow(l, o, nil)
	return nil
}

// ScattersRows reports whether scatter, whose rows are what op makes, takes them from
// op's kernel: a row that goes nowhere, as in most steps, is then not made.
func ScattersRows(op, scatter *ir.Op) bool {
	switch op.Def.Name {
	case "rope_row", "rms_norm_rope", "compress_row":
		return scatter.Def.Name == "scatter_rows" && scatter.Args[2] == op.Results[0] && op.Results[0].Type.Rank() == 2
	}
	return false
}

// launchRopeRow stores the rows, or, where scatter is not nil, those that have a place in
// its pool, there.
func launchRopeRow(l Lowering, o, scatter *ir.Op) {
	r := ropeRow{o: o, pairs: dims(o.Args[1])[1]}
	x := dims(o.Args[0])
	r.d = x[len(x)-1]
	perToken := product(x[1 : len(x)-1])
	n := product(x) / r.d
	la := Launch{
		Name: o.Def.Name, Spec: fmt.Sprintf("d%d pairs%d per%d%s", r.d, r.pairs, perToken, attrSpec(o)), Grid: n, Work: int64(n * r.d * 24),
		In: []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1]), l.Buf(o.Args[2])},
	}
	norm := o.Def.Name == "rms_norm_rope"
	if norm {
		la.In = append(la.In, l.Buf(o.Args[3]))
	}
	la.into(l, o, scatter, func(k *kernel.K, b []*kernel.Buf, y *kernel.Buf) {
		token := k.Mul(k.UDiv(k.Group(), k.Int(perToken)), k.Int(r.pairs))
		var w *kernel.Buf
		if norm {
			w = b[3]
		}
		r.store(k, b[0].At(k.Mul(k.Group(), k.Int(r.d))), b[1].At(token), b[2].At(token), w, y)
	})
	l.Launch(la)
}

// into has every group make a row of the op's result, or, where scatter is not nil, one
// that has a place in its pool, there.
func (la *Launch) into(l Lowering, o, scatter *ir.Op, row func(k *kernel.K, b []*kernel.Buf, y *kernel.Buf)) {
	width := extent(o.Results[0].Type.Dims[o.Results[0].Type.Rank()-1])
	if scatter == nil {
		la.Out = []Ref{l.Buf(o.Results[0])}
		la.Body = func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			row(k, b, b[len(b)-1].At(k.Mul(k.Group(), k.Int(width))))
		}
		return
	}
	pool := l.Buf(scatter.Results[0])
	la.Spec += " scatter"
	la.In, la.Out, la.Ints = append(la.In, l.Buf(scatter.Args[1])), []Ref{pool}, []int{dims(scatter.Args[0])[0]}
	if la.Touched == nil {
		la.Touched = map[Ref]int64{}
	}
	la.Touched[pool] = pool.DT.Bytes(la.Grid * width)
	la.Body = func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
		ok, to := inRows(k, b[len(b)-2].Load(k.Group()), ints[0])
		k.If(ok, func() { row(k, b, b[len(b)-1].At(k.Mul(to, k.Int(width)))) })
	}
}

// ropeRow is what the code of a row depends on.
type ropeRow struct {
	o        *ir.Op
	d, pairs int
}

// store makes a row of x, with the norm's weights w if it has some.
func (r *ropeRow) store(k *kernel.K, x, cos, sin, w, y *kernel.Buf) {
	o, d := r.o, r.d
	row := k.Shared(ir.F32, d)
	switch o.Def.Name {
	case "rms_norm_rope", "compress_row":
		rmsNorm(k, x, w, d, o.Float("eps"), func(i, v kernel.V) { row.Store(i, k.RoundBF16(v)) })
	case "head_rms_norm_rope":
		headRMSNorm(k, x, d, o.Float("eps"), func(i, v kernel.V) { row.Store(i, k.RoundBF16(v)) })
	default:
		k.Lanes(k.Int(d), func(i kernel.V) { row.Store(i, x.Load(i)) })
	}
	k.Barrier()
	rotatePairs(k, row, cos, sin, d, r.pairs, o.Bool("inverse"), func(i, v kernel.V) { row.Store(i, k.RoundBF16(v)) })
	k.Barrier()
	if o.Bool("hadamard") {
		butterflies(k, row, d)
		scale := k.Float(hadamardScale(d))
		k.Lanes(k.Int(d), func(i kernel.V) { row.Store(i, k.RoundBF16(k.Mul(k.RoundBF16(row.Load(i)), scale))) })
		k.Barrier()
	}
	from, to := 0, o.DType("to")
	switch {
	case o.Bool("packed"):
		format, f := packedResult(o, k.T)
		packRow(k, row, y, format, f)
		return
	case to != ir.BF16:
		f, _ := codeFormatOf(to, k.T)
		from = o.Int("dims")
		if block := o.Int("block"); k.T.GPU() && block%quantPiece == 0 {
			quantRow(k, row, y, from, block, f)
		} else {
			k.For(k.Int(0), k.Int(from), block, func(at kernel.V) { quantBlock(k, row.At(at), y.At(at), block, f) })
		}
	}
	if from < d {
		k.Lanes(k.Int(d-from), func(i kernel.V) {
			i = k.Add(i, k.Int(from))
			y.Store(i, row.Load(i))
		})
	}
}

// hadamardScale is n^-0.5 as f32.
func hadamardScale(n int) float64 { return float64(float32(math.Pow(float64(n), -0.5))) }
