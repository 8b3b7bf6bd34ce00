package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Hyper-connections on matrix units, in two launches. A group of the first multiplies
// a piece of the streams of 16 tokens with fn: streams are bf16, and the f32 weights
// are split into the bf16 numbers nearest below them and what those leave. The second
// adds a token's pieces and does what follows. For hc_fused the first makes the new
// streams too: it has them in the registers that it multiplies. Pieces are as wide for
// any number of tokens, and their sums are added in order.

// hcPiece is the number of elements of each stream that a group multiplies on AMD GPUs:
// its waves side by side, a lane with matrixRun of them.
const hcPiece = matrixWaves * lanesPerRow * matrixRun

// maxMatrixStreams bounds the products of a group: one wave adds up each.
const maxMatrixStreams = 4

// matchMatrixHC takes an op whose streams and fn are those operands.
func matchMatrixHC(streams, fn int) func(o *ir.Op, t *target.Target) string {
	return func(o *ir.Op, t *target.Target) string {
		h := dims(o.Args[streams])
		if h[1] > maxMatrixStreams {
			return fmt.Sprintf("%d streams, at most %d are taken", h[1], maxMatrixStreams)
		}
		p := hcProduct{hcPreShape: hcPreShape{c: h[1], d: h[2]}, unit: unitOf(t)}
		if piece := p.piece(); h[2]%piece != 0 {
			return fmt.Sprintf("%d elements are no multiple of %d", h[2], piece)
		}
		if eps := o.Float("eps"); p.unit.mma != nil && (eps < minSinkhornEps || eps > maxSinkhornEps) {
			return fmt.Sprintf("eps %g is not within %g and %g", eps, minSinkhornEps, maxSinkhornEps)
		}
		return ""
	}
}

func matchMatrixHCFused(o *ir.Op, t *target.Target) string {
	if why := matchHCFused(o, t); why != "" {
		return why
	}
	if why := matchMatrixHC(1, 4)(o, t); why != "" || len(o.Results) == 4 || unitOf(t).mma == nil {
		return why
	}
	if d, block := dims(o.Args[1])[2], o.Int("act_block"); block != mixBlock || d%block != 0 {
		return fmt.Sprintf("codes of %d elements in blocks of %d, want blocks of %d", d, block, mixBlock)
	}
	return ""
}

// hcProduct is the product of streams with the rows of fn.
type hcProduct struct {
	hcPreShape
	unit *matrixUnit
	ring bool // on NVIDIA's units: groups of the first launch go through tiles of tokens
	wide int  // parts of a tile, if groups have several at once instead (mma_hc_wide.go); else 0
	t    int
	// parts is f32 [pieces, tokens, width], or [tokens, pieces, width] for NVIDIA's units:
	// of each piece the products, and the sum of squares.
	parts Ref
}

func newHCProduct(l Lowering, s hcPreShape, t int) *hcProduct {
	p := &hcProduct{hcPreShape: s, unit: unitOf(l.Target()), t: t}
	if p.unit.mma != nil {
		p.wide = p.wideParts()
		p.ring = p.wide == 0 && p.ringed()
	}
	p.parts = l.Scratch(ir.F32, p.partRows()*t*p.width())
	return p
}

func (p *hcProduct) pieces() int { return p.d / p.piece() }

// piece is the number of elements of each stream that a group multiplies.
func (p *hcProduct) piece() int {
	if p.unit.mma != nil {
		return p.side() * mmaHCRun
	}
	return hcPiece
}

// squares is the column of the sum of squares, and width the number of columns.
func (p *hcProduct) squares() int { return ceilDiv(p.mixes(), target.ResultRun) * target.ResultRun }

func (p *hcProduct) width() int {
	if p.unit.mma != nil {
		return mmaHCWidth
	}
	return p.squares() + target.ResultRun
}

// fnTiles is the number of times 16 rows of fn.
func (p *hcProduct) fnTiles() int { return ceilDiv(p.mixes(), target.MatrixTile) }

// launch emits the first launch. Operands in are those of streams, and fn; out are
// what streams stores.
func (p *hcProduct) launch(l Lowering, name string, work int64, in []Ref, fn Ref, out []Ref, streams hcStreams) {
	macs := p.work(p.t)
	l.Launch(Launch{
		Name: name, Spec: fmt.Sprintf("c%d d%d", p.c, p.d), Grid: p.pieces() * ceilDiv(p.t, p.unit.cols), Work: work + macs, Flops: 2 * macs,
		In: append(append([]Ref{}, in...), fn), Out: append(append([]Ref{}, out...), p.parts), Ints: []int{p.t},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			p.body(k, b[len(in)], b[len(b)-1], ints[0], func(row, element, own kernel.V) []kernel.Vec {
				return streams(k, b[:len(in)], b[len(in)+1:len(b)-1], row, element, own)
			})
		},
	})
}

