package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/weights"
)

// CheckpointSource serves a graph's weights from a checkpoint. Graph names lack
// ".weight"; a block-scaled weight also reads the tensor ".scale" beside it; a
// "*" stacks the tensors numbered 0..n-1. Codes of unstacked weights are the
// mapped file itself.
type CheckpointSource struct{ File *weights.Checkpoint }

// storedAs lists the checkpoint dtypes that hold an IR dtype, in the same bytes.
var storedAs = map[ir.DType]weights.DType{
	ir.F32: weights.F32, ir.BF16: weights.BF16, ir.F16: weights.F16,
	ir.F8E4M3: weights.F8E4M3, ir.E8M0: weights.F8E8M0, ir.F4E2M1: weights.I8,
	ir.I64: weights.I64, ir.I32: weights.I32, ir.I8: weights.I8, ir.U8: weights.U8, ir.Bool: weights.Bool,
}

// Weight implements eval.WeightSource.
func (s CheckpointSource) Weight(name string, t ir.Type) (*eval.Tensor, error) {
	w, err := s.Stored(name, t)
	if err != nil {
		return nil, err
	}
	return w.Rows(0, w.rows())
}

// Stored implements StoredSource.
func (s CheckpointSource) Stored(name string, t ir.Type) (*Stored, error) {
	shape := make([]int, t.Rank())
	for i, d := range t.Dims {
		shape[i], _ = d.Const() // weights have integer extents
	}
	w := &Stored{Type: t}
	if !strings.Contains(name, "*") {
		if err := s.add(w, name, shape); err != nil {
			return nil, err
		}
		return w, nil
	}
	for i := range shape[0] {
		if err := s.add(w, strings.Replace(name, "*", fmt.Sprint(i), 1), shape[1:]); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// Ahead implements StoredSource.
func (s CheckpointSource) Ahead(b []byte) { s.File.Ahead(b) }

// Behind implements StoredSource.
func (s CheckpointSource) Behind(b []byte) { s.File.Behind(b) }

// add finds a tensor, with its scales, as what follows in w.
func (s CheckpointSource) add(w *Stored, name string, shape []int) error {
	if !s.File.Has(name) {
		full := name + ".weight"
		if !s.File.Has(full) {
			_, err := s.File.Lookup(name)
			return fmt.Errorf("%w (and no %q)", err, full)
		}
		name = full
	}
	raw, err := s.lookup(name, w.Type.DType, shape)
	if err != nil {
		return err
	}
	if w.Type.DType == ir.Bool { // the one format in which not every byte means something
		if _, err := raw.Int64s(); err != nil {
			return err
		}
	}
	w.Parts[0] = append(w.Parts[0], s.run(raw))
	if w.Type.Quant == nil {
		return nil
	}
	scaleShape := slices.Clone(shape)
	for i, b := range w.Type.Quant.Block {
		axis := len(shape) - 2 + i
		scaleShape[axis] = (shape[axis] + b - 1) / b
	}
	scale, err := s.lookup(strings.TrimSuffix(name, ".weight")+".scale", w.Type.Quant.Scale, scaleShape)
	if err != nil {
		return err
	}
	w.Parts[1] = append(w.Parts[1], s.run(scale))
	return nil
}

func (s CheckpointSource) run(t *weights.Tensor) Run {
	at, _ := s.File.Position(t.Data)
	return Run{t.Data, at}
}

// lookup finds a tensor and checks it against what the graph expects.
func (s CheckpointSource) lookup(name string, dt ir.DType, shape []int) (*weights.Tensor, error) {
	raw, err := s.File.Lookup(name)
	if err != nil {
		return nil, err
	}
	want, ok := storedAs[dt]
	if !ok {
		return nil, fmt.Errorf("%s: tensor %s: %s is not a checkpoint format", raw.File, name, dt)
	}
	stored := slices.Clone(shape)
	if dt == ir.F4E2M1 { // two codes a byte
		stored[len(stored)-1] /= 2
	}
	if raw.DType != want || !slices.Equal(raw.Shape, stored) {
		return nil, fmt.Errorf("%s: tensor %s is %s %v, the model wants %s %v", raw.File, name, raw.DType, raw.Shape, want, stored)
	}
	return raw, nil
}
