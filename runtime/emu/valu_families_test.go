package emu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir/num"
)

func TestPacked32(t *testing.T) {
	f := func(list ...float32) (r []uint32) {
		for _, x := range list {
			r = append(r, fl(x))
		}
		return r
	}
	for _, c := range []oneCase{
		{line: "v_pk_add_f32 v[0:1], v[2:3], v[4:5]", v: f(0, 0, 1, 2, 10, 20), want: f(11, 22)},
		{line: "v_pk_mul_f32 v[0:1], v[2:3], v[4:5]", v: f(0, 0, 3, 2, 10, 20), want: f(30, 40)},
		{line: "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]", v: f(0, 0, 3, 2, 10, 20, 5, 6), want: f(35, 46)},
		{line: "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], s[2:3]", s: f(0, 0, 5, 6), v: f(0, 0, 3, 2, 10, 20), want: f(35, 46)},
		{line: "v_pk_add_f32 v[0:1], v[2:3], v[4:5] op_sel_hi:[1,0]", v: f(0, 0, 1, 2, 10, 20), want: f(11, 12)},
		{line: "v_pk_add_f32 v[0:1], v[2:3], v[4:5] op_sel:[1,0]", v: f(0, 0, 1, 2, 10, 20), want: f(12, 22)},
		{line: "v_pk_mul_f32 v[0:1], v[2:3], v[4:5] op_sel:[0,1] op_sel_hi:[1,0]", v: f(0, 0, 3, 2, 10, 20), want: f(60, 20)},
		{line: "v_pk_add_f32 v[0:1], v[2:3], v[4:5] neg_lo:[0,1] neg_hi:[0,1]", v: f(0, 0, 1, 2, 10, 20), want: f(-9, -18)},
		{line: "v_pk_add_f32 v[0:1], v[2:3], v[4:5] neg_lo:[1,0] neg_hi:[0,1]", v: f(0, 0, 1, 2, 10, 20), want: f(9, -18)},
		{line: "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], 1.0 op_sel_hi:[1,1,0]", v: f(0, 0, 3, 2, 10, 20), want: f(31, 41)},
		{line: "v_pk_add_f32 v[0:1], v[2:3], 0 op_sel_hi:[1,0] neg_lo:[0,1] neg_hi:[0,1]", v: []uint32{0, 0, 1 << 31, 0}, want: []uint32{1 << 31, 0}},
		{line: "v_pk_add_f32 v[0:1], v[2:3], 0 neg_lo:[1,1] neg_hi:[1,1]", v: []uint32{0, 0, 0, fl(5)}, want: []uint32{1 << 31, fl(-5)}},
		{line: "v_pk_mul_f32 v[0:1], v[2:3], v[4:5] clamp", v: f(0, 0, 3, -2, 10, 20), want: f(1, 0)},
		// The destination is a source of the other half.
		{line: "v_pk_add_f32 v[0:1], v[0:1], v[0:1] op_sel:[1,1] op_sel_hi:[0,0]", v: f(1, 2), want: f(4, 2)},
		{line: "v_pk_mov_b32 v[0:1], v[2:3], v[4:5] op_sel:[1,0]", v: []uint32{0, 0, 1, 2, 3, 4}, want: []uint32{2, 3}},
		{line: "v_pk_mov_b32 v[0:1], v[0:1], v[0:1] op_sel:[1,0]", v: []uint32{1, 2}, want: []uint32{2, 1}},
		{line: "v_pk_mov_b32 v[0:1], s[2:3], v[4:5] op_sel:[0,1]", s: []uint32{0, 0, 7, 8}, v: []uint32{0, 0, 0, 0, 3, 4}, want: []uint32{7, 4}},
	} {
		c.run(t)
	}
	w := runWave(t, snippet(t, "gfx942", "v_pk_add_f32 v[0:1], v[2:3], v[4:5]"), func(w *wave) {
		w.setExec(5)
		for r := range 6 {
			fill(&w.v[r], fl(float32(r)))
		}
	})
	for lane, on := range []bool{true, false, true, false} {
		want := [2]uint32{fl(0), fl(1)}
		if on {
			want = [2]uint32{fl(6), fl(8)}
		}
		if got := [2]uint32{w.v[0][lane], w.v[1][lane]}; got != want {
			t.Errorf("lane %d: %#x, want %#x", lane, got, want)
		}
	}
}

