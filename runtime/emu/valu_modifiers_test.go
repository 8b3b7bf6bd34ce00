package emu

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
)

// fill puts values into a register, lane by lane, again from the start after the last.
func fill(v *Vec, values ...uint32) {
	for i := range v {
		v[i] = values[i%len(values)]
	}
}

func fl(x float32) uint32 { return math.Float32bits(x) }

// oneCase executes one instruction with all lanes alike. The values of s start at s0, of
// v at v0; want is v0, or v[0:1] if it has two values.
type oneCase struct {
	chip, line string
	s, v       []uint32
	want       []uint32
}

func (c oneCase) run(t *testing.T) {
	t.Helper()
	chips := Chips
	if c.chip != "" {
		chips = []string{c.chip}
	}
	for _, chip := range chips {
		w := runWave(t, snippet(t, chip, c.line), func(w *wave) {
			copy(w.s[:], c.s)
			for i, x := range c.v {
				fill(&w.v[i], x)
			}
		})
		for i, want := range c.want {
			for lane, got := range w.v[i] {
				if !sameFloat32(got, want) {
					t.Errorf("%s: %s: v%d of lane %d is %#x, want %#x", chip, c.line, i, lane, got, want)
					break
				}
			}
		}
	}
}

func TestOperandForms(t *testing.T) {
	one, two, half := fl(1), fl(2), fl(.5)
	nan := uint32(0x7fc00000)
	for _, c := range []oneCase{
		// Constants mean what the type says.
		{line: "v_add_f32_e32 v0, 1.0, v1", v: []uint32{0, one}, want: []uint32{two}},
		{line: "v_mov_b32_e32 v0, 1.0", want: []uint32{one}},
		{line: "v_mov_b32_e32 v0, -4.0", want: []uint32{fl(-4)}},
		{line: "v_mov_b32_e32 v0, -16", want: []uint32{0xfffffff0}},
		{line: "v_mov_b32_e32 v0, 0x12345678", want: []uint32{0x12345678}},
		{line: "v_mov_b32_e32 v0, lit(0x1)", want: []uint32{1}},
		{line: "v_mul_f32_e32 v0, 0.15915494, v1", v: []uint32{0, one}, want: []uint32{0x3e22f983}},
		{line: "v_add_f16_e32 v0, 1.0, v1", v: []uint32{0, 0x3c00}, want: []uint32{0x4000}},
		{line: "v_mul_f16_e32 v0, 0.15915494, v1", v: []uint32{0, 0x3c00}, want: []uint32{0x3118}},
		{line: "v_add_f16_e32 v0, 0x4200, v1", v: []uint32{0, 0x3c00}, want: []uint32{0x4400}},
		{line: "v_add_f64 v[0:1], v[2:3], 1.0", v: []uint32{0, 0, 0, 0x3ff00000}, want: []uint32{0, 0x40000000}},
		{line: "v_mul_f64 v[0:1], v[2:3], 0.15915494309189532", v: []uint32{0, 0, 0, 0x3ff00000}, want: []uint32{0x6dc9c882, 0x3fc45f30}},
		{line: "v_ldexp_f64 v[0:1], v[2:3], -1", v: []uint32{0, 0, 0, 0x3ff00000}, want: []uint32{0, 0x3fe00000}},
		{line: "v_rcp_f64_e32 v[0:1], 0x40080000", want: []uint32{0x55555555, 0x3fd55555}},
		// A 32-bit literal of 64 bits: only a signed operand extends its sign.
		{line: "v_mov_b64_e32 v[0:1], 0xaaaaaaab", want: []uint32{0xaaaaaaab, 0}},
		{line: "v_mov_b64_e32 v[0:1], -1", want: []uint32{0xffffffff, 0xffffffff}},
		// A literal is zero extended: LLVM makes two moves of -305419897, one of 0xffffffff.
		{line: "v_mov_b64_e32 v[0:1], 0xffffffff", want: []uint32{0xffffffff, 0}},
		{line: "v_mov_b64_e32 v[0:1], 0xffff1234", want: []uint32{0xffff1234, 0}},
		{line: "v_lshl_add_u64 v[0:1], s[2:3], 3, v[2:3]", s: []uint32{0, 0, 0x80000000, 1}, v: []uint32{0, 0, 1, 0}, want: []uint32{1, 12}},
		// Scalars are the same for all lanes.
		{line: "v_add_f32_e32 v0, s3, v1", s: []uint32{0, 0, 0, half}, v: []uint32{0, one}, want: []uint32{fl(1.5)}},
		{line: "v_add_f64 v[0:1], s[2:3], v[2:3]", s: []uint32{0, 0, 0, 0x3ff00000}, v: []uint32{0, 0, 0, 0x3ff00000}, want: []uint32{0, 0x40000000}},
		// Signs and bars: bars first.
		{line: "v_add_f32_e64 v0, -v1, |v2|", v: []uint32{0, one, fl(-2)}, want: []uint32{one}},
		{line: "v_add_f32_e64 v0, -|v1|, v2", v: []uint32{0, fl(-1), two}, want: []uint32{one}},
		{line: "v_add_f32_e64 v0, -s2, v1", s: []uint32{0, 0, one}, v: []uint32{0, two}, want: []uint32{one}},
		{line: "v_fma_f32 v0, -v1, v2, 1.0", v: []uint32{0, two, half}, want: []uint32{0}},
		{line: "v_add_f16_e64 v0, -v1, |v2|", v: []uint32{0, 0x3c00, 0xc000}, want: []uint32{0x3c00}},
		{line: "v_add_f64 v[0:1], -v[2:3], |v[4:5]|", v: []uint32{0, 0, 0, 0x3ff00000, 0, 0xc0000000}, want: []uint32{0, 0x3ff00000}},
		{line: "v_cndmask_b32_e64 v0, -v1, |v2|, s[0:1]", s: []uint32{0xffffffff, 0xffffffff}, v: []uint32{0, one, fl(-2)}, want: []uint32{two}},
		{line: "v_max_f32_e64 v0, |v1|, |v1|", v: []uint32{0, fl(-3)}, want: []uint32{fl(3)}},
		// clamp.
		{line: "v_add_f32_e64 v0, v1, v2 clamp", v: []uint32{0, one, half}, want: []uint32{one}},
		{line: "v_add_f32_e64 v0, v1, v2 clamp", v: []uint32{0, fl(-1), half}, want: []uint32{0}},
		{line: "v_add_f32_e64 v0, v1, v2 clamp", v: []uint32{0, half, fl(-.25)}, want: []uint32{fl(.25)}},
		{line: "v_add_f32_e64 v0, v1, v2 clamp", v: []uint32{0, nan, half}, want: []uint32{0}},
		{line: "v_max_f32_e64 v0, v1, v1 clamp", v: []uint32{0, fl(7)}, want: []uint32{one}},
		{line: "v_add_f16_e64 v0, v1, v2 clamp", v: []uint32{0, 0x3c00, 0x3c00}, want: []uint32{0x3c00}},
		{line: "v_add_f16_e64 v0, v1, v2 clamp", v: []uint32{0, 0xbc00, 0xbc00}, want: []uint32{0}},
		{line: "v_add_f64 v[0:1], v[2:3], v[4:5] clamp", v: []uint32{0, 0, 0, 0x3ff00000, 0, 0x3ff00000}, want: []uint32{0, 0x3ff00000}},
		{line: "v_add_f64 v[0:1], v[2:3], v[4:5] clamp", v: []uint32{0, 0, 0, 0xbff00000, 0, 0x3fe00000}, want: []uint32{0, 0}},
		{line: "v_add_u32_e64 v0, v1, v2 clamp", v: []uint32{0, 0xfffffff0, 0x20}, want: []uint32{0xffffffff}},
		{line: "v_sub_u32_e64 v0, v1, v2 clamp", v: []uint32{0, 3, 5}, want: []uint32{0}},
		{line: "v_sub_u32_e64 v0, v1, v2 clamp", v: []uint32{0, 5, 3}, want: []uint32{2}},
		{line: "v_subrev_u32_e64 v0, v1, v2 clamp", v: []uint32{0, 5, 3}, want: []uint32{0}},
		{line: "v_add_i32 v0, v1, v2 clamp", v: []uint32{0, 0x7fffffff, 1}, want: []uint32{0x7fffffff}},
		{line: "v_sub_i32 v0, v1, v2 clamp", v: []uint32{0, 0x80000000, 1}, want: []uint32{0x80000000}},
		{line: "v_mad_u32_u24 v0, v1, v2, v3 clamp", v: []uint32{0, 0xffffff, 0xffffff, 0}, want: []uint32{0xffffffff}},
		{line: "v_mad_i32_i24 v0, v1, v2, v3 clamp", v: []uint32{0, 0x800000, 0x7fffff, 0}, want: []uint32{0x80000000}},
		{line: "v_add_u16_e64 v0, v1, v2 clamp", v: []uint32{0, 0xfff0, 0x20}, want: []uint32{0xffff}},
		{line: "v_sub_u16_e64 v0, v1, v2 clamp", v: []uint32{0, 3, 5}, want: []uint32{0}},
		{line: "v_subrev_u16_e64 v0, v1, v2 clamp", v: []uint32{0, 3, 5}, want: []uint32{2}},
		{line: "v_add_i16 v0, v1, v2 clamp", v: []uint32{0xabcd0000, 0x7fff, 1}, want: []uint32{0xabcd7fff}},
		{line: "v_sub_i16 v0, v1, v2 clamp", v: []uint32{0xabcd0000, 0x8000, 1}, want: []uint32{0xabcd8000}},
		{line: "v_mad_u16 v0, v1, v2, v3 clamp", v: []uint32{0, 0xffff, 0xffff, 0}, want: []uint32{0xffff}},
		{line: "v_mad_i16 v0, v1, v2, v3 clamp", v: []uint32{0, 0x8000, 0x7fff, 0}, want: []uint32{0x8000}},
		{line: "v_mad_u32_u16 v0, v1, v2, v3 clamp", v: []uint32{0, 0xffff, 0xffff, 0xffffffff}, want: []uint32{0xffffffff}},
		{line: "v_mad_i32_i16 v0, v1, v2, v3 clamp", v: []uint32{0, 0x8000, 0x8000, 0x7fffffff}, want: []uint32{0x7fffffff}},
		// op_sel: halves of sources and of the destination.
		{line: "v_mad_u16 v0, v1, v2, v3 op_sel:[1,0,1,0]", v: []uint32{0xaaaabbbb, 0x0003ffff, 5, 0x00070001}, want: []uint32{0xaaaa0016}},
		{line: "v_mad_u16 v0, v1, v2, v3 op_sel:[0,1,0,1]", v: []uint32{0xaaaabbbb, 0x00030002, 0x00050000, 4}, want: []uint32{0x000ebbbb}},
		{line: "v_fma_f16 v0, v1, -v2, v3 op_sel:[0,1,0,1]", v: []uint32{0x11112222, 0x4000, 0x42000000, 0x3c00}, want: []uint32{0xc5002222}},
		{line: "v_add_i16 v0, v1, v2 op_sel:[0,1,1]", v: []uint32{0xaaaabbbb, 2, 0x00050000}, want: []uint32{0x0007bbbb}},
		{line: "v_mad_u32_u16 v0, v1, v2, v3 op_sel:[1,0,0,0]", v: []uint32{0, 0x00030000, 5, 0x10001}, want: []uint32{0x10010}},
		{line: "v_pack_b32_f16 v0, v1, v2 op_sel:[1,0,0]", v: []uint32{0, 0x12345678, 0x9abcdef0}, want: []uint32{0xdef01234}},
		{line: "v_pack_b32_f16 v0, -v1, |v2|", v: []uint32{0, 0x3c00, 0xc000}, want: []uint32{0x4000bc00}},
		// The old value of the destination counts, or the operand between.
		{line: "v_fmac_f32_e32 v0, v1, v2", v: []uint32{one, two, fl(3)}, want: []uint32{fl(7)}},
		{line: "v_fmac_f32_e64 v0, -v1, v2 clamp", v: []uint32{fl(6.5), two, fl(3)}, want: []uint32{half}},
		{line: "v_fmac_f32_e32 v0, v0, v0", v: []uint32{two}, want: []uint32{fl(6)}},
		{line: "v_fmac_f64_e32 v[0:1], v[2:3], v[4:5]", v: []uint32{0, 0x3ff00000, 0, 0x40000000, 0, 0x40000000}, want: []uint32{0, 0x40140000}},
		{line: "v_fmamk_f32 v0, v1, 0x40400000, v2", v: []uint32{0, two, one}, want: []uint32{fl(7)}},
		{line: "v_fmaak_f32 v0, v1, v2, 0x40400000", v: []uint32{0, two, fl(5)}, want: []uint32{fl(13)}},
		// IEEE mode: a signaling NaN wins, and is quiet then.
		{line: "v_max_f32_e32 v0, v1, v2", v: []uint32{0, 0x7f800001, one}, want: []uint32{0x7fc00001}},
		{line: "v_max_f32_e32 v0, v1, v2", v: []uint32{0, 0x7fc00001, one}, want: []uint32{one}},
		{line: "v_min_f32_e32 v0, v1, v2", v: []uint32{0, 0x80000000, 0}, want: []uint32{0x80000000}},
		{line: "v_max_f32_e32 v0, v1, v2", v: []uint32{0, 0x80000000, 0}, want: []uint32{0}},
		{line: "v_max_f32_e32 v0, v1, v1", v: []uint32{0, 0x80000001}, want: []uint32{0x80000001}},
		// Angles are in turns.
		{line: "v_sin_f32_e32 v0, v1", v: []uint32{0, fl(.25)}, want: []uint32{one}},
		{line: "v_sin_f32_e32 v0, v1", v: []uint32{0, fl(100.75)}, want: []uint32{fl(-1)}},
		{line: "v_cos_f32_e32 v0, v1", v: []uint32{0, fl(.5)}, want: []uint32{fl(-1)}},
		{line: "v_cos_f32_e32 v0, v1", v: []uint32{0, fl(1)}, want: []uint32{one}},
		{line: "v_cos_f32_e32 v0, v1", v: []uint32{0, 0x7f800000}, want: []uint32{nan}},
		{line: "v_sin_f16_e32 v0, v1", v: []uint32{0, 0x3400}, want: []uint32{0x3c00}},
		{line: "v_cos_f16_e32 v0, v1", v: []uint32{0, 0x3800}, want: []uint32{0xbc00}},
		{line: "v_rcp_iflag_f32_e32 v0, v1", v: []uint32{0, fl(4)}, want: []uint32{fl(.25)}},
		// Accumulation registers.
		{line: "v_accvgpr_read_b32 v0, a1", want: []uint32{0}},
		{line: "v_perm_b32 v0, v1, v2, s0", s: []uint32{0x07060100}, v: []uint32{0, 0x11223344, 0x55667788}, want: []uint32{0x11227788}},
		{line: "v_perm_b32 v0, v1, v2, s0", s: []uint32{0x0c0d0804}, v: []uint32{0, 0x11223344, 0x5566f788}, want: []uint32{0x00ffff44}},
		{line: "v_perm_b32 v0, v1, v2, s0", s: []uint32{0x0b0a09ff}, v: []uint32{0, 0x8122b344, 0x75667788}, want: []uint32{0xffff00ff}},
		{line: "v_med3_f32 v0, v1, s0, v2", s: []uint32{fl(-448)}, v: []uint32{0, fl(500), fl(448)}, want: []uint32{fl(448)}},
		{line: "v_med3_f32 v0, v1, s0, v2", s: []uint32{fl(-448)}, v: []uint32{0, nan, fl(448)}, want: []uint32{fl(-448)}},
		{line: "v_div_fixup_f16 v0, v1, v2, v3", v: []uint32{0xffff0000, 0x3c00, 0x0000, 0xbc00}, want: []uint32{0xfffffc00}},
		{line: "v_div_fixup_f16 v0, v1, v2, v3", v: []uint32{0, 0x3555, 0x4200, 0xbc00}, want: []uint32{0xb555}},
		{line: "v_div_fixup_f16 v0, v1, v2, v3", v: []uint32{0, 0x3555, 0, 0x8000}, want: []uint32{0xfe00}},
		{line: "v_min3_u16 v0, v1, v2, v3", v: []uint32{0x50000, 3, 2, 0xffff}, want: []uint32{0x50002}},
		{line: "v_max3_i16 v0, v1, v2, v3", v: []uint32{0x50000, 3, 2, 0xffff}, want: []uint32{0x50003}},
		{line: "v_med3_i16 v0, v1, v2, v3", v: []uint32{0x50000, 3, 2, 0xffff}, want: []uint32{0x50002}},
	} {
		c.run(t)
	}
}

