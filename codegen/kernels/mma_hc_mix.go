package kernels

import (
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// The second launch of hyper-connections on NVIDIA's GPUs. A token has a group, which
// makes the row of its streams and keeps it in registers to the last result, and a warp
// of another group, which makes the weights between streams: the two do not depend on
// each other, and each is a long chain.

// mixResident is how many groups have the registers of a processor: of many tokens.
const mixResident = 4

// mixBlock is the block of codes that half a warp has in registers.
const mixBlock = 128

// hcMix is a lane of that launch.
type hcMix struct {
	*kernel.K
	p      *hcProduct
	tokens kernel.V
	// each is the number of tokens of a group for weights, and between that of those groups.
	each, between kernel.V
	lane          kernel.V // of the warp: the column of mixes that it has
	wave          kernel.V

	parts, streams, scale, base *kernel.Buf
	gain                        *kernel.Buf // nil without a norm
	y, post, comb               *kernel.Buf
	codes                       *kernel.Buf // nil without codes

	rmsEps float64
	format codeFormat
}

// mixEach is the number of tokens whose weights between streams a group makes. Warps
// that share a processor's quarter would wait for each other.
func (p *hcProduct) mixEach() int {
	if p.t <= 128 {
		return 1
	}
	return 4
}

// mixEvery says which groups are for weights until there are enough: all, since they take
// longest, or of many tokens one in mixEvery, so that a processor reads rows meanwhile.
// There are enough, as a grid has a group for each row.
func (p *hcProduct) mixEvery() int {
	if p.ring {
		return p.mixEach()
	}
	return 1
}

// mixGrid is the number of groups: one for each row, and those for weights.
func (p *hcProduct) mixGrid() int { return p.t + ceilDiv(p.t, p.mixEach()) }

// mixSpec is what the code depends on besides the shape.
func (p *hcProduct) mixSpec() string {
	switch {
	case p.mixEvery() > 1:
		return " ring spread"
	case p.ring:
		return " ring"
	}
	return ""
}

// mixInts are the launch's integers.
func (p *hcProduct) mixInts() []int { return []int{p.t, p.mixEach(), ceilDiv(p.t, p.mixEach())} }

func (m *hcMix) run() {
	switch {
	case m.gainsLate():
		m.Resident(mixResident - 1)
	case m.p.ring:
		m.Resident(mixResident)
	}
	m.lane, m.wave = m.WaveLane(), m.Wave()
	every := m.p.mixEvery()
	turn := m.UDiv(m.Group(), m.Int(every))
	own := m.And(m.Cmp(kernel.EQ, m.URem(m.Group(), m.Int(every)), m.Int(0)), m.Cmp(kernel.LT, turn, m.between))
	before := m.Min(m.UDiv(m.Add(m.Group(), m.Int(every-1)), m.Int(every)), m.between) // groups for weights
	row := m.Select(own, m.Int(-1), m.Sub(m.Group(), before))
	m.If(m.Cmp(kernel.LT, row, m.Int(0)), func() {
		token := m.Add(m.Mul(turn, m.each), m.wave)
		m.If(m.And(m.Cmp(kernel.LT, m.wave, m.each), m.Cmp(kernel.LT, token, m.tokens)), func() {
			m.weights(token)
		})
	})
	// The last tokens first: their streams are in the cache yet.
	m.If(m.Cmp(kernel.GE, row, m.Int(0)), func() { m.row(m.Sub(m.Sub(m.tokens, m.Int(1)), row)) })
}

// addends are n rows of the lane's column from one of them on.
func (m *hcMix) addends(token, from kernel.V, n, of int) []kernel.V {
	rows := m.p.partRows()
	var out []kernel.V
	for i := range n {
		row := m.Add(from, m.Int(i))
		if n*of == rows {
			out = append(out, m.parts.Load(m.Add(m.p.partsOf(m.K, token, row), m.lane)))
			continue
		}
		there := m.Cmp(kernel.LT, row, m.Int(rows))
		v := m.parts.Load(m.Add(m.p.partsOf(m.K, token, m.Select(there, row, m.Int(0))), m.lane))
		out = append(out, m.Select(there, v, m.Float(0)))
	}
	return out
}

// factors are the scale and base of the lane's column, read before they are needed.
func (m *hcMix) factors() [2]kernel.V {
	c := m.p.c
	part := m.Select(m.Cmp(kernel.LT, m.lane, m.Int(c)), m.Int(0), m.Select(m.Cmp(kernel.LT, m.lane, m.Int(2*c)), m.Int(1), m.Int(2)))
	return [2]kernel.V{m.scale.Load(part), m.base.Load(m.Min(m.lane, m.Int(m.p.mixes()-1)))}
}

// mix is the lane's mix, scaled, of the sum of its column.
func (m *hcMix) mix(sum kernel.V, factors [2]kernel.V) kernel.V {
	n := float64(m.p.c * m.p.d)
	r := m.FastRsqrt(m.FMA(m.FromLane(sum, m.Int(mmaHCSquares)), m.Float(1/n), m.Float(m.p.normEps)))
	return m.FMA(m.Mul(sum, r), factors[0], factors[1])
}

// sigmoid takes the chip's exponential and reciprocal.
func (m *hcMix) sigmoid(x kernel.V) kernel.V {
	return m.Rcp(m.Add(m.Float(1), m.Exp2(m.Mul(x, m.Float(-math.Log2E)))))
}

// gainsLate is whether a row waits for its gains, so that three groups instead of two
// have the registers for theirs: of many tokens, and wide rows.
func (m *hcMix) gainsLate() bool { return m.p.ring && m.p.d > 2*m.T.Lanes*matrixRun }

// row gathers the streams of a token, and norms and rounds what comes of it.
func (m *hcMix) row(token kernel.V) {
	p := m.p
	each := ceilDiv(p.partRows(), p.unit.waves)
	factors, terms := m.factors(), m.addends(token, m.Mul(m.wave, m.Int(each)), each, p.unit.waves)
	n := ceilDiv(p.d, m.T.Lanes*matrixRun) // runs of the lane
	in, at := make([]kernel.V, n), make([]kernel.V, n)
	streams := make([][]kernel.Vec, n)
	for i := range n {
		at[i] = m.Mul(m.Add(m.Lane(), m.Int(i*m.T.Lanes)), m.Int(matrixRun))
		in[i] = m.Cmp(kernel.LT, at[i], m.Int(p.d))
		first := m.Mul(token, m.Int(p.c*p.d))
		from := m.Select(in[i], at[i], m.Int(0))
		for s := range p.c {
			streams[i] = append(streams[i], m.streams.LoadVec(m.Add(m.Add(first, from), m.Int(s*p.d)), matrixRun))
		}
	}
	gains := make([]kernel.Vec, n)
	readGains := func() {
		for i := range n {
			if m.gain != nil {
				gains[i] = m.gain.LoadVec(m.Select(in[i], at[i], m.Int(0)), matrixRun)
			}
		}
	}
	if !m.gainsLate() {
		readGains()
	}
	sums := m.Shared(ir.F32, m.T.Lanes)
	sums.Store(m.Lane(), sumByPairs(m.K, terms))
	m.Barrier()
	if m.gainsLate() {
		readGains()
	}
	terms = nil
	for i := range p.unit.waves {
		terms = append(terms, sums.Load(m.Add(m.lane, m.Int(i*m.T.Wave))))
	}
	weight := m.Add(m.sigmoid(m.mix(sumByPairs(m.K, terms), factors)), m.Float(p.eps))
	pre := make([]kernel.V, p.c)
	for j := range pre {
		pre[j] = m.FromLane(weight, m.Int(j))
	}
	rows := make([][]kernel.V, n)
	var squares []kernel.V
	for i := range n {
		for word := range streams[i][0].Len() {
			pairs := make([][2]kernel.V, p.c)
			for s := range pairs {
				pairs[s] = m.UnpackBF16(m.At(streams[i][s], word))
			}
			var y [2]kernel.V
			for j := range y {
				y[j] = m.Mul(pre[0], pairs[0][j])
				for s := 1; s < p.c; s++ {
					y[j] = m.FMA(pre[s], pairs[s][j], y[j])
				}
			}
			y = m.UnpackBF16(m.PackBF16(y[0], y[1]))
			rows[i] = append(rows[i], y[:]...)
			square := m.FMA(y[1], y[1], m.Mul(y[0], y[0]))
			if p.d%(m.T.Lanes*matrixRun) != 0 {
				square = m.Select(in[i], square, m.Float(0))
			}
			squares = append(squares, square)
		}
	}
	if m.gain == nil {
		for i, row := range rows {
			m.If(in[i], func() { m.y.StoreVec(m.Add(m.Mul(token, m.Int(p.d)), at[i]), rowWords(m.K, row)) })
		}
		return
	}
	r := m.FastRsqrt(m.FMA(m.sumOfLanes(sumByPairs(m.K, squares)), m.Float(1/float64(p.d)), m.Float(m.rmsEps)))
	for i, row := range rows {
		for word := range gains[i].Len() {
			for j, w := range m.UnpackBF16(m.At(gains[i], word)) {
				e := 2*word + j
				row[e] = m.RoundBF16(m.Mul(w, m.Mul(row[e], r)))
			}
		}
		out := m.Add(m.Mul(token, m.Int(p.d)), at[i])
		m.If(in[i], func() { m.y.StoreVec(out, rowWords(m.K, row)) })
		if m.codes != nil {
			codes := roundRun(m.K, row, m.format)
			m.If(in[i], func() { m.codes.StoreVec(out, rowWords(m.K, codes)) })
		}
	}
}

// sumOfLanes is Sum with one barrier: its shared memory is used once.
func (m *hcMix) sumOfLanes(x kernel.V) kernel.V {
	for mask := m.T.Wave / 2; mask >= 1; mask /= 2 {
		x = m.Add(x, m.LaneXor(x, mask))
	}
	sums := m.Shared(ir.F32, m.p.unit.waves)
	m.If(m.Cmp(kernel.EQ, m.lane, m.Int(0)), func() { sums.Store(m.wave, x) })
	m.Barrier()
	var terms []kernel.V
	for i := range m.p.unit.waves {
		terms = append(terms, sums.Load(m.Int(i)))
	}
	return sumByPairs(m.K, terms)
}

// rowWords is f32 numbers as bf16, two to a word.
func rowWords(k *kernel.K, row []kernel.V) kernel.Vec {
	var words []kernel.V
	for i := 0; i < len(row); i += 2 {
		words = append(words, k.PackBF16(row[i], row[i+1]))
	}
	return k.MakeVec(words...)
}

// roundRun is what quantRow makes of a lane's run of a row, whose block is the runs of
// the half warp that the lane is in.
func roundRun(k *kernel.K, row []kernel.V, f codeFormat) []kernel.V {
	top := k.Float(f.floor)
	for _, v := range row {
		top = k.MaxNaN(top, k.Abs(v))
	}
	for mask := mixBlock / matrixRun / 2; mask >= 1; mask /= 2 {
		top = k.MaxNaN(top, k.LaneXor(top, mask))
	}
	s, _ := k.Pow2Ceil(k.Mul(top, k.Float(float64(float32(1/f.max)))))
	s = k.Select(k.Cmp(kernel.LE, top, k.Float(math.MaxFloat32)), s, k.Float(math.NaN()))
	inverse := k.Div(k.Float(1), s)
	out := make([]kernel.V, len(row))
	for i, v := range row {
		out[i] = k.Mul(f.decode(k, f.encode(k, k.Mul(v, inverse))), s)
	}
	return out
}
