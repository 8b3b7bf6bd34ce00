package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// Attention in two launches of which the first makes probabilities and the second
// multiplies them with the rows. A group of the first has a part's rows, as a whole and
// of many heads; one of the second has a slice of the elements of all rows that a token
// sees, for many heads too. So each row is read a few times, though groups are as many
// as processors with few tokens, and what goes from launch to launch is small: a part's
// probabilities are 2 bytes of a head and row, its sums would be 4 of a head and element.

const (
	// sliceParts bounds the parts of a token: the slice of all of them is in shared memory.
	sliceParts = 24
	// sliceHeads are those of four tiles, which a group has of a slice at least.
	sliceHeads = 4 * target.MatrixTile
	// heldParts is how many parts' probabilities are on their way.
	heldParts = 4
	// stepWords are the words of a 16 x 16 matrix as a warp multiplies it, four of a lane.
	stepWords = 4 * 32
	// partSteps is how many such matrices a part's probabilities are, of 16 heads.
	partSteps = attentionPart / 16
)

// lowerApart makes both launches of the first, which has one token and some heads to a
// group.
func (a *warpAttention) lowerApart(l Lowering, o *ir.Op, first Launch, t, parts int) {
	s := &attentionSlices{warpAttention: a, fours: min(2, ceilDiv(a.h, sliceHeads))}
	units := t * a.headParts() * parts
	each := ceilDiv(units, l.Threshold(passes.AttentionGroups)) // so that all groups are at work at once
	each = min(each, parts)
	p, softmax := l.Scratch(ir.I32, units*a.tiles*partSteps*stepWords), l.Scratch(ir.F32, t*parts*a.h*2)
	list, count := l.Scratch(ir.I32, t*parts*attentionPart), l.Scratch(ir.I32, t)
	second := first
	first.Grid, first.Out, first.Work, first.Flops = first.Grid*ceilDiv(parts, each), []Ref{p, softmax, list, count}, first.Work/2, first.Flops/2
	first.Ints = append(first.Ints, each)
	l.Launch(first)
	second.Name, second.Spec, second.Body, second.Ints = "attention_slices", s.spec(), s.body, nil
	second.Grid, second.Work, second.Flops = t*s.headParts()*s.slices(), first.Work, first.Flops
	second.In = []Ref{p, softmax, list, count, l.Buf(o.Args[1])}
	for i := 2; i < len(o.Args); i += 2 {
		second.In = append(second.In, l.Buf(o.Args[i]))
	}
	l.Launch(second)
}

// onlyProbabilities writes those of a run of so many parts, and what the other launch needs to
// multiply with them.
func (g *warpGroup) onlyProbabilities(q *kernel.Buf, out []*kernel.Buf, parts, each, run, headPart kernel.V) {
	p, softmax, rows, counts := out[0], out[1], out[2], out[3]
	g.copyQueries(q)
	first := g.Mul(run, each)
	skipped := g.Mul(first, g.Int(attentionPart))
	total := g.listRows(skipped)
	left := g.Sub(total, skipped)
	g.If(g.Cmp(kernel.EQ, g.Add(run, headPart), g.Int(0)), func() {
		g.First(func() { counts.Store(g.token, g.Convert(total, kernel.I32)) })
	})
	// The run's own parts that there are.
	own := g.UDiv(g.Add(left, g.Int(attentionPart-1)), g.Int(attentionPart))
	own = g.Select(g.Cmp(kernel.LT, own, each), own, each)
	buffer := func(i kernel.V) kernel.V { return g.turn(i, attentionPart*g.d*2) }
	fetch := func(i kernel.V) []func() { return g.copyRows(g.Mul(i, g.Int(attentionPart)), left, buffer(i)) }
	// begin starts to copy part i, if there is one: the parts' copies are waited for by number.
	begin := func(i kernel.V) {
		g.If(g.Cmp(kernel.LT, i, own), func() { take(fetch(i)) })
		g.CommitCopies()
	}
	add := func(i kernel.V, more bool) {
		g.WaitCopies(1)
		g.written()
		g.writeScores(nil, buffer(i), nil)
		g.Barrier() // and no lane is in the part's rows any more
		begin(g.Add(i, g.Int(2)))
		s := g.probabilities(g.Sub(left, g.Mul(i, g.Int(attentionPart))), more)
		g.Barrier()
		den := g.denominator(s)
		head, there := g.headOf(s.head)
		part := g.Add(first, i)
		g.If(g.And(s.first, there), func() {
			at := g.Add(g.Mul(g.Add(g.Mul(g.token, parts), part), g.Int(g.h)), head)
			softmax.StoreVec(g.Mul(at, g.Int(2)), g.MakeVec(s.top, den))
		})
		g.writeProbabilities(p, parts, part, headPart)
	}
	g.If(g.Cmp(kernel.GT, left, g.Int(0)), func() {
		begin(g.Int(0))
		begin(g.Int(1))
		g.If(g.Cmp(kernel.EQ, headPart, g.Int(0)), func() {
			list := g.lds(g.at.list, ir.I32)
			g.Lanes(g.Mul(own, g.Int(attentionPart)), func(i kernel.V) {
				row := list.LoadBits(g.Select(g.Cmp(kernel.LT, i, left), i, g.Sub(left, g.Int(1))))
				rows.StoreBits(g.Add(g.Mul(g.token, g.Mul(parts, g.Int(attentionPart))), g.Add(skipped, i)), row)
			})
		})
		last := g.Sub(own, g.Int(1))
		g.For(g.Int(0), last, 1, func(i kernel.V) { add(i, true) })
		add(last, false)
	})
}

