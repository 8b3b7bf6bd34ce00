package emu

import (
	"math"
	"math/bits"
	"sync"
)

// Matrix instructions, the dense ones: D = A B + C of a whole wave, with A [M,K],
// B [K,M], C and D [M,M], or several such products ("blocks"). Sparse ones
// (v_smfmac) are not in the table and so refused.
//
// What the ISA documents leave open, and what is chosen here:
//
//   - EXEC is ignored, as "Matrix Arithmetic Instructions" of the CDNA3 document
//     says. MODE is too: no denormal is flushed, results round to nearest even.
//   - Products to f32 and f64 are a chain of fused multiply-adds from C, for rising k:
//     each product is exact, each sum rounded. Chips may add in another order or round
//     later, so last bits differ. A result that is NaN is the positive quiet one.
//   - Sums of i32 wrap around.
//   - xf32 operands are f32 rounded to nearest even at 10 mantissa bits.
//   - The scales of v_mfma_scale are powers of two, and so are applied to the
//     operands, where they are exact; the byte 255 makes the row's or column's block
//     NaN.

// matrixInst is a row of the table of matrix instructions.
type matrixInst struct {
	op           string
	m, k, blocks int
	a, b         matrixFormat
	result       elem // f32, f64, or b32 for i32
	// run is how many consecutive k follow each other in a lane, before the runs of
	// the wave's other lanes; 0 is all that a lane holds. The f8f6f4 instructions have
	// their formats and runs from their modifiers.
	run int
	// blgp and neg tell whether the instruction takes these modifiers. cbsz and abid
	// are those of instructions with several blocks.
	blgp, neg bool
	scaled    bool
	chips     []string
}

var (
	onlyGFX942 = []string{"gfx942"}
	onlyGFX950 = []string{"gfx950"}
)

