package eval

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

// drawFormat draws how rows are packed: the model's two formats, or small odd ones.
func drawFormat(t *rapid.T) (f ir.RowFormat, floor float64) {
	f, floor = ir.RowFormat{To: ir.F8E4M3, Block: 64, Dims: 64, D: 128}, 1e-4
	if rapid.Bool().Draw(t, "e2m1") {
		f, floor = ir.RowFormat{To: ir.F4E2M1, Block: 32, Dims: 128, D: 128}, 6*0x1p-126
	}
	if rapid.Bool().Draw(t, "odd") {
		f.Block = 4 * rapid.IntRange(1, 3).Draw(t, "quarter block")
		f.Dims = f.Block * rapid.IntRange(1, 3).Draw(t, "blocks")
		f.D = f.Dims + rapid.SampledFrom([]int{0, 1, 6}).Draw(t, "rest")
	}
	return f, floor
}

// packed is the rows of x as bytes.
func packed(t rapid.TB, f ir.RowFormat, floor float64, x *Tensor) *Tensor {
	t.Helper()
	return apply1(t, "pack_rows", append(f.Attrs(), ir.A("floor", floor)...), x)
}

func unpacked(t rapid.TB, f ir.RowFormat, rows *Tensor) *Tensor {
	t.Helper()
	n := size(rows.Shape) / f.Bytes()
	flat, index := rows.Clone(), zeroTensor(ir.I32, n)
	flat.Shape = []int{n, f.Bytes()}
	for i := range index.I {
		index.I[i] = int64(i)
	}
	x := apply1(t, "unpack_rows", append(f.Attrs(), ir.A("d", f.D)...), flat, index)
	x.Shape = append(rows.Shape[:len(rows.Shape)-1:len(rows.Shape)-1], f.D)
	return x
}

// rowCode is code i of a row's bytes.
func rowCode(f ir.RowFormat, row []int64, i int) byte {
	if f.To == ir.F4E2M1 {
		return byte(row[i/2] >> (4 * (i % 2)) & 15)
	}
	return byte(row[i])
}

// packRowsProp looks at every byte, and that they stand for what fake_quant gives.
func packRowsProp(t *rapid.T) {
	f, floor := drawFormat(t)
	shape := append(drawShape(t, 1, 2), f.D)
	x := drawTensor(t, ir.BF16, shape...)
	got := packed(t, f, floor, x)
	bytes := (f.Dims*f.To.Bits()/8 + 2*(f.D-f.Dims) + f.Dims/f.Block + 15) / 16 * 16
	wantShape(t, "pack_rows", got, ir.U8, append(shape[:len(shape)-1:len(shape)-1], bytes)...)
	for n, v := 0, floats(x); n < len(v)/f.D; n++ {
		row, v := got.I[n*bytes:][:bytes], v[n*f.D:][:f.D]
		at := f.Dims * f.To.Bits() / 8
		for i, w := range v[f.Dims:] {
			bits := uint32(row[at]|row[at+1]<<8) << 16
			if g := math.Float32frombits(bits); bits != math.Float32bits(float32(w)) && (g == g || w == w) {
				t.Fatalf("pack_rows: number %d is %v, want %v", f.Dims+i, g, w)
			}
			at += 2
		}
		for b := range f.Dims / f.Block {
			scale, want := quantRef(f.To, v[b*f.Block:][:f.Block], floor)
			if byte(row[at+b]) != scale {
				t.Fatalf("pack_rows: scale %d is %d, want %d", b, row[at+b], scale)
			}
			for i, w := range want {
				c := rowCode(f, row, b*f.Block+i)
				if g := codeValue(f.To, c); math.Float64bits(g) != math.Float64bits(w) || scale == 255 && c != 0 {
					t.Fatalf("pack_rows: code %d of block %d is %v, want %v", i, b, g, w)
				}
			}
		}
		for _, b := range row[at+f.Dims/f.Block:] {
			if b != 0 {
				t.Fatalf("pack_rows: a byte behind the scales is %d", b)
			}
		}
	}
	want := apply1(t, "fake_quant", append(f.Attrs(), ir.A("floor", floor)...), x)
	if d := difference(unpacked(t, f, got), want); d != "" {
		t.Fatalf("unpack_rows of pack_rows, and fake_quant: %s", d)
	}
}

