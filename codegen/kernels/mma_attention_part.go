package kernels

import (
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// What a group does with a part that lies in shared memory: scores, their softmax, and
// the product with the rows.

// matrixStep is how many elements one instruction multiplies, in bytes: two of the eight
// pieces of a row in a block.
const matrixStep = 2 * 16

// stepsPerBlock is how many of them a block has.
const stepsPerBlock = blockBytes / matrixStep

// rowPlace is where the lane's row of four matrices lies in a block: of rows 0 to 15,
// of which the second 8 are the second matrix, or, if they are columns of the second
// operand, the third.
func (g *warpGroup) rowPlace(columns bool) kernel.V {
	in, eight, other := g.And(g.lane, g.Int(7)), g.And(g.LShr(g.lane, g.Int(3)), g.Int(1)), g.LShr(g.lane, g.Int(4))
	if columns {
		eight, other = other, eight
	}
	return g.swizzled(g.Add(in, g.Mul(eight, g.Int(8))), other)
}

// matrices are the four at a place of step number i of a matrix with so many rows.
func (g *warpGroup) matrices(base kernel.V, place, i kernel.V, rows int, transposed bool) kernel.Vec {
	block := g.Mul(g.UDiv(i, g.Int(stepsPerBlock)), g.Int(rows*blockBytes))
	step := g.Mul(g.URem(i, g.Int(stepsPerBlock)), g.Int(matrixStep))
	return g.pool.LoadMatrices(g.Add(g.Add(base, block), g.Xor(place, step)), transposed)
}

// scoreWork is which scores a warp makes: of a tile of heads, 16 times so many rows as
// there are tiles, and a half of their elements or all.
func (g *warpGroup) scoreWork() (tile, firstRow, half kernel.V) {
	w := g.UDiv(g.warp, g.Int(g.halves()))
	half = g.URem(g.warp, g.Int(g.halves()))
	tile = g.URem(w, g.Int(g.tiles))
	return tile, g.Mul(g.UDiv(w, g.Int(g.tiles)), g.Int(g.scoreRows())), half
}

// scoreRows is how many rows a warp makes scores of.
func (a *warpAttention) scoreRows() int { return attentionPart * a.tiles * a.halves() / a.warps }

// quarterSteps is how many steps a quarter of a row has.
func (a *warpAttention) quarterSteps() int { return a.d / 4 / 16 }

// heldQueryTiles is with how many tiles of heads registers hold a warp's queries, beside
// its sums.
const heldQueryTiles = 2

// heldQueries are what the warp multiplies of its heads, if registers hold it.
func (g *warpGroup) heldQueries() []kernel.Vec {
	if g.tiles > heldQueryTiles {
		return nil
	}
	var out []kernel.Vec
	for i := range 2 * g.quarterSteps() {
		out = append(out, g.queryStep(i))
	}
	return out
}

// queryStep is step i of the warp's queries.
func (g *warpGroup) queryStep(i int) kernel.Vec {
	tile, _, half := g.scoreWork()
	base := g.Add(g.Int(g.at.q), g.Mul(tile, g.Int(target.MatrixTile*blockBytes)))
	step := g.Add(g.Int(i), g.Mul(half, g.Int(2*g.quarterSteps())))
	return g.matrices(base, g.rowPlace(false), step, g.heads(), false)
}

// writeScores multiplies the part with the queries, and writes what the warp has of the
// sums. Between its products it takes the steps.
func (g *warpGroup) writeScores(queries []kernel.Vec, buffer kernel.V, steps []func()) {
	if g.together {
		g.writeScoresTogether(buffer, steps)
		return
	}
	some := ceilDiv(len(steps), 4/g.halves()*g.quarterSteps())
	tile, firstRow, half := g.scoreWork()
	place := g.rowPlace(true)
	sixteens := g.scoreRows() / 16
	var sums [][]kernel.Vec // by pair of quarters and eight of rows
	for first := 0; first < 4/g.halves(); first += 2 {
		quarters := [2][]kernel.Vec{}
		for q := range quarters {
			for range 2 * sixteens {
				quarters[q] = append(quarters[q], g.ZeroVec(kernel.F32, target.ResultRun))
			}
		}
		for s := range g.quarterSteps() {
			for q := range quarters {
				i := (first+q)*g.quarterSteps() + s
				var a kernel.Vec
				if queries != nil {
					a = queries[i]
				} else {
					a = g.queryStep(i)
				}
				step := g.Add(g.Int(i), g.Mul(half, g.Int(2*g.quarterSteps())))
				for n := range sixteens {
					base := g.Add(g.Add(g.Int(g.at.rows[0]), buffer), g.Mul(g.Add(firstRow, g.Int(16*n)), g.Int(blockBytes)))
					b := g.matrices(base, place, step, attentionPart, false)
					for eight := range 2 {
						c := &quarters[q][2*n+eight]
						*c = g.WarpMMA(g.mma, a, g.Part(b, 2*eight, 2), *c)
					}
				}
				for range min(some, len(steps)) {
					steps[0]()
					steps = steps[1:]
				}
			}
		}
		var pair []kernel.Vec
		for i := range quarters[0] {
			pair = append(pair, g.addVec(quarters[0][i], quarters[1][i]))
		}
		sums = append(sums, pair)
	}
	scores := g.lds(g.at.scores, ir.F32)
	for i, x := range sums[0] {
		for _, y := range sums[1:] {
			x = g.addVec(x, y[i])
		}
		for r := range 2 {
			head := g.Add(g.Mul(g.Add(g.Mul(half, g.Int(g.tiles)), tile), g.Int(target.MatrixTile)), g.Add(g.row, g.Int(8*r)))
			at := g.Add(g.Mul(head, g.Int(warpScoreStride)), g.Add(firstRow, g.Add(g.Mul(g.column, g.Int(2)), g.Int(8*i))))
			scores.StoreVec(at, g.Part(x, 2*r, 2))
		}
	}
}

func (g *warpGroup) addVec(x, y kernel.Vec) kernel.Vec {
	return g.MapVec(func(v ...kernel.V) kernel.V { return g.Add(v[0], v[1]) }, x, y)
}

// warpSoftmax is a lane's head of the group, its largest score in a part, as a power of
// two, and what the lane has of the sum of 2^(score - top). First is one of the lanes of
// the head.
type warpSoftmax struct {
	head, first kernel.V
	top, some   kernel.V
}

// softmaxLanes is how many lanes have a head's scores.
func (g *warpGroup) softmaxLanes() int { return g.T.Lanes / g.heads() }

func (g *warpGroup) softmaxHead() (head, first kernel.V) {
	n := g.Int(g.softmaxLanes())
	return g.UDiv(g.Lane(), n), g.Cmp(kernel.EQ, g.URem(g.Lane(), n), g.Int(0))
}

// probabilities writes those of a part, of which left rows are there, or all. A lane has as many
// runs of four rows as there are tiles: its sums are by run, then over the runs that
// are 4, 8, 1 and 2 runs apart.
func (g *warpGroup) probabilities(left kernel.V, all bool) warpSoftmax {
	head, first := g.softmaxHead()
	out := warpSoftmax{head: head, first: first}
	lane := g.URem(g.Lane(), g.Int(g.softmaxLanes()))
	run := func(j int) kernel.V {
		return g.Add(g.Add(g.Mul(g.LShr(lane, g.Int(2)), g.Int(4*g.tiles)), g.And(lane, g.Int(3))), g.Int(4*j))
	}
	scores := g.lds(g.at.scores, ir.F32)
	list := make([][]kernel.V, g.tiles)
	top := g.Float(math.Inf(-1))
	for j := range list {
		at := g.Add(g.Mul(head, g.Int(warpScoreStride)), g.Mul(run(j), g.Int(4)))
		x := g.AsF32(scores.LoadVec(at, 4))
		for half := 1; half < g.halves(); half++ {
			x = g.addVec(x, g.AsF32(scores.LoadVec(g.Add(at, g.Int(half*g.heads()*warpScoreStride)), 4)))
		}
		for i := range x.Len() {
			score := g.At(x, i)
			if !all {
				there := g.Cmp(kernel.LT, g.Add(g.Mul(run(j), g.Int(4)), g.Int(i)), left)
				score = g.Select(there, score, g.Float(math.Inf(-1)))
			}
			list[j], top = append(list[j], score), g.MaxNaN(top, score)
		}
	}
	for _, m := range g.softmaxMasks() {
		top = g.MaxNaN(top, g.LaneXor(top, m))
	}
	scale := g.Float(g.scale * math.Log2E) // scores are powers of two
	out.top = g.Mul(top, scale)
	base := g.Mul(finiteOr0(g.K, out.top), g.Float(-1))
	p := g.lds(g.at.p, ir.U8)
	var dens []kernel.V
	for j, x := range list {
		for i := range x {
			x[i] = g.Exp2(g.FMA(x[i], scale, base))
		}
		r := run(j)
		at := g.Add(g.swizzled(head, g.LShr(r, g.Int(1))), g.Mul(g.And(r, g.Int(1)), g.Int(8)))
		p.StoreVec(at, g.MakeVec(g.PackBF16(x[0], x[1]), g.PackBF16(x[2], x[3])))
		dens = append(dens, g.Add(g.Add(x[0], x[1]), g.Add(x[2], x[3])))
	}
	for len(dens) > 1 {
		var half []kernel.V
		for j := 0; j < len(dens); j += 2 {
			half = append(half, g.Add(dens[j], dens[j+1]))
		}
		dens = half
	}
	out.some = dens[0]
	return out
}

// softmaxMasks tell the lanes of a head, those of runs of rows 4 and 8 apart first.
func (g *warpGroup) softmaxMasks() []int {
	var masks []int
	for m := 4; m < g.softmaxLanes(); m *= 2 {
		masks = append(masks, m)
	}
	return append(masks, 1, 2)
}

// denominator is the sum of what the lanes of a head have.
func (g *warpGroup) denominator(s warpSoftmax) kernel.V {
	den := s.some
	for _, m := range g.softmaxMasks() {
		den = g.Add(den, g.LaneXor(den, m))
	}
	return den
}

// sumTiles is how many tiles of heads a warp has sums of.
func (a *warpAttention) sumTiles() int {
	if a.together {
		return 1
	}
	return a.tiles
}

// pairs is how many pairs of eights of elements a warp has sums of, of each tile.
func (a *warpAttention) pairs() int { return a.d / 16 * a.tiles / a.sumTiles() / a.warps }

// pairOf is pair number i of the warp's among all of a row.
func (g *warpGroup) pairOf(i int) kernel.V {
	if g.together {
		return g.Add(g.Mul(g.fours(), g.Int(g.pairs())), g.Int(i))
	}
	return g.Add(g.Mul(g.warp, g.Int(g.pairs())), g.Int(i))
}

// sumHead is head r, 0 or 1, of the group's that the lane has sums of in a tile.
func (g *warpGroup) sumHead(tile, r int) kernel.V {
	head := g.Add(g.row, g.Int(tile*target.MatrixTile+8*r))
	if g.together {
		head = g.Add(head, g.Mul(g.URem(g.warp, g.Int(warpsTogether)), g.Int(target.MatrixTile)))
	}
	return head
}

// heldTiles is how many tiles' probabilities a lane holds at a time.
const heldTiles = 2

// multiply multiplies the part with the probabilities, and calls f with the sums of each
// tile of heads and pair of eights of elements.
func (g *warpGroup) multiply(buffer kernel.V, f func(tile, pair int, sums [2]kernel.Vec)) {
	if g.together {
		g.multiplyTogether(buffer, f)
		return
	}
	place := g.rowPlace(false)
	const steps = attentionPart / 16
	for first := 0; first < g.tiles; first += heldTiles {
		var p [heldTiles][steps]kernel.Vec
		n := min(heldTiles, g.tiles-first)
		for t := range n {
			for s := range steps {
				p[t][s] = g.matrices(g.Int(g.at.p+(first+t)*target.MatrixTile*blockBytes), place, g.Int(s), g.heads(), false)
			}
		}
		for pair := range g.pairs() {
			var v [steps]kernel.Vec
			for s := range v {
				base := g.Add(g.Add(g.Int(g.at.rows[0]), buffer), g.Int(16*s*blockBytes))
				v[s] = g.matrices(base, place, g.pairOf(pair), attentionPart, true)
			}
			for t := range n {
				var sums [2]kernel.Vec
				for i := range sums {
					sums[i] = g.ZeroVec(kernel.F32, target.ResultRun)
					for s := range v {
						sums[i] = g.WarpMMA(g.mma, p[t][s], g.Part(v[s], 2*i, 2), sums[i])
					}
				}
				f(first+t, pair, sums)
			}
		}
	}
}
