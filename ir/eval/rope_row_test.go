package eval

import (
	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

// rowProp: the norm of its name, rope, and what is drawn of hadamard and the
// rounding through a format.
func rowProp(name string) func(t *rapid.T) {
	return func(t *rapid.T) {
		d := 1 << rapid.IntRange(1, 6).Draw(t, "log2 D")
		pairs := rapid.IntRange(1, d/2).Draw(t, "pairs")
		ranks := [2]int{1, 2}
		if name == "head_rms_norm_rope" {
			ranks[0] = 2
		}
		shape := append(drawShape(t, ranks[0], ranks[1]), d)
		x := drawNormal(t, ir.BF16, shape...)
		cos, sin := drawNormal(t, ir.F32, shape[0], pairs), drawNormal(t, ir.F32, shape[0], pairs)
		inverse, hadamard := rapid.Bool().Draw(t, "inverse"), rapid.Bool().Draw(t, "hadamard")
		attrs := ir.A("inverse", inverse, "hadamard", hadamard)
		to, block, dims := rapid.SampledFrom([]ir.DType{ir.BF16, ir.F8E4M3, ir.F4E2M1}).Draw(t, "to"), 0, 0
		if to != ir.BF16 {
			block = 2
			dims = block * rapid.IntRange(1, d/block).Draw(t, "blocks")
			attrs = append(attrs, ir.A("to", to, "block", block, "floor", 1e-4, "dims", dims)...)
		}
		pack := to != ir.BF16 && dims%4 == 0 && rapid.Bool().Draw(t, "packed")
		if pack {
			attrs = append(attrs, ir.A("packed", true)...)
		}
		const eps = 1e-6
		args := []*Tensor{x, cos, sin}
		norm := func(row []float64) []float64 { return row }
		switch name {
		case "rms_norm_rope":
			w := drawNormal(t, ir.BF16, d)
			args, attrs = append(args, w), append(attrs, ir.A("eps", eps)...)
			norm = func(row []float64) []float64 { return rmsNormRef(row, floats(w), eps) }
		case "head_rms_norm_rope":
			attrs = append(attrs, ir.A("eps", eps)...)
			norm = func(row []float64) []float64 { return headNormRef(row, eps) }
		}
		v, c, s := floats(x), floats(cos), floats(sin)
		perToken := size(shape[1:])
		var want []float64
		for i := 0; i < len(v); i += d {
			tok := i / perToken * pairs
			row := ropeRef(norm(v[i:i+d]), c[tok:tok+pairs], s[tok:tok+pairs], inverse)
			if hadamard {
				row = hadamardRef(row)
			}
			if to != ir.BF16 {
				for j, q := range throughFormat(to, row[:dims], block, 1e-4) {
					row[j] = r16(q)
				}
			}
			want = append(want, row...)
		}
		got := apply1(t, name, attrs, args...)
		if pack {
			got = unpacked(t, ir.RowFormat{To: to, Block: block, Dims: dims, D: d}, got)
		}
		wantShape(t, name, got, ir.BF16, shape...)
		wantFloats(t, name, got, want)
	}
}

// compressRowProp: the row of what compress gives, with what is drawn of the roundings.
func compressRowProp(t *rapid.T) {
	d, members, rows := 1<<rapid.IntRange(2, 5).Draw(t, "log2 D"), 2*rapid.IntRange(1, 4).Draw(t, "half of S"), 5
	overlap := rapid.Bool().Draw(t, "overlap")
	w := d
	if overlap {
		w *= 2
	}
	e := rapid.IntRange(1, 3).Draw(t, "E")
	kPool, gPool, k, g := drawNormal(t, ir.F32, rows, w), drawNormal(t, ir.F32, rows, w), drawNormal(t, ir.F32, 3, w), drawNormal(t, ir.F32, 3, w)
	old, own := drawRows(t, e, members, rows), drawRows(t, e, members, 3)
	cos, sin, weight := drawNormal(t, ir.F32, e, d/2), drawNormal(t, ir.F32, e, d/2), drawNormal(t, ir.BF16, d)
	attrs := ir.A("eps", 1e-6, "hadamard", rapid.Bool().Draw(t, "hadamard"))
	if rapid.Bool().Draw(t, "rounded") {
		attrs = append(attrs, ir.A("to", ir.F8E4M3, "block", 2, "floor", 1e-4, "dims", d, "packed", rapid.Bool().Draw(t, "packed"))...)
	}
	v := apply1(t, "compress", ir.A("overlap", overlap), kPool, gPool, k, g, old, own)
	want := apply1(t, "rms_norm_rope", attrs, v, cos, sin, weight)
	got := apply1(t, "compress_row", append(ir.A("overlap", overlap), attrs...), kPool, cos, sin, weight, gPool, k, g, old, own)
	wantShape(t, "compress_row", got, want.DType, want.Shape...)
	if want.DType.IsInt() {
		wantInts(t, "compress_row", got, want.I)
		return
	}
	wantFloats(t, "compress_row", got, floats(want))
}
