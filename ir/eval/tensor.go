package eval

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/num"
)

// Tensor is a value with integer extents, row-major. Exactly one storage is
// used, by dtype: F for f32, bf16 and f16 (each element on its format's grid),
// I for integers and bool (0 or 1), Codes for the 8- and 4-bit float formats
// and e8m0 (f4e2m1 packs two codes a byte, low nibble first).
type Tensor struct {
	DType  ir.DType
	Shape  []int
	Quant  *ir.Quant
	F      []float32
	I      []int64
	Codes  []byte
	Scales []byte // block scales, [.., ceil(N/block0), ceil(K/block1)]
}

// New makes a zero tensor of a type whose extents are integers.
func New(t ir.Type) (*Tensor, error) {
	shape := make([]int, t.Rank())
	for i, d := range t.Dims {
		n, ok := d.Const()
		if !ok {
			return nil, fmt.Errorf("%s: extent %s is not bound", t, d)
		}
		shape[i] = n
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	x := &Tensor{DType: t.DType, Shape: shape, Quant: t.Quant}
	n := x.Len()
	switch storageOf(t.DType) {
	case storeF:
		x.F = make([]float32, n)
	case storeI:
		x.I = make([]int64, n)
	default:
		x.Codes = make([]byte, codeBytes(t.DType, n))
		if t.Quant != nil {
			x.Scales = make([]byte, scaleCount(shape, t.Quant))
		}
	}
	return x, nil
}

type storage uint8

const (
	storeF storage = iota
	storeI
	storeCode
)

func storageOf(d ir.DType) storage {
	switch {
	case d.IsFloat():
		return storeF
	case d.IsInt() || d == ir.Bool:
		return storeI
	}
	return storeCode
}

func codeBytes(d ir.DType, n int) int {
	if d == ir.F4E2M1 {
		return n / 2
	}
	return n
}

// scaleCount is the number of block scales of a shape.
func scaleCount(shape []int, q *ir.Quant) int {
	n := 1
	for i, s := range shape {
		switch i - len(shape) {
		case -2:
			s = ceilDiv(s, q.Block[0])
		case -1:
			s = ceilDiv(s, q.Block[1])
		}
		n *= s
	}
	return n
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// Len is the number of elements.
func (t *Tensor) Len() int {
	n := 1
	for _, s := range t.Shape {
		n *= s
	}
	return n
}

// Type is the tensor's IR type.
func (t *Tensor) Type() ir.Type {
	dims := make([]ir.Dim, len(t.Shape))
	for i, s := range t.Shape {
		dims[i] = ir.Int(s)
	}
	return ir.Type{DType: t.DType, Dims: dims, Quant: t.Quant}
}

// Check reports a storage that does not fit the type: a caller's mistake.
func (t *Tensor) Check() error {
	typ := t.Type()
	if err := typ.Check(); err != nil {
		return err
	}
	n := t.Len()
	var wantF, wantI, wantCodes, wantScales int
	switch storageOf(t.DType) {
	case storeF:
		wantF = n
	case storeI:
		wantI = n
	default:
		wantCodes = codeBytes(t.DType, n)
		if t.Quant != nil {
			wantScales = scaleCount(t.Shape, t.Quant)
		}
	}
	for _, s := range []struct {
		what       string
		have, want int
	}{{"floats", len(t.F), wantF}, {"integers", len(t.I), wantI}, {"code bytes", len(t.Codes), wantCodes}, {"scales", len(t.Scales), wantScales}} {
		if s.have != s.want {
			return fmt.Errorf("%s has %d %s, want %d", typ, s.have, s.what, s.want)
		}
	}
	return nil
}

// FromF32 makes a float tensor; the values are rounded to dt.
func FromF32(dt ir.DType, v []float32, shape ...int) (*Tensor, error) {
	t := &Tensor{DType: dt, Shape: shape, F: make([]float32, len(v))}
	if !dt.IsFloat() {
		return nil, fmt.Errorf("%s does not hold floats", dt)
	}
	round := rounder(dt)
	for i, x := range v {
		t.F[i] = round(x)
	}
	return t, t.Check()
}

// FromI32 makes an i32 tensor.
func FromI32(v []int32, shape ...int) (*Tensor, error) {
	t := &Tensor{DType: ir.I32, Shape: shape, I: make([]int64, len(v))}
	for i, x := range v {
		t.I[i] = int64(x)
	}
	return t, t.Check()
}

// SameBits compares types and elements, bit for bit; no tensor has the bits of nil.
func (t *Tensor) SameBits(u *Tensor) bool {
	bits := func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }
	return u != nil && t.Type().Equal(u.Type()) && slices.EqualFunc(t.F, u.F, bits) && slices.Equal(t.I, u.I) &&
		bytes.Equal(t.Codes, u.Codes) && bytes.Equal(t.Scales, u.Scales)
}

// Clone is a deep copy.
func (t *Tensor) Clone() *Tensor {
	c := *t
	c.Shape = append([]int{}, t.Shape...)
	c.F = append([]float32(nil), t.F...)
	c.I = append([]int64(nil), t.I...)
	c.Codes = append([]byte(nil), t.Codes...)
	c.Scales = append([]byte(nil), t.Scales...)
	return &c
}

// rounder rounds an f32 to a float dtype.
func rounder(dt ir.DType) func(float32) float32 {
	switch dt {
	case ir.BF16:
		return num.RoundBF16
	case ir.F16:
		return num.RoundF16
	}
	return func(x float32) float32 { return x }
}

// rounder64 rounds a float64 once to a float dtype.
func rounder64(dt ir.DType) func(float64) float32 {
	switch dt {
	case ir.BF16:
		return num.RoundBF16F64
	case ir.F16:
		return num.RoundF16F64
	}
	return func(x float64) float32 { return float32(x) }
}

// format is num's name for a code dtype.
func format(dt ir.DType) num.Format {
	switch dt {
	case ir.F8E4M3FNUZ:
		return num.FmtE4M3FNUZ
	case ir.F4E2M1:
		return num.FmtE2M1
	}
	return num.FmtE4M3
}

// code reads element i of a code tensor, without its scale.
func (t *Tensor) code(i int) float32 {
	switch t.DType {
	case ir.F4E2M1:
		return num.FromE2M1(t.Codes[i/2] >> (4 * (i % 2)) & 15)
	case ir.E8M0:
		return num.FromE8M0(t.Codes[i])
	}
	return format(t.DType).Decode(t.Codes[i])
}

// setCode rounds x to element i of a code tensor. Casting to e8m0 goes up to
// the next power of two, as block scales are chosen.
func (t *Tensor) setCode(i int, x float32) {
	switch t.DType {
	case ir.F4E2M1:
		shift := 4 * (i % 2)
		t.Codes[i/2] = t.Codes[i/2]&^(15<<shift) | num.E2M1(x)<<shift
	case ir.E8M0:
		t.Codes[i] = e8m0Up(x)
	default:
		t.Codes[i] = format(t.DType).Encode(x)
	}
}

// e8m0Up is the smallest power of two >= x as a code; NaN, infinities and
// negative numbers give NaN, zero and everything below 2^-127 gives code 0.
func e8m0Up(x float32) byte {
	switch {
	case x != x || x < 0 || math.IsInf(float64(x), 0):
		return 255
	case x <= 0x1p-127:
		return 0
	case x > 0x1p127:
		return 255
	}
	_, exp := math.Frexp(float64(x)) // x = f * 2^exp, f in [0.5, 1)
	if math.Ldexp(0.5, exp) < float64(x) {
		exp++
	}
	return byte(exp - 1 + 127)
}
