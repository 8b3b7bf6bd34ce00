package emu

import (
	"bufio"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/ir/num"
)

// mfmaMap is the lane map of an instruction as documents print it, written down a
// second time: l is the lane, e the element of A or B that a lane holds, counted
// from the low end of its first register; v a register (or pair) of C and D.
type mfmaMap struct {
	op       string
	m, k     int
	blocks   int
	bits     int // of A's and B's elements
	kOf      func(l, e int) int
	blockAB  func(l int) int
	iOf      func(l, v int) int
	blockD   func(l, v int) int
	perLaneD int
}

func none(int) int       { return 0 }
func noneD(int, int) int { return 0 }

// mfmaMaps says each map once; instructions of equal maps are in lines of names.
var mfmaMaps = []mfmaMap{
	{"f32_16x16x16_bf16 f32_16x16x16_f16", 16, 16, 1, 16, func(l, e int) int { return 4*(l/16) + e }, none, func(l, v int) int { return 4*(l/16) + v }, noneD, 4},
	{"f32_32x32x8_bf16 f32_32x32x8_f16", 32, 8, 1, 16, func(l, e int) int { return 4*(l/32) + e }, none, rows32, noneD, 16},
	{"f32_16x16x4_f32", 16, 4, 1, 32, func(l, _ int) int { return l / 16 }, none, func(l, v int) int { return 4*(l/16) + v }, noneD, 4},
	{"f32_32x32x2_f32", 32, 2, 1, 32, func(l, _ int) int { return l / 32 }, none, rows32, noneD, 16},
	{"f32_16x16x8_xf32", 16, 8, 1, 32, func(l, e int) int { return 2*(l/16) + e }, none, func(l, v int) int { return 4*(l/16) + v }, noneD, 4},
	{"f32_32x32x4_xf32", 32, 4, 1, 32, func(l, e int) int { return 2*(l/32) + e }, none, rows32, noneD, 16},
	{"i32_16x16x32_i8 f32_16x16x32_fp8_fp8 f32_16x16x32_fp8_bf8 f32_16x16x32_bf8_fp8 f32_16x16x32_bf8_bf8", 16, 32, 1, 8, func(l, e int) int { return 8*(l/16) + e }, none, func(l, v int) int { return 4*(l/16) + v }, noneD, 4},
	{"i32_32x32x16_i8 f32_32x32x16_fp8_fp8 f32_32x32x16_fp8_bf8 f32_32x32x16_bf8_fp8 f32_32x32x16_bf8_bf8", 32, 16, 1, 8, func(l, e int) int { return 8*(l/32) + e }, none, rows32, noneD, 16},
	{"f32_32x32x1_2b_f32", 32, 1, 2, 32, func(int, int) int { return 0 }, func(l int) int { return l / 32 }, rows32, func(_, v int) int { return v / 16 }, 32},
	{"f32_16x16x1_4b_f32", 16, 1, 4, 32, func(int, int) int { return 0 }, func(l int) int { return l / 16 }, func(l, v int) int { return 4*(l/16) + v%4 }, func(_, v int) int { return v / 4 }, 16},
	{"f32_4x4x1_16b_f32", 4, 1, 16, 32, func(int, int) int { return 0 }, func(l int) int { return l / 4 }, func(_, v int) int { return v }, func(l, _ int) int { return l / 4 }, 4},
	{"f32_32x32x4_2b_bf16 f32_32x32x4_2b_f16", 32, 4, 2, 16, func(_, e int) int { return e }, func(l int) int { return l / 32 }, rows32, func(_, v int) int { return v / 16 }, 32},
	{"f32_16x16x4_4b_bf16 f32_16x16x4_4b_f16", 16, 4, 4, 16, func(_, e int) int { return e }, func(l int) int { return l / 16 }, func(l, v int) int { return 4*(l/16) + v%4 }, func(_, v int) int { return v / 4 }, 16},
	{"f32_4x4x4_16b_bf16 f32_4x4x4_16b_f16", 4, 4, 16, 16, func(_, e int) int { return e }, func(l int) int { return l / 4 }, func(_, v int) int { return v }, func(l, _ int) int { return l / 4 }, 4},
	{"i32_32x32x4_2b_i8", 32, 4, 2, 8, func(_, e int) int { return e }, func(l int) int { return l / 32 }, rows32, func(_, v int) int { return v / 16 }, 32},
	{"i32_16x16x4_4b_i8", 16, 4, 4, 8, func(_, e int) int { return e }, func(l int) int { return l / 16 }, func(l, v int) int { return 4*(l/16) + v%4 }, func(_, v int) int { return v / 4 }, 16},
	{"i32_4x4x4_16b_i8", 4, 4, 16, 8, func(_, e int) int { return e }, func(l int) int { return l / 4 }, func(_, v int) int { return v }, func(l, _ int) int { return l / 4 }, 4},
	{"f64_16x16x4_f64", 16, 4, 1, 64, func(l, _ int) int { return l / 16 }, none, func(l, v int) int { return 4*v + l/16 }, noneD, 4},
	{"f64_4x4x4_4b_f64", 4, 4, 4, 64, func(l, _ int) int { return l / 16 }, func(l int) int { return l / 4 % 4 }, func(l, _ int) int { return l / 16 }, func(l, _ int) int { return l / 4 % 4 }, 1},
	{"f32_16x16x32_bf16 f32_16x16x32_f16", 16, 32, 1, 16, func(l, e int) int { return 8*(l/16) + e }, none, func(l, v int) int { return 4*(l/16) + v }, noneD, 4},
	{"f32_32x32x16_bf16 f32_32x32x16_f16", 32, 16, 1, 16, func(l, e int) int { return 8*(l/32) + e }, none, rows32, noneD, 16},
	{"i32_16x16x64_i8", 16, 64, 1, 8, func(l, e int) int { return 16*(l/16) + e }, none, func(l, v int) int { return 4*(l/16) + v }, noneD, 4},
	{"i32_32x32x32_i8", 32, 32, 1, 8, func(l, e int) int { return 16*(l/32) + e }, none, rows32, noneD, 16},
	// Of f8f6f4 this is the result's map; those of A and B follow below.
	{"f32_16x16x128_f8f6f4 scale_f32_16x16x128_f8f6f4", 16, 128, 1, 0, nil, none, func(l, v int) int { return 4*(l/16) + v }, noneD, 4},
	{"f32_32x32x64_f8f6f4 scale_f32_32x32x64_f8f6f4", 32, 64, 1, 0, nil, none, rows32, noneD, 16},
}