// matrixInsts are the dense matrix instructions of gfx942 and gfx950, as LLVM 22
// prints them. Modifiers that they take: AMD's matrix instruction calculator, whose
// knowledge ends at CDNA3, and CDNA4's have none.
var matrixInsts = []matrixInst{
	{op: "v_mfma_f32_32x32x1_2b_f32", m: 32, k: 1, blocks: 2, a: formatF32, b: formatF32, result: f32, blgp: true},
	{op: "v_mfma_f32_16x16x1_4b_f32", m: 16, k: 1, blocks: 4, a: formatF32, b: formatF32, result: f32, blgp: true},
	{op: "v_mfma_f32_4x4x1_16b_f32", m: 4, k: 1, blocks: 16, a: formatF32, b: formatF32, result: f32, blgp: true},
	{op: "v_mfma_f32_32x32x2_f32", m: 32, k: 2, blocks: 1, a: formatF32, b: formatF32, result: f32, blgp: true},
	{op: "v_mfma_f32_16x16x4_f32", m: 16, k: 4, blocks: 1, a: formatF32, b: formatF32, result: f32, blgp: true},
	{op: "v_mfma_f32_32x32x4_xf32", m: 32, k: 4, blocks: 1, a: formatXF32, b: formatXF32, result: f32, chips: onlyGFX942},
	{op: "v_mfma_f32_16x16x8_xf32", m: 16, k: 8, blocks: 1, a: formatXF32, b: formatXF32, result: f32, chips: onlyGFX942},

	{op: "v_mfma_f32_32x32x4_2b_f16", m: 32, k: 4, blocks: 2, a: formatF16, b: formatF16, result: f32, blgp: true},
	{op: "v_mfma_f32_16x16x4_4b_f16", m: 16, k: 4, blocks: 4, a: formatF16, b: formatF16, result: f32, blgp: true},
	{op: "v_mfma_f32_4x4x4_16b_f16", m: 4, k: 4, blocks: 16, a: formatF16, b: formatF16, result: f32, blgp: true},
	{op: "v_mfma_f32_32x32x8_f16", m: 32, k: 8, blocks: 1, a: formatF16, b: formatF16, result: f32, blgp: true},
	{op: "v_mfma_f32_16x16x16_f16", m: 16, k: 16, blocks: 1, a: formatF16, b: formatF16, result: f32, blgp: true},
	{op: "v_mfma_f32_32x32x16_f16", m: 32, k: 16, blocks: 1, a: formatF16, b: formatF16, result: f32, chips: onlyGFX950},
	{op: "v_mfma_f32_16x16x32_f16", m: 16, k: 32, blocks: 1, a: formatF16, b: formatF16, result: f32, chips: onlyGFX950},

	{op: "v_mfma_f32_32x32x4_2b_bf16", m: 32, k: 4, blocks: 2, a: formatBF16, b: formatBF16, result: f32, blgp: true},
	{op: "v_mfma_f32_16x16x4_4b_bf16", m: 16, k: 4, blocks: 4, a: formatBF16, b: formatBF16, result: f32, blgp: true},
	{op: "v_mfma_f32_4x4x4_16b_bf16", m: 4, k: 4, blocks: 16, a: formatBF16, b: formatBF16, result: f32, blgp: true},
	{op: "v_mfma_f32_32x32x8_bf16", m: 32, k: 8, blocks: 1, a: formatBF16, b: formatBF16, result: f32, blgp: true},
	{op: "v_mfma_f32_16x16x16_bf16", m: 16, k: 16, blocks: 1, a: formatBF16, b: formatBF16, result: f32, blgp: true},
	{op: "v_mfma_f32_32x32x16_bf16", m: 32, k: 16, blocks: 1, a: formatBF16, b: formatBF16, result: f32, chips: onlyGFX950},
	{op: "v_mfma_f32_16x16x32_bf16", m: 16, k: 32, blocks: 1, a: formatBF16, b: formatBF16, result: f32, chips: onlyGFX950},

	{op: "v_mfma_f64_16x16x4_f64", m: 16, k: 4, blocks: 1, a: formatF64, b: formatF64, result: f64, neg: true},
	{op: "v_mfma_f64_4x4x4_4b_f64", m: 4, k: 4, blocks: 4, a: formatF64, b: formatF64, result: f64, neg: true},

	{op: "v_mfma_i32_32x32x4_2b_i8", m: 32, k: 4, blocks: 2, a: formatI8, b: formatI8, result: b32, blgp: true},
	{op: "v_mfma_i32_16x16x4_4b_i8", m: 16, k: 4, blocks: 4, a: formatI8, b: formatI8, result: b32, blgp: true},
	{op: "v_mfma_i32_4x4x4_16b_i8", m: 4, k: 4, blocks: 16, a: formatI8, b: formatI8, result: b32, blgp: true},
	{op: "v_mfma_i32_32x32x16_i8", m: 32, k: 16, blocks: 1, a: formatI8, b: formatI8, result: b32},
	{op: "v_mfma_i32_16x16x32_i8", m: 16, k: 32, blocks: 1, a: formatI8, b: formatI8, result: b32},
	{op: "v_mfma_i32_32x32x32_i8", m: 32, k: 32, blocks: 1, a: formatI8, b: formatI8, result: b32, chips: onlyGFX950},
	{op: "v_mfma_i32_16x16x64_i8", m: 16, k: 64, blocks: 1, a: formatI8, b: formatI8, result: b32, chips: onlyGFX950},

	{op: "v_mfma_f32_32x32x16_fp8_fp8", m: 32, k: 16, blocks: 1, a: formatFP8, b: formatFP8, result: f32},
	{op: "v_mfma_f32_32x32x16_fp8_bf8", m: 32, k: 16, blocks: 1, a: formatFP8, b: formatBF8, result: f32},
	{op: "v_mfma_f32_32x32x16_bf8_fp8", m: 32, k: 16, blocks: 1, a: formatBF8, b: formatFP8, result: f32},
	{op: "v_mfma_f32_32x32x16_bf8_bf8", m: 32, k: 16, blocks: 1, a: formatBF8, b: formatBF8, result: f32},
	{op: "v_mfma_f32_16x16x32_fp8_fp8", m: 16, k: 32, blocks: 1, a: formatFP8, b: formatFP8, result: f32},
	{op: "v_mfma_f32_16x16x32_fp8_bf8", m: 16, k: 32, blocks: 1, a: formatFP8, b: formatBF8, result: f32},
	{op: "v_mfma_f32_16x16x32_bf8_fp8", m: 16, k: 32, blocks: 1, a: formatBF8, b: formatFP8, result: f32},
	{op: "v_mfma_f32_16x16x32_bf8_bf8", m: 16, k: 32, blocks: 1, a: formatBF8, b: formatBF8, result: f32},

	{op: "v_mfma_f32_32x32x64_f8f6f4", m: 32, k: 64, blocks: 1, result: f32, chips: onlyGFX950},
	{op: "v_mfma_f32_16x16x128_f8f6f4", m: 16, k: 128, blocks: 1, result: f32, chips: onlyGFX950},
	{op: "v_mfma_scale_f32_32x32x64_f8f6f4", m: 32, k: 64, blocks: 1, result: f32, scaled: true, chips: onlyGFX950},
	{op: "v_mfma_scale_f32_16x16x128_f8f6f4", m: 16, k: 128, blocks: 1, result: f32, scaled: true, chips: onlyGFX950},
}