func TestAccumulationRegisters(t *testing.T) {
	k := snippet(t, "gfx942", "v_accvgpr_write_b32 a3, v1", "v_accvgpr_mov_b32 a2, a3", "v_accvgpr_read_b32 v0, a2")
	w := runWave(t, k, func(w *wave) {
		for i := range Lanes {
			w.v[1][i] = uint32(7 * i)
		}
		w.setExec(0xff)
	})
	for i := range Lanes {
		want := uint32(7 * i)
		if i >= 8 {
			want = uint32(i) // the work-item, which v0 holds at the start
		}
		if w.v[0][i] != want {
			t.Errorf("lane %d: %d, want %d", i, w.v[0][i], want)
		}
	}
}

// The source lane of each lane, by hand; -1 if there is none.
func dppLanes(control string) [Lanes]int {
	name, value, _ := strings.Cut(control, ":")
	n := 0
	_, _ = fmt.Sscan(value, &n)
	var r [Lanes]int
	for lane := range r {
		row, column := lane/16, lane%16
		from := -1
		switch name {
		case "quad_perm":
			var q [4]int
			_, _ = fmt.Sscanf(value, "[%d,%d,%d,%d]", &q[0], &q[1], &q[2], &q[3])
			from = lane/4*4 + q[lane%4]
		case "row_shl":
			if column+n < 16 {
				from = lane + n
			}
		case "row_shr":
			if column >= n {
				from = lane - n
			}
		case "row_ror":
			from = 16*row + (column+16-n)%16
		case "row_mirror":
			from = 16*row + 15 - column
		case "row_half_mirror":
			from = lane/8*8 + 7 - lane%8
		case "row_newbcast":
			from = 16*row + n
		case "row_bcast":
			switch {
			case n == 15 && row > 0:
				from = 16*row - 1
			case n == 31 && row >= 2:
				from = 31
			}
		case "wave_shl":
			if lane < 63 {
				from = lane + 1
			}
		case "wave_shr":
			from = lane - 1
		case "wave_rol":
			from = (lane + 1) % 64
		case "wave_ror":
			from = (lane + 63) % 64
		}
		r[lane] = from
	}
	return r
}

