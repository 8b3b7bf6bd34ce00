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

// storedAs lists the checkpoint dtypes that hold an IR dtype.
var storedAs = map[ir.DType]weights.DType{
	ir.F32: weights.F32, ir.BF16: weights.BF16, ir.F16: weights.F16,
	ir.F8E4M3: weights.F8E4M3, ir.E8M0: weights.F8E8M0, ir.F4E2M1: weights.I8,
	ir.I64: weights.I64, ir.I32: weights.I32, ir.I8: weights.I8, ir.U8: weights.U8, ir.Bool: weights.Bool,
}

// Weight implements eval.WeightSource.
func (s CheckpointSource) Weight(name string, t ir.Type) (*eval.Tensor, error) {
	shape := make([]int, t.Rank())
	for i, d := range t.Dims {
		shape[i], _ = d.Const() // weights have integer extents
	}
	if !strings.Contains(name, "*") {
		return s.one(name, t, shape)
	}
	out := &eval.Tensor{DType: t.DType, Shape: shape, Quant: t.Quant}
	for i := range shape[0] {
		part, err := s.one(strings.Replace(name, "*", fmt.Sprint(i), 1), t, shape[1:])
		if err != nil {
			return nil, err
		}
		out.F, out.I = append(out.F, part.F...), append(out.I, part.I...)
		out.Codes, out.Scales = append(out.Codes, part.Codes...), append(out.Scales, part.Scales...)
	}
	return out, nil
}

func (s CheckpointSource) one(name string, t ir.Type, shape []int) (*eval.Tensor, error) {
	if !s.File.Has(name) {
		full := name + ".weight"
		if !s.File.Has(full) {
			_, err := s.File.Lookup(name)
			return nil, fmt.Errorf("%w (and no %q)", err, full)
		}
		name = full
	}
	raw, err := s.lookup(name, t.DType, shape)
	if err != nil {
		return nil, err
	}
	out := &eval.Tensor{DType: t.DType, Shape: shape, Quant: t.Quant}
	switch {
	case t.DType.IsFloat():
		out.F, err = raw.Float32s()
	case t.DType.IsInt() || t.DType == ir.Bool:
		out.I, err = raw.Int64s()
	default:
		out.Codes = raw.Data
	}
	if err != nil || t.Quant == nil {
		return out, err
	}
	scaleShape := slices.Clone(shape)
	for i, b := range t.Quant.Block {
		axis := len(shape) - 2 + i
		scaleShape[axis] = (shape[axis] + b - 1) / b
	}
	scale, err := s.lookup(strings.TrimSuffix(name, ".weight")+".scale", t.Quant.Scale, scaleShape)
	if err != nil {
		return nil, err
	}
	out.Scales = scale.Data
	return out, nil
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