// rows32 is the row of the result of 32x32 instructions.
func rows32(l, v int) int { return 8*(v/4)%32 + 4*(l/32) + v%4 }

// kOf8 and kOf4 are the k of f8f6f4 operands of 8 bits, and of fewer.
func kOf8(m int) func(l, e int) int {
	if m == 16 {
		return func(l, e int) int { return 16*(l/16) + e%16 + 64*(e/16) }
	}
	return func(l, e int) int { return 16*(l/32) + e%16 + 32*(e/16) }
}

func kOf4(m int) func(l, e int) int { return func(l, e int) int { return 32*(l/m) + e } }

func mapOf(t *testing.T, op string) mfmaMap {
	t.Helper()
	for _, m := range mfmaMaps {
		if slices.Contains(strings.Fields(m.op), strings.TrimPrefix(op, "v_mfma_")) {
			return m
		}
	}
	t.Fatalf("no map of %s", op)
	return mfmaMap{}
}

// TestMatrixLayoutCalculator compares the lane maps with AMD's matrix instruction
// calculator, element by element.
func TestMatrixLayoutCalculator(t *testing.T) {
	data, err := os.Open("testdata/mfma_layouts.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	var m *matrixInst
	matrix, row, checked := "", 0, 0
	lines := bufio.NewScanner(data)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if strings.HasPrefix(words[0], "#") {
			continue
		}
		if strings.HasPrefix(words[0], "v_") {
			i := slices.IndexFunc(matrixInsts, func(m matrixInst) bool { return m.op == words[0] })
			m, matrix, row = &matrixInsts[i], words[1], 0
			continue
		}
		for col, w := range words {
			var n [3]int
			for i, s := range strings.Split(w, ".") {
				if n[i], err = strconv.Atoi(s); err != nil {
					t.Fatal(err)
				}
			}
			r, c, block := resultShape{m.m, m.blocks, 4}.place(n[1], n[0])
			if matrix != "D" {
				r, c, block = operandShape{m.m, m.k, m.blocks, m.run}.place(n[1], (32*n[0]+n[2])/m.a.bits())
			}
			if matrix == "B" {
				r, c = c, r
			}
			if r != row || c != col || block != 0 {
				t.Errorf("%s %s: register %d, lane %d, bit %d is element %d,%d of block %d, want %d,%d", m.op, matrix, n[0], n[1], n[2], r, c, block, row, col)
			}
			checked++
		}
		row++
	}
	if checked != 3968 {
		t.Errorf("%d elements were compared, want 3968", checked)
	}
}

// matrixValues are the operands of one matrix instruction, by block.
type matrixValues struct {
	a, b, c [16][128][32]float64 // a by block, k, i; b by block, k, j; c by block, i, j
	// Integers up to 2^31 fit into float64 as well.
}

// codeOf encodes a value in a format of the tests; every value used fits.
func codeOf(t *testing.T, f matrixFormat, chip string, x float64) uint64 {
	switch f {
	case formatF64:
		return math.Float64bits(x)
	case formatF32, formatXF32:
		return uint64(math.Float32bits(float32(x)))
	case formatF16:
		return uint64(num.F16Bits(float32(x)))
	case formatBF16:
		return uint64(num.BF16Bits(float32(x)))
	case formatI8:
		return uint64(uint8(int8(x)))
	case formatFP8:
		if chip == "gfx942" {
			return uint64(num.E4M3FNUZ(float32(x)))
		}
		return uint64(num.E4M3(float32(x)))
	case formatFP4:
		return uint64(num.E2M1(float32(x)))
	}
	// Exponent and mantissa bits, and bias, of the rest; x is a normal number.
	p := map[matrixFormat][3]int{formatBF8: {5, 2, 15}, formatFP6: {2, 3, 1}, formatBF6: {3, 2, 3}}[f]
	if f == formatBF8 && chip == "gfx942" {
		p[2] = 16
	}
	if x == 0 {
		return 0
	}
	frac, exp := math.Frexp(math.Abs(x)) // 0.5 <= frac < 1
	e := exp - 1 + p[2]
	man := (2*frac - 1) * float64(int(1)<<p[1])
	if e < 1 { // subnormal: of 2^(1-bias)
		e, man = 0, math.Ldexp(math.Abs(x), p[2]-1+p[1])
	}
	if man != math.Trunc(man) || e >= 1<<p[0] {
		t.Fatalf("%v is no value of format %d", x, f)
	}
	code := uint64(e)<<p[1] | uint64(man)
	if x < 0 {
		code |= 1 << (p[0] + p[1])
	}
	return code
}