// Each packed instruction of halves does what its instruction of one half does, on the
// halves that op_sel and op_sel_hi choose.
func TestPacked16(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	one := map[string]laneCase{}
	for _, c := range laneCases {
		one[c.op] = c
	}
	one["v_pk_maximum3_f16"] = laneCase{"", "f16 f16 f16 f16", func(s [3]uint64) uint64 { return extreme(s, halves16, greater, 0x7e00) }}
	one["v_pk_minimum3_f16"] = laneCase{"", "f16 f16 f16 f16", func(s [3]uint64) uint64 { return extreme(s, halves16, order, 0x7e00) }}
	ops := []string{"v_pk_maximum3_f16", "v_pk_minimum3_f16"}
	for op := range packed16Ops {
		ops = append(ops, op)
	}
	slices.Sort(ops)
	for _, op := range ops {
		base, ok := packed16Ops[op]
		if !ok {
			base = op
		}
		c := one[base]
		kinds := strings.Fields(c.types)
		n := len(kinds) - 1
		list := func(bits int) string {
			var s []string
			for i := range n {
				s = append(s, fmt.Sprint(bits>>i&1))
			}
			return "[" + strings.Join(s, ",") + "]"
		}
		for range 12 {
			low, high, negLow, negHigh := r.IntN(1<<n), r.IntN(1<<n), 0, 0
			operands := strings.Join([]string{"v0", "v1", "v2", "v3"}[:n+1], ", ")
			line := fmt.Sprintf("%s %s op_sel:%s op_sel_hi:%s", op, operands, list(low), list(high))
			if kinds[0] == "f16" {
				negLow, negHigh = r.IntN(1<<n), r.IntN(1<<n)
				line += fmt.Sprintf(" neg_lo:%s neg_hi:%s", list(negLow), list(negHigh))
			}
			exec := r.Uint64()
			var in [4]Vec
			w := runWave(t, snippet(t, "gfx950", line), func(w *wave) {
				w.setExec(exec)
				for v := range in {
					for i := range Lanes {
						k := valuKinds[kinds[max(v, 1)%len(kinds)]]
						w.v[v][i] = uint32(k.pick(r)) | uint32(k.pick(r))<<16
					}
					in[v] = w.v[v]
				}
			})
			for i := range Lanes {
				if exec>>i&1 == 0 {
					if w.v[0][i] != in[0][i] {
						t.Fatalf("%s: lane %d is off and changes", line, i)
					}
					continue
				}
				for half, choice := range [][2]int{{low, negLow}, {high, negHigh}} {
					var s [3]uint64
					for k := range n {
						s[k] = uint64(in[k+1][i]) >> (16 * (choice[0] >> k & 1)) & 0xffff
						s[k] ^= uint64(choice[1]>>k&1) << 15
					}
					got, want := uint64(w.v[0][i])>>(16*half)&0xffff, c.want(s)&0xffff
					if !sameLane(valuKinds[kinds[0]], got, want) {
						t.Fatalf("%s: half %d of %#x is %#x, want %#x", line, half, s, got, want)
					}
				}
			}
		}
	}
}

func TestPacked16Forms(t *testing.T) {
	for _, c := range []oneCase{
		{line: "v_pk_add_f16 v0, v1, 1.0 op_sel_hi:[1,0]", v: []uint32{0, 0x40003c00}, want: []uint32{0x42004000}},
		{line: "v_pk_add_f16 v0, v1, 1.0", v: []uint32{0, 0x40003c00}, want: []uint32{0x40004000}},
		{line: "v_pk_add_u16 v0, v1, -5", v: []uint32{0, 0x00050006}, want: []uint32{0x00040001}},
		{line: "v_pk_add_u16 v0, v1, 5", v: []uint32{0, 0x00050006}, want: []uint32{0x0005000b}},
		{line: "v_pk_mul_f16 v0, v1, s0", s: []uint32{0x42004000}, v: []uint32{0, 0x42003c00}, want: []uint32{0x48804000}},
		{line: "v_pk_add_f16 v0, v1, v2 clamp", v: []uint32{0, 0x3c00bc00, 0x3c003800}, want: []uint32{0x3c000000}},
		{line: "v_pk_add_u16 v0, v1, v2 clamp", v: []uint32{0, 0xfffe0001, 0x00050002}, want: []uint32{0xffff0003}},
		{line: "v_pk_sub_u16 v0, v1, v2 clamp", v: []uint32{0, 0x00010005, 0x00020002}, want: []uint32{0x00000003}},
		{line: "v_pk_add_i16 v0, v1, v2 clamp", v: []uint32{0, 0x7fff8000, 0x0001ffff}, want: []uint32{0x7fff8000}},
		{line: "v_pk_fma_f16 v0, v0, v0, v0 op_sel:[1,1,1] op_sel_hi:[0,0,0]", v: []uint32{0x40003c00}, want: []uint32{0x40004600}},
	} {
		c.run(t)
	}
}