// hcStreams gives matrixRun elements, from element on, of each stream of a token. own
// is false in lanes that have a token twice.
type hcStreams func(k *kernel.K, in, out []*kernel.Buf, token, element, own kernel.V) []kernel.Vec

func (p *hcProduct) body(k *kernel.K, fn, parts *kernel.Buf, tokens kernel.V, streams func(token, element, own kernel.V) []kernel.Vec) {
	tiles := k.UDiv(k.Add(tokens, k.Int(target.MatrixTile-1)), k.Int(target.MatrixTile))
	piece, tile := k.UDiv(k.Group(), tiles), k.URem(k.Group(), tiles) // tiles of a piece follow each other: fn stays cached
	lane, wave := k.WaveLane(), k.Wave()
	sub, group := k.And(lane, k.Int(target.MatrixTile-1)), k.LShr(lane, k.Int(4))
	first := k.Mul(piece, k.Int(hcPiece))
	token := k.Add(k.Mul(tile, k.Int(target.MatrixTile)), sub)
	own := k.Cmp(kernel.LT, token, tokens)
	last := func(i, n kernel.V) kernel.V { return k.Select(k.Cmp(kernel.LT, i, n), i, k.Sub(n, k.Int(1))) }

	weights := make([][]kernel.Vec, p.fnTiles()) // by tile and stream
	for t := range weights {
		// The lines of eight rows at a time, as matrixEmitter.reads has them.
		const half = target.MatrixTile / 2
		element := k.Add(first, k.Mul(k.Add(k.Mul(wave, k.Int(lanesPerRow)), group), k.Int(matrixRun)))
		element = k.Add(element, k.Mul(k.UDiv(sub, k.Int(half)), k.Int(matrixRun/2)))
		for s := range p.c {
			var loads []kernel.Vec
			for i := range 2 {
				row := last(k.Add(k.URem(sub, k.Int(half)), k.Int(t*target.MatrixTile+i*half)), k.Int(p.mixes()))
				loads = append(loads, fn.LoadVec(k.Add(k.Mul(k.Add(k.Mul(row, k.Int(p.c)), k.Int(s)), k.Int(p.d)), element), matrixRun/2))
			}
			loads = k.TransposeLanes(loads)
			weights[t] = append(weights[t], k.Join(loads[0], loads[1]))
		}
	}
	xs := p.exchange(k, k.Mul(tile, k.Int(target.MatrixTile)), first, func(token, element kernel.V) []kernel.Vec {
		return streams(last(token, tokens), element, k.Cmp(kernel.LT, token, tokens))
	})
	square := k.Float(0)
	for _, x := range xs {
		for i := range x.Len() {
			for _, v := range k.UnpackBF16(k.At(x, i)) {
				square = k.FMA(v, v, square)
			}
		}
	}
	for _, mask := range []int{16, 32} { // the lanes of the token
		square = k.Add(square, k.LaneXor(square, mask))
	}
	sums, squares := k.Shared(ir.F32, matrixWaves*p.fnTiles()*target.MatrixLanes*target.ResultRun), k.Shared(ir.F32, matrixWaves*target.MatrixTile)
	place := func(wave, tile kernel.V) kernel.V {
		at := k.Add(k.Mul(wave, k.Int(p.fnTiles())), tile)
		return k.Mul(k.Add(k.Mul(at, k.Int(target.MatrixLanes)), lane), k.Int(target.ResultRun))
	}
	for t := range weights {
		sum := k.ZeroVec(kernel.F32, target.ResultRun)
		for s, x := range xs {
			hi, lo := twoBF16(k, weights[t][s])
			sum = multiplyWords(k, p.unit.mfma, lo, x, multiplyWords(k, p.unit.mfma, hi, x, sum))
		}
		sums.StoreVec(place(wave, k.Int(t)), sum)
	}
	firstGroup := k.Cmp(kernel.EQ, group, k.Int(0))
	k.If(firstGroup, func() { squares.Store(k.Add(k.Mul(wave, k.Int(target.MatrixTile)), sub), square) })
	k.Barrier()
	at := k.Mul(k.Add(k.Mul(piece, tokens), token), k.Int(p.width()))
	k.If(k.And(own, k.Cmp(kernel.LT, wave, k.Int(p.fnTiles()))), func() {
		var sum kernel.Vec
		for w := range matrixWaves {
			v := k.AsF32(sums.LoadVec(place(k.Int(w), wave), target.ResultRun))
			if w > 0 {
				v = k.MapVec(func(v ...kernel.V) kernel.V { return k.Add(v[0], v[1]) }, sum, v)
			}
			sum = v
		}
		mix := k.Add(k.Mul(wave, k.Int(target.MatrixTile)), k.Mul(group, k.Int(target.ResultRun)))
		k.If(k.Cmp(kernel.LT, mix, k.Int(p.squares())), func() { parts.StoreVec(k.Add(at, mix), sum) })
	})
	squaring := k.And(k.Cmp(kernel.EQ, wave, k.Int(matrixWaves-1)), firstGroup)
	k.If(k.And(own, squaring), func() {
		sum := squares.Load(sub)
		for w := 1; w < matrixWaves; w++ {
			sum = k.Add(sum, squares.Load(k.Add(sub, k.Int(w*target.MatrixTile))))
		}
		parts.Store(k.Add(at, k.Int(p.squares())), sum)
	})
}

