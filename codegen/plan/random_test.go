package plan_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/num"
)

// SplitMix64's published sequence for the seed 1234567.
func TestMix(t *testing.T) {
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		if got := plan.Mix(1234567, uint64(i)); got != want {
			t.Errorf("number %d is %d, want %d", i, got, want)
		}
	}
}

// Random numbers of a format are finite, of both signs, and of the size that was asked
// for, block scales included.
func TestRandomNumbers(t *testing.T) {
	le := binary.LittleEndian
	decode := map[ir.DType]func(b []byte, i int) float64{
		ir.F32:        func(b []byte, i int) float64 { return float64(math.Float32frombits(le.Uint32(b[4*i:]))) },
		ir.BF16:       func(b []byte, i int) float64 { return float64(num.FromBF16(le.Uint16(b[2*i:]))) },
		ir.F16:        func(b []byte, i int) float64 { return float64(num.FromF16(le.Uint16(b[2*i:]))) },
		ir.F8E4M3:     func(b []byte, i int) float64 { return float64(num.FromE4M3(b[i])) },
		ir.F8E4M3FNUZ: func(b []byte, i int) float64 { return float64(num.FromE4M3FNUZ(b[i])) },
		ir.F4E2M1:     func(b []byte, i int) float64 { return float64(num.FromE2M1(b[i/2] >> (i % 2 * 4) & 15)) },
	}
	for _, text := range []string{
		"f32[24,16384]", "bf16[64,4096]", "f16[64,4096]", "f8e4m3[64,4096] block(128,128) scale e8m0", "f8e4m3fnuz[64,4096] block(128,128) scale e8m0",
		"f4e2m1[64,4096] block(1,32) scale e8m0", "bf16[4096]", "f8e4m3[64,4096]", "f4e2m1[64,64]",
	} {
		typ, err := ir.ParseType(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		exponent, err := plan.RandomExponent(text)
		if err != nil {
			t.Fatal(err)
		}
		parts, err := plan.RandomOf(text, exponent, 0)
		if err != nil {
			t.Fatal(err)
		}
		data, scales, _ := typ.Bytes()
		b, s := make([]byte, data), make([]byte, scales)
		parts[0].Fill(b, plan.RandomKey(1, 2, 0))
		if scales > 0 {
			parts[1].Fill(s, plan.RandomKey(1, 2, 1))
		}
		n, _ := typ.Size()
		var squares, negative float64
		for i := range n {
			x := decode[typ.DType](b, i)
			if scales > 0 { // the spread of the scales is small, which block is whose does not matter
				x *= float64(num.FromE8M0(s[i*len(s)/n]))
			}
			if math.IsNaN(x) || math.IsInf(x, 0) {
				t.Fatalf("%s: element %d is %v", text, i, x)
			}
			squares += x * x
			if math.Signbit(x) {
				negative++
			}
		}
		want := math.Ldexp(1, exponent)
		if typ.DType.IsCode() && typ.Quant == nil {
			continue // without a scale the codes have the sizes that they have
		}
		if got := math.Sqrt(squares / float64(n)); got < want/1.5 || got > want*1.5 {
			t.Errorf("%s: root mean square %g, want about %g", text, got, want)
		}
		if part := negative / float64(n); part < 0.47 || part > 0.53 {
			t.Errorf("%s: %.0f%% are negative", text, 100*part)
		}
	}
}

// Ids of a row differ and are below the limit, and all occur.
func TestRandomIDs(t *testing.T) {
	const columns, limit = 6, 8
	parts, err := plan.RandomOf("i64[500,6]", 0, limit)
	if err != nil {
		t.Fatal(err)
	}
	var seen [limit]int
	for row := range uint64(500) {
		var ids []uint64
		for c := range uint64(columns) {
			id := parts[0].Word(3, row*columns+c)
			if id >= limit || slices.Contains(ids, id) {
				t.Fatalf("row %d: id %d after %v", row, id, ids)
			}
			ids, seen[id] = append(ids, id), seen[id]+1
		}
	}
	if slices.Contains(seen[:], 0) {
		t.Errorf("ids occur %v times", seen)
	}
}

// Whatever a row of bytes packs, and where, its numbers are finite and below 2.
func TestRandomRows(t *testing.T) {
	parts, err := plan.RandomOf("u8[64,592]", 0, 0)
	if err != nil || len(parts) != 1 {
		t.Fatalf("%d parts, error %v", len(parts), err)
	}
	b := make([]byte, 64*592)
	parts[0].Fill(b, plan.RandomKey(1, 2, 0))
	seen := map[byte]bool{}
	for i := range b[1:] {
		seen[b[i]] = true
		half := math.Abs(float64(num.FromBF16(binary.LittleEndian.Uint16(b[i:]))))
		scale := float64(num.FromE8M0(b[i]))
		if x := float64(num.FromE4M3(b[i+1])); !(half < 2) || !(math.Abs(x) < 2) || !(6*scale < 2) {
			t.Fatalf("bytes %#x and %#x", b[i], b[i+1])
		}
	}
	if len(seen) < 4 {
		t.Errorf("%d different bytes", len(seen))
	}
}