func TestDPP(t *testing.T) {
	controls := []string{
		"quad_perm:[1,0,3,2]", "quad_perm:[3,3,0,1]", "row_shl:1", "row_shl:15", "row_shr:1", "row_shr:8", "row_ror:1", "row_ror:12", "row_mirror", "row_half_mirror",
		"row_newbcast:0", "row_newbcast:13", "row_bcast:15", "row_bcast:31", "wave_shl:1", "wave_shr:1", "wave_rol:1", "wave_ror:1",
	}
	r := rand.New(rand.NewPCG(5, 6))
	for _, control := range controls {
		lanes := dppLanes(control)
		for _, form := range []struct {
			line string
			do   func(moved, b, old uint32) uint32
		}{
			{"v_mov_b32_dpp v1, v2", func(m, _, _ uint32) uint32 { return m }},
			{"v_mov_b32_dpp v1, v1", func(m, _, _ uint32) uint32 { return m }}, // all is read before it is written
			{"v_add_u32_dpp v1, v2, v3", func(m, b, _ uint32) uint32 { return m + b }},
			{"v_sub_f32_dpp v1, -v2, |v3|", func(m, b, _ uint32) uint32 {
				return fl(-math.Float32frombits(m) - float32(math.Abs(float64(math.Float32frombits(b)))))
			}},
			{"v_fmac_f32_dpp v1, v2, v3", func(m, b, old uint32) uint32 {
				return uint32(wantFMA32([3]uint64{uint64(m), uint64(b), uint64(old)}))
			}},
		} {
			for _, bound := range []string{"", " bound_ctrl:1"} {
				for _, masks := range [][2]int{{15, 15}, {5, 15}, {15, 6}, {8, 1}} {
					line := fmt.Sprintf("%s %s row_mask:%#x bank_mask:%#x%s", form.line, control, masks[0], masks[1], bound)
					k := snippet(t, "gfx942", line)
					for _, exec := range []uint64{math.MaxUint64, r.Uint64()} {
						var source, second, old Vec
						w := runWave(t, k, func(w *wave) {
							for i := range Lanes {
								w.v[1][i], w.v[2][i], w.v[3][i] = fl(float32(r.IntN(999))), fl(float32(r.IntN(999))), fl(float32(r.IntN(999)))
							}
							w.setExec(exec)
							source, second, old = w.v[2], w.v[3], w.v[1]
							if strings.Contains(form.line, "v1, v1") {
								source = old
							}
						})
						for i := range Lanes {
							want := old[i]
							valid := lanes[i] >= 0 && exec>>lanes[i]&1 != 0
							on := exec>>i&1 != 0 && masks[0]>>(i/16)&1 != 0 && masks[1]>>(i%16/4)&1 != 0
							switch {
							case on && valid:
								want = form.do(source[lanes[i]], second[i], old[i])
							case on && bound != "":
								want = form.do(0, second[i], old[i])
							}
							if w.v[1][i] != want {
								t.Fatalf("%s: EXEC %#x: lane %d is %#x, want %#x", line, exec, i, w.v[1][i], want)
							}
						}
					}
				}
			}
		}
	}
}