// put stores an element of some bits as element e of a lane.
func put(v []Vec, lane, e, bits int, code uint64) {
	for b := range bits {
		at := e*bits + b
		v[at/32][lane] |= uint32(code>>b&1) << (at % 32)
	}
}

// smallValues are values that all floating point formats have; sums of their
// products are exact.
var smallValues = []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -1, -1.5, -2, -3, -4, -6}

// fill makes operands whose every element differs from its neighbours in most
// places, and stores them in registers. kA and kB say where k is in a lane.
func (x *matrixValues) fill(t *testing.T, r *rand.Rand, w *wave, m mfmaMap, chip string, regs [3]int, fa, fb matrixFormat, kA, kB func(l, e int) int, wide, far int) {
	value := func(f matrixFormat) float64 {
		if f == formatI8 {
			return float64(r.IntN(256) - 128)
		}
		return smallValues[r.IntN(len(smallValues))]
	}
	for block := range m.blocks {
		for k := range m.k {
			for i := range m.m {
				x.a[block][k][i], x.b[block][k][i] = math.Ldexp(value(fa), far), math.Ldexp(value(fb), -far)
			}
		}
		for i := range m.m {
			for j := range m.m {
				x.c[block][i][j] = float64(r.IntN(2001) - 1000)
			}
		}
	}
	perLane := m.m * m.k * m.blocks / Lanes
	for lane := range Lanes {
		for e := range perLane {
			put(w.v[regs[0]:], lane, e, fa.bits(), codeOf(t, fa, chip, x.a[m.blockAB(lane)][kA(lane, e)][lane%m.m]))
			put(w.v[regs[1]:], lane, e, fb.bits(), codeOf(t, fb, chip, x.b[m.blockAB(lane)][kB(lane, e)][lane%m.m]))
		}
		for v := range m.perLaneD {
			c := x.c[m.blockD(lane, v)][m.iOf(lane, v)][lane%m.m]
			code := uint64(uint32(int32(c)))
			switch {
			case wide == 64:
				code = math.Float64bits(c)
			case fa != formatI8:
				code = uint64(math.Float32bits(float32(c)))
			}
			put(w.v[regs[2]:], lane, v, wide, code)
		}
	}
}

// result reads element v of a lane of D.
func result(w *wave, d, lane, v, wide int, integer bool) float64 {
	if wide == 64 {
		return math.Float64frombits(uint64(w.v[d+2*v][lane]) | uint64(w.v[d+2*v+1][lane])<<32)
	}
	x := w.v[d+v][lane]
	if integer {
		return float64(int32(x))
	}
	return float64(math.Float32frombits(x))
}

func registerText(kind string, first, n int) string {
	if n == 1 {
		return fmt.Sprintf("%s%d", kind, first)
	}
	return fmt.Sprintf("%s[%d:%d]", kind, first, first+n-1)
}

// matrixCase is one way to write a matrix instruction.
type matrixCase struct {
	mods       string
	fa, fb     matrixFormat // of f8f6f4
	accumulate bool         // D is C's registers
	agprs      bool         // A, C and D are accumulation registers
	constant   string       // C, instead of registers
	cValue     float64
	aBlock     func(block int) int // which block of A stands in for a block
	bLane      func(lane int) int  // which lane of B stands in for a lane
	sign       [3]float64
	scaled     bool
	// far makes A (or its scales) larger and B smaller by a power of two, so that both
	// are beyond what products in f32 are exact for.
	far int
}

