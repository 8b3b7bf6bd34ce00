package kernels

import (
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Attention on NVIDIA's matrix units: parts, lists and the sum over parts are
// matrix_attention.go's. Of the eight warps of a group four have the 16 rows of a part
// that each multiplies with the first 8 heads of q, and four with the others; then each
// multiplies the probabilities of all 16 heads with an eighth of the elements of all
// rows. A lane's fragments of the probabilities are of heads sub and sub+8, its sums of
// heads 2 group and 2 group+1 of each eight.

// warpHeads is how many eights of heads a group has.
const warpHeads = target.MatrixTile / target.MMACols

// mmaScoreStride is the distance between the heads' scores in shared memory: no
// multiple of the banks.
const mmaScoreStride = attentionPart + lanesPerRow

// warpAttention is the state of a group.
type warpAttention struct {
	*attentionEmitter
	lane  kernel.V
	first kernel.V // of the group's heads
}

// run is how many elements of a row one lane has of a warp's eighth.
func (e *warpAttention) run() int { return e.d / e.unit.waves / target.MMACols }

func (a *matrixAttention) newWarps(k *kernel.K, headTile kernel.V, list int) *warpAttention {
	lane := k.WaveLane()
	e := &warpAttention{attentionEmitter: &attentionEmitter{matrixAttention: a, K: k, wave: k.Wave()}, lane: lane, first: k.Mul(headTile, k.Int(target.MatrixTile))}
	e.sub, e.group = a.unit.place(k, lane)
	e.slice = k.Mul(e.wave, k.Int(a.d/a.unit.waves))
	e.element = k.Add(e.slice, k.Mul(e.sub, k.Int(e.run())))
	e.list = k.Shared(ir.I64, list)
	e.scores = k.Shared(ir.F32, 2*target.MatrixTile*mmaScoreStride)
	return e
}

// head is head i, 0 to 15, of the group's, and whether there is such a head.
func (e *warpAttention) head(i kernel.V) (head, own kernel.V) {
	head = e.Add(e.first, i)
	return head, e.Cmp(kernel.LT, head, e.Int(e.h))
}

// clamped is a head that there is.
func (e *warpAttention) clamped(i kernel.V) kernel.V {
	head, own := e.head(i)
	return e.Select(own, head, e.Int(e.h-1))
}

// queries are the eight heads that the warp multiplies: its first.
func (e *warpAttention) queries() kernel.V {
	return e.Mul(e.UDiv(e.wave, e.Int(attentionTiles)), e.Int(target.MMACols))
}

// softmaxHead is the head of the lane's probabilities in an eight.
func (e *warpAttention) softmaxHead(eight int) kernel.V {
	return e.Add(e.sub, e.Int(eight*target.MMACols))
}

// sumHead is the head of the lane's sums of column b, 0 or 1, in an eight.
func (e *warpAttention) sumHead(eight, b int) kernel.V {
	return e.Add(e.Mul(e.group, e.Int(2)), e.Int(eight*target.MMACols+b))
}

// ofSums is what the lane's sums take of a number of each softmax: by eight and column.
func (e *warpAttention) ofSums(x [warpHeads]kernel.V) [warpHeads][2]kernel.V {
	var out [warpHeads][2]kernel.V
	for eight := range out {
		for b := range out[eight] {
			out[eight][b] = e.FromLane(x[eight], e.Mul(e.sumHead(0, b), e.Int(lanesPerRow)))
		}
	}
	return out
}

// warpPart is what a part gives: the sums by pair of elements and eight of heads, and
// of each head of the lane's softmax the largest score and the sum of 2^(score - top).
type warpPart struct {
	sums     [][warpHeads]kernel.Vec
	top, den [warpHeads]kernel.V
}

// multiplyPart is part of matrix_attention.go.
func (e *warpAttention) multiplyPart(from, left kernel.V) warpPart {
	e.exchangeScores(from, left)
	// Which rows a lane multiplies: four of each 16.
	key := func(step, r int) kernel.V { return e.Add(e.Mul(e.group, e.Int(4)), e.Int(step*target.MatrixTile+r)) }
	var values []kernel.Vec
	for step := range attentionTiles {
		for r := range 4 {
			values = append(values, e.row(e.Add(from, key(step, r))).part(e.element, e.run()))
		}
	}
	e.Barrier()
	var out warpPart
	var p [warpHeads]kernel.Vec
	for eight := range p {
		p[eight], out.top[eight], out.den[eight] = e.probabilities(from, eight)
	}
	for j := range e.run() / 2 { // words: elements 2j, in the instruction's upper 8 rows, and 2j+1
		var even, odd []kernel.V
		for i := 0; i < len(values); i += 2 {
			x, y := e.At(values[i], j), e.At(values[i+1], j)
			even, odd = append(even, e.LowerHalves(x, y)), append(odd, e.UpperHalves(x, y))
		}
		a := []kernel.Vec{e.MakeVec(even...), e.MakeVec(odd...)}
		var sums [warpHeads]kernel.Vec
		for eight := range sums {
			sums[eight] = e.unit.multiply(e.K, a, p[eight], e.ZeroVec(kernel.F32, target.ResultRun))
		}
		out.sums = append(out.sums, sums)
	}
	return out
}

// scoreAt is where the scores of a head of the group begin. Parts that follow each other
// use different memory, so that one barrier does.
func (e *warpAttention) scoreAt(from, head kernel.V) kernel.V {
	half := e.URem(e.UDiv(from, e.Int(attentionPart)), e.Int(2))
	return e.Mul(e.Add(e.Mul(half, e.Int(target.MatrixTile)), head), e.Int(mmaScoreStride))
}

// exchangeScores writes the scores of the warp's rows and heads, as powers of two.
func (e *warpAttention) exchangeScores(from, left kernel.V) {
	mine := e.Mul(e.URem(e.wave, e.Int(attentionTiles)), e.Int(target.MatrixTile))
	var rows []matrixRow
	var scales []kernel.Vec
	for r := range e.unit.rows {
		row := e.row(e.Add(from, e.Add(mine, e.Add(e.sub, e.Int(r*target.MMACols)))))
		rows, scales = append(rows, row), append(scales, row.scales())
	}
	s := e.ZeroVec(kernel.F32, target.ResultRun)
	for i, q := range e.q {
		var keys []kernel.Vec
		for r, row := range rows {
			keys = append(keys, row.run(e.group, i, scales[r]))
		}
		s = e.unit.multiply(e.K, keys, q, s)
	}
	for i := range s.Len() {
		key := e.Add(mine, e.Add(e.sub, e.Int(i/2*target.MMACols)))
		head := e.Add(e.queries(), e.Add(e.Mul(e.group, e.Int(2)), e.Int(i%2)))
		score := e.Mul(e.At(s, i), e.Float(e.scale*math.Log2E))
		score = e.Select(e.Cmp(kernel.LT, key, left), score, e.Float(math.Inf(-1)))
		e.scores.Store(e.Add(e.scoreAt(from, head), key), score)
	}
}

// probabilities are the lane's of one head, as the product takes them.
func (e *warpAttention) probabilities(from kernel.V, eight int) (p kernel.Vec, top, den kernel.V) {
	at := e.Add(e.scoreAt(from, e.softmaxHead(eight)), e.Mul(e.group, e.Int(4)))
	var list []kernel.V
	for step := range attentionTiles {
		x := e.AsF32(e.scores.LoadVec(e.Add(at, e.Int(step*target.MatrixTile)), 4))
		for i := range x.Len() {
			list = append(list, e.At(x, i))
		}
	}
	across := func(f func(x, y kernel.V) kernel.V) kernel.V {
		x := list[0]
		for _, y := range list[1:] {
			x = f(x, y)
		}
		for _, mask := range []int{1, 2} { // the lanes of the head
			x = f(x, e.LaneXor(x, mask))
		}
		return x
	}
	top = across(e.Max)
	base := finiteOr0(e.K, top)
	var words []kernel.V
	for i, x := range list {
		list[i] = e.Exp2(e.Sub(x, base))
		if i%2 == 1 {
			words = append(words, e.PackBF16(list[i-1], list[i]))
		}
	}
	return e.MakeVec(words...), top, across(e.Add)
}

// eachRun calls f for the lane's run of elements, from element on, of each head of the
// group that there is: of j they are element+j.
func (e *warpAttention) eachRun(sums [][warpHeads]kernel.Vec, f func(eight, b int, head, element kernel.V, of func(j int) kernel.V)) {
	element := e.Add(e.slice, e.Mul(e.sub, e.Int(e.run())))
	for eight := range warpHeads {
		for b := range 2 {
			head, own := e.head(e.sumHead(eight, b))
			e.If(own, func() {
				f(eight, b, head, element, func(j int) kernel.V { return e.At(sums[j/2][eight], j%2*2+b) })
			})
		}
	}
}

func (a *matrixAttention) warpBody(k *kernel.K, b []*kernel.Buf, parts kernel.V, widths []kernel.V, token, part, headTile kernel.V, list int) {
	e := a.newWarps(k, headTile, list)
	e.loadQ(b[0], k.Add(k.Mul(token, k.Int(a.h)), e.clamped(k.Add(e.queries(), e.sub))))
	rows := func(from kernel.V) (count kernel.V) { return e.rows(b[2:2+2*a.sets], widths, token, from, list) }
	if a.inParts {
		e.onePart(b[len(b)-3:], rows, parts, token, part, headTile)
		return
	}

	var s [warpHeads]*softmaxSum
	for i := range s {
		s[i] = newSoftmaxSum(k)
	}
	acc := make([][warpHeads]*kernel.VecVar, e.run()/2)
	for j := range acc {
		for i := range acc[j] {
			acc[j][i] = k.VecVar(k.ZeroVec(kernel.F32, target.ResultRun))
		}
	}
	total := k.UniformVar(rows(k.Int(0)))
	a.eachPart(k, total, rows, func(from, left kernel.V) {
		p := e.multiplyPart(from, left)
		var old, add [warpHeads]kernel.V
		for i := range s {
			old[i], add[i] = s[i].add(p.top[i], p.den[i])
		}
		olds, adds := e.ofSums(old), e.ofSums(add)
		for j := range acc {
			for i, v := range acc[j] {
				var sums []kernel.V
				for n := range target.ResultRun {
					sums = append(sums, addScaled(k, k.At(v.Get(), n), olds[i][n%2], k.At(p.sums[j][i], n), adds[i][n%2]))
				}
				v.Set(k.MakeVec(sums...))
			}
		}
	})
	var factor [warpHeads]kernel.V
	for i := range factor {
		factor[i] = s[i].factor(b[1].Load(e.clamped(e.softmaxHead(i))), total.Get())
	}
	factors := e.ofSums(factor)
	sums := make([][warpHeads]kernel.Vec, len(acc))
	for j := range acc {
		for i := range acc[j] {
			sums[j][i] = acc[j][i].Get()
		}
	}
	e.eachRun(sums, func(eight, column int, head, element kernel.V, of func(j int) kernel.V) {
		var words []kernel.V
		for j := 0; j < e.run(); j += 2 {
			f := factors[eight][column]
			words = append(words, k.PackBF16(k.Mul(of(j), f), k.Mul(of(j+1), f)))
		}
		at := k.Mul(k.Add(k.Mul(token, k.Int(a.h)), head), k.Int(a.d))
		b[len(b)-1].StoreVec(k.Add(at, element), k.MakeVec(words...))
	})
}

// onePart writes the sums of a part, and what the other launch needs to add them.
func (e *warpAttention) onePart(out []*kernel.Buf, rows func(from kernel.V) kernel.V, parts, token, part, headTile kernel.V) {
	k := e.K
	acc, softmax, counts := out[0], out[1], out[2]
	from := k.Mul(part, k.Int(attentionPart))
	count := rows(from)
	k.If(k.Cmp(kernel.EQ, k.Add(part, headTile), k.Int(0)), func() {
		k.First(func() { counts.Store(token, count) })
	})
	left := k.Sub(k.Convert(count, kernel.I64), from)
	k.If(k.Cmp(kernel.GT, left, k.Int(0)), func() {
		p := e.multiplyPart(k.Int(0), left)
		first := k.Mul(k.Add(k.Mul(token, parts), part), k.Int(e.h))
		e.eachRun(p.sums, func(_, _ int, head, element kernel.V, of func(j int) kernel.V) {
			place := k.Add(k.Mul(k.Add(first, head), k.Int(e.d)), element)
			for j := 0; j < e.run(); j += min(4, e.run()) {
				var v []kernel.V
				for i := range min(4, e.run()) {
					v = append(v, of(j+i))
				}
				acc.StoreVec(k.Add(place, k.Int(j)), k.MakeVec(v...))
			}
		})
		k.If(k.Cmp(kernel.EQ, k.Add(e.wave, e.group), k.Int(0)), func() {
			for i := range warpHeads {
				head, own := e.head(e.softmaxHead(i))
				k.If(own, func() { softmax.StoreVec(k.Mul(k.Add(first, head), k.Int(2)), k.MakeVec(p.top[i], p.den[i])) })
			}
		})
	})
}