func init() {
	for _, m := range matrixInsts {
		define(map[string]compile{m.op: m.compile}, m.chips...)
	}
}

// selectable are the formats of f8f6f4 instructions, by the value of cbsz (of A) and
// of blgp (of B), and how many consecutive k a lane holds: AMD's article "Matrix
// Core Programming on AMD CDNA3 and CDNA4 architecture" for 8 and for 4 bits. 6 bits
// are taken to be as 4 bits. No chip was asked.
var selectable = []struct {
	format matrixFormat
	run    int
}{{formatFP8, 16}, {formatBF8, 16}, {formatFP6, 32}, {formatBF6, 32}, {formatFP4, 32}}

// scaleBlock is the number of k that share a scale.
const scaleBlock = 32

// matrixStep is a compiled matrix instruction.
type matrixStep struct {
	in       *Inst
	m, k     int
	blocks   int
	a, b     matrixOperand
	c        int // first register of C, or -1
	constant uint64
	d        int
	results  []resultRow
	aBlock   [16]int // which block of A a block of the product takes
	negC     bool
}

// matrixOperand is A or B as a step reads it.
type matrixOperand struct {
	reg    int
	moves  []move
	format matrixFormat
	decode func(dst []float32, src, next []uint32, shift uint)
	neg    bool
	scale  int // register of the scales, or -1
	byte   uint
}

// matrices holds the operands of an instruction under way as rows: A and B by
// block and k, the accumulator by block and i.
type matrices struct {
	a, b    [128]row[float32]
	acc     [64]row[float32]
	wideA   [128]row[float64]
	wideB   [128]row[float64]
	wideAcc [64]row[float64]
	intA    [64]row[int32]
	intB    [64]row[int32]
	intAcc  [64]row[int32]
}

type row[T any] [32]T

// matrixStore lends the matrices, which are too large to be cleared each time.
var matrixStore = sync.Pool{New: func() any { return new(matrices) }}

func (m matrixInst) compile(c *compiler) step {
	c.encodings(EncDefault)
	s := &matrixStep{in: c.in, m: m.m, k: m.k, blocks: m.blocks}
	a := operandShape{m: m.m, k: m.k, blocks: m.blocks, run: m.run}
	b := a
	fa, fb := m.a, m.b
	if fa == formatSelectable {
		fa, a.run = c.selected("cbsz")
		fb, b.run = c.selected("blgp")
	}
	pattern, neg := 0, uint(0)
	if m.blocks > 1 && !m.neg {
		s.broadcast(c)
	}
	if m.blgp {
		pattern = c.number("blgp", 0)
		if pattern < 0 || pattern >= len(lanePatterns) {
			c.fail("modifier blgp:%d: not a lane pattern", pattern)
			pattern = 0
		}
	}
	if m.neg {
		neg = c.bits("neg", 3, 0)
	}
	if m.blocks == 1 || m.neg {
		for i := range s.aBlock {
			s.aBlock[i] = i
		}
	}
	s.a = c.matrixOperand(1, a, fa, 0)
	s.b = c.matrixOperand(2, b, fb, pattern)
	s.a.neg, s.b.neg, s.negC = neg&1 != 0, neg&2 != 0, neg&4 != 0
	r := resultShape{m: m.m, blocks: m.blocks, run: 4}
	if m.result == f64 {
		r.run = 1
	}
	s.results = r.rows()
	words := m.m * m.m * m.blocks / Lanes * m.result.words()
	s.d = c.vectorDest(0, words)
	s.c = -1
	switch o := c.plain(c.arg(3)); o.Kind {
	case VGPR, AGPR:
		s.c = c.vectorRegister(o, words)
		c.readsVector(3, s.c, words, 0)
	default:
		v, ok := o.constant(m.result)
		if !ok {
			c.fail("operand %s is neither registers nor a constant", o.Text)
		}
		s.constant = v
	}
	if m.scaled {
		c.scales(s)
	}
	do := (*matrixStep).float
	switch m.result {
	case f64:
		do = (*matrixStep).double
	case b32:
		do = (*matrixStep).int
	}
	indexed := c.indexed
	return func(w *wave) {
		if indexed && w.gprIndexed {
			w.fail(s.in, "a matrix instruction while registers are indexed")
			return
		}
		x := matrixStore.Get().(*matrices)
		do(s, w, x)
		matrixStore.Put(x)
	}
}

