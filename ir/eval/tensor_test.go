package eval

import (
	"math"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

func TestTensorConstructors(t *testing.T) {
	x, err := FromF32(ir.BF16, []float32{1 + 0x1p-8, 1 + 0x1.8p-8}, 2)
	if err != nil {
		t.Fatal(err)
	}
	wantFloats(t, "FromF32 rounds", x, []float64{1, 1 + 0x1p-7})
	if y, err := FromI32([]int32{-1, math.MaxInt32}, 1, 2); err != nil {
		t.Error(err)
	} else {
		wantInts(t, "FromI32", y, []int64{-1, math.MaxInt32})
	}
	for _, c := range []struct {
		what string
		make func() (*Tensor, error)
		want string
	}{
		{"too few floats", func() (*Tensor, error) { return FromF32(ir.F32, []float32{1}, 2) }, "f32[2] has 1 floats, want 2"},
		{"too many integers", func() (*Tensor, error) { return FromI32([]int32{1, 2}, 1) }, "i32[1] has 2 integers, want 1"},
		{"no float type", func() (*Tensor, error) { return FromF32(ir.I32, []float32{1}, 1) }, "i32 does not hold floats"},
		{"code type", func() (*Tensor, error) { return FromF32(ir.F8E4M3, []float32{1}, 1) }, "f8e4m3 does not hold floats"},
		{"extent 0", func() (*Tensor, error) { return FromF32(ir.F32, nil, 0) }, "extent 0"},
		{"symbol", func() (*Tensor, error) { return New(ir.T(ir.F32, ir.Sym("T"))) }, "extent T is not bound"},
		{"odd packed", func() (*Tensor, error) { return New(typ(ir.F4E2M1, 2, 3)) }, "must be even"},
		{"scaled vector", func() (*Tensor, error) { return New(ir.Scaled(ir.F8E4M3, 1, 2, ir.Int(4))) }, "needs two axes"},
	} {
		if _, err := c.make(); err == nil || !matches(err, c.want) {
			t.Errorf("%s: error %v, want %q", c.what, err, c.want)
		}
	}
}

func TestTensorCheck(t *testing.T) {
	scaled := func(f func(x *Tensor)) *Tensor {
		x := must(New(ir.Scaled(ir.F8E4M3, 2, 3, ir.Int(3), ir.Int(4))))
		f(x)
		return x
	}
	for _, c := range []struct {
		x    *Tensor
		want string
	}{
		{scaled(func(*Tensor) {}), ""},
		{scaled(func(x *Tensor) { x.Scales = x.Scales[1:] }), "has 3 scales, want 4"},
		{scaled(func(x *Tensor) { x.Codes = append(x.Codes, 0) }), "has 13 code bytes, want 12"},
		{scaled(func(x *Tensor) { x.F = make([]float32, 12) }), "has 12 floats, want 0"},
		{scaled(func(x *Tensor) { x.Quant = nil }), "has 4 scales, want 0"},
		{&Tensor{DType: ir.F4E2M1, Shape: []int{2, 4}, Codes: make([]byte, 8)}, "has 8 code bytes, want 4"},
		{&Tensor{DType: ir.F32, F: []float32{1}}, ""},
		{&Tensor{F: []float32{1}}, "dtype"},
	} {
		if err := c.x.Check(); !matches(err, c.want) {
			t.Errorf("%s: error %v, want %q", c.x.Type(), err, c.want)
		}
	}
}

func TestCloneIsDeep(t *testing.T) {
	for _, x := range []*Tensor{f32s([]float32{1, 2}, 2), i32s([]int32{1, 2}, 2), must(New(ir.Scaled(ir.F4E2M1, 1, 2, ir.Int(2), ir.Int(2))))} {
		y := x.Clone()
		want := y.Clone()
		scribble(x)
		x.Shape[0] = 77
		if d := difference(y, want); d != "" {
			t.Errorf("clone of %s changes with it: %s", y.Type(), d)
		}
	}
}
