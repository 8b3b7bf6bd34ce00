package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
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
	// heldParts is how many parts' probabilities are on their way.
	heldParts = 4
	// stepWords are the words of a 16 x 16 matrix as a warp multiplies it, four of a lane.
	stepWords = 4 * 32
	// partSteps is how many such matrices a part's probabilities are, of 16 heads.
	partSteps = attentionPart / 16
)

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
	heads64        int // of 64 heads, in a group: 1 or 2
}

func (s *attentionSlices) parts() int     { return ceilDiv(s.columns, attentionPart) }
func (s *attentionSlices) tiles16() int   { return 4 * s.heads64 }
func (s *attentionSlices) headParts() int { return ceilDiv(s.h, 64*s.heads64) }
func (s *attentionSlices) slices() int    { return s.d / blockElements }

func (s *attentionSlices) spec() string {
	return fmt.Sprintf("h%d d%d sets%d columns%d tiles%d of %d", s.h, s.d, s.sets, s.columns, s.tiles16(), s.warpAttention.headParts()*s.tiles)
}

func (s *attentionSlices) body(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
	probabilities, softmax, counts, list, sinks, y := b[0], b[1], b[2], b[3], b[4], b[len(b)-1]
	slice, rest := k.URem(k.Group(), k.Int(s.slices())), k.UDiv(k.Group(), k.Int(s.slices()))
	token, headPart := k.UDiv(rest, k.Int(s.headParts())), k.URem(rest, k.Int(s.headParts()))
	g := &warpGroup{warpAttention: s.warpAttention, K: k, lane: k.WaveLane(), warp: k.Wave(), token: token, firstHead: k.Mul(headPart, k.Int(64*s.heads64))}
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
	k.Barrier()

	var sums []*kernel.VecVar
	for range eights {
		sums = append(sums, k.VecVar(k.ZeroVec(kernel.F32, target.ResultRun)))
	}
	tops := [2]*softmaxSum{newSoftmaxSum(k), newSoftmaxSum(k)}
	place := g.rowPlace(false)
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
				sum := sums[2*pair+i]
				var out []kernel.V
				for n := range target.ResultRun {
					out = append(out, addScaled(k, k.At(sum.Get(), n), old[n/2], k.At(part, n), new[n/2]))
				}
				sum.Set(k.MakeVec(out...))
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