// broadcast reads cbsz and abid: each group of 2^cbsz blocks takes block abid of the
// group for A.
func (s *matrixStep) broadcast(c *compiler) {
	size, id := c.number("cbsz", 0), c.number("abid", 0)
	if size < 0 || size > bits.Len(uint(s.blocks))-1 {
		c.fail("modifier cbsz:%d: there are %d blocks", size, s.blocks)
		size = 0
	}
	if id < 0 || id >= 1<<size {
		c.fail("modifier abid:%d: cbsz makes groups of %d blocks", id, 1<<size)
	}
	for i := range s.aBlock {
		s.aBlock[i] = i>>size<<size + id
	}
}

// selected reads the format of an f8f6f4 operand.
func (c *compiler) selected(key string) (matrixFormat, int) {
	n := c.number(key, 0)
	if n < 0 || n >= len(selectable) {
		c.fail("modifier %s:%d: not a format", key, n)
		n = 0
	}
	return selectable[n].format, selectable[n].run
}

// matrixOperand compiles A or B, operand i.
func (c *compiler) matrixOperand(i int, shape operandShape, f matrixFormat, pattern int) matrixOperand {
	o := c.plain(c.arg(i))
	p := matrixOperand{format: f, scale: -1, decode: f.decoder(c.chip)}
	words := (shape.perLane()*f.bits() + 31) / 32
	if o.Kind != VGPR && o.Kind != AGPR {
		c.fail("operand %s is no vector register", o.Text)
		return p
	}
	p.reg = c.vectorRegister(o, words)
	c.readsVector(i, p.reg, words, 0)
	p.moves = shape.moves(f.bits(), pattern)
	return p
}

// scales reads the scale operands of v_mfma_scale. op_sel and op_sel_hi choose the
// byte of each lane's word; what their third entry means is not documented.
func (c *compiler) scales(s *matrixStep) {
	lo, hi := c.bits("op_sel", 3, 0), c.bits("op_sel_hi", 3, 7)
	if lo>>2 != 0 || hi>>2 != 0 {
		c.fail("op_sel and op_sel_hi choose the bytes of two scales: their third entries must be there and 0")
	}
	for i, p := range []*matrixOperand{&s.a, &s.b} {
		o := c.plain(c.arg(4 + i))
		if o.Kind != VGPR {
			c.fail("operand %s: scales are in a vector register", o.Text)
			continue
		}
		p.scale = c.vectorRegister(o, 1)
		c.readsVector(4+i, p.scale, 1, 0)
		p.byte = lo>>i&1 + hi>>i&1<<1
	}
}

// load fills the rows of A or B, without scales.
func (p *matrixOperand) load(w *wave, rows *[128]row[float32]) {
	for i := range p.moves {
		v := &p.moves[i]
		src := w.v[p.reg+int(v.word)][v.lane : v.lane+v.n]
		next := src
		if v.split {
			next = w.v[p.reg+int(v.word)+1][v.lane : v.lane+v.n]
		}
		p.decode(rows[v.row&127][v.col:v.col+v.n], src, next, uint(v.shift))
	}
}

// Operands that are zero or between 2^-50 and 2^60 in magnitude, of at most 11
// significant bits, have products that f32 holds exactly.
const (
	safeLow, safeHigh = 127 - 50, 127 + 60 // biased exponents of f32
	// The 8-bit and smaller formats reach from 2^-17 to 2^16.
	safeScaleLow, safeScaleHigh = safeLow + 17, safeHigh - 16
)