func TestDPPOfPairs(t *testing.T) {
	w := runWave(t, snippet(t, "gfx942", "v_mov_b64_dpp v[0:1], v[2:3] row_newbcast:3 row_mask:0xf bank_mask:0xf"), func(w *wave) {
		for i := range Lanes {
			w.v[2][i], w.v[3][i] = uint32(i), uint32(100+i)
		}
	})
	for i := range Lanes {
		if want := uint32(i/16*16 + 3); w.v[0][i] != want || w.v[1][i] != want+100 {
			t.Errorf("lane %d: %d, %d, want those of lane %d", i, w.v[0][i], w.v[1][i], want)
		}
	}
}

// Carries of lanes that DPP does not write are zero.
func TestDPPCarry(t *testing.T) {
	w := runWave(t, snippet(t, "gfx942", "v_add_co_u32_dpp v0, vcc, v1, v2 row_shr:1 row_mask:0xf bank_mask:0xf"), func(w *wave) {
		fill(&w.v[1], 0xffffffff)
		fill(&w.v[2], 1)
	})
	if want := uint64(0xfffefffefffefffe); w.vcc() != want {
		t.Errorf("vcc %#x, want %#x", w.vcc(), want)
	}
}

// partOf reads a part of SDWA by its name.
func partOf(name string, x uint32, signed bool) uint32 {
	n, width := 0, 32
	switch {
	case strings.HasPrefix(name, "BYTE_"):
		n, width = 8*int(name[5]-'0'), 8
	case strings.HasPrefix(name, "WORD_"):
		n, width = 16*int(name[5]-'0'), 16
	}
	r := int64(bitField(uint64(x), n, width))
	if signed && r >= 1<<(width-1) {
		r -= 1 << width
	}
	return uint32(r)
}

