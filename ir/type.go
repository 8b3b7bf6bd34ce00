package ir

import (
	"fmt"
	"strconv"
	"strings"
)

// DType is an element format.
type DType uint8

// The element formats. Sub-byte and 8-bit floats are storage formats: they are
// read by cast and dequantize, never by arithmetic.
const (
	Invalid DType = iota
	F32
	BF16
	F16
	F8E4M3     // OCP e4m3fn: max 448, no infinity
	F8E4M3FNUZ // max 240, one NaN (0x80), no negative zero
	F4E2M1     // OCP e2m1, two codes a byte, low nibble first
	E8M0       // power-of-two scale, 2^(byte-127), 255 is NaN
	I64
	I32
	I8
	U8
	Bool
)

// dtypeInfo is the one table of element formats.
var dtypeInfo = [...]struct {
	name  string
	bits  int
	float bool // arithmetic floats
	int   bool
	code  bool // storage formats that a block scale may accompany
}{
	F32:        {"f32", 32, true, false, false},
	BF16:       {"bf16", 16, true, false, false},
	F16:        {"f16", 16, true, false, false},
	F8E4M3:     {"f8e4m3", 8, false, false, true},
	F8E4M3FNUZ: {"f8e4m3fnuz", 8, false, false, true},
	F4E2M1:     {"f4e2m1", 4, false, false, true},
	E8M0:       {"e8m0", 8, false, false, false},
	I64:        {"i64", 64, false, true, false},
	I32:        {"i32", 32, false, true, false},
	I8:         {"i8", 8, false, true, false},
	U8:         {"u8", 8, false, true, false},
	Bool:       {"bool", 8, false, false, false},
}

var dtypeByName = func() map[string]DType {
	m := map[string]DType{}
	for d := F32; int(d) < len(dtypeInfo); d++ {
		m[dtypeInfo[d].name] = d
	}
	return m
}()

// ParseDType reads a format's name as it stands in .kir text.
func ParseDType(name string) (DType, error) {
	if d, ok := dtypeByName[name]; ok {
		return d, nil
	}
	return Invalid, fmt.Errorf("unknown dtype %q", name)
}

func (d DType) String() string {
	if !d.valid() {
		return "invalid"
	}
	return dtypeInfo[d].name
}

// valid reports whether d is in the table of formats; what is not has no bits
// and belongs to no class.
func (d DType) valid() bool { return d > Invalid && int(d) < len(dtypeInfo) }

// Bits is the storage size of one element.
func (d DType) Bits() int {
	if !d.valid() {
		return 0
	}
	return dtypeInfo[d].bits
}

// Bytes is the memory that n elements take; packed formats end in a whole byte.
func (d DType) Bytes(n int) int64 { return (int64(n)*int64(d.Bits()) + 7) / 8 }

// IsFloat reports whether arithmetic ops accept d as a float.
func (d DType) IsFloat() bool { return d.valid() && dtypeInfo[d].float }

// IsInt reports whether d is an integer format (bool is not).
func (d DType) IsInt() bool { return d.valid() && dtypeInfo[d].int }

// IsCode reports whether d is a storage float that may carry a block scale.
func (d DType) IsCode() bool { return d.valid() && dtypeInfo[d].code }

// Quant describes block scaling of a code format: one Scale element for each
// Block[0] x Block[1] tile of the last two axes; edge blocks are shorter.
type Quant struct {
	Block [2]int
	Scale DType
}

// Type is a tensor type: element format, extents, and block scaling if any.
// Rank 0 is a scalar.
type Type struct {
	DType DType
	Dims  []Dim
	Quant *Quant
}

// T makes an unscaled type.
func T(dt DType, dims ...Dim) Type { return Type{DType: dt, Dims: dims} }

// Scaled makes a block-scaled type over e8m0 scales.
func Scaled(dt DType, block0, block1 int, dims ...Dim) Type {
	return Type{DType: dt, Dims: dims, Quant: &Quant{Block: [2]int{block0, block1}, Scale: E8M0}}
}

// Bytes is the memory of a type whose extents are integers: the elements, and the
// block scales if there are any. The last result is false for other types.
func (t Type) Bytes() (data, scales int64, ok bool) {
	n, ok := t.Size()
	if !ok {
		return 0, 0, false
	}
	data = t.DType.Bytes(n)
	if t.Quant == nil {
		return data, 0, true
	}
	blocks := 1
	for i, d := range t.Dims {
		e, _ := d.Const()
		if j := i - (t.Rank() - 2); j >= 0 {
			e = (e + t.Quant.Block[j] - 1) / t.Quant.Block[j]
		}
		blocks *= e
	}
	return data, t.Quant.Scale.Bytes(blocks), true
}

// Rank is the number of axes.
func (t Type) Rank() int { return len(t.Dims) }

// Equal compares format, extents and scaling.
func (t Type) Equal(u Type) bool {
	if t.DType != u.DType || !SameDims(t.Dims, u.Dims) || (t.Quant == nil) != (u.Quant == nil) {
		return false
	}
	return t.Quant == nil || *t.Quant == *u.Quant
}