// exchange is what a lane multiplies of the streams of a tile of tokens, of which streams
// gives matrixRun elements from one on: the waves have four tokens each, and lanes that
// follow each other all elements of a piece, so that whole lines are read and written.
// They go through shared memory to the lanes that multiply them.
func (p *hcProduct) exchange(k *kernel.K, token, element kernel.V, streams func(token, element kernel.V) []kernel.Vec) []kernel.Vec {
	const units = hcPiece / matrixRun // of a token, 16 bytes each
	lane, wave := k.WaveLane(), k.Wave()
	shared := k.Shared(ir.BF16, p.c*target.MatrixTile*hcPiece)
	// Lanes that read at once, of eight tokens, use all banks.
	place := func(stream int, of, unit kernel.V) kernel.V {
		unit = k.Xor(unit, k.And(of, k.Int(7)))
		at := k.Add(k.Mul(k.Add(of, k.Int(stream*target.MatrixTile)), k.Int(units)), unit)
		return k.Mul(at, k.Int(matrixRun))
	}
	of, unit := k.Add(k.Mul(wave, k.Int(target.MatrixLanes/units)), k.UDiv(lane, k.Int(units))), k.URem(lane, k.Int(units))
	for s, x := range streams(k.Add(token, of), k.Add(element, k.Mul(unit, k.Int(matrixRun)))) {
		shared.StoreVec(place(s, of, unit), x)
	}
	k.Barrier()
	sub, group := p.unit.place(k, lane)
	out := make([]kernel.Vec, p.c)
	for s := range out {
		out[s] = shared.LoadVec(place(s, sub, k.Add(k.Mul(wave, k.Int(lanesPerRow)), group)), matrixRun)
	}
	return out
}

// twoBF16 splits f32 numbers, given by their bits, into two bf16 each, two to a word:
// hi is cut off, lo what that leaves, which f32 holds, rounded. Their sum is the number
// within 2^-16 of itself.
func twoBF16(k *kernel.K, x kernel.Vec) (hi, lo kernel.Vec) {
	var his, los []kernel.V
	rest := func(bits kernel.V) kernel.V {
		cut := k.Bits(k.And(bits, k.Int32(-1<<16)))
		return k.Sub(k.Bits(bits), cut)
	}
	for i := 0; i < x.Len(); i += 2 {
		a, b := k.At(x, i), k.At(x, i+1)
		his = append(his, k.UpperHalves(a, b))
		// Rounded half away from zero, which is two additions on any chip.
		half := k.Int32(1 << 15)
		los = append(los, k.UpperHalves(k.Add(k.Bits(rest(a)), half), k.Add(k.Bits(rest(b)), half)))
	}
	return k.MakeVec(his...), k.MakeVec(los...)
}

// hcSumParts is the number of lanes that share the pieces of a column.
const hcSumParts = 8