// narrow tells whether products with the operand, scales applied, are exact in f32
// if the other operand is narrow too.
func (p *matrixOperand) narrow(w *wave) bool {
	switch p.format {
	case formatF32, formatXF32:
		return false
	case formatBF16:
		low, high := ^uint32(0), uint32(0)
		for i := range p.moves {
			v := &p.moves[i]
			for _, x := range w.v[p.reg+int(v.word)][v.lane : v.lane+v.n] {
				x = x >> (v.shift & 31) << 16 &^ sign32
				low, high = min(low, x-1), max(high, x) // zero is above all others less 1
			}
		}
		return low >= safeLow<<23-1 && high < safeHigh<<23
	}
	if p.scale >= 0 {
		for _, x := range w.v[p.scale] {
			if s := x >> (8 * p.byte) & 0xff; s < safeScaleLow || s > safeScaleHigh {
				return false
			}
		}
	}
	return true
}

// float computes products to f32.
func (s *matrixStep) float(w *wave, x *matrices) {
	s.a.load(w, &x.a)
	s.b.load(w, &x.b)
	narrow := s.a.narrow(w) && s.b.narrow(w)
	if narrow {
		scaleRows(&s.a, w, s.m, x.a[:s.k])
		scaleRows(&s.b, w, s.m, x.b[:s.k])
	} else {
		widen(x.wideA[:s.blocks*s.k], x.a[:])
		widen(x.wideB[:s.blocks*s.k], x.b[:])
		scaleRows(&s.a, w, s.m, x.wideA[:s.k])
		scaleRows(&s.b, w, s.m, x.wideB[:s.k])
	}
	for i := range s.results {
		r := &s.results[i]
		acc := x.acc[i&63][:s.m]
		if s.c < 0 {
			for j := range acc {
				acc[j] = math.Float32frombits(uint32(s.constant))
			}
			continue
		}
		for j, c := range w.v[s.c+int(r.element)][r.lane : int(r.lane)+len(acc)] {
			acc[j] = math.Float32frombits(c)
		}
	}
	for block := range s.blocks {
		acc, a, b := x.acc[block*s.m:][:s.m], s.aBlock[block&15]*s.k, block*s.k
		if narrow {
			multiply(acc, x.a[a:][:s.k], x.b[b:][:s.k])
		} else {
			multiplyWide(acc, x.wideA[a:][:s.k], x.wideB[b:][:s.k])
		}
	}
	for i := range s.results {
		r := &s.results[i]
		acc := x.acc[i&63][:s.m]
		d := w.v[s.d+int(r.element)][r.lane : int(r.lane)+len(acc)]
		for j, y := range acc {
			if b := math.Float32bits(y); y == y {
				d[j] = b
			} else {
				d[j] = nan32
			}
		}
	}
}

// multiply adds the product of A and B, given as rows of rising k, to acc. Products
// must be exact in the type.
func multiply[T float32 | int32](acc, a, b []row[T]) {
	b = b[:len(a)]
	for i := 0; i+1 < len(acc); i += 2 {
		i0, i1 := i&31, (i+1)&31
		for j := 0; j < len(acc); j += 4 {
			j0, j1, j2, j3 := j&31, (j+1)&31, (j+2)&31, (j+3)&31
			p, q := &acc[i], &acc[i+1]
			p0, p1, p2, p3 := p[j0], p[j1], p[j2], p[j3]
			q0, q1, q2, q3 := q[j0], q[j1], q[j2], q[j3]
			for k := range a {
				x, y := a[k][i0], a[k][i1]
				r := &b[k]
				p0 += x * r[j0]
				p1 += x * r[j1]
				p2 += x * r[j2]
				p3 += x * r[j3]
				q0 += y * r[j0]
				q1 += y * r[j1]
				q2 += y * r[j2]
				q3 += y * r[j3]
			}
			p[j0], p[j1], p[j2], p[j3] = p0, p1, p2, p3
			q[j0], q[j1], q[j2], q[j3] = q0, q1, q2, q3
		}
	}
}

// multiplyWide is multiply for products that are exact in f64 only.
func multiplyWide(acc []row[float32], a, b []row[float64]) {
	b = b[:len(a)]
	for i := range acc {
		for j := range acc {
			y := acc[i][j&31]
			for k := range a {
				p, c := float64(a[k][i&31]*b[k][j&31]), float64(y)
				s := p + c
				if r := math.Float64bits(s); mayRoundTwice(r) {
					s = roundOdd(s, p, c)
				}
				y = float32(s)
			}
			acc[i][j&31] = y
		}
	}
}