// check runs an instruction with random operands and compares all of D.
func (mc matrixCase) check(t *testing.T, chip string, inst *matrixInst, seed uint64) {
	t.Helper()
	m := mapOf(t, inst.op)
	fa, fb := inst.a, inst.b
	kA, kB := m.kOf, m.kOf
	if fa == formatSelectable {
		fa, fb = mc.fa, mc.fb
		of := func(f matrixFormat) func(l, e int) int {
			if f.bits() == 8 {
				return kOf8(m.m)
			}
			return kOf4(m.m)
		}
		kA, kB = of(fa), of(fb)
	}
	wide, integer := 32, fa == formatI8
	if fa == formatF64 {
		wide = 64
	}
	const a, b, c, scaleA, scaleB = 8, 24, 40, 80, 81
	d := 84
	if mc.accumulate {
		d = c
	}
	words := func(f matrixFormat) int { return (m.m*m.k*m.blocks/Lanes*f.bits() + 31) / 32 }
	regs, kind := [3]int{a, b, c}, "v"
	if mc.agprs {
		kind, regs[0], regs[2], d = "a", agprs+a, agprs+c, agprs+d
	}
	n := m.perLaneD * wide / 32
	third := registerText(kind, c, n)
	if mc.constant != "" {
		third = mc.constant
	}
	line := fmt.Sprintf("%s %s, %s, %s, %s", inst.op, registerText(kind, d%agprs, n), registerText(kind, a, words(fa)), registerText("v", b, words(fb)), third)
	if mc.scaled {
		line += fmt.Sprintf(", v%d, v%d", scaleA, scaleB)
	}
	line = strings.TrimSpace(line + " " + mc.mods)
	k := snippet(t, chip, line)
	r := rand.New(rand.NewPCG(seed, 1))
	x := new(matrixValues)
	var scales [2][32][4]float64 // by row or column, and block of 32 k
	w := runWave(t, k, func(w *wave) {
		w.setExec(r.Uint64() & r.Uint64()) // is ignored
		far := mc.far
		if mc.scaled {
			far = 0
		}
		x.fill(t, r, w, m, chip, regs, fa, fb, kA, kB, wide, far)
		if !mc.scaled {
			return
		}
		which := [2]uint{uint(strings.Count(mc.mods, "op_sel:[1")) + 2*uint(strings.Count(mc.mods, "op_sel_hi:[1")),
			uint(strings.Count(mc.mods, "op_sel:[0,1")+strings.Count(mc.mods, "op_sel:[1,1")) + 2*uint(strings.Count(mc.mods, "op_sel_hi:[0,1")+strings.Count(mc.mods, "op_sel_hi:[1,1"))}
		for lane := range Lanes {
			for o, reg := range []int{scaleA, scaleB} {
				w.v[reg][lane] = r.Uint32() // the bytes that are not chosen are anything
				exponent := r.IntN(3) - 1 + mc.far - 2*mc.far*o
				w.v[reg][lane] = w.v[reg][lane]&^(0xff<<(8*which[o])) | uint32(127+exponent)<<(8*which[o])
				scales[o][lane%m.m][lane/m.m] = math.Ldexp(1, exponent)
			}
		}
	})
	bad := 0
	for lane := range Lanes {
		for v := range m.perLaneD {
			i, j, block := m.iOf(lane, v), lane%m.m, m.blockD(lane, v)
			want := x.c[block][i][j]
			if mc.constant != "" {
				want = mc.cValue
			}
			from := block
			if mc.aBlock != nil {
				from = mc.aBlock(block)
			}
			sign := mc.sign
			if sign == [3]float64{} {
				sign = [3]float64{1, 1, 1}
			}
			want *= sign[2]
			for k := range m.k {
				y := x.b[block][k][j]
				if mc.bLane != nil { // find B[k,j] in its lane, and take the other lane's
					for l := j; l < Lanes; l += m.m {
						for e := range m.m * m.k * m.blocks / Lanes {
							if m.blockAB(l) == block && kB(l, e) == k {
								o := mc.bLane(l)
								y = x.b[m.blockAB(o)][kB(o, e)][o%m.m]
							}
						}
					}
				}
				p := sign[0] * x.a[from][k][i] * sign[1] * y
				if mc.scaled {
					p *= scales[0][i][k/32] * scales[1][j][k/32]
				}
				want += p
			}
			if got := result(w, d, lane, v, wide, integer); got != want {
				if bad++; bad <= 5 {
					t.Errorf("%s %s: D[%d,%d] of block %d is %v, want %v", chip, line, i, j, block, got, want)
				}
			}
		}
	}
	if bad > 5 {
		t.Errorf("%s %s: %d more wrong", chip, line, bad-5)
	}
}

func matrixChips(m *matrixInst) []string {
	if m.chips != nil {
		return m.chips
	}
	return Chips
}

func TestMatrixInstructions(t *testing.T) {
	for i := range matrixInsts {
		m := &matrixInsts[i]
		if m.a == formatSelectable {
			continue
		}
		for _, chip := range matrixChips(m) {
			for n, mc := range []matrixCase{
				{}, {accumulate: true}, {agprs: true}, {agprs: true, accumulate: true}, {constant: "0"},
			} {
				mc.check(t, chip, m, uint64(10*i+n))
			}
			if m.a == formatF32 || m.a == formatBF16 {
				matrixCase{far: 90}.check(t, chip, m, 3)
			}
			switch m.result {
			case b32:
				matrixCase{constant: "-5", cValue: -5}.check(t, chip, m, 1)
				matrixCase{constant: "1.0", cValue: 0x3f800000}.check(t, chip, m, 1)
			case f64:
				matrixCase{constant: "0.15915494309189532", cValue: 0.15915494309189532}.check(t, chip, m, 1)
				for neg := range 8 {
					mc := matrixCase{mods: fmt.Sprintf("neg:[%d,%d,%d]", neg&1, neg>>1&1, neg>>2), sign: [3]float64{1, 1, 1}}
					for i := range 3 {
						if neg>>i&1 != 0 {
							mc.sign[i] = -1
						}
					}
					mc.check(t, chip, m, uint64(neg))
				}
			default:
				matrixCase{constant: "-4.0", cValue: -4}.check(t, chip, m, 1)
			}
		}
	}
}

func TestMatrixBroadcast(t *testing.T) {
	for i := range matrixInsts {
		m := &matrixInsts[i]
		if m.blocks == 1 || m.result == f64 {
			continue
		}
		for size := range bits.Len(uint(m.blocks)) {
			for id := range 1 << size {
				matrixCase{mods: fmt.Sprintf("cbsz:%d abid:%d", size, id), aBlock: func(b int) int {
					return b - b%(1<<size) + id
				}}.check(t, "gfx942", m, uint64(size))
			}
		}
	}
}

func TestMatrixLanePatterns(t *testing.T) {
	patterns := []string{"", "0-31 0-31", "32-63 32-63", "16-63 0-15", "0-15 0-15 0-15 0-15", "16-31 16-31 16-31 16-31", "32-47 32-47 32-47 32-47", "48-63 48-63 48-63 48-63"}
	for i := range matrixInsts {
		m := &matrixInsts[i]
		if !m.blgp {
			continue
		}
		for n, p := range patterns[1:] {
			var lanes []int
			for f := range strings.FieldsSeq(p) {
				var from, to int
				if _, err := fmt.Sscanf(f, "%d-%d", &from, &to); err != nil {
					t.Fatal(err)
				}
				for l := from; l <= to; l++ {
					lanes = append(lanes, l)
				}
			}
			matrixCase{mods: fmt.Sprintf("blgp:%d", n+1), bLane: func(l int) int { return lanes[l] }}.check(t, "gfx942", m, uint64(n))
		}
	}
}