// mixesOf adds the pieces of a token and divides by the root mean square: uniform
// values.
func (p *hcProduct) mixesOf(k *kernel.K, parts *kernel.Buf, token, tokens kernel.V) []kernel.V {
	columns := k.T.Lanes / hcSumParts
	col, part := k.URem(k.Lane(), k.Int(columns)), k.UDiv(k.Lane(), k.Int(columns))
	sums, total := k.Shared(ir.F32, k.T.Lanes), k.Shared(ir.F32, columns)
	k.If(k.Cmp(kernel.LE, col, k.Int(p.squares())), func() {
		var sum kernel.V
		for i := 0; i < p.pieces(); i += hcSumParts {
			piece := k.Add(part, k.Int(i))
			there := k.Cmp(kernel.LT, piece, k.Int(p.pieces()))
			at := k.Add(k.Mul(k.Add(k.Mul(k.Select(there, piece, k.Int(0)), tokens), token), k.Int(p.width())), col)
			v := k.Select(there, parts.Load(at), k.Float(0))
			if i > 0 {
				v = k.Add(sum, v)
			}
			sum = v
		}
		sums.Store(k.Lane(), sum)
	})
	k.Barrier()
	k.If(k.Cmp(kernel.LE, k.Lane(), k.Int(p.squares())), func() {
		sum := sums.Load(k.Lane())
		for i := 1; i < hcSumParts; i++ {
			sum = k.Add(sum, sums.Load(k.Add(k.Lane(), k.Int(i*columns))))
		}
		total.Store(k.Lane(), sum)
	})
	k.Barrier()
	n := k.Float(float64(p.c * p.d))
	r := k.Rsqrt(k.Add(k.Div(total.Load(k.Int(p.squares())), n), k.Float(p.normEps)))
	out := make([]kernel.V, p.mixes())
	for j := range out {
		out[j] = k.Mul(total.Load(k.Int(j)), r)
	}
	return out
}

func lowerMatrixHCPre(l Lowering, o *ir.Op) error {
	s, t := hcPreShapeOf(o, o.Args[0]), dims(o.Args[0])[0]
	p := newHCProduct(l, s, t)
	h, fn := l.Buf(o.Args[0]), l.Buf(o.Args[1])
	mix := Launch{
		Name: "hc_mix", Spec: s.spec(), Grid: t, Work: int64(t * s.c * s.d),
		In:  []Ref{p.parts, h, l.Buf(o.Args[2]), l.Buf(o.Args[3])},
		Out: []Ref{l.Buf(o.Results[0]), l.Buf(o.Results[1]), l.Buf(o.Results[2])}, Ints: []int{t},
	}
	if p.unit.mma != nil {
		p.launchWarps(l, "matrix_hc", 0, []Ref{h}, fn, nil, warpStream{})
		mix.Spec, mix.Grid, mix.Ints = mix.Spec+p.mixSpec(), p.mixGrid(), p.mixInts()
		mix.Body = func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			m := &hcMix{K: k, p: p, tokens: ints[0], each: ints[1], between: ints[2], parts: b[0], streams: b[1], scale: b[2], base: b[3], y: b[4], post: b[5], comb: b[6]}
			m.run()
		}
		l.Launch(mix)
		return nil
	}
	p.launch(l, "matrix_hc", 0, []Ref{h}, fn, nil, func(k *kernel.K, in, _ []*kernel.Buf, token, element, _ kernel.V) []kernel.Vec {
		return p.read(k, in[0], token, element)
	})
	mix.Body = func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
		at := func(i, n int) *kernel.Buf { return b[i].At(k.Mul(k.Group(), k.Int(n))) }
		m := p.mixesOf(k, b[0], k.Group(), ints[0])
		s.mix(k, m, reciprocally(k), at(1, s.c*s.d), b[2], b[3], at(4, s.d), at(5, s.c), at(6, s.c*s.c))
	}
	l.Launch(mix)
	return nil
}

// reciprocally divides by multiplying with the chip's reciprocal, which is the same for
// a line. A division takes about ten instructions, and a token's Sinkhorn steps have
// hundreds one after the other; what they add up to is normalised again and again.
func reciprocally(k *kernel.K) func(v, sum kernel.V) kernel.V {
	return func(v, sum kernel.V) kernel.V { return k.Mul(v, k.Rcp(sum)) }
}

// read reads the elements of each stream.
func (p *hcProduct) read(k *kernel.K, h *kernel.Buf, token, element kernel.V) []kernel.Vec {
	out := make([]kernel.Vec, p.c)
	for s := range out {
		out[s] = h.LoadVec(k.Add(k.Mul(k.Add(k.Mul(token, k.Int(p.c)), k.Int(s)), k.Int(p.d)), element), matrixRun)
	}
	return out
}

