package weights_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/kiln-project/kiln/runtime/weights"
)

func TestFloat32s(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		dtype weights.DType
		data  []byte
		want  []float32
	}{
		{weights.F8E4M3, []byte{0x38, 0xFE, 0x01, 0x7F}, []float32{1, -448, 0x1p-9, nan}},
		{weights.F8E8M0, []byte{127, 0, 255, 130}, []float32{1, 0x1p-127, nan, 8}},
		{weights.BF16, []byte{0x80, 0x3F, 0x00, 0xC0}, []float32{1, -2}},
		{weights.F16, []byte{0x00, 0x3C, 0x01, 0x00, 0x00, 0xFC}, []float32{1, 0x1p-24, -inf}},
		{weights.F32, []byte{0, 0, 0x80, 0x3F}, []float32{1}},
		{weights.F64, []byte{0, 0, 0, 0x10, 0, 0, 0xF0, 0x3F, 1, 0, 0, 0x10, 0, 0, 0xF0, 0x3F},
			[]float32{1, 1 + 0x1p-23}}, // a tie, and just above it
	} {
		x := weights.Tensor{Name: "x", DType: c.dtype, Shape: []int{len(c.want)}, Data: c.data}
		got, err := x.Float32s()
		if d := cmp.Diff(c.want, got, cmpopts.EquateNaNs()); err != nil || d != "" {
			t.Errorf("%v: %v (-want +got):\n%s", c.dtype, err, d)
		}
		if _, err := x.Int64s(); err == nil || !strings.Contains(err.Error(), `tensor "x": dtype `+c.dtype.String()+" is not an integer type") {
			t.Errorf("%v as integers: %v", c.dtype, err)
		}
	}
}

func TestInt64s(t *testing.T) {
	for _, c := range []struct {
		dtype weights.DType
		data  []byte
		want  []int64
	}{
		{weights.I8, []byte{0x80, 0x7F}, []int64{-128, 127}},
		{weights.U8, []byte{0x80, 0x7F}, []int64{128, 127}},
		{weights.Bool, []byte{0, 1}, []int64{0, 1}},
		{weights.I32, []byte{0xFE, 0xFF, 0xFF, 0xFF, 1, 2, 3, 4}, []int64{-2, 0x04030201}},
		{weights.I64, []byte{0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0x80}, []int64{-2, math.MinInt64}},
	} {
		x := weights.Tensor{Name: "x", DType: c.dtype, Shape: []int{len(c.want)}, Data: c.data, File: "dir/f.safetensors"}
		got, err := x.Int64s()
		if d := cmp.Diff(c.want, got); err != nil || d != "" {
			t.Errorf("%v: %v (-want +got):\n%s", c.dtype, err, d)
		}
		want := `dir/f.safetensors: tensor "x": dtype ` + c.dtype.String() + " is not a floating-point type"
		if _, err := x.Float32s(); err == nil || err.Error() != want {
			t.Errorf("%v as floats: %v", c.dtype, err)
		}
	}
}

// TestTensorRefuses decodes tensors that a caller put together wrongly.
func TestTensorRefuses(t *testing.T) {
	for _, c := range []struct {
		x    weights.Tensor
		want string
	}{
		{weights.Tensor{Name: "x"}, `tensor "x": dtype DType(0) is not supported`},
		{weights.Tensor{Name: "x", DType: 99}, `tensor "x": dtype DType(99) is not supported`},
		{weights.Tensor{Name: "x", DType: weights.F32, Shape: []int{2}, Data: make([]byte, 7)}, `tensor "x": F32 of shape [2] takes 8 bytes, the data has 7`},
		{weights.Tensor{Name: "x", DType: weights.U8, Shape: []int{0}}, `tensor "x": shape: dimension 0 is 0, must be at least 1`},
		{weights.Tensor{Name: "x", DType: weights.U8, Shape: []int{-1, -1}, Data: []byte{0}}, `tensor "x": shape: dimension 0 is -1, must be at least 1`},
		{weights.Tensor{Name: "x", DType: weights.U8, Shape: make([]int, 33)}, `tensor "x": shape has 33 dimensions, at most 32 are supported`},
	} {
		if _, err := c.x.Float32s(); err == nil || err.Error() != c.want {
			t.Errorf("floats: error %v, want %s", err, c.want)
		}
		if _, err := c.x.Int64s(); err == nil || err.Error() != c.want {
			t.Errorf("integers: error %v, want %s", err, c.want)
		}
	}
	x := weights.Tensor{Name: "x", DType: weights.Bool, Shape: []int{2}, Data: []byte{1, 2}}
	if _, err := x.Int64s(); err == nil || err.Error() != `tensor "x": element 1: byte 2 is not a bool` {
		t.Errorf("bool: %v", err)
	}
}

func TestTensorHelpers(t *testing.T) {
	f := weights.Float32Tensor("f", []int{2}, []float32{1.5, -0x1p-149})
	floats, err := f.Float32s()
	if d := cmp.Diff([]float32{1.5, -0x1p-149}, floats); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	i := weights.Int32Tensor("i", nil, []int32{-7})
	ints, err := i.Int64s()
	if d := cmp.Diff([]int64{-7}, ints); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}