func TestMix(t *testing.T) {
	for _, c := range []oneCase{
		{line: "v_fma_mix_f32 v0, v1, v2, v3", v: []uint32{0, fl(2), fl(3), fl(4)}, want: []uint32{fl(10)}},
		{line: "v_fma_mix_f32 v0, v1, v2, v3 op_sel_hi:[1,0,0]", v: []uint32{0, 0x12344000, fl(3), fl(4)}, want: []uint32{fl(10)}},
		{line: "v_fma_mix_f32 v0, v1, v2, v3 op_sel:[1,0,1] op_sel_hi:[1,0,1]", v: []uint32{0, 0x40001234, fl(3), 0x44004321}, want: []uint32{fl(10)}},
		{line: "v_fma_mix_f32 v0, -v1, |v2|, v3 op_sel_hi:[1,1,0]", v: []uint32{0, 0x4000, 0xc200, fl(4)}, want: []uint32{fl(-2)}},
		{line: "v_fma_mix_f32 v0, v1, v2, 1.0 op_sel_hi:[1,0,0]", v: []uint32{0, 0x4000, fl(3)}, want: []uint32{fl(7)}},
		{line: "v_fma_mix_f32 v0, v1, v2, v3 op_sel_hi:[1,0,0] clamp", v: []uint32{0, 0x4000, fl(3), fl(4)}, want: []uint32{fl(1)}},
		{line: "v_fma_mixlo_f16 v0, v1, v2, v3", v: []uint32{0xabcd1234, fl(2), fl(3), fl(4)}, want: []uint32{0xabcd4900}},
		{line: "v_fma_mixhi_f16 v0, v1, v2, v3 op_sel_hi:[1,0,0]", v: []uint32{0xabcd1234, 0x4000, fl(3), fl(4)}, want: []uint32{0x49001234}},
		{line: "v_fma_mixhi_f16 v0, v1, v2, v3 clamp", v: []uint32{0xabcd1234, fl(2), fl(3), fl(4)}, want: []uint32{0x3c001234}},
		// One f32 rounding, then one to f16: a value just above a tie of halves falls on
		// it in f32 and then goes to the even one.
		{line: "v_fma_mixlo_f16 v0, v1, v2, v3", v: []uint32{0, fl(1 + 0x1p-11), fl(1), fl(0x1p-40)}, want: []uint32{0x3c00}},
	} {
		c.run(t)
	}
}

func TestDot(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	for _, c := range []struct {
		op              string
		size            int
		signed, clamped bool
	}{
		{"v_dot2_i32_i16", 16, true, true}, {"v_dot2_u32_u16", 16, false, true}, {"v_dot4_i32_i8", 8, true, true}, {"v_dot4_u32_u8", 8, false, true},
		{"v_dot8_i32_i4", 4, true, true}, {"v_dot8_u32_u4", 4, false, true},
		{"v_dot2c_i32_i16", 16, true, false}, {"v_dot4c_i32_i8", 8, true, false}, {"v_dot8c_i32_i4", 4, true, false},
	} {
		for _, clamp := range []string{"", " clamp"}[:1+map[bool]int{true: 1}[c.clamped]] {
			line := c.op + " v0, v1, v2, v3" + clamp
			if !c.clamped {
				line = c.op + "_e32 v3, v1, v2"
			}
			var in [4]Vec
			w := runWave(t, snippet(t, "gfx942", line), func(w *wave) {
				for v := range in {
					for i := range Lanes {
						w.v[v][i] = uint32(valuKinds["u32"].pick(r))
					}
					in[v] = w.v[v]
				}
			})
			for i := range Lanes {
				sum := int64(in[3][i])
				if c.signed {
					sum = int64(int32(in[3][i]))
				}
				for k := 0; k < 32; k += c.size {
					x, y := int64(bitField(uint64(in[1][i]), k, c.size)), int64(bitField(uint64(in[2][i]), k, c.size))
					if c.signed {
						x, y = x-x>>(c.size-1)<<c.size, y-y>>(c.size-1)<<c.size
					}
					sum += x * y
				}
				if clamp != "" {
					lo, hi := int64(0), int64(math.MaxUint32)
					if c.signed {
						lo, hi = math.MinInt32, math.MaxInt32
					}
					sum = clampTo(sum, lo, hi)
				}
				got := w.v[0][i]
				if !c.clamped {
					got = w.v[3][i]
				}
				if got != uint32(sum) {
					t.Fatalf("%s: of %#x, %#x, %#x: %#x, want %#x", line, in[1][i], in[2][i], in[3][i], got, uint32(sum))
				}
			}
		}
	}
}