func TestMatrixSelectedFormats(t *testing.T) {
	formats := []matrixFormat{formatFP8, formatBF8, formatFP6, formatBF6, formatFP4}
	for i := range matrixInsts {
		m := &matrixInsts[i]
		if m.a != formatSelectable {
			continue
		}
		for ia, fa := range formats {
			for ib, fb := range formats {
				mc := matrixCase{fa: fa, fb: fb, scaled: m.scaled}
				if ia != 0 {
					mc.mods = fmt.Sprintf("cbsz:%d", ia)
				}
				if ib != 0 {
					mc.mods += fmt.Sprintf(" blgp:%d", ib)
				}
				if !m.scaled {
					mc.check(t, "gfx950", m, uint64(ia))
					continue
				}
				sel := (ia + 5*ib) % 16
				mc.mods = fmt.Sprintf("op_sel:[%d,%d,0] op_sel_hi:[%d,%d,0] %s", sel&1, sel>>1&1, sel>>2&1, sel>>3, mc.mods)
				mc.check(t, "gfx950", m, uint64(ib))
				mc.far = 100
				mc.check(t, "gfx950", m, uint64(ib))
			}
		}
	}
}

// TestMatrixCodes compares the values of codes with independent decoders and with
// values from the OCP and AMD documents.
func TestMatrixCodes(t *testing.T) {
	same := func(x, y float64) bool {
		return math.Float64bits(x) == math.Float64bits(y) || x != x && y != y
	}
	for code := range 256 {
		for _, c := range []struct {
			name string
			t    *[256]float32
			want float32
		}{
			{"fp8", &valuesFP8, num.FromE4M3(byte(code))},
			{"fp8 fnuz", &valuesFP8FNUZ, num.FromE4M3FNUZ(byte(code))},
			{"fp4", &valuesFP4, num.FromE2M1(byte(code))},
			// e5m2 is the high byte of an IEEE half; fnuz halves it but for NaN.
			{"bf8", &valuesBF8, num.FromF16(uint16(code) << 8)},
		} {
			if !same(float64(c.t[code]), float64(c.want)) {
				t.Errorf("%s code 0x%02x is %v, want %v", c.name, code, c.t[code], c.want)
			}
		}
	}
	for code, got := range scaleValues {
		if want := float64(num.FromE8M0(byte(code))); !same(got, want) {
			t.Errorf("scale %d is %v, want %v", code, got, want)
		}
	}
	for _, c := range []struct {
		name string
		t    *[256]float32
		code byte
		want float64
	}{
		{"bf8 fnuz", &valuesBF8FNUZ, 0x7f, 57344}, {"bf8 fnuz", &valuesBF8FNUZ, 0x80, math.NaN()}, {"bf8 fnuz", &valuesBF8FNUZ, 0x01, 0x1p-17},
		{"bf8 fnuz", &valuesBF8FNUZ, 0x40, 1}, {"bf8 fnuz", &valuesBF8FNUZ, 0xc1, -1.25}, {"bf8 fnuz", &valuesBF8FNUZ, 0, 0},
		{"fp6", &valuesFP6, 0x1f, 7.5}, {"fp6", &valuesFP6, 0x01, 0.125}, {"fp6", &valuesFP6, 0x08, 1}, {"fp6", &valuesFP6, 0x3f, -7.5}, {"fp6", &valuesFP6, 0x20, math.Copysign(0, -1)}, {"fp6", &valuesFP6, 0xdf, 7.5},
		{"bf6", &valuesBF6, 0x1f, 28}, {"bf6", &valuesBF6, 0x01, 0.0625}, {"bf6", &valuesBF6, 0x0c, 1}, {"bf6", &valuesBF6, 0x3f, -28}, {"bf6", &valuesBF6, 0xcc, 1},
	} {
		if !same(float64(c.t[c.code]), c.want) {
			t.Errorf("%s code 0x%02x is %v, want %v", c.name, c.code, c.t[c.code], c.want)
		}
	}
}