// mayRoundTwice tells whether rounding a rounded f64 sum to f32 may differ from
// rounding the exact sum: it lies half way between two values of f32, or the result
// is denormal and may do so.
func mayRoundTwice(bits uint64) bool { return bits&(1<<29-1) == 1<<28 || bits<<1-1 < 0x381<<53-1 }

func widen(d []row[float64], s []row[float32]) {
	s = s[:len(d)]
	for i := range d {
		for j, x := range s[i] {
			d[i][j] = float64(x)
		}
	}
}

// scaleRows multiplies rows of rising k by the scales of an operand, if it has any.
func scaleRows[T float32 | float64](p *matrixOperand, w *wave, m int, rows []row[T]) {
	if p.scale < 0 {
		return
	}
	for k := range rows {
		lane := k / scaleBlock * m
		r := rows[k][:m]
		for i, x := range w.v[p.scale][lane : lane+len(r)] {
			r[i] *= T(scaleValues[x>>(8*p.byte)&0xff])
		}
	}
}

// double computes products to f64.
func (s *matrixStep) double(w *wave, x *matrices) {
	s.a.loadDouble(w, &x.wideA)
	s.b.loadDouble(w, &x.wideB)
	for i := range s.results {
		r := &s.results[i]
		acc := x.wideAcc[i&63][:s.m]
		for j := range acc {
			c := s.constant
			if s.c >= 0 {
				e, lane := s.c+2*int(r.element), int(r.lane)+j
				c = uint64(w.v[e][lane]) | uint64(w.v[e+1][lane])<<32
			}
			acc[j] = math.Float64frombits(c)
			if s.negC {
				acc[j] = -acc[j]
			}
		}
	}
	for block := range s.blocks {
		acc, a, b := x.wideAcc[block*s.m:][:s.m], x.wideA[block*s.k:][:s.k], x.wideB[block*s.k:][:s.k]
		for i := range acc {
			for j := range acc {
				y := acc[i][j&31]
				for k := range a {
					y = math.FMA(a[k][i&31], b[k][j&31], y)
				}
				acc[i][j&31] = y
			}
		}
	}
	for i := range s.results {
		r := &s.results[i]
		for j, y := range x.wideAcc[i&63][:s.m] {
			b := math.Float64bits(y)
			if y != y {
				b = quietNaN64
			}
			e, lane := s.d+2*int(r.element), int(r.lane)+j
			w.v[e][lane], w.v[e+1][lane] = uint32(b), uint32(b>>32)
		}
	}
}

const quietNaN64 = 0x7ff8000000000000

func (p *matrixOperand) loadDouble(w *wave, rows *[128]row[float64]) {
	for i := range p.moves {
		v := &p.moves[i]
		reg := p.reg + int(v.word)
		dst := rows[v.row&127][v.col : v.col+v.n]
		for j := range dst {
			lane := int(v.lane) + j
			dst[j] = math.Float64frombits(uint64(w.v[reg][lane]) | uint64(w.v[reg+1][lane])<<32)
			if p.neg {
				dst[j] = -dst[j]
			}
		}
	}
}

// int computes products to i32.
func (s *matrixStep) int(w *wave, x *matrices) {
	s.a.loadInt(w, &x.intA)
	s.b.loadInt(w, &x.intB)
	for i := range s.results {
		r := &s.results[i]
		acc := x.intAcc[i&63][:s.m]
		for j := range acc {
			acc[j] = int32(s.constant)
			if s.c >= 0 {
				acc[j] = int32(w.v[s.c+int(r.element)][int(r.lane)+j])
			}
		}
	}
	for block := range s.blocks {
		a := s.aBlock[block&15]
		multiply(x.intAcc[block*s.m:][:s.m], x.intA[a*s.k:][:s.k], x.intB[block*s.k:][:s.k])
	}
	for i := range s.results {
		r := &s.results[i]
		for j, y := range x.intAcc[i&63][:s.m] {
			w.v[s.d+int(r.element)][int(r.lane)+j] = uint32(y)
		}
	}
}

func (p *matrixOperand) loadInt(w *wave, rows *[64]row[int32]) {
	for i := range p.moves {
		v := &p.moves[i]
		dst := rows[v.row&63][v.col : v.col+v.n]
		for j, x := range w.v[p.reg+int(v.word)][v.lane : int(v.lane)+len(dst)] {
			dst[j] = int32(int8(x >> (v.shift & 31)))
		}
	}
}