// intoPart writes a part of SDWA by its name.
func intoPart(name, rest string, result, old uint32) uint32 {
	n, width := 0, 32
	switch {
	case strings.HasPrefix(name, "BYTE_"):
		n, width = 8*int(name[5]-'0'), 8
	case strings.HasPrefix(name, "WORD_"):
		n, width = 16*int(name[5]-'0'), 16
	}
	r := uint32(0)
	for bit := range 32 {
		from := uint32(0)
		switch {
		case bit >= n && bit < n+width:
			from = result >> (bit - n)
		case rest == "UNUSED_SEXT" && bit >= n+width:
			from = result >> (width - 1)
		case rest == "UNUSED_PRESERVE":
			from = old >> bit
		}
		r |= from & 1 << bit
	}
	return r
}

func TestSDWA(t *testing.T) {
	names := []string{"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"}
	r := rand.New(rand.NewPCG(7, 8))
	for _, sel := range names {
		for _, dst := range names {
			for _, rest := range []string{"UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"} {
				for _, signed := range []bool{false, true} {
					a, sel1 := "v2", names[r.IntN(len(names))]
					if signed {
						a = "sext(v2)"
					}
					k := snippet(t, "gfx942",
						fmt.Sprintf("v_add_u32_sdwa v1, %s, v3 dst_sel:%s dst_unused:%s src0_sel:%s src1_sel:%s", a, dst, rest, sel, sel1),
						fmt.Sprintf("v_mov_b32_sdwa v4, %s dst_sel:%s dst_unused:%s src0_sel:%s", a, dst, rest, sel),
						fmt.Sprintf("v_cmp_lt_i32_sdwa s[2:3], %s, v3 src0_sel:%s src1_sel:%s", a, sel, sel1),
						fmt.Sprintf("v_cndmask_b32_sdwa v5, v2, v3, vcc dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:%s src1_sel:%s", sel, sel1))
					var before [6]Vec
					const mask = 0x5555aaaaf0f00f0f
					w := runWave(t, k, func(w *wave) {
						w.setS64(regVCC, mask)
						w.setExec(0xffffffffffff0fff)
						for v := range before {
							for i := range Lanes {
								w.v[v][i] = r.Uint32()
							}
							before[v] = w.v[v]
						}
					})
					for i := range Lanes {
						if i >= 12 && i < 16 {
							if w.v[1][i] != before[1][i] || w.v[4][i] != before[4][i] || w.s64(2)>>i&1 != 0 {
								t.Fatalf("%s: lane %d is off and changes", k.insts[0].Text, i)
							}
							continue
						}
						x, y := partOf(sel, before[2][i], signed), partOf(sel1, before[3][i], false)
						if want := intoPart(dst, rest, x+y, before[1][i]); w.v[1][i] != want {
							t.Fatalf("%s: of %#x, %#x got %#x, want %#x", k.insts[0].Text, before[2][i], before[3][i], w.v[1][i], want)
						}
						if want := intoPart(dst, rest, x, before[4][i]); w.v[4][i] != want {
							t.Fatalf("%s: of %#x got %#x, want %#x", k.insts[1].Text, before[2][i], w.v[4][i], want)
						}
						if want := int32(x) < int32(y); w.s64(2)>>i&1 != 0 != want {
							t.Fatalf("%s: of %#x, %#x not %t", k.insts[2].Text, before[2][i], before[3][i], want)
						}
						want := partOf(sel, before[2][i], false)
						if uint64(mask)>>i&1 != 0 {
							want = y
						}
						if w.v[5][i] != want {
							t.Fatalf("%s: lane %d is %#x, want %#x", k.insts[3].Text, i, w.v[5][i], want)
						}
					}
				}
			}
		}
	}
}

func TestSDWAForms(t *testing.T) {
	for _, c := range []oneCase{
		// Signs and bars come after the choice of a part.
		{line: "v_add_f16_sdwa v0, -v1, |v2| dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:WORD_0", v: []uint32{0x11112222, 0x3c000000, 0xc000}, want: []uint32{0x3c002222}},
		{line: "v_add_f32_sdwa v0, -v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD", v: []uint32{0, fl(1), fl(3)}, want: []uint32{fl(2)}},
		{line: "v_cvt_f32_f16_sdwa v0, v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1", v: []uint32{0, 0x40000000}, want: []uint32{fl(2)}},
		{line: "v_cvt_f16_f32_sdwa v0, v1 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD", v: []uint32{0x1234, fl(1)}, want: []uint32{0x3c001234}},
		{line: "v_lshlrev_b32_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_2", v: []uint32{0, 4, 0x00ab0000}, want: []uint32{0xab0}},
		{line: "v_and_b32_sdwa v0, s0, v1 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_1", s: []uint32{0xf0ff}, v: []uint32{9, 0x12340000}, want: []uint32{0x10340000}},
		{line: "v_mul_f32_sdwa v0, v1, v2 clamp dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD", v: []uint32{0, fl(2), fl(3)}, want: []uint32{fl(1)}},
	} {
		c.run(t)
	}
}