// SameDims reports whether two shapes are equal.
func SameDims(a, b []Dim) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !a[i].Equal(b[i]) {
			return false
		}
	}
	return true
}

// With returns t with other extents.
func (t Type) With(dims ...Dim) Type { return Type{DType: t.DType, Dims: dims, Quant: t.Quant} }

// As returns t's extents in another, unscaled format.
func (t Type) As(dt DType) Type { return Type{DType: dt, Dims: t.Dims} }

func (t Type) String() string { return t.text(Dim.String) }

func (t Type) text(dim func(Dim) string) string {
	var b strings.Builder
	b.WriteString(t.DType.String())
	b.WriteByte('[')
	for i, d := range t.Dims {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(dim(d))
	}
	b.WriteByte(']')
	if q := t.Quant; q != nil {
		fmt.Fprintf(&b, " block(%d,%d) scale %s", q.Block[0], q.Block[1], q.Scale)
	}
	return b.String()
}

// Check reports why t is not a legal type: an extent below 1 or out of range, or
// block scaling of a format or rank that cannot carry it.
func (t Type) Check() error {
	if !t.DType.valid() {
		return fmt.Errorf("type has no dtype")
	}
	for i, d := range t.Dims {
		if err := d.check(); err != nil {
			return fmt.Errorf("%s: axis %d: %w", t, i, err)
		}
		if n, ok := d.Const(); ok && n < 1 {
			return fmt.Errorf("%s: axis %d has extent %d; extents are at least 1", t, i, n)
		}
	}
	if t.DType == F4E2M1 && len(t.Dims) == 0 {
		return fmt.Errorf("%s: packed two to a byte, so a last axis is needed", t)
	}
	if t.DType == F4E2M1 {
		if n, ok := t.Dims[len(t.Dims)-1].Const(); ok && n%2 != 0 {
			return fmt.Errorf("%s: packed two to a byte, so the last extent must be even, not %d", t, n)
		}
	}
	q := t.Quant
	switch {
	case q == nil:
		return nil
	case !t.DType.IsCode():
		return fmt.Errorf("%s: %s cannot be block scaled; f8e4m3, f8e4m3fnuz and f4e2m1 can", t, t.DType)
	case q.Scale != E8M0:
		return fmt.Errorf("%s: scales are e8m0, not %s", t, q.Scale)
	case q.Block[0] < 1 || q.Block[1] < 1 || q.Block[0] > maxDimValue || q.Block[1] > maxDimValue:
		return fmt.Errorf("%s: block extents are 1..%d", t, maxDimValue)
	case len(t.Dims) < 2:
		return fmt.Errorf("%s: block scaling needs two axes", t)
	}
	return nil
}

// ParseType reads a type as String writes it.
func ParseType(text string, resolve func(string) (Dim, error)) (Type, error) {
	open := strings.IndexByte(text, '[')
	if open < 0 {
		return Type{}, fmt.Errorf("type %s: missing [", clip(text))
	}
	dt, err := ParseDType(strings.TrimSpace(text[:open]))
	if err != nil {
		return Type{}, err
	}
	shut := strings.IndexByte(text, ']')
	if shut < open {
		return Type{}, fmt.Errorf("type %s: missing ]", clip(text))
	}
	t := Type{DType: dt}
	if t.Dims, err = ParseDims(text[open+1:shut], resolve); err != nil {
		return Type{}, err
	}
	rest := strings.TrimSpace(text[shut+1:])
	if rest == "" {
		return t, nil
	}
	inner, ok1 := strings.CutPrefix(rest, "block(")
	blocks, scale, ok2 := strings.Cut(inner, ")")
	b0, b1, ok3 := strings.Cut(blocks, ",")
	word, scale, ok4 := strings.Cut(strings.Join(strings.Fields(scale), " "), " ")
	n0, err0 := strconv.Atoi(strings.TrimSpace(b0))
	n1, err1 := strconv.Atoi(strings.TrimSpace(b1))
	if !ok1 || !ok2 || !ok3 || !ok4 || word != "scale" || err0 != nil || err1 != nil {
		return Type{}, fmt.Errorf("type %s: want block(N,N) scale DTYPE after ]", clip(text))
	}
	sdt, err := ParseDType(scale)
	if err != nil {
		return Type{}, err
	}
	t.Quant = &Quant{Block: [2]int{n0, n1}, Scale: sdt}
	return t, nil
}

// ParseDims reads a comma-separated list of extents; an empty text is rank 0.
func ParseDims(text string, resolve func(string) (Dim, error)) ([]Dim, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	parts := strings.Split(text, ",")
	dims := make([]Dim, len(parts))
	for i, s := range parts {
		d, err := ParseDim(strings.TrimSpace(s), resolve)
		if err != nil {
			return nil, err
		}
		dims[i] = d
	}
	return dims, nil
}