// TestMatrixSpecialValues looks at one element of D, at [0,0]: lane 0 of the first
// register, from the products of row 0 of A and column 0 of B.
func TestMatrixSpecialValues(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	f32bits := func(x ...float32) []uint32 {
		var b []uint32
		for _, x := range x {
			b = append(b, math.Float32bits(x))
		}
		return b
	}
	for _, c := range []struct {
		name, chip, line string
		a, b             []uint32 // first register, from lane 0 by steps of m (the k groups)
		c                uint32
		want             uint32
	}{
		{"fused", "gfx942", "v_mfma_f32_16x16x4_f32 v[40:43], v8, v24, v[40:43]", f32bits(1 + 0x1p-23), f32bits(1 - 0x1p-23), math.Float32bits(-1), math.Float32bits(-0x1p-46)},
		{"rounded once", "gfx942", "v_mfma_f32_16x16x4_f32 v[40:43], v8, v24, v[40:43]", f32bits(1 + 0x1p-23), f32bits(0x1p-24 * (1 - 0x1p-23)), math.Float32bits(1 + 0x1p-23), math.Float32bits(1 + 0x1p-23)},
		{"sums for rising k", "gfx942", "v_mfma_f32_16x16x4_f32 v[40:43], v8, v24, v[40:43]", f32bits(0x1p24, 1, -0x1p24, 1), f32bits(1, 1, 1, 1), math.Float32bits(1), math.Float32bits(1)},
		{"f16 sums for rising k", "gfx942", "v_mfma_f32_16x16x16_f16 v[40:43], v[8:9], v[24:25], v[40:43]", []uint32{0x6c00, 0x3c00, 0xec00, 0x3c00}, []uint32{0x6c00, 0x3c00, 0x6c00, 0x3c00}, math.Float32bits(1), math.Float32bits(1)},
		{"denormal result", "gfx942", "v_mfma_f32_16x16x4_f32 v[40:43], v8, v24, v[40:43]", f32bits(0x1p-100), f32bits(0x1p-40), 0, 1 << 9},
		{"denormal operand", "gfx942", "v_mfma_f32_16x16x4_f32 v[40:43], v8, v24, v[40:43]", []uint32{1}, f32bits(1), 0, 1},
		{"denormal C", "gfx950", "v_mfma_f32_16x16x4_f32 v[40:43], v8, v24, v[40:43]", nil, nil, 3, 3},
		{"overflow", "gfx950", "v_mfma_f32_16x16x4_f32 v[40:43], v8, v24, v[40:43]", f32bits(math.MaxFloat32), f32bits(2), 0, 0x7f800000},
		{"a product beyond f32", "gfx950", "v_mfma_f32_16x16x4_f32 v[40:43], v8, v24, v[40:43]", f32bits(math.MaxFloat32), f32bits(2), math.Float32bits(-math.MaxFloat32), math.Float32bits(math.MaxFloat32)},
		{"a bf16 product beyond f32", "gfx950", "v_mfma_f32_16x16x16_bf16 v[40:43], v[8:9], v[24:25], v[40:43]", []uint32{0x7f7f}, []uint32{0x4000}, 0xff7f0000, 0x7f7f0000},
		{"a bf16 product below f32", "gfx950", "v_mfma_f32_16x16x16_bf16 v[40:43], v[8:9], v[24:25], v[40:43]", []uint32{0x0003}, []uint32{0x3700}, 1, 2},
		{"infinity", "gfx942", "v_mfma_f32_16x16x4_f32 v[40:43], v8, v24, v[40:43]", f32bits(inf), f32bits(-2), 0, 0xff800000},
		{"infinity by zero", "gfx942", "v_mfma_f32_16x16x4_f32 v[40:43], v8, v24, v[40:43]", f32bits(inf), f32bits(0), 0, 0x7fc00000},
		{"infinities cancel", "gfx942", "v_mfma_f32_16x16x4_f32 v[40:43], v8, v24, v[40:43]", f32bits(inf, inf), f32bits(1, -1), 0, 0x7fc00000},
		{"NaN", "gfx942", "v_mfma_f32_16x16x4_f32 v[40:43], v8, v24, v[40:43]", f32bits(-nan), f32bits(1), 0, 0x7fc00000},
		{"NaN of C", "gfx942", "v_mfma_f32_16x16x4_f32 v[40:43], v8, v24, v[40:43]", nil, nil, 0xffc12345, 0x7fc00000},
		{"-0 stays", "gfx942", "v_mfma_f32_16x16x4_f32 v[40:43], v8, v24, v[40:43]", []uint32{1 << 31, 1 << 31, 1 << 31, 1 << 31}, f32bits(1, 1, 1, 1), 1 << 31, 1 << 31},
		{"f16 denormals", "gfx942", "v_mfma_f32_16x16x16_f16 v[40:43], v[8:9], v[24:25], v[40:43]", []uint32{0x0001}, []uint32{0x3c00}, 0, math.Float32bits(0x1p-24)},
		{"bf16 denormals", "gfx942", "v_mfma_f32_16x16x16_bf16 v[40:43], v[8:9], v[24:25], v[40:43]", []uint32{0x0001}, []uint32{0x3f80}, 0, 1 << 16},
		{"fp8 of gfx942", "gfx942", "v_mfma_f32_16x16x32_fp8_fp8 v[40:43], v[8:9], v[24:25], v[40:43]", []uint32{0x38}, []uint32{0x38}, 0, math.Float32bits(0.25)},
		{"fp8 of gfx950", "gfx950", "v_mfma_f32_16x16x32_fp8_fp8 v[40:43], v[8:9], v[24:25], v[40:43]", []uint32{0x38}, []uint32{0x38}, 0, math.Float32bits(1)},
		{"fp8 NaN of gfx942", "gfx942", "v_mfma_f32_16x16x32_fp8_bf8 v[40:43], v[8:9], v[24:25], v[40:43]", []uint32{0x80}, []uint32{0}, 0, 0x7fc00000},
		{"bf8 infinity of gfx950", "gfx950", "v_mfma_f32_16x16x32_bf8_fp8 v[40:43], v[8:9], v[24:25], v[40:43]", []uint32{0xfc}, []uint32{0x38}, 0, 0xff800000},
		{"xf32 rounds to even", "gfx942", "v_mfma_f32_16x16x8_xf32 v[40:43], v[8:9], v[24:25], v[40:43]", f32bits(1+0x1p-11, 1+3*0x1p-11), f32bits(1, 1), 0, math.Float32bits(2 + 2*0x1p-10)},
		{"xf32 infinity", "gfx942", "v_mfma_f32_16x16x8_xf32 v[40:43], v[8:9], v[24:25], v[40:43]", f32bits(inf), f32bits(1), 0, 0x7f800000},
		{"xf32 NaN", "gfx942", "v_mfma_f32_16x16x8_xf32 v[40:43], v[8:9], v[24:25], v[40:43]", []uint32{0x7f800001}, f32bits(1), 0, 0x7fc00000},
		{"i8", "gfx942", "v_mfma_i32_16x16x32_i8 v[40:43], v[8:9], v[24:25], v[40:43]", []uint32{0x80}, []uint32{0x80}, 5, 5 + 128*128},
		{"i32 wraps around", "gfx950", "v_mfma_i32_16x16x32_i8 v[40:43], v[8:9], v[24:25], v[40:43]", []uint32{1}, []uint32{1}, 0x7fffffff, 0x80000000},
	} {
		k := snippet(t, c.chip, c.line)
		w := runWave(t, k, func(w *wave) {
			for i, x := range c.a {
				w.v[8][16*i] = x
			}
			for i, x := range c.b {
				w.v[24][16*i] = x
			}
			w.v[40][0] = c.c
		})
		if got := w.v[40][0]; got != c.want {
			t.Errorf("%s: 0x%08x, want 0x%08x", c.name, got, c.want)
		}
	}
}