func unpackRowsProp(t *rapid.T) {
	f, _ := drawFormat(t)
	rows, r := zeroTensor(ir.U8, rapid.IntRange(1, 5).Draw(t, "R"), f.Bytes()), drawRand(t)
	for i := range rows.I {
		rows.I[i] = int64(r.IntN(256))
	}
	index := drawRows(t, rapid.IntRange(1, 3).Draw(t, "N"), rapid.IntRange(1, 3).Draw(t, "L"), rows.Shape[0])
	var want []float64
	for _, n := range index.I {
		var row []int64
		if n >= 0 {
			row = rows.I[int(n)*f.Bytes():][:f.Bytes()]
		}
		for i := range f.D {
			if row == nil {
				want = append(want, 0)
				continue
			}
			if i >= f.Dims {
				at := f.Dims*f.To.Bits()/8 + 2*(i-f.Dims)
				want = append(want, float64(math.Float32frombits(uint32(row[at]|row[at+1]<<8)<<16)))
				continue
			}
			scale := byte(row[f.Dims*f.To.Bits()/8+2*(f.D-f.Dims)+i/f.Block])
			want = append(want, r16(codeValue(f.To, rowCode(f, row, i))*codeValue(ir.E8M0, scale)))
		}
	}
	got := apply1(t, "unpack_rows", append(f.Attrs(), ir.A("d", f.D)...), rows, index)
	wantShape(t, "unpack_rows", got, ir.BF16, append(slices.Clone(index.Shape), f.D)...)
	wantFloats(t, "unpack_rows", got, want)
}

// A row whose bytes are all set, as a test spoils a pool, is NaN throughout.
func TestUnpackAllSet(t *testing.T) {
	for _, f := range []ir.RowFormat{{To: ir.F8E4M3, Block: 64, Dims: 448, D: 512}, {To: ir.F4E2M1, Block: 32, Dims: 128, D: 128}} {
		rows := zeroTensor(ir.U8, 2, f.Bytes())
		for i := range rows.I {
			rows.I[i] = 255
		}
		for i, v := range unpacked(t, f, rows).F {
			if v == v {
				t.Fatalf("%s: number %d is %v", f.To, i, v)
			}
		}
	}
}

// The model's rows have the sizes that the documentation gives.
func TestRowSizes(t *testing.T) {
	for _, c := range []struct {
		f           ir.RowFormat
		used, bytes int
	}{
		{ir.RowFormat{To: ir.F8E4M3, Block: 64, Dims: 448, D: 512}, 583, 592},
		{ir.RowFormat{To: ir.F4E2M1, Block: 32, Dims: 128, D: 128}, 68, 80},
	} {
		if c.f.Used() != c.used || c.f.Bytes() != c.bytes {
			t.Errorf("%+v: %d of %d bytes, want %d of %d", c.f, c.f.Used(), c.f.Bytes(), c.used, c.bytes)
		}
	}
}

// drawPacked packs tables of rows of d numbers: they become what the rows stand for.
func drawPacked(t *rapid.T, d int, tables ...*Tensor) (attrs ir.Attrs, rows []*Tensor) {
	f := ir.RowFormat{To: rapid.SampledFrom([]ir.DType{ir.F8E4M3, ir.F4E2M1}).Draw(t, "to"), Block: 2, Dims: 4 * rapid.IntRange(1, d/4).Draw(t, "quarter dims"), D: d}
	for _, x := range tables {
		y := packed(t, f, 1e-4, x)
		rows = append(rows, y)
		*x = *unpacked(t, f, y)
	}
	return f.Attrs(), rows
}