// TestCompares compares with every relation of every type.
func TestCompares(t *testing.T) {
	// Bits of the outcomes for which a relation holds: less, equal, greater, unordered.
	floatRelations := map[string]int{"f": 0, "lt": 1, "eq": 2, "le": 3, "gt": 4, "lg": 5, "ge": 6, "o": 7, "u": 8, "nge": 9, "nlg": 10, "ngt": 11, "nle": 12, "neq": 13, "nlt": 14, "tru": 15}
	integerRelations := map[string]int{"f": 0, "lt": 1, "eq": 2, "le": 3, "gt": 4, "ne": 5, "ge": 6, "t": 7}
	r := rand.New(rand.NewPCG(9, 10))
	for _, typ := range []string{"i32", "u32", "f32", "i16", "u16", "f16", "i64", "u64", "f64"} {
		relations, kind := integerRelations, valuKinds["u"+typ[1:]]
		if typ[0] == 'f' {
			relations, kind = floatRelations, valuKinds[typ]
		}
		outcome := func(a, b uint64) int {
			var o int
			switch typ {
			case "f32", "f16", "f64":
				value := map[string]func(uint64) float64{"f32": f32of, "f16": halfValue, "f64": f64of}[typ]
				x, y := value(a), value(b)
				switch {
				case x < y:
					return 1
				case x == y:
					return 2
				case x > y:
					return 4
				}
				return 8
			case "i32":
				o = int(clampTo(i32(a)-i32(b), -1, 1))
			case "i16":
				o = int(clampTo(int64(int16(a))-int64(int16(b)), -1, 1))
			case "i64":
				o = map[bool]int{true: -1, false: 1}[int64(a) < int64(b)]
			default:
				o = map[bool]int{true: -1, false: 1}[a < b]
			}
			if a == b {
				o = 0
			}
			return 1 << (o + 1)
		}
		for relation, holds := range relations {
			for _, x := range []string{"", "x"} {
				a, b := register(1, kind.words()), register(2, kind.words())
				k := snippet(t, "gfx942", fmt.Sprintf("v_cmp%s_%s_%s_e64 s[4:5], %s, %s", x, relation, typ, a, b))
				for range 4 {
					var in [Lanes][2]uint64
					exec := r.Uint64()
					w := runWave(t, k, func(w *wave) {
						w.setExec(exec)
						w.setS64(4, r.Uint64())
						for i := range Lanes {
							in[i] = [2]uint64{kind.pick(r), kind.pick(r)}
							if r.IntN(4) == 0 {
								in[i][1] = in[i][0]
							}
							for j, v := range in[i] {
								if kind.bits == 16 {
									v |= uint64(r.Uint32()) << 16
								}
								w.v[14+4*j][i], w.v[15+4*j][i] = uint32(v), uint32(v>>32)
							}
						}
					})
					want := uint64(0)
					for i := range Lanes {
						if outcome(in[i][0], in[i][1])&holds != 0 {
							want |= 1 << i
						}
					}
					want &= exec
					if got := w.s64(4); got != want {
						i := bits.TrailingZeros64(got ^ want)
						t.Fatalf("%s: %#x, want %#x; lane %d compares %#x with %#x", k.insts[0].Text, got, want, i, in[i][0], in[i][1])
					}
					wantExec := exec
					if x != "" {
						wantExec = want
					}
					if w.exec() != wantExec {
						t.Fatalf("%s: EXEC %#x, want %#x", k.insts[0].Text, w.exec(), wantExec)
					}
				}
			}
		}
	}
}

func TestCompareForms(t *testing.T) {
	all := uint64(math.MaxUint64)
	for _, c := range []struct {
		line string
		s, v []uint32
		want uint64
	}{
		{"v_cmp_lt_f32_e32 vcc, 0, v1", nil, []uint32{0, fl(1)}, all},
		{"v_cmp_gt_f32_e64 vcc, |v1|, -v2", nil, []uint32{0, fl(-1), fl(1)}, all},
		{"v_cmp_eq_f32_e64 vcc, |v1|, s0", []uint32{0x7f800000}, []uint32{0, 0xff800000}, all},
		{"v_cmp_eq_u64_e32 vcc, s[0:1], v[2:3]", []uint32{5, 6}, []uint32{0, 0, 5, 6}, all},
		{"v_cmp_eq_u64_e32 vcc, 0xf0000000, v[2:3]", nil, []uint32{0, 0, 0xf0000000, 0}, all},
		{"v_cmp_eq_i64_e32 vcc, 0xf0000000, v[2:3]", nil, []uint32{0, 0, 0xf0000000, 0xffffffff}, all},
		{"v_cmp_lt_i64_e64 vcc, v[2:3], 0", nil, []uint32{0, 0, 5, 0x80000000}, all},
		{"v_cmp_ne_u16_e32 vcc, 5, v1", nil, []uint32{0, 0x70005}, 0},
		{"v_cmp_class_f32_e64 vcc, v1, 3", nil, []uint32{0, 0x7fc00000}, all},
	} {
		w := runWave(t, snippet(t, "gfx942", c.line), func(w *wave) {
			copy(w.s[:], c.s)
			for i, x := range c.v {
				fill(&w.v[i], x)
			}
		})
		if w.vcc() != c.want {
			t.Errorf("%s: %#x, want %#x", c.line, w.vcc(), c.want)
		}
	}
}

