package golden

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/weights"
)

// file is one file of golden tensors. It remembers which were read, so that a
// golden tensor that no check looks at cannot go unnoticed.
type file struct {
	*weights.Checkpoint
	read map[string]bool
}

func openFile(path string) (*file, error) {
	c, err := weights.Open(path)
	if err != nil {
		return nil, err
	}
	return &file{c, map[string]bool{}}, nil
}

func (f *file) lookup(name string) (*weights.Tensor, error) {
	t, err := f.Lookup(name)
	if err == nil {
		f.read[name] = true
	}
	return t, err
}

func (f *file) unread() []string {
	var names []string
	for _, n := range f.Names() {
		if !f.read[n] {
			names = append(names, n)
		}
	}
	return names
}

func (f *file) floats(name string) ([]float32, error) {
	t, err := f.lookup(name)
	if err != nil {
		return nil, err
	}
	return t.Float32s()
}

// i32s reads token ids, indices or positions.
func (f *file) i32s(name string) ([]int32, error) {
	t, err := f.lookup(name)
	if err != nil {
		return nil, err
	}
	if t.DType != weights.I32 {
		return nil, fmt.Errorf("%s: tensor %s is %s, want I32", t.File, name, t.DType)
	}
	wide, err := t.Int64s()
	if err != nil {
		return nil, err
	}
	out := make([]int32, len(wide))
	for i, v := range wide {
		out[i] = int32(v)
	}
	return out, nil
}

// heldBy lists the stored types whose every value an IR type holds.
var heldBy = map[ir.DType][]weights.DType{
	ir.F32:    {weights.F32, weights.BF16},
	ir.BF16:   {weights.BF16},
	ir.I32:    {weights.I32},
	ir.F8E4M3: {weights.F8E4M3},
	ir.F4E2M1: {weights.I8}, // two codes a byte
}

// tensor reads a golden tensor as dt in another shape of the same size.
func (f *file) tensor(name string, dt ir.DType, shape ...int) (*eval.Tensor, error) {
	t, err := f.lookup(name)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(heldBy[dt], t.DType) {
		return nil, fmt.Errorf("%s: tensor %s is %s, which does not fit %s", t.File, name, t.DType, dt)
	}
	out := &eval.Tensor{DType: dt, Shape: shape}
	switch {
	case dt.IsFloat():
		out.F, err = t.Float32s()
	case dt.IsInt():
		out.I, err = t.Int64s()
	default:
		out.Codes = t.Data
	}
	if err == nil {
		err = out.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %s: %w", t.File, name, err)
	}
	return out, nil
}

// scaled reads codes [n,k] and their block scales.
func (f *file) scaled(name, scales string, typ ir.Type) (*eval.Tensor, error) {
	t, err := f.tensor(name, typ.DType, constShape(typ)...)
	if err != nil {
		return nil, err
	}
	s, err := f.lookup(scales)
	if err != nil {
		return nil, err
	}
	if s.DType != weights.F8E8M0 {
		return nil, fmt.Errorf("%s: tensor %s is %s, want %s", s.File, scales, s.DType, weights.F8E8M0)
	}
	t.Quant, t.Scales = typ.Quant, s.Data
	if err := t.Check(); err != nil {
		return nil, fmt.Errorf("%s: tensor %s: %w", s.File, scales, err)
	}
	return t, nil
}

// constShape is the shape of a type whose extents are integers.
func constShape(t ir.Type) []int {
	shape := make([]int, t.Rank())
	for i, d := range t.Dims {
		shape[i], _ = d.Const()
	}
	return shape
}