// float8Value is the value of a code, from the definition of the format.
func float8Value(chip, format string, code uint32) float64 {
	man, bias := 3, 7
	if format == "bf8" {
		man, bias = 2, 15
	}
	e, m, sign := int(code&0x7f)>>man, int(code)&(1<<man-1), 1-2*int(code>>7)
	if chip == "gfx942" {
		if code == 0x80 {
			return math.NaN()
		}
		bias++
	} else {
		switch {
		case format == "fp8" && code&0x7f == 0x7f:
			return math.NaN()
		case format == "bf8" && e == 31 && m == 0:
			return math.Inf(sign)
		case format == "bf8" && e == 31:
			return math.NaN()
		}
	}
	v := math.Ldexp(float64(m), 1-bias-man)
	if e > 0 {
		v = math.Ldexp(float64(m+1<<man), e-bias-man)
	}
	return math.Copysign(v, float64(sign))
}

func TestFloat8Decode(t *testing.T) {
	for _, chip := range Chips {
		for _, format := range []string{"fp8", "bf8"} {
			for base := uint32(0); base < 256; base += Lanes {
				k := snippet(t, chip, "v_cvt_f32_"+format+"_e32 v0, v9", "v_cvt_f32_"+format+"_sdwa v1, v9 src0_sel:BYTE_2", "v_cvt_pk_f32_"+format+"_e32 v[2:3], v9",
					"v_cvt_pk_f32_"+format+"_sdwa v[4:5], v9 src0_sel:WORD_1")
				w := runWave(t, k, func(w *wave) {
					for i := range uint32(Lanes) {
						c := base + i
						w.v[9][i] = c | (c^1)<<8 | (c^2)<<16 | (c^3)<<24
					}
				})
				for i := range uint32(Lanes) {
					for v, x := range []uint32{0, 2, 0, 1, 2, 3} {
						code := base + i ^ x
						want := float8Value(chip, format, code)
						if got := w.v[v][i]; !sameFloat32(got, fl(float32(want))) {
							t.Errorf("%s %s: %#x in v%d is %v, want %v", chip, format, code, v, math.Float32frombits(got), want)
						}
						decode := map[string]num.Format{"gfx942": num.FmtE4M3FNUZ, "gfx950": num.FmtE4M3}
						if format == "fp8" && !sameFloat32(w.v[v][i], fl(decode[chip].Decode(byte(code)))) {
							t.Errorf("%s %s: %#x is not that of ir/num", chip, format, code)
						}
					}
				}
			}
		}
	}
}

// wantFloat8 searches the nearest code; ties go to the even one.
func wantFloat8(chip, format string, x float64) uint32 {
	fnuz := chip == "gfx942"
	sign := uint32(0)
	if math.Signbit(x) {
		sign = 0x80
	}
	nan, overflow, last := sign|0x7f, sign|0x7f, uint32(0x7e)
	switch {
	case fnuz:
		nan, overflow, last = 0x80, 0x80, 0x7f
	case format == "bf8":
		overflow, last = sign|0x7c, 0x7b
	}
	if x != x {
		return nan
	}
	a := math.Abs(x)
	best, distance := uint32(0), a
	for c := uint32(1); c <= last; c++ {
		if d := math.Abs(a - float8Value(chip, format, c)); d < distance || d == distance && c%2 == 0 {
			best, distance = c, d
		}
	}
	// What rounds to the next value that the format would have is too large.
	step := float8Value(chip, format, last) - float8Value(chip, format, last-1)
	limit := float8Value(chip, format, last) + step/2
	if a > limit || a == limit && last%2 == 1 {
		return overflow
	}
	if fnuz && best == 0 {
		return 0
	}
	return sign | best
}

func TestFloat8Encode(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	for _, chip := range Chips {
		for _, format := range []string{"fp8", "bf8"} {
			var values []uint32
			for c := range uint32(128) {
				v := float8Value(chip, format, c)
				if !finite(v) {
					continue
				}
				// The code, its middle with the next and what is around them.
				next := float8Value(chip, format, c+1)
				if !finite(next) {
					next = v + v - float8Value(chip, format, c-1)
				}
				for _, x := range []float64{v, (v + next) / 2, v * 1.01, v + (next-v)*.75} {
					b := fl(float32(x))
					values = append(values, b, b+1, b-1&0x7fffffff)
				}
			}
			values = append(values, special32...)
			for range 2000 {
				values = append(values, r.Uint32(), fl(float32(r.NormFloat64()*100)), fl(float32(r.NormFloat64()*.01)))
			}
			values = bothSigns(values)
			k := snippet(t, chip, "v_cvt_pk_"+format+"_f32 v0, v2, v3", "v_cvt_pk_"+format+"_f32 v1, -v2, |v3| op_sel:[0,0,1]")
			for len(values) >= 2*Lanes {
				w := runWave(t, k, func(w *wave) {
					fill(&w.v[0], 0xaaaabbbb)
					fill(&w.v[1], 0xaaaabbbb)
					copy(w.v[2][:], values)
					copy(w.v[3][:], values[Lanes:])
				})
				for i := range Lanes {
					a, b := f32of(uint64(values[i])), f32of(uint64(values[Lanes+i]))
					want := 0xaaaa0000 | wantFloat8(chip, format, a) | wantFloat8(chip, format, b)<<8
					if got := w.v[0][i]; got != want {
						t.Fatalf("%s %s: of %v, %v: %#x, want %#x", chip, format, a, b, got, want)
					}
					want = 0xbbbb | (wantFloat8(chip, format, -a)|wantFloat8(chip, format, math.Abs(b))<<8)<<16
					if got := w.v[1][i]; got != want && a == a && b == b {
						t.Fatalf("%s %s: of %v, %v: %#x, want %#x", chip, format, -a, math.Abs(b), got, want)
					}
				}
				values = values[2*Lanes:]
			}
		}
	}
}