func TestClass(t *testing.T) {
	// One value of each class, in the order of the bits.
	for _, c := range []struct {
		typ    string
		values []uint64
	}{
		{"f32", []uint64{0x7f800001, 0x7fc00000, 0xff800000, 0xbf800000, 0x80000001, 0x80000000, 0, 1, 0x3f800000, 0x7f800000}},
		{"f16", []uint64{0x7c01, 0x7e00, 0xfc00, 0xbc00, 0x8001, 0x8000, 0, 1, 0x3c00, 0x7c00}},
		{"f64", []uint64{0x7ff0000000000001, 0x7ff8000000000000, 0xfff0000000000000, 0xbff0000000000000, 0x8000000000000001, 0x8000000000000000, 0, 1, 0x3ff0000000000000, 0x7ff0000000000000}},
	} {
		source := "v2"
		if c.typ == "f64" {
			source = "v[2:3]"
		}
		k := snippet(t, "gfx942", "v_cmp_class_"+c.typ+"_e64 s[4:5], "+source+", v1")
		for bit, x := range c.values {
			w := runWave(t, k, func(w *wave) {
				for i := range Lanes {
					w.v[2][i], w.v[3][i], w.v[1][i] = uint32(x), uint32(x>>32), 1<<(i%10)
				}
			})
			want := uint64(0)
			for i := bit; i < Lanes; i += 10 {
				want |= 1 << i
			}
			if got := w.s64(4); got != want {
				t.Errorf("%s: %#x: %#x, want %#x", c.typ, x, got, want)
			}
		}
	}
}

func TestCarries(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for _, c := range []struct {
		line string
		do   func(a, b, in uint64) uint64 // carry or borrow in bit 32
	}{
		{"v_add_co_u32_e32 v0, vcc, v1, v2", func(a, b, _ uint64) uint64 { return a + b }},
		{"v_sub_co_u32_e32 v0, vcc, v1, v2", func(a, b, _ uint64) uint64 { return a - b }},
		{"v_subrev_co_u32_e32 v0, vcc, v1, v2", func(a, b, _ uint64) uint64 { return b - a }},
		{"v_addc_co_u32_e32 v0, vcc, v1, v2, vcc", func(a, b, in uint64) uint64 { return a + b + in }},
		{"v_subb_co_u32_e32 v0, vcc, v1, v2, vcc", func(a, b, in uint64) uint64 { return a - b - in }},
		{"v_subbrev_co_u32_e32 v0, vcc, v1, v2, vcc", func(a, b, in uint64) uint64 { return b - a - in }},
		{"v_addc_co_u32_e64 v0, s[6:7], v1, v2, vcc", func(a, b, in uint64) uint64 { return a + b + in }},
		{"v_addc_co_u32_e64 v1, s[6:7], v1, v2, vcc", func(a, b, in uint64) uint64 { return a + b + in }},
	} {
		k := snippet(t, "gfx942", c.line)
		at, out := 0, regVCC
		if strings.Contains(c.line, " v1, s") {
			at = 1
		}
		if strings.Contains(c.line, "s[6:7]") {
			out = 6
		}
		for range 20 {
			var a, b, old Vec
			exec, in := r.Uint64()|r.Uint64(), r.Uint64()
			w := runWave(t, k, func(w *wave) {
				w.setExec(exec)
				w.setS64(regVCC, in)
				for i := range Lanes {
					w.v[1][i], w.v[2][i] = uint32(valuKinds["u32"].pick(r)), uint32(valuKinds["u32"].pick(r))
				}
				a, b, old = w.v[1], w.v[2], w.v[at]
			})
			for i := range Lanes {
				want, carry := old[i], uint64(0)
				if exec>>i&1 != 0 {
					x := c.do(uint64(a[i]), uint64(b[i]), in>>i&1)
					want, carry = uint32(x), x>>32&1
				}
				if w.v[at][i] != want || w.s64(out)>>i&1 != carry {
					t.Fatalf("%s: of %#x, %#x, carry %d: %#x, %d, want %#x, %d", c.line, a[i], b[i], in>>i&1, w.v[at][i], w.s64(out)>>i&1, want, carry)
				}
			}
		}
	}
}

func TestMad64(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	u32, u64 := valuKinds["u32"], valuKinds["u64"]
	for _, signed := range []bool{false, true} {
		op := map[bool]string{false: "v_mad_u64_u32", true: "v_mad_i64_i32"}[signed]
		// The destination is a source too.
		k := snippet(t, "gfx942", op+" v[4:5], s[6:7], v1, v4, v[2:3]")
		for range 40 {
			var a, b [Lanes]uint32
			var c [Lanes]uint64
			w := runWave(t, k, func(w *wave) {
				for i := range Lanes {
					a[i], b[i], c[i] = uint32(u32.pick(r)), uint32(u32.pick(r)), u64.pick(r)
					w.v[1][i], w.v[4][i], w.v[2][i], w.v[3][i] = a[i], b[i], uint32(c[i]), uint32(c[i]>>32)
				}
			})
			for i := range Lanes {
				hi, lo := bits.Mul64(uint64(a[i]), uint64(b[i]))
				want, carry := bits.Add64(lo, c[i], 0)
				carry += hi
				if signed {
					p := int64(int32(a[i])) * int64(int32(b[i]))
					s := p + int64(c[i])
					want, carry = uint64(s), 0
					if (p < 0) == (int64(c[i]) < 0) && (s < 0) != (p < 0) {
						carry = 1
					}
				}
				got := uint64(w.v[4][i]) | uint64(w.v[5][i])<<32
				if got != want || w.s64(6)>>i&1 != carry {
					t.Fatalf("%s: %#x * %#x + %#x = %#x, %d, want %#x, %d", op, a[i], b[i], c[i], got, w.s64(6)>>i&1, want, carry)
				}
			}
		}
	}
}

