package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// Elementwise expressions over one run of elements, a few next to each other in each
// lane of a GPU: one instruction loads or stores them, and the lane's place is
// computed once.

// vectorRun is how many, 16 bytes of the widest format.
const vectorRun = 4

// inVectors are the formats of which a lane takes vectorRun elements as words.
var inVectors = map[ir.DType]bool{ir.F32: true, ir.BF16: true, ir.I32: true}

// lengthy are the ops that take so many instructions that loads do not count, and whose code
// should not be there for each element.
var lengthy = map[string]bool{"exp": true, "log1p": true, "rsqrt": true, "sigmoid": true, "cos": true, "sin": true}

// vectors reports whether a walk's lanes take vectors of the result and of the operands
// that are not the same for all.
func (t *terms) vectors(w walk, e *term, result ir.DType) bool {
	if !t.l.Target().GPU() || w.mode != run || w.inner%vectorRun != 0 || !inVectors[result] || e.lengthy() {
		return false
	}
	for i, v := range t.leaves {
		if !w.fixed(i) && (!w.same[i] || !inVectors[v.Type.DType]) {
			return false
		}
	}
	return true
}

func (t *term) lengthy() bool {
	if t.op != nil && lengthy[t.op.Def.Name] {
		return true
	}
	for _, a := range t.args {
		if a.lengthy() {
			return true
		}
	}
	return false
}

// evalRun computes the expression for vectorRun elements from at on: of operands that are
// fixed it has the values.
func (t *term) evalRun(k *kernel.K, b []*kernel.Buf, at kernel.V, values []kernel.V, fixed func(leaf int) bool) {
	loaded := make([][]kernel.V, len(values))
	for i := range values {
		if !fixed(i) {
			loaded[i] = loadRun(k, b[i], at)
		}
	}
	out := make([]kernel.V, vectorRun)
	for j := range out {
		out[j] = t.eval(k, func(leaf int) kernel.V {
			if fixed(leaf) {
				return values[leaf]
			}
			return loaded[leaf][j]
		})
	}
	storeRun(k, b[len(b)-1], at, out)
}

// loadRun are the values of vectorRun elements, from i on.
func loadRun(k *kernel.K, b *kernel.Buf, i kernel.V) []kernel.V {
	x := b.LoadVec(i, vectorRun)
	var out []kernel.V
	for j := range x.Len() {
		switch v := k.At(x, j); b.Format() {
		case ir.BF16:
			pair := k.UnpackBF16(v)
			out = append(out, pair[:]...)
		case ir.F32:
			out = append(out, k.Bits(v))
		default:
			out = append(out, v)
		}
	}
	return out
}

// storeRun rounds and stores as many values.
func storeRun(k *kernel.K, b *kernel.Buf, i kernel.V, x []kernel.V) {
	b.StoreVec(i, packedAs(k, k.MakeVec(x...), b.Format()))
}