func TestScaledDecode(t *testing.T) {
	fp4 := []float64{0, .5, 1, 1.5, 2, 3, 4, 6, math.Copysign(0, -1), -.5, -1, -1.5, -2, -3, -4, -6}
	r := rand.New(rand.NewPCG(61, 62))
	for sel := range 4 {
		opSel := fmt.Sprintf(" op_sel:[%d,%d,0]", sel&1, sel>>1)
		lines := []string{
			"v_cvt_scalef32_pk_f32_fp4 v[0:1], v9, v8" + opSel, "v_cvt_scalef32_pk_f16_fp4 v2, v9, v8" + opSel, "v_cvt_scalef32_pk_bf16_fp4 v3, v9, v8" + opSel,
			"v_cvt_scalef32_f32_fp8 v4, v9, v8" + opSel, "v_cvt_scalef32_f32_bf8 v5, v9, v8" + opSel,
		}
		if sel < 2 {
			lines = append(lines, "v_cvt_scalef32_pk_f32_fp8 v[10:11], v9, v8"+opSel, "v_cvt_scalef32_pk_f16_bf8 v12, v9, v8"+opSel, "v_cvt_scalef32_pk_bf16_fp8 v13, v9, v8"+opSel)
		}
		var codes, scales Vec
		w := runWave(t, snippet(t, "gfx950", lines...), func(w *wave) {
			for i := range Lanes {
				w.v[9][i], w.v[8][i] = r.Uint32(), fl(float32(math.Ldexp(1+r.Float64(), r.IntN(20)-10)))
			}
			w.v[8][0], w.v[8][1], w.v[8][2] = 0x7f800000, 0, 0x80000000|fl(1)
			codes, scales = w.v[9], w.v[8]
		})
		for i := range Lanes {
			e := int(scales[i] >> 23 & 255)
			scale := math.Ldexp(1, e-127)
			if e == 255 {
				scale = math.NaN()
			}
			b := codes[i] >> (8 * sel) & 255
			low, high := fp4[b&15]*scale, fp4[b>>4]*scale
			half2 := func(x, y float64) uint32 { return uint32(half(x) | half(y)<<16) }
			brain2 := func(x, y float64) uint32 {
				return uint32(wantBF16(uint64(fl(float32(x)))) | wantBF16(uint64(fl(float32(y))))<<16)
			}
			want := map[int]uint32{
				0: fl(float32(low)), 1: fl(float32(high)), 2: half2(low, high), 3: brain2(low, high),
				4: fl(float32(float8Value("gfx950", "fp8", b) * scale)), 5: fl(float32(float8Value("gfx950", "bf8", b) * scale)),
			}
			if sel < 2 {
				x, y := codes[i]>>(16*sel)&255, codes[i]>>(16*sel+8)&255
				f := func(format string, c uint32) float64 { return float8Value("gfx950", format, c) * scale }
				want[10], want[11] = fl(float32(f("fp8", x))), fl(float32(f("fp8", y)))
				want[12], want[13] = half2(f("bf8", x), f("bf8", y)), brain2(f("fp8", x), f("fp8", y))
			}
			for v, x := range want {
				got := w.v[v][i]
				same := sameFloat32(got, x)
				if v == 2 || v == 3 || v == 12 || v == 13 { // NaNs of both halves
					same = got == x || slices.ContainsFunc([]uint32{0x7fff, 0x7fff0000}, func(m uint32) bool {
						return got&m >= 0x7c007c00&m && x&m >= 0x7c007c00&m
					})
				}
				if !same {
					t.Errorf("v%d of codes %#x and scale %#x, byte %d: %#x, want %#x", v, codes[i], scales[i], sel, got, x)
				}
			}
		}
	}
}