// writeProbabilities writes those of the group's heads as warps multiply them.
func (g *warpGroup) writeProbabilities(p *kernel.Buf, parts, part, headPart kernel.V) {
	place := g.rowPlace(false)
	matrices := g.tiles * partSteps
	for from := 0; from < matrices; from += g.warps {
		i := g.Add(g.warp, g.Int(from))
		write := func() {
			tile, step := g.UDiv(i, g.Int(partSteps)), g.URem(i, g.Int(partSteps))
			base := g.Add(g.Int(g.at.p), g.Mul(tile, g.Int(target.MatrixTile*blockBytes)))
			x := g.matrices(base, place, step, g.heads(), false)
			tile = g.Add(g.Add(g.Mul(g.token, g.Int(g.headParts()*g.tiles)), g.Mul(headPart, g.Int(g.tiles))), tile)
			at := g.Add(g.Mul(g.Add(g.Mul(tile, parts), part), g.Int(partSteps)), step)
			p.StoreVec(g.Add(g.Mul(at, g.Int(stepWords)), g.Mul(g.lane, g.Int(4))), x)
		}
		if from+g.warps > matrices {
			g.If(g.Cmp(kernel.LT, i, g.Int(matrices)), write)
			continue
		}
		write()
	}
}

// attentionSlices is the second launch.
type attentionSlices struct {
	*warpAttention     // of the first
	fours          int // of tiles of 16 heads, in a group: 1 or 2
}

func (s *attentionSlices) parts() int     { return ceilDiv(s.columns, attentionPart) }
func (s *attentionSlices) tiles16() int   { return 4 * s.fours }
func (s *attentionSlices) headParts() int { return ceilDiv(s.h, sliceHeads*s.fours) }
func (s *attentionSlices) slices() int    { return s.d / blockElements }

func (s *attentionSlices) spec() string {
	return fmt.Sprintf("h%d d%d sets%d columns%d tiles%d of %d", s.h, s.d, s.sets, s.columns, s.tiles16(), s.warpAttention.headParts()*s.tiles)
}

