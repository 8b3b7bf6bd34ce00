package kernels_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/num"
)

// quantInputs are rows of 128 bf16 numbers for quantisation in blocks of 128, or of
// fewer. For each magnitude of a block that bf16 has, a power of two, and so for each
// scale that can be: the numbers of every mantissa within 2^19 of it, of both signs,
// which round to every code, lie half way between two or are flushed; with the largest
// of the block ending below, at and above what the scale's step is at. Besides, every
// bit pattern, NaN and infinities in one of 16 blocks only. From block to block
// numbers move by a lane.
func quantInputs(t *testing.T, step int) *eval.Tensor {
	t.Helper()
	var v []float32
	add := func(top float32, block []float32) {
		row := make([]float32, 128)
		for i := range block {
			row[(i+len(v)/128)%128] = block[i]
		}
		if len(block) < 128 {
			row[(127+len(v)/128)%128] = top
		}
		v = append(v, row...)
	}
	for e := -126; e <= 127; e += step {
		var all []float32
		for _, mantissas := range [][2]int{{0, 96}, {96, 128}} { // 448, whose scale is the next one, has mantissa 96
			for back := range 20 {
				for m := mantissas[0]; m < mantissas[1]; m++ {
					x := float32(math.Ldexp(1+float64(m)/128, max(e-back, -126)))
					all = append(all, x, -x)
				}
			}
		}
		for i, part := range slices.Collect(slices.Chunk(all, 127)) {
			for _, m := range []int{[]int{0, 63, 64, 65, 95}[i%5], []int{96, 97, 127}[i%3]} { // two scales
				add(num.RoundBF16(float32(math.Ldexp(1+float64(m)/128, e))), part)
			}
		}
	}
	for b := 0; b < 1<<16; b += 128 {
		block := make([]float32, 128)
		for i := range block {
			block[i] = num.FromBF16(uint16(b + i))
		}
		add(0, block)
	}
	return floatsOf(t, ir.BF16, v, len(v)/128, 128)
}

// What quantises, on gfx942 to e4m3fnuz: decoded, its numbers are those of gfx950 bit
// for bit, but that zeros have no sign.
func TestEmulatedQuantisation(t *testing.T) {
	step := 23
	if long {
		step = 1
	}
	x := quantInputs(t, step)
	ones := blank(t, ir.T(ir.BF16, ir.Int(128)))
	for i := range ones.F {
		ones.F[i] = 1
	}
	unit := blank(t, ir.Scaled(ir.F8E4M3, 128, 128, ir.Int(128), ir.Int(128)))
	for i := range 128 {
		unit.Codes[129*i] = num.E4M3(1)
	}
	unit.Scales[0] = 127
	batches := map[string]*batch{}
	for _, name := range bothChips {
		c := newBatch(t)
		w := unit
		if name == "emu:gfx942" {
			w = recode(t, unit)
		}
		c.op("fake_quant", ir.A("to", ir.F8E4M3, "block", 64, "floor", 1e-4, "dims", 128), exact, x)
		c.op("fake_quant", ir.A("to", ir.F8E4M3, "block", 128, "floor", 1e-4, "dims", 128), exact, x)
		c.op("fake_quant", ir.A("to", ir.F4E2M1, "block", 32, "floor", 6*0x1p-126, "dims", 128), exact, x)
		c.op("rms_norm_quant", ir.A("eps", 0.5), exact, x, ones)
		c.op("rms_norm_and_quant", ir.A("eps", 0.5), exact, x, ones)
		c.op("quantize", ir.A("to", ir.F8E4M3, "block", 128, "floor", 1e-4), exact, x)
		c.op("block_linear", nil, exact, x, w) // the codes that matrix units take
		c.op("block_linear", ir.A("act_block", 64), exact, x, w)
		for _, f := range rowFormats[1:3] { // rows of 128
			c.output("pack_rows to "+f.To.String(), exact, c.b.Unpack(f.RowFormat, c.b.Op1("pack_rows", packAttrs(f.RowFormat, f.floor), c.input(x))))
		}
		batches[name] = c
	}
	want, got := batches["emu:gfx950"].outputs("emu:gfx950"), batches["emu:gfx942"].outputs("emu:gfx942")
	c := batches["emu:gfx950"]
	reference, _ := c.want(c.graph())
	for i, what := range c.what {
		y := fmt.Sprintf("y%d", i)
		if i < 3 || i == 6 || i > 7 { // the first ones are exact, and so are fake_quant and pack_rows
			if d := exact.compare(reference[y], want[y]); d != "" {
				t.Errorf("gfx950 and the evaluator: %s: %s", what, d)
			}
		}
		zeros := 0
		for j, v := range want[y].F {
			if v == 0 && math.Signbit(float64(v)) {
				want[y].F[j] = 0
				zeros++
			}
		}
		for j, v := range got[y].F {
			if v == 0 {
				got[y].F[j] = 0
			}
		}
		if d := exact.compare(want[y], got[y]); d != "" {
			t.Errorf("%s: %s", what, d)
		}
		if len(want[y].F) > 0 && zeros == 0 && i < 6 {
			t.Errorf("%s: no zero lost its sign: the test shows nothing", what)
		}
		if codes := want[y].Codes; len(codes) > 0 {
			if n := scalesWithAllCodes(codes, want[y].Scales); n < 140/step {
				t.Errorf("%s: every code for %d scales only", what, n)
			}
		}
	}
}

// scalesWithAllCodes counts the scales with which blocks of 128 have every finite code
// of e4m3.
func scalesWithAllCodes(codes, scales []byte) (n int) {
	seen := map[byte]map[byte]bool{}
	for i, c := range codes {
		s := scales[i/128]
		if seen[s] == nil {
			seen[s] = map[byte]bool{}
		}
		seen[s][c] = true
	}
	for _, all := range seen {
		if len(all) >= 254 { // all but the NaNs
			n++
		}
	}
	return n
}