func TestScaledEncode(t *testing.T) {
	nearest := func(x float64) uint32 {
		values := []float64{0, .5, 1, 1.5, 2, 3, 4, 6}
		best := 0
		a := min(math.Abs(x), 10) // so that the differences are exact
		for c, v := range values {
			if d, e := math.Abs(a-v), math.Abs(a-values[best]); d < e || d == e && c%2 == 0 {
				best = c
			}
		}
		return uint32(best) | map[bool]uint32{true: 8}[math.Signbit(x)]
	}
	values := []float64{0, .25, .26, .75, .74, 1.25, 1.3, 1.75, 2.5, 2.6, 3.5, 5, 5.1, 6, 7, 100, 1e30, -1, -.25, -5, -.3, .1}
	for sel := range 4 {
		opSel := fmt.Sprintf(" op_sel:[0,0,%d,%d]", sel&1, sel>>1)
		k := snippet(t, "gfx950", "v_cvt_scalef32_pk_fp4_f32 v0, v3, v4, v5"+opSel, "v_cvt_scalef32_pk_fp4_bf16 v1, v6, v5"+opSel, "v_cvt_scalef32_pk_fp4_f16 v2, v7, v5"+opSel)
		const scale = 4
		x := func(i int) float64 { return values[i%len(values)] * scale }
		y := func(i int) float64 { return values[(i+7)%len(values)] * scale }
		w := runWave(t, k, func(w *wave) {
			fill(&w.v[5], fl(scale*1.75)) // the mantissa does not count
			for i := range Lanes {
				w.v[0][i], w.v[1][i], w.v[2][i] = 0x12345678, 0x12345678, 0x12345678
				w.v[3][i], w.v[4][i] = fl(float32(x(i))), fl(float32(y(i)))
				w.v[6][i] = uint32(wantBF16(uint64(w.v[3][i])) | wantBF16(uint64(w.v[4][i]))<<16)
				w.v[7][i] = uint32(half(x(i)) | half(y(i))<<16)
			}
		})
		for i := range Lanes {
			for v, rounded := range []func(x float64) float64{
				func(x float64) float64 { return float64(float32(x)) },
				func(x float64) float64 { return f32of(wantBF16(uint64(fl(float32(x)))) << 16) },
				func(x float64) float64 { return halfValue(half(x)) },
			} {
				b := nearest(rounded(x(i))/scale) | nearest(rounded(y(i))/scale)<<4
				want := 0x12345678&^(0xff<<(8*sel)) | b<<(8*sel)
				if w.v[v][i] != want {
					t.Errorf("v%d of %v, %v, byte %d: %#x, want %#x", v, x(i)/scale, y(i)/scale, sel, w.v[v][i], want)
				}
			}
		}
	}
}

func TestBitop3(t *testing.T) {
	const a, b, c = 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa // bit i of the table's index 0..7, four times
	for table := range uint32(256) {
		oneCase{chip: "gfx950", line: fmt.Sprintf("v_bitop3_b32 v0, v1, v2, v3 bitop3:%#x", table), v: []uint32{0, a, b, c}, want: []uint32{table * 0x01010101}}.run(t)
	}
	oneCase{chip: "gfx950", line: "v_bitop3_b32 v0, v1, v2, v3", v: []uint32{5, a, b, c}, want: []uint32{0}}.run(t)
	oneCase{chip: "gfx950", line: "v_bitop3_b16 v0, v1, v2, v3 bitop3:0x80 op_sel:[0,1,0,0]", v: []uint32{0x12345678, 0xffff, 0x0ff00000, 0x3fff}, want: []uint32{0x12340ff0}}.run(t)
	oneCase{chip: "gfx950", line: "v_bitop3_b16 v0, v1, v2, v3 bitop3:0x80 op_sel:[0,0,0,1]", v: []uint32{0x12345678, 0xffff, 0x0ff0, 0x3fff}, want: []uint32{0x0ff05678}}.run(t)
}