func TestMatrixScaleSpecials(t *testing.T) {
	for _, c := range []struct {
		a, b byte
		want uint32
	}{
		{127, 127, math.Float32bits(1)}, {0, 254, math.Float32bits(1)}, {0, 127, 1 << 22}, {0, 0, 0}, {254, 127, math.Float32bits(0x1p127)}, {254, 254, 0x7f800000},
		{255, 127, 0x7fc00000}, {127, 255, 0x7fc00000},
	} {
		k := snippet(t, "gfx950", "v_mfma_scale_f32_16x16x128_f8f6f4 v[40:43], v[8:15], v[24:31], 0, v4, v5 op_sel_hi:[0,0,0]")
		w := runWave(t, k, func(w *wave) {
			w.v[8][0], w.v[24][0] = 0x38, 0x38 // A[0,0] = B[0,0] = 1
			for l := range Lanes {
				w.v[4][l], w.v[5][l] = 127, 127
			}
			w.v[4][0], w.v[5][0] = uint32(c.a), uint32(c.b)
		})
		if got := w.v[40][0]; got != c.want {
			t.Errorf("scales %d, %d: 0x%08x, want 0x%08x", c.a, c.b, got, c.want)
		}
		// A NaN scale is that of its row or column, zeros included, and of no other.
		if got, want := w.v[40][1], uint32(0); c.a == 255 && got != nan32 || c.a != 255 && got != want {
			t.Errorf("scales %d, %d: D[0,1] is 0x%08x", c.a, c.b, got)
		}
	}
}

// TestMatrixF64IsFused: a product that is rounded before it is added gives 0.
func TestMatrixF64IsFused(t *testing.T) {
	k := snippet(t, "gfx942", "v_mfma_f64_16x16x4_f64 v[40:47], v[8:9], v[24:25], v[40:47]")
	w := runWave(t, k, func(w *wave) {
		put(w.v[8:], 0, 0, 64, math.Float64bits(1+0x1p-52))
		put(w.v[24:], 0, 0, 64, math.Float64bits(1-0x1p-52))
		put(w.v[40:], 0, 0, 64, math.Float64bits(-1))
		put(w.v[40:], 1, 0, 64, math.Float64bits(math.NaN())|1<<63)
	})
	if got := result(w, 40, 0, 0, 64, false); got != -0x1p-104 {
		t.Errorf("%v, want -2^-104", got)
	}
	if got := math.Float64bits(result(w, 40, 1, 0, 64, false)); got != quietNaN64 {
		t.Errorf("NaN is 0x%x, want 0x%x", got, uint64(quietNaN64))
	}
}

// TestMatrixOverlap: all is read before D is written.
func TestMatrixOverlap(t *testing.T) {
	// D lies over A, B and half of C.
	k := snippet(t, "gfx942", "v_mfma_f32_16x16x16_bf16 v[8:11], v[8:9], v[10:11], v[10:13]")
	plain := snippet(t, "gfx942", "v_mfma_f32_16x16x16_bf16 v[40:43], v[8:9], v[10:11], v[10:13]")
	init := func(w *wave) {
		r := rand.New(rand.NewPCG(5, 5))
		for i := 8; i < 14; i++ {
			for l := range Lanes {
				w.v[i][l] = r.Uint32() & 0xbfff_bfff // no NaN
			}
		}
	}
	got, want := runWave(t, k, init), runWave(t, plain, init)
	for i := range 4 {
		if got.v[8+i] != want.v[40+i] {
			t.Errorf("register %d differs", i)
		}
	}
}

