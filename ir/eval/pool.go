package eval

import (
	"maps"
	"slices"

	"github.com/kiln-project/kiln/ir"
)

// bufferPool reuses the storage of dead values inside one program.
type bufferPool struct {
	f map[int][][]float32
	i map[int][][]int64
}

// get makes a tensor for v. Reused storage holds old numbers: every kernel
// writes all of its results.
func (b *bufferPool) get(v *ir.Value) *Tensor {
	t := &Tensor{DType: v.Type.DType, Shape: shapeOf(v), Quant: v.Type.Quant}
	n := t.Len()
	switch storageOf(t.DType) {
	case storeF:
		if free := b.f[n]; len(free) > 0 {
			t.F, b.f[n] = free[len(free)-1], free[:len(free)-1]
		} else {
			t.F = make([]float32, n)
		}
	case storeI:
		if free := b.i[n]; len(free) > 0 {
			t.I, b.i[n] = free[len(free)-1], free[:len(free)-1]
		} else {
			t.I = make([]int64, n)
		}
	default:
		t.Codes = make([]byte, codeBytes(t.DType, n))
		if t.Quant != nil {
			t.Scales = make([]byte, scaleCount(t.Shape, t.Quant))
		}
	}
	return t
}

func (b *bufferPool) put(t *Tensor) {
	if b.f == nil {
		b.f, b.i = map[int][][]float32{}, map[int][][]int64{}
	}
	if t.F != nil {
		b.f[len(t.F)] = append(b.f[len(t.F)], t.F)
	}
	if t.I != nil {
		b.i[len(t.I)] = append(b.i[len(t.I)], t.I)
	}
}

func sortedKeys(m map[string]*Tensor) []string { return slices.Sorted(maps.Keys(m)) }

func declares(list []*ir.Value, name string) bool {
	return slices.ContainsFunc(list, func(v *ir.Value) bool { return v.Name == name })
}