func TestLaneInstructions(t *testing.T) {
	count := func(w *wave) {
		for v := range 4 {
			for i := range Lanes {
				w.v[v][i] = uint32(1000*v + i)
			}
		}
	}
	for _, c := range []struct {
		line string
		exec uint64
		want func(w *wave) (got, want uint32)
	}{
		{"v_readfirstlane_b32 s4, v1", 0xfff0, func(w *wave) (uint32, uint32) { return w.s[4], 1004 }},
		{"v_readfirstlane_b32 s4, v1", 0, func(w *wave) (uint32, uint32) { return w.s[4], 1000 }},
		{"v_readlane_b32 s4, v1, 63", 1, func(w *wave) (uint32, uint32) { return w.s[4], 1063 }},
		{"v_readlane_b32 s4, v1, s5", 1, func(w *wave) (uint32, uint32) { return w.s[4], 1003 }}, // 67 modulo 64
		{"v_writelane_b32 v1, s5, 9", 1, func(w *wave) (uint32, uint32) { return w.v[1][9], 67 }},
		{"v_writelane_b32 v1, 7, s5", 0, func(w *wave) (uint32, uint32) { return w.v[1][3], 7 }},
		{"v_swap_b32 v1, v2", 1 << 5, func(w *wave) (uint32, uint32) { return w.v[1][5], 2005 }},
		{"v_swap_b32 v1, v2", 1 << 5, func(w *wave) (uint32, uint32) { return w.v[2][5], 1005 }},
		{"v_swap_b32 v1, v2", 1 << 5, func(w *wave) (uint32, uint32) { return w.v[1][6], 1006 }},
		{"v_nop", 1, func(w *wave) (uint32, uint32) { return w.v[1][6], 1006 }},
		{"v_mbcnt_lo_u32_b32 v0, -1, 0", ^uint64(0), func(w *wave) (uint32, uint32) { return w.v[0][20], 20 }},
		{"v_mbcnt_lo_u32_b32 v0, -1, 0", ^uint64(0), func(w *wave) (uint32, uint32) { return w.v[0][50], 32 }},
		{"v_mbcnt_hi_u32_b32 v0, -1, v1", ^uint64(0), func(w *wave) (uint32, uint32) { return w.v[0][20], 1020 }},
		{"v_mbcnt_hi_u32_b32 v0, -1, v1", ^uint64(0), func(w *wave) (uint32, uint32) { return w.v[0][50], 1068 }},
		{"v_mbcnt_lo_u32_b32 v0, s5, 5", ^uint64(0), func(w *wave) (uint32, uint32) { return w.v[0][2], 7 }},
	} {
		w := runWave(t, snippet(t, "gfx942", c.line), func(w *wave) {
			count(w)
			w.s[5] = 67
			w.setExec(c.exec)
		})
		if got, want := c.want(w); got != want {
			t.Errorf("%s: %d, want %d", c.line, got, want)
		}
	}
}

func TestPermlaneSwap(t *testing.T) {
	for _, n := range []int{16, 32} {
		k := snippet(t, "gfx950", fmt.Sprintf("v_permlane%d_swap_b32_e32 v1, v2", n))
		start := func(exec uint64) func(w *wave) {
			return func(w *wave) {
				for i := range Lanes {
					w.v[1][i], w.v[2][i] = uint32(1000+i), uint32(2000+i)
				}
				w.setExec(exec)
			}
		}
		// Both lanes of a pair have to be on.
		pairs := uint64(0x0000000300000003)
		if n == 16 {
			pairs = 0x0000000000030003
		}
		for _, exec := range []uint64{math.MaxUint64, pairs} {
			w := runWave(t, k, start(exec))
			for i := range Lanes {
				first, second := uint32(1000+i), uint32(2000+i)
				if exec>>i&1 != 0 {
					if i/n%2 == 1 { // odd rows of the first get the even ones of the second
						first = uint32(2000 + i - n)
					} else {
						second = uint32(1000 + i + n)
					}
				}
				if w.v[1][i] != first || w.v[2][i] != second {
					t.Errorf("%d: EXEC %#x: lane %d: %d, %d, want %d, %d", n, exec, i, w.v[1][i], w.v[2][i], first, second)
				}
			}
		}
		if _, err := tryWave(k, start(1)); err == nil || !strings.Contains(err.Error(), "whose partner is not") {
			t.Errorf("%d: half a pair: %v", n, err)
		}
	}
}

