package engine

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// Stored is a weight as it lies in a checkpoint, in the memory format of its type: the
// data, and the block scales if there are any, each one run of bytes after another.
type Stored struct {
	Type  ir.Type
	Parts [2][]Run
}

// Run is bytes of a checkpoint. Runs in the order of At read it from front to back.
type Run struct {
	Bytes []byte
	At    int64
}

// StoredSource is a WeightSource whose weights lie in a checkpoint.
type StoredSource interface {
	eval.WeightSource
	// Stored finds a weight and reads none of it.
	Stored(name string, t ir.Type) (*Stored, error)
	// Ahead says that bytes of a Run will be read soon, Behind that they were read.
	Ahead(b []byte)
	Behind(b []byte)
}

// rows is how many rows of the first axis a weight has, or one if it has no axes.
func (s *Stored) rows() int { return rowsOf(s.Type) }

func rowsOf(t ir.Type) int {
	if t.Rank() == 0 {
		return 1
	}
	n, _ := t.Dims[0].Const() // weights have integer extents
	return n
}

// withRows is a type with another first extent.
func withRows(t ir.Type, n int) ir.Type {
	if t.Rank() == 0 {
		return t
	}
	dims := append([]ir.Dim{ir.Int(n)}, t.Dims[1:]...)
	return t.With(dims...)
}

// offsets are where the rows from lo on begin, in the data and in the scales. lo does
// not lie inside a block.
func offsets(t ir.Type, lo int) [2]int64 {
	if lo == 0 {
		return [2]int64{}
	}
	data, scales, _ := withRows(t, lo).Bytes()
	return [2]int64{data, scales}
}

// Rows is the rows lo..lo+n-1 as a tensor. Codes and scales that lie in one run are the
// checkpoint's own bytes.
func (s *Stored) Rows(lo, n int) (*eval.Tensor, error) {
	t := withRows(s.Type, n)
	from, to := offsets(s.Type, lo), offsets(s.Type, lo+n)
	if lo+n == s.rows() {
		to[0], to[1], _ = s.Type.Bytes()
	}
	data, err := join(s.Parts[0], from[0], to[0])
	if err != nil {
		return nil, err
	}
	shape := make([]int, t.Rank())
	for i, d := range t.Dims {
		shape[i], _ = d.Const()
	}
	out := &eval.Tensor{DType: t.DType, Shape: shape, Quant: t.Quant}
	switch {
	case t.DType.IsFloat():
		out.F = make([]float32, out.Len())
		err = out.Decode(data)
	case t.DType.IsInt() || t.DType == ir.Bool:
		out.I = make([]int64, out.Len())
		err = out.Decode(data)
	default:
		out.Codes = data
	}
	if err != nil || t.Quant == nil {
		return out, err
	}
	out.Scales, err = join(s.Parts[1], from[1], to[1])
	return out, err
}

// join is the bytes from..to-1 of runs: their own if one run has them all.
func join(runs []Run, from, to int64) ([]byte, error) {
	list := within(runs, from, to)
	var n int64
	for _, r := range list {
		n += int64(len(r.Bytes))
	}
	if n != to-from {
		return nil, fmt.Errorf("bytes %d..%d of a weight that has fewer", from, to)
	}
	if len(list) == 1 {
		return list[0].Bytes, nil
	}
	all := make([]byte, 0, n)
	for _, r := range list {
		all = append(all, r.Bytes...)
	}
	return all, nil
}

// within is the parts of runs that lie in the bytes from..to-1 of them all.
func within(runs []Run, from, to int64) []Run {
	var out []Run
	var at int64
	for _, r := range runs {
		n := int64(len(r.Bytes))
		lo, hi := max(from-at, 0), min(to-at, n)
		if lo < hi {
			out = append(out, Run{r.Bytes[lo:hi:hi], r.At + lo})
		}
		at += n
	}
	return out
}
