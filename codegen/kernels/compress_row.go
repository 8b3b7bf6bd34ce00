package kernels

import (
	"fmt"
	mathbits "math/bits"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(&Form{Name: "compress_row", Op: "compress_row", Match: matchCompressRow, Lower: lowerCompressRow, Joins: true})
}

// matchCompressRow: what is compressed lies beside the row in shared memory.
func matchCompressRow(o *ir.Op, t *target.Target) string {
	d := extent(o.Args[3].Type.Dims[0])
	if 8*d > maxShared {
		return fmt.Sprintf("%d elements do not fit shared memory", d)
	}
	return matchRowStages(o, t)
}

func lowerCompressRow(l Lowering, o *ir.Op) error {
	launchCompressRow(l, o, nil)
	return nil
}

// launchCompressRow: one group per entry, which goes to the result, or, where scatter is
// not nil, to its place in a pool, if it has one: else nothing of it is read.
func launchCompressRow(l Lowering, o, scatter *ir.Op) {
	w, es, d := dims(o.Args[0])[1], dims(o.Args[7]), extent(o.Args[3].Type.Dims[0])
	e, s, overlap := es[0], es[1], o.Bool("overlap")
	r := ropeRow{o: o, d: d, pairs: dims(o.Args[1])[1]}
	la := Launch{Name: "compress_row", Spec: fmt.Sprintf("w%d d%d s%d pairs%d%s", w, d, s, r.pairs, attrSpec(o)), Grid: e, Work: int64(e * (s*16 + 24) * d)}
	for _, i := range []int{0, 4, 5, 6, 7, 8, 1, 2, 3} { // those of compress first
		la.In = append(la.In, l.Buf(o.Args[i]))
	}
	la.Touched = map[Ref]int64{la.In[0]: int64(e * s * d * 4), la.In[1]: int64(e * s * d * 4)}
	la.into(l, o, scatter, func(k *kernel.K, b []*kernel.Buf, y *kernel.Buf) {
		v := k.Shared(ir.F32, d)
		keep := func(i, x kernel.V) { v.Store(i, k.RoundBF16(x)) }
		lanes := d / compressRun
		if k.T.GPU() && compressLanes(w, d) > 0 && mathbits.OnesCount(uint(lanes)) == 1 && lanes <= k.T.Lanes {
			newCompressGroup(k, b, w, d, s, lanes, overlap, k.Group(), k.Int(0)).run(keep)
		} else {
			compressChannels(k, b, w, d, s, overlap, keep)
		}
		k.Barrier()
		token := k.Mul(k.Group(), k.Int(r.pairs))
		r.store(k, v, b[6].At(token), b[7].At(token), b[8], y)
	})
	l.Launch(la)
}