func TestMatrixRefusals(t *testing.T) {
	for _, c := range []struct{ chip, line, want string }{
		{"gfx942", "v_smfmac_f32_16x16x32_bf16 v[0:3], v[4:5], v[8:11], v1", "unknown instruction v_smfmac_f32_16x16x32_bf16"},
		{"gfx942", "v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], v[0:3]", "gfx942 has no instruction"},
		{"gfx950", "v_mfma_f32_16x16x8_xf32 v[0:3], v[4:5], v[8:9], v[0:3]", "gfx950 has no instruction"},
		{"gfx942", "v_mfma_f32_16x16x16_bf16 v[0:3], v[4:7], v[8:9], v[0:3]", "operand v[4:7] has 4 registers, not 2"},
		{"gfx942", "v_mfma_f32_16x16x16_bf16 v[0:1], v[4:5], v[8:9], v[0:3]", "operand v[0:1] has 2 registers, not 4"},
		{"gfx942", "v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[8:9], v[0:1]", "operand v[0:1] has 2 registers, not 4"},
		{"gfx942", "v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[8:9], s[0:3]", "neither registers nor a constant"},
		{"gfx942", "v_mfma_f32_16x16x16_bf16 v[0:3], s[4:5], v[8:9], v[0:3]", "operand s[4:5] is no vector register"},
		{"gfx942", "v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[8:9], v[0:3] cbsz:1", "modifier cbsz is not supported here"},
		{"gfx942", "v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[8:9], v[0:3] blgp:8", "blgp:8: not a lane pattern"},
		{"gfx942", "v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[8:9], v[0:3] neg:[1,0,0]", "modifier neg is not supported here"},
		{"gfx942", "v_mfma_f32_32x32x4_2b_bf16 v[0:31], v[34:35], v[36:37], v[0:31] cbsz:2", "cbsz:2: there are 2 blocks"},
		{"gfx942", "v_mfma_f32_32x32x4_2b_bf16 v[0:31], v[34:35], v[36:37], v[0:31] cbsz:1 abid:2", "abid:2: cbsz makes groups of 2 blocks"},
		{"gfx942", "v_mfma_f32_32x32x4_2b_bf16 v[0:31], v[34:35], v[36:37], v[0:31] abid:1", "abid:1: cbsz makes groups of 1 blocks"},
		{"gfx942", "v_mfma_f32_16x16x32_fp8_fp8 v[0:3], v[4:5], v[8:9], v[0:3] blgp:1", "modifier blgp is not supported here"},
		{"gfx942", "v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], v[0:7] blgp:1", "modifier blgp is not supported here"},
		{"gfx950", "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[20:23] cbsz:4", "operand v[4:11] has 8 registers, not 4"},
		{"gfx950", "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[20:23] cbsz:5", "cbsz:5: not a format"},
		{"gfx950", "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[20:23], v1, v2", "6 operands, 4 are understood"},
		{"gfx950", "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[20:23], v30, v31", "third entries"},
		{"gfx950", "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[20:23], s30, v31 op_sel_hi:[0,0,0]", "scales are in a vector register"},
	} {
		if _, err := trySnippet(c.chip, c.line); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.line, err, c.want)
		}
	}
}

func TestMatrixUses(t *testing.T) {
	k := snippet(t, "gfx950", "v_mfma_scale_f32_16x16x128_f8f6f4 v[40:43], a[8:15], v[24:27], a[0:3], v4, v5 op_sel_hi:[0,0,0] blgp:4")
	want := uses{class: classMFMA, reads: []span{{1, true, agprs + 8, 8, 0, allBits}, {2, true, 24, 4, 0, allBits}, {3, true, agprs, 4, 0, allBits}, {4, true, 4, 1, 0, allBits}, {5, true, 5, 1, 0, allBits}}, writes: []span{{0, true, 40, 4, 0, allBits}}}
	if diff := cmp.Diff(want, k.uses[0], cmp.AllowUnexported(uses{}, span{})); diff != "" {
		t.Errorf("uses differ (-want +got):\n%s", diff)
	}
}

// BenchmarkMatrixGEMM runs a loop of bf16 matrix instructions on one core.
func BenchmarkMatrixGEMM(b *testing.B) {
	for _, c := range []struct {
		name, chip, line string
		flops            float64
	}{
		{"16x16x16_bf16", "gfx942", "v_mfma_f32_16x16x16_bf16 v[40:43], v[8:9], v[24:25], v[40:43]", 2 * 16 * 16 * 16},
		{"16x16x32_bf16", "gfx950", "v_mfma_f32_16x16x32_bf16 v[40:43], v[8:11], v[24:27], v[40:43]", 2 * 16 * 16 * 32},
		{"32x32x16_bf16", "gfx950", "v_mfma_f32_32x32x16_bf16 v[40:55], v[8:11], v[24:27], v[40:55]", 2 * 32 * 32 * 16},
		{"16x16x32_fp8_fp8", "gfx942", "v_mfma_f32_16x16x32_fp8_fp8 v[40:43], v[8:9], v[24:25], v[40:43]", 2 * 16 * 16 * 32},
		{"scale_16x16x128_fp4", "gfx950", "v_mfma_scale_f32_16x16x128_f8f6f4 v[40:43], v[8:11], v[24:27], v[40:43], v4, v5 op_sel_hi:[0,0,0] cbsz:4 blgp:4", 2 * 16 * 16 * 128},
	} {
		b.Run(c.name, func(b *testing.B) {
			const n = 1000
			k := snippet(b, c.chip, "s_movk_i32 s0, 250", c.line, c.line, c.line, c.line, "s_sub_u32 s0, s0, 1", "s_cmp_lg_u32 s0, 0", "s_cbranch_scc1 65529")
			b.ResetTimer()
			for b.Loop() {
				runWave(b, k, func(w *wave) {
					for l := range Lanes {
						w.v[8][l], w.v[24][l] = 0x3f803f80, 0x3f803f80
						w.v[4][l], w.v[5][l] = 127, 127
					}
				})
			}
			b.ReportMetric(c.flops*n*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