func TestCndmask(t *testing.T) {
	const mask, exec = 0x123456789abcdef0, 0xff00ff00ffff00ff
	w := runWave(t, snippet(t, "gfx942", "v_cndmask_b32_e64 v0, 7, v1, s[4:5]", "v_cndmask_b32_e32 v1, v1, v2, vcc"), func(w *wave) {
		w.setExec(exec)
		w.setS64(4, mask)
		w.setS64(regVCC, ^uint64(mask))
		for i := range Lanes {
			w.v[0][i], w.v[1][i], w.v[2][i] = 1000, uint32(100+i), uint32(200+i)
		}
	})
	for i := range uint32(Lanes) {
		on, m := uint64(exec)>>i&1 != 0, uint64(mask)>>i&1 != 0
		want0, want1 := uint32(1000), 100+i
		if on {
			want0, want1 = 7, 200+i
			if m {
				want0, want1 = 100+i, 100+i
			}
		}
		if w.v[0][i] != want0 || w.v[1][i] != want1 {
			t.Errorf("lane %d: %d, %d, want %d, %d", i, w.v[0][i], w.v[1][i], want0, want1)
		}
	}
}

func TestVectorRefusals(t *testing.T) {
	for _, c := range []struct{ chip, line, want string }{
		{"gfx942", "v_add_f32_e64 v0, v1, v2 mul:2", "output modifier mul"},
		{"gfx942", "v_add_f32_e64 v0, v1, v2 div:2", "output modifier div"},
		{"gfx942", "v_mul_lo_u32 v0, -v1, v2", "takes no modifiers"},
		{"gfx942", "v_add_f32_e32 v0, sext(v1), v2", "takes no modifiers"},
		{"gfx942", "v_and_b32_e64 v0, v1, v2 clamp", "modifier clamp"},
		{"gfx942", "v_add_f32_e32 v0, v[1:2], v2", "2 registers, not 1"},
		{"gfx942", "v_add_f64 v[0:1], v2, v[4:5]", "1 registers, not 2"},
		{"gfx942", "v_fma_f32_sdwa v0, v1, v2, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD", "encoding"},
		{"gfx942", "v_mov_b32_sdwa v0, v1 dst_sel:NIBBLE dst_unused:UNUSED_PAD src0_sel:DWORD", "not known"},
		{"gfx942", "v_mov_b32_dpp v0, v1 row_mask:0xf bank_mask:0xf", "no permutation"},
		{"gfx942", "v_mov_b32_dpp v0, v1 row_shl:16 row_mask:0xf bank_mask:0xf", "out of range"},
		{"gfx942", "v_mov_b32_dpp v0, v1 row_share:1 row_mask:0xf bank_mask:0xf", "no permutation"},
		{"gfx942", "v_mov_b32_dpp v0, v1 row_shl:1 row_mirror row_mask:0xf bank_mask:0xf", "another permutation"},
		{"gfx942", "v_mov_b32_dpp v0, v1 quad_perm:[0,1,2] row_mask:0xf bank_mask:0xf", "four lanes"},
		{"gfx942", "v_mov_b32_dpp v0, v1 quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf fi:1", "modifier fi"},
		{"gfx942", "v_cvt_pk_bf16_f32 v0, v1, v2", "gfx942 has no instruction"},
		{"gfx942", "v_bitop3_b32 v0, v1, v2, v3 bitop3:0x6c", "gfx942 has no instruction"},
		{"gfx942", "v_maximum3_f32 v0, v1, v2, v3", "gfx942 has no instruction"},
		{"gfx942", "v_permlane32_swap_b32_e32 v0, v1", "gfx942 has no instruction"},
		{"gfx950", "v_permlane16_swap_b32_e64 v0, v1 bound_ctrl:1 fi:1", "not supported here"},
		{"gfx942", "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], 1.0", "only the low half of a constant"},
		{"gfx942", "v_pk_add_f32 v[0:1], -v[2:3], v[4:5]", "takes no modifiers"},
		{"gfx942", "v_pk_add_u16 v0, v1, v2 neg_lo:[1,0]", "neg_lo"},
		{"gfx942", "v_fma_mix_f32 v0, v1, v2, v3 op_sel:[1,0,0]", "which is none"},
		{"gfx942", "v_mad_u32_u16 v0, v1, v2, v3 op_sel:[0,0,1,0]", "no 16-bit type"},
		{"gfx942", "v_mad_u32_u16 v0, v1, v2, v3 op_sel:[0,0,0,1]", "destination, which has none"},
		{"gfx942", "v_cvt_sr_fp8_f32 v0, v1, v2", "unknown instruction"},
		{"gfx942", "v_dot2_f32_f16 v0, v1, v2, v3", "unknown instruction"},
		{"gfx942", "v_cndmask_b32_e64 v0, v1, v2, s4", "no mask of lanes"},
		{"gfx942", "v_cmp_lt_f32_e64 s4, v1, v2", "2 scalar registers"},
		{"gfx942", "v_cmp_lt_f32_e64 s[4:5], v1, v2 clamp", "modifier clamp"},
		{"gfx942", "s_set_gpr_idx_on s0, gpr_idx(SRC7)", "no set of indexed operands"},
	} {
		_, err := trySnippet(c.chip, c.line)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s: error %v, want %q", c.chip, c.line, err, c.want)
		}
	}
}