// lowerMatrixHCFused: what comes after the product is hcFused's code, so that the
// results have the bits of hc_post, hc_pre_mfma and what follows.
func lowerMatrixHCFused(l Lowering, o *ir.Op) error {
	s, t := hcPreShapeOf(o, o.Args[1]), dims(o.Args[1])[0]
	c, d, rmsEps := s.c, s.d, o.Float("rms_eps")
	p := newHCProduct(l, s, t)
	var in, out []Ref
	for _, v := range o.Args {
		in = append(in, l.Buf(v))
	}
	for _, v := range o.Results {
		out = append(out, l.Buf(v))
	}
	block, spec := 0, fmt.Sprintf("%s,%g", s.spec(), rmsEps)
	if len(out) == 5 {
		block = o.Int("act_block")
		spec = fmt.Sprintf("%s b%d", spec, block)
	}
	f, _ := codeFormatOf(ir.F8E4M3, l.Target())
	mix := Launch{
		Name: "hc_mix_norm", Spec: spec, Grid: t, Work: int64(t * d * (c + 2)),
		In: append([]Ref{p.parts, out[0]}, in[5:]...), Out: out[1:], Ints: []int{t},
	}
	if p.unit.mma != nil {
		p.launchWarps(l, "matrix_hc_post", int64(t*c*c*d), in[:4], in[4], out[:1], p.newStreams())
		mix.Spec, mix.Grid, mix.Ints = mix.Spec+p.mixSpec(), p.mixGrid(), p.mixInts()
		mix.Body = func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			m := &hcMix{K: k, p: p, tokens: ints[0], each: ints[1], between: ints[2], parts: b[0], streams: b[1], scale: b[2], base: b[3], gain: b[4], y: b[5], post: b[6], comb: b[7], rmsEps: rmsEps, format: f}
			if block > 0 {
				m.codes = b[8]
			}
			m.run()
		}
		l.Launch(mix)
		return nil
	}
	p.launch(l, "matrix_hc_post", int64(t*c*c*d), in[:4], in[4], out[:1], func(k *kernel.K, in, out []*kernel.Buf, token, element, own kernel.V) []kernel.Vec {
		streams := p.post(k, in, token, element)
		k.If(own, func() {
			for j, x := range streams {
				out[0].StoreVec(k.Add(k.Mul(k.Add(k.Mul(token, k.Int(c)), k.Int(j)), k.Int(d)), element), x)
			}
		})
		return streams
	})
	mix.Body = func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
		at := func(i, n int) *kernel.Buf { return b[i].At(k.Mul(k.Group(), k.Int(n))) }
		hidden := at(5, d)
		m := p.mixesOf(k, b[0], k.Group(), ints[0])
		s.mix(k, m, reciprocally(k), at(1, c*d), b[2], b[3], hidden, at(6, c), at(7, c*c))
		rmsNorm(k, hidden, b[4], d, rmsEps, hidden.Store) // y's elements stay with their lanes
		if block > 0 {
			k.Barrier()
			quantRow(k, hidden, at(8, d), d, block, f)
		}
	}
	l.Launch(mix)
	return nil
}

// post is hc_post of a lane's elements: the operands are its.
func (p *hcProduct) post(k *kernel.K, in []*kernel.Buf, token, element kernel.V) []kernel.Vec {
	c := p.c
	x := in[0].LoadVec(k.Add(k.Mul(token, k.Int(p.d)), element), matrixRun)
	h := p.read(k, in[1], token, element)
	factors := func(b *kernel.Buf, n int) []kernel.V {
		out := make([]kernel.V, n)
		for i := range out {
			out[i] = b.Load(k.Add(k.Mul(token, k.Int(n)), k.Int(i)))
		}
		return out
	}
	post, comb := factors(in[2], c), factors(in[3], c*c)
	words := make([][]kernel.V, c)
	for i := range x.Len() {
		v := k.UnpackBF16(k.At(x, i))
		pairs := make([][2]kernel.V, c)
		for s := range h {
			pairs[s] = k.UnpackBF16(k.At(h[s], i))
		}
		for j := range c {
			var new [2]kernel.V
			for half := range new {
				stream := func(s int) kernel.V { return pairs[s][half] }
				new[half] = hcPostElement(k, v[half], stream, post, comb, j)
			}
			words[j] = append(words[j], k.PackBF16(new[0], new[1]))
		}
	}
	out := make([]kernel.Vec, c)
	for j := range out {
		out[j] = k.MakeVec(words[j]...)
	}
	return out
}