func (s *attentionSlices) body(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
	probabilities, softmax, list, counts, sinks, y := b[0], b[1], b[2], b[3], b[4], b[len(b)-1]
	slice, rest := k.URem(k.Group(), k.Int(s.slices())), k.UDiv(k.Group(), k.Int(s.slices()))
	token, headPart := k.UDiv(rest, k.Int(s.headParts())), k.URem(rest, k.Int(s.headParts()))
	own := *s.warpAttention
	g := &warpGroup{warpAttention: &own, K: k, lane: k.WaveLane(), warp: k.Wave(), token: token, firstHead: k.Mul(headPart, k.Int(sliceHeads*s.fours))}
	for _, kv := range b[5 : len(b)-1] {
		g.rowSets = append(g.rowSets, kv, nil)
	}
	g.row, g.column = k.LShr(g.lane, k.Int(2)), k.And(g.lane, k.Int(lanesPerRow-1))
	g.pool = k.SharedPool(s.parts() * attentionPart * blockBytes)

	// Eight lanes copy the slice of a row.
	const pieces = blockBytes / 16
	pass := k.T.Lanes / pieces
	mine, c := k.UDiv(k.Lane(), k.Int(pieces)), k.URem(k.Lane(), k.Int(pieces))
	var rows []kernel.V
	for from := 0; from < s.parts()*attentionPart; from += pass {
		at := k.Add(k.Mul(token, k.Int(s.parts()*attentionPart)), k.Add(mine, k.Int(from)))
		rows = append(rows, list.LoadBits(at))
	}
	count := counts.Load(token)

	tile, columns := k.URem(g.warp, k.Int(s.tiles16())), k.UDiv(g.warp, k.Int(s.tiles16()))
	eights := blockElements / 8 * s.tiles16() / g.warps
	parts := k.UDiv(k.Add(k.Convert(count, kernel.I64), k.Int(attentionPart-1)), k.Int(attentionPart))
	heads := [2]kernel.V{}
	for r := range heads {
		heads[r] = k.Add(g.firstHead, k.Add(k.Mul(tile, k.Int(target.MatrixTile)), k.Add(g.row, k.Int(8*r))))
	}
	clamp := func(x kernel.V, n int) kernel.V { return k.Select(k.Cmp(kernel.LT, x, k.Int(n)), x, k.Int(n-1)) }

	// What comes of a part: probabilities, and of two heads the largest score and the sum.
	type held struct {
		p [partSteps]*kernel.VecVar
		s [2]*kernel.VecVar
	}
	ring := make([]held, heldParts)
	allTiles := s.warpAttention.headParts() * s.tiles
	ownTile := clamp(k.Add(k.Mul(headPart, k.Int(s.tiles16())), tile), allTiles)
	load := func(h *held, part kernel.V) {
		part = k.Select(k.Cmp(kernel.LT, part, parts), part, k.Int(0))
		at := k.Mul(k.Add(k.Mul(k.Add(k.Mul(token, k.Int(allTiles)), ownTile), k.Int(s.parts())), part), k.Int(partSteps*stepWords))
		for step, v := range h.p {
			v.Set(probabilities.LoadVec(k.Add(at, k.Add(k.Int(step*stepWords), k.Mul(g.lane, k.Int(4)))), 4))
		}
		for r, v := range h.s {
			first := k.Mul(k.Add(k.Mul(token, k.Int(s.parts())), part), k.Int(s.h))
			v.Set(k.AsF32(softmax.LoadVec(k.Mul(k.Add(first, clamp(heads[r], s.h)), k.Int(2)), 2)))
		}
	}
	for i := range ring {
		for step := range ring[i].p {
			ring[i].p[step] = k.VecVar(k.ZeroVec(kernel.I32, 4))
		}
		for r := range ring[i].s {
			ring[i].s[r] = k.VecVar(k.ZeroVec(kernel.F32, 2))
		}
	}
	k.If(k.Cmp(kernel.GT, parts, k.Int(0)), func() {
		for i, row := range rows {
			part := i * pass / attentionPart
			k.If(k.Cmp(kernel.LT, k.Int(part), parts), func() {
				src := k.ReadAt(g.address(row), ir.U8)
				g.pool.CopyAsync(g.swizzled(k.Add(mine, k.Int(i*pass)), c), src, k.Add(k.Mul(slice, k.Int(blockBytes)), k.Mul(c, k.Int(16))))
			})
		}
		k.CommitCopies()
		for i := range ring {
			load(&ring[i], k.Int(i))
		}
	})
	k.WaitCopies(0)
	g.together = k.T.Warpgroups() && s.fours == 2 // with half of the columns each, fours take longer
	g.written()

	var sums []*kernel.VecVar
	for range eights {
		sums = append(sums, k.VecVar(k.ZeroVec(kernel.F32, target.ResultRun)))
	}
	tops := [2]*softmaxSum{newSoftmaxSum(k), newSoftmaxSum(k)}
	place := g.rowPlace(false)
	addTo := func(sum *kernel.VecVar, x kernel.Vec, old, new [2]kernel.V) {
		var out []kernel.V
		for n := range target.ResultRun {
			out = append(out, addScaled(k, k.At(sum.Get(), n), old[n/2], k.At(x, n), new[n/2]))
		}
		sum.Set(k.MakeVec(out...))
	}
	add := func(h *held, part kernel.V) {
		var old, new [2]kernel.V
		for r := range tops {
			of := h.s[r].Get()
			old[r], new[r] = tops[r].add(k.At(of, 0), k.At(of, 1))
		}
		var p [partSteps]kernel.Vec
		for step := range p {
			p[step] = h.p[step].Get()
		}
		if g.together {
			matrix := g.pool.SharedMatrix(k.Add(k.Mul(part, k.Int(attentionPart*blockBytes)), k.Mul(columns, k.Int(16*eights))), eightRows)
			var steps []int
			for step := range p {
				steps = append(steps, 16*step*blockBytes)
			}
			for i, x := range k.WaitGroupMMA(0, k.StartAcrossMMA(8*eights, p[:], matrix, steps))[0] {
				addTo(sums[i], x, old, new)
			}
			return
		}
		for pair := range eights / 2 {
			x := [2]kernel.Vec{k.ZeroVec(kernel.F32, target.ResultRun), k.ZeroVec(kernel.F32, target.ResultRun)}
			for step := range p {
				base := k.Add(k.Mul(part, k.Int(attentionPart*blockBytes)), k.Int(16*step*blockBytes))
				v := g.matrices(base, place, k.Add(k.Mul(columns, k.Int(eights/2)), k.Int(pair)), attentionPart, true)
				for i := range x {
					x[i] = k.WarpMMA(s.mma, p[step], k.Part(v, 2*i, 2), x[i])
				}
			}
			for i, part := range x {
				addTo(sums[2*pair+i], part, old, new)
			}
		}
	}
	k.For(k.Int(0), parts, heldParts, func(from kernel.V) {
		for i := range ring {
			part := k.Add(from, k.Int(i))
			k.If(k.Cmp(kernel.LT, part, parts), func() {
				add(&ring[i], part)
				load(&ring[i], k.Add(part, k.Int(heldParts)))
			})
		}
	})

	for r := range heads {
		f := tops[r].factor(sinks.Load(clamp(heads[r], s.h)), count)
		for from := 0; from < eights; from += lanesPerRow {
			words := make([]kernel.V, lanesPerRow)
			for i := range words {
				x := sums[from+i].Get()
				words[i] = k.PackBF16(k.Mul(k.At(x, 2*r), f), k.Mul(k.At(x, 2*r+1), f))
			}
			words = g.acrossLanes(words)
			k.If(k.Cmp(kernel.LT, heads[r], k.Int(s.h)), func() {
				element := k.Add(k.Add(k.Mul(slice, k.Int(blockElements)), k.Mul(columns, k.Int(8*eights))), k.Mul(k.Add(g.column, k.Int(from)), k.Int(8)))
				y.StoreVec(k.Add(k.Mul(k.Add(k.Mul(token, k.Int(s.h)), heads[r]), k.Int(s.d)), element), k.MakeVec(words...))
			})
		}
	}
}

// acrossLanes gives lane i of the four of a row word i of each of them.
func (g *warpGroup) acrossLanes(words []kernel.V) []kernel.V {
	for bit := 1; bit < lanesPerRow; bit *= 2 {
		has := g.Cmp(kernel.NE, g.And(g.lane, g.Int(bit)), g.Int(0))
		for i := range words {
			if i&bit != 0 {
				continue
			}
			a, b := words[i], words[i|bit]
			x := g.LaneXor(g.Select(has, a, b), bit)
			words[i], words[i|bit] = g.Select(has, x, a), g.Select(has, b, x)
		}
	}
	return words
}