func TestGPRIndex(t *testing.T) {
	start := func(index uint32) func(w *wave) {
		return func(w *wave) {
			w.s[5] = index
			for v := range 32 {
				fill(&w.v[v], uint32(100*v))
			}
		}
	}
	run := func(index uint32, lines ...string) *wave {
		return runWave(t, snippet(t, "gfx942", lines...), start(index))
	}
	const off = "s_set_gpr_idx_off"
	for _, c := range []struct {
		name  string
		w     *wave
		reg   int
		value uint32
	}{
		{"source", run(3, "s_set_gpr_idx_on s5, gpr_idx(SRC0)", "v_mov_b32_e32 v0, v1", off), 0, 400},
		{"destination", run(3, "s_set_gpr_idx_on s5, gpr_idx(DST)", "v_mov_b32_e32 v1, v0", off), 4, 0},
		{"source 1 only", run(3, "s_set_gpr_idx_on s5, gpr_idx(SRC1)", "v_sub_u32_e32 v0, v9, v1", off), 0, 500},
		{"both sources", run(3, "s_set_gpr_idx_on s5, gpr_idx(SRC0,SRC1)", "v_sub_u32_e32 v0, v9, v1", off), 0, 800},
		{"source 2", run(2, "s_set_gpr_idx_on s5, gpr_idx(SRC2)", "v_add3_u32 v0, v1, v2, v3", off), 0, 800},
		{"no operand", run(3, "s_set_gpr_idx_on s5, gpr_idx()", "v_mov_b32_e32 v0, v1", off), 0, 100},
		{"off", run(3, "s_set_gpr_idx_on s5, gpr_idx(SRC0)", off, "v_mov_b32_e32 v0, v1"), 0, 100},
		{"another index", run(3, "s_set_gpr_idx_on s5, gpr_idx(SRC0)", "s_set_gpr_idx_idx 6", "v_mov_b32_e32 v0, v1", off), 0, 700},
		{"another mode", run(3, "s_set_gpr_idx_on s5, gpr_idx(SRC0)", "s_set_gpr_idx_mode gpr_idx(DST)", "v_mov_b32_e32 v1, v2", off), 4, 200},
		{"constant", run(3, "s_set_gpr_idx_on s5, gpr_idx(SRC0,DST)", "v_mov_b32_e32 v1, 7", off), 4, 7},
		{"pair", run(4, "s_set_gpr_idx_on s5, gpr_idx(SRC0)", "v_mov_b64_e32 v[0:1], v[2:3]", off), 1, 700},
		{"only the low byte", run(0x103, "s_set_gpr_idx_on s5, gpr_idx(SRC0)", "v_mov_b32_e32 v0, v1", off), 0, 400},
		{"compare", run(3, "s_set_gpr_idx_on s5, gpr_idx(SRC0)", "v_cmp_eq_u32_e32 vcc, v1, v4", off, "v_cndmask_b32_e64 v0, 1, 2, vcc"), 0, 2},
	} {
		if got := c.w.v[c.reg][17]; got != c.value {
			t.Errorf("%s: v%d is %d, want %d", c.name, c.reg, got, c.value)
		}
	}
	// Out of range a source is v0, and a destination is not written.
	k := snippet(t, "gfx942", "s_set_gpr_idx_on s5, gpr_idx(SRC0,DST)", "v_mov_b32_e32 v200, v201", off)
	k.vgprs = 256
	w := runWave(t, k, func(w *wave) {
		start(100)(w)
		fill(&w.v[200], 5)
		fill(&w.v[0], 9)
	})
	if w.v[200][0] != 5 || w.v[0][0] != 9 {
		t.Errorf("out of range: v200 is %d, v0 is %d", w.v[200][0], w.v[0][0])
	}
	for _, line := range []string{"v_fmac_f32_e32 v0, v1, v2", "v_readfirstlane_b32 s0, v1", "v_pk_add_f32 v[0:1], v[2:3], v[4:5]"} {
		_, err := tryWave(snippet(t, "gfx942", "s_set_gpr_idx_on s5, gpr_idx(SRC0)", line, off), start(1))
		if err == nil || !strings.Contains(err.Error(), "VGPR index mode") {
			t.Errorf("%s in index mode: %v", line, err)
		}
	}
}

// Single rounding where an f64 in between would round twice.
func TestFMARoundsOnce(t *testing.T) {
	for _, c := range [][4]uint32{
		// 1 + 2^-23, times itself, plus what tips the tie.
		{fl(1 + 0x1p-12), fl(1 + 0x1p-12), fl(0x1p-60), fl(1 + 0x1p-11 + 0x1p-23)},
		{fl(1 + 0x1p-12), fl(1 + 0x1p-12), fl(-0x1p-60), fl(1 + 0x1p-11)},
		{fl(1 + 0x1p-12), fl(1 + 0x1p-12), 0, fl(1 + 0x1p-11)},
		// Denormal results.
		{fl(0x1p-75), fl(0x1.8p-75), 1, 2}, // 2^-149 + 0.75 * 2^-149
		{fl(0x1p-75), fl(0x1p-75), 0, 0},   // the tie with 0
		{fl(0x1p-75), fl(0x1.000002p-75), 0, 1},
		{fl(0x1p-75), fl(-0x1p-75), 0x00800000, 0x00800000},
		{fl(0x1p-75), fl(-0x1p-75), 0x007fffff, 0x007ffffe},
	} {
		oneCase{line: "v_fma_f32 v0, v1, v2, v3", v: []uint32{0, c[0], c[1], c[2]}, want: []uint32{c[3]}}.run(t)
		if want := wantFMA32([3]uint64{uint64(c[0]), uint64(c[1]), uint64(c[2])}); want != uint64(c[3]) {
			t.Errorf("the test itself: of %#x %#x, want %#x", c[:3], c[3], want)
		}
	}
}
