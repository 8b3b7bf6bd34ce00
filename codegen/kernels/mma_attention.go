package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// Attention on NVIDIA's matrix units. As on AMD's, the rows that a token sees are taken
// in parts of attentionPart, and the sum of a part starts at 0 and is then added to that
// of the parts before it; but a group has as many heads as keep all processors busy, and
// each part lies in shared memory, where all of its heads read it. While a part is
// multiplied, the next one is on its way there.
//
// The order of all sums is one, whatever the heads of a group and whether or not parts
// are groups of their own:
//   - a score is (a+b)+(c+d) of the products of four quarters of a row;
//   - a denominator is the tree of warpGroup.probabilities;
//   - a part's element is the sum over its rows, 16 at a time.

const (
	// maxRowList is how many rows are listed at a time.
	maxRowList = 1536
	// maxRowSets and rowBits are how a listed row says which set it is of.
	maxRowSets, rowBits = 8, 28
	// blockElements is how many elements of rows lie together in shared memory: 128 bytes,
	// so that 8 rows of them are where the instructions find all banks.
	blockElements, blockBytes = 64, 128
	// warpScoreStride is the distance between the heads' scores.
	warpScoreStride = attentionPart + 8
	// maxHeadTiles bounds the heads of a group, 16 each: their sums are in registers.
	maxHeadTiles = 4
)

// warpAttention is what the code depends on.
type warpAttention struct {
	mma      *target.MMA
	warps    int
	h, d     int
	rowsAre  ir.RowFormat
	scale    float64
	sets     int
	columns  int  // in which rows are, of all sets
	inParts  bool // a part per group
	apart    bool // probabilities are the result, of some parts per group
	tiles    int  // of 16 heads, in a group
	together bool // four warps multiply together
}

func matchWarpAttention(o *ir.Op, t *target.Target) string {
	if sets := len(o.Args)/2 - 1; sets > maxRowSets {
		return fmt.Sprintf("%d sets of rows, at most %d", sets, maxRowSets)
	}
	for i := 2; i < len(o.Args); i += 2 {
		if n := dims(o.Args[i])[0]; n >= 1<<rowBits {
			return fmt.Sprintf("%d rows, fewer than 2^%d are numbered", n, rowBits)
		}
	}
	if scale := o.Float("scale"); !(scale > 0) { // the largest product has the largest score
		return fmt.Sprintf("scale %g is not positive", scale)
	}
	return matchMatrixAttention(o, t)
}

// groupHeadTiles is how many times 16 heads a group has: with more, rows are read less
// often, but there are fewer groups than processors if tokens are few.
func groupHeadTiles(t, h, busy int) int {
	n := 1
	for n < maxHeadTiles && h > n*target.MatrixTile && t*ceilDiv(h, 2*n*target.MatrixTile) >= busy {
		n *= 2
	}
	return n
}

// fewHeadTiles is the same for groups of one part each: the fewest with which all groups
// are at work at once.
func fewHeadTiles(units, h, busy int) int {
	n := 1
	for n < maxHeadTiles && h > n*target.MatrixTile && units*ceilDiv(h, n*target.MatrixTile) > busy {
		n *= 2
	}
	return n
}

func (a *warpAttention) heads() int     { return a.tiles * target.MatrixTile }
func (a *warpAttention) headParts() int { return ceilDiv(a.h, a.heads()) }

// halves is how many warps share the scores of the same rows and heads, each with its
// half of their elements. With most heads there is no room for the halves.
func (a *warpAttention) halves() int {
	if a.tiles == maxHeadTiles {
		return 1
	}
	return 2
}

func (a *warpAttention) spec() string {
	return fmt.Sprintf("h%d d%d sets%d columns%d scale%g parts%v apart%v tiles%d together%v%s", a.h, a.d, a.sets, a.columns, a.scale, a.inParts, a.apart, a.tiles, a.together, rowSpec(a.rowsAre))
}

func lowerWarpAttention(l Lowering, o *ir.Op) error {
	q := dims(o.Args[0])
	t := q[0]
	u := unitOf(l.Target())
	a := &warpAttention{mma: u.mma, warps: u.waves, h: q[1], d: q[2], scale: o.Float("scale"), sets: len(o.Args)/2 - 1}
	a.rowsAre = rowsOf(o, 2, a.d)
	in, widths, touched := attentionOperands(l, o, a.rowsAre)
	columns := attentionColumns(o)
	a.columns = columns
	parts := ceilDiv(columns, attentionPart)
	y, sums := l.Buf(o.Results[0]), t*parts*a.h*a.d
	a.apart = !a.rowsAre.Packed() && parts > 1 && parts <= sliceParts && t*ceilDiv(a.h, sliceHeads)*parts >= l.Threshold(passes.SliceParts) && t < l.Threshold(passes.NoSliceTokens)
	a.inParts = !a.apart && parts > 1 && t < l.Threshold(passes.NoSplitTokens) && 4*sums <= maxAttentionParts
	busy := l.Threshold(passes.AttentionGroups)
	switch {
	case a.apart:
		a.tiles = groupHeadTiles(t*parts, a.h, busy)
	case a.inParts:
		a.tiles = fewHeadTiles(t*parts, a.h, busy)
	default:
		a.tiles = groupHeadTiles(t, a.h, busy)
	}
	a.together = a.tiles == maxHeadTiles && l.Target().Warpgroups()
	macs := 2 * int64(t*a.h*columns) * int64(a.d)
	launch := Launch{
		Name: "matrix_attention", Spec: a.spec(), Grid: t * a.headParts(), Work: macs, Flops: 2 * macs, Pooled: true, In: in, Out: []Ref{y}, Touched: touched,
		Ints: append([]int{parts}, widths...), Body: a.body,
	}
	if a.apart {
		a.lowerApart(l, o, launch, t, parts)
		return nil
	}
	if !a.inParts {
		l.Launch(launch)
		return nil
	}
	acc, softmax, count := l.Scratch(ir.F32, sums), l.Scratch(ir.F32, t*parts*a.h*2), l.Scratch(ir.I32, t)
	launch.Grid, launch.Out = launch.Grid*parts, []Ref{acc, softmax, count}
	l.Launch(launch)
	s := &warpAttentionSum{h: a.h, d: a.d, parts: parts}
	l.Launch(Launch{
		Name: "attention_sum", Spec: s.spec(), Grid: t * a.h, Work: int64(2 * sums), In: []Ref{acc, softmax, count, in[1]}, Out: []Ref{y},
		Body: s.body,
	})
	return nil
}

// attentionPool is where things lie in a group's shared memory, in bytes.
type attentionPool struct {
	rows   []int // parts, as matrices are read
	packed int   // a part as it is in memory, if that is not the same
	q, p   int   // queries and probabilities, as matrices are read
	scores int
	each   int // two numbers of each head
	list   int
	bytes  int
}

func (a *warpAttention) pool() attentionPool {
	var p attentionPool
	take := func(bytes int) int {
		at := p.bytes
		p.bytes += (bytes + blockBytes - 1) / blockBytes * blockBytes
		return at
	}
	p.rows = append(p.rows, take(attentionPart*a.d*2))
	if !a.inParts && !a.rowsAre.Packed() {
		p.rows = append(p.rows, take(attentionPart*a.d*2))
	}
	p.q, p.p = take(a.heads()*a.d*2), take(a.heads()*blockBytes)
	if a.rowsAre.Packed() {
		p.packed = take(attentionPart * a.rowsAre.Bytes())
	}
	p.scores = take(a.halves() * a.heads() * warpScoreStride * 4)
	p.each = take(a.heads() * 2 * 4)
	p.list = take(4 * a.listed())
	return p
}

// listed is how many rows are listed at a time.
func (a *warpAttention) listed() int {
	if a.inParts {
		return attentionPart
	}
	return min(maxRowList, ceilDiv(a.columns, attentionPart)*attentionPart)
}

// warpGroup is the state of a group.
type warpGroup struct {
	*warpAttention
	*kernel.K
	at   attentionPool
	pool *kernel.Buf

	lane, warp       kernel.V
	row, column      kernel.V // of a product's result, of this lane: its first row, and its pair of columns
	token, firstHead kernel.V
	rowSets          []*kernel.Buf // rows, and which of them
	widths           []kernel.V
}

func (a *warpAttention) newGroup(k *kernel.K, b []*kernel.Buf, widths []kernel.V, token, headPart kernel.V) *warpGroup {
	g := &warpGroup{
		warpAttention: a, K: k, at: a.pool(), lane: k.WaveLane(), warp: k.Wave(), token: token, firstHead: k.Mul(headPart, k.Int(a.heads())),
		rowSets: b[2 : 2+2*a.sets], widths: widths,
	}
	g.pool = k.SharedPool(g.at.bytes)
	g.row, g.column = k.LShr(g.lane, k.Int(2)), k.And(g.lane, k.Int(lanesPerRow-1))
	return g
}

// lds is shared memory from a byte on.
func (g *warpGroup) lds(at int, d ir.DType) *kernel.Buf { return g.pool.At(g.Int(at)).As(d) }

func (a *warpAttention) body(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
	parts, widths := ints[0], ints[1:]
	headPart, rest := k.URem(k.Group(), k.Int(a.headParts())), k.UDiv(k.Group(), k.Int(a.headParts()))
	if a.apart {
		each := widths[len(widths)-1]
		runs := k.UDiv(k.Add(parts, k.Sub(each, k.Int(1))), each)
		g := a.newGroup(k, b, widths, k.UDiv(rest, runs), headPart)
		g.onlyProbabilities(b[0], b[2+2*a.sets:], parts, each, k.URem(rest, runs), headPart)
		return
	}
	if a.inParts {
		g := a.newGroup(k, b, widths, k.UDiv(rest, parts), headPart)
		g.onePart(b[0], b[len(b)-3:], parts, k.URem(rest, parts), headPart)
		return
	}
	a.newGroup(k, b, widths, rest, headPart).allParts(b[0], b[1], b[len(b)-1])
}

// onePart writes the sums of a part, and what the other launch needs to add them.
func (g *warpGroup) onePart(q *kernel.Buf, out []*kernel.Buf, parts, part, headPart kernel.V) {
	acc, softmax, counts := out[0], out[1], out[2]
	g.copyQueries(q)
	from := g.Mul(part, g.Int(attentionPart))
	total := g.listRows(from)
	left := g.Sub(total, from)
	g.If(g.Cmp(kernel.EQ, g.Add(part, headPart), g.Int(0)), func() {
		g.First(func() { counts.Store(g.token, g.Convert(total, kernel.I32)) })
	})
	g.If(g.Cmp(kernel.GT, left, g.Int(0)), func() {
		take(g.copyRows(g.Int(0), left, g.Int(0)))
		g.CommitCopies()
		g.WaitCopies(0)
		g.written()
		g.decodeRows()
		g.writeScores(nil, g.Int(0), nil)
		g.Barrier()
		first := g.Mul(g.Add(g.Mul(g.token, parts), part), g.Int(g.h))
		s := g.probabilities(left, false)
		g.written()
		den := g.denominator(s) // nobody waits for it
		head, own := g.headOf(s.head)
		g.If(g.And(s.first, own), func() {
			softmax.StoreVec(g.Mul(g.Add(first, head), g.Int(2)), g.MakeVec(s.top, den))
		})
		g.multiply(g.Int(0), func(tile, pair int, sums [2]kernel.Vec) {
			g.eachRun(tile, pair, sums, func(_ int, head, element, x, y kernel.V) {
				acc.StoreVec(g.Add(g.Mul(g.Add(first, head), g.Int(g.d)), element), g.MakeVec(x, y))
			})
		})
	})
}

// take takes steps at once.
func take(steps []func()) {
	for _, step := range steps {
		step()
	}
}

// headOf is head i of the group, and whether there is one.
func (g *warpGroup) headOf(i kernel.V) (head, own kernel.V) {
	head = g.Add(g.firstHead, i)
	return head, g.Cmp(kernel.LT, head, g.Int(g.h))
}

// eachRun calls f for the pairs of elements that a lane has of a pair of eights of
// elements, of each head that there is: its number in the lane, 0 or 1, and two elements
// from one on.
func (g *warpGroup) eachRun(tile, pair int, sums [2]kernel.Vec, f func(r int, head, element, x, y kernel.V)) {
	for r := range 2 {
		head, own := g.headOf(g.sumHead(tile, r))
		g.If(own, func() {
			for eight, v := range sums {
				element := g.Add(g.Mul(g.pairOf(pair), g.Int(16)), g.Add(g.Mul(g.column, g.Int(2)), g.Int(8*eight)))
				f(r, head, element, g.At(v, 2*r), g.At(v, 2*r+1))
			}
		})
	}
}

// allParts adds the parts, one after the other.
func (g *warpGroup) allParts(q, sinks, y *kernel.Buf) {
	g.copyQueries(q)
	total := g.listRows(g.Int(0))
	parts := g.UDiv(g.Add(total, g.Int(attentionPart-1)), g.Int(attentionPart))
	listed := g.UniformVar(g.Int(0))
	buffer := func(part kernel.V) kernel.V {
		if len(g.at.rows) == 1 {
			return g.Int(0)
		}
		return g.turn(part, attentionPart*g.d*2)
	}
	fetch := func(part kernel.V) []func() {
		from := g.Mul(part, g.Int(attentionPart))
		if g.columns > maxRowList {
			g.If(g.Cmp(kernel.GE, g.Sub(from, listed.Get()), g.Int(g.listed())), func() {
				g.listRows(from)
				listed.Set(from)
			})
		}
		from = g.Sub(from, listed.Get())
		return g.copyRows(from, g.Sub(total, listed.Get()), buffer(part))
	}
	g.If(g.Cmp(kernel.GT, parts, g.Int(0)), func() { take(fetch(g.Int(0))) })
	g.CommitCopies()
	g.WaitCopies(0)
	g.written()
	queries := g.heldQueries()

	softmax := newSoftmaxSum(g.K)
	acc := make([][][2]*kernel.VecVar, g.sumTiles())
	for tile := range acc {
		acc[tile] = make([][2]*kernel.VecVar, g.pairs())
		for pair := range acc[tile] {
			for i := range acc[tile][pair] {
				acc[tile][pair][i] = g.VecVar(g.ZeroVec(kernel.F32, target.ResultRun))
			}
		}
	}
	each := g.lds(g.at.each, ir.F32)
	// add adds a part, while the next one, if more, comes.
	add := func(part kernel.V, more bool) {
		g.WaitCopies(0)
		g.written() // and no lane is in the last part any more
		g.decodeRows()
		var steps []func()
		if more {
			steps = append(fetch(g.Add(part, g.Int(1))), g.CommitCopies)
		}
		g.writeScores(queries, buffer(part), steps)
		g.Barrier()
		s := g.probabilities(g.Sub(total, g.Mul(part, g.Int(attentionPart))), more)
		old, add := softmax.addTop(s.top)
		g.If(s.first, func() { each.StoreVec(g.Mul(s.head, g.Int(2)), g.MakeVec(old, add)) })
		g.written()
		softmax.addDen(g.denominator(s), old, add) // nobody waits for it
		factors := make([][2]kernel.Vec, g.sumTiles())
		for tile := range factors {
			for r := range 2 {
				factors[tile][r] = g.ofHead(each, tile, r)
			}
		}
		g.multiply(buffer(part), func(tile, pair int, sums [2]kernel.Vec) {
			for i, v := range acc[tile][pair] {
				var out []kernel.V
				for n := range target.ResultRun {
					f := factors[tile][n/2]
					out = append(out, addScaled(g.K, g.At(v.Get(), n), g.At(f, 0), g.At(sums[i], n), g.At(f, 1)))
				}
				v.Set(g.MakeVec(out...))
			}
		})
	}
	last := g.Sub(parts, g.Int(1))
	g.For(g.Int(0), last, 1, func(part kernel.V) { add(part, true) })
	g.If(g.Cmp(kernel.GE, last, g.Int(0)), func() { add(last, false) })

	own, first := g.softmaxHead()
	head, there := g.headOf(own)
	factor := softmax.factor(sinks.Load(g.Select(there, head, g.Int(g.h-1))), g.Convert(total, kernel.I32))
	g.Barrier() // the last readers of the parts' factors are done
	g.If(first, func() { each.StoreVec(g.Mul(own, g.Int(2)), g.MakeVec(factor, factor)) })
	g.Barrier()
	// The rows' place takes the results, so that lanes write what lies together.
	for tile := range acc {
		factors := [2]kernel.V{g.At(g.ofHead(each, tile, 0), 0), g.At(g.ofHead(each, tile, 1), 0)}
		for pair, v := range acc[tile] {
			for eight, x := range v {
				for r := range 2 {
					word := g.PackBF16(g.Mul(g.At(x.Get(), 2*r), factors[r]), g.Mul(g.At(x.Get(), 2*r+1), factors[r]))
					c := g.Add(g.Mul(g.pairOf(pair), g.Int(2)), g.Int(eight))
					at := g.Add(g.headPlace(g.sumHead(tile, r), c), g.Mul(g.column, g.Int(4)))
					g.lds(g.at.rows[0], ir.U8).StoreVec(at, g.MakeVec(word))
				}
			}
		}
	}
	g.Barrier()
	pieces := g.d / 8
	g.For(g.Int(0), g.Int(g.heads()*pieces), g.T.Lanes, func(from kernel.V) {
		row, c := g.divide(g.Add(from, g.Lane()), pieces)
		head, own := g.headOf(row)
		g.If(own, func() {
			words := g.lds(g.at.rows[0], ir.U8).LoadVec(g.headPlace(row, c), 16)
			y.StoreVec(g.Add(g.Mul(g.Add(g.Mul(g.token, g.Int(g.h)), head), g.Int(g.d)), g.Mul(c, g.Int(8))), words)
		})
	})
}

// turn is which of two places of so much room a part takes.
func (g *warpGroup) turn(part kernel.V, room int) kernel.V {
	return g.Mul(g.And(part, g.Int(1)), g.Int(room))
}

// ofHead is the two numbers of a head that the lane has sums of.
func (g *warpGroup) ofHead(each *kernel.Buf, tile, r int) kernel.Vec {
	return g.AsF32(each.LoadVec(g.Mul(g.sumHead(tile, r), g.Int(2)), 2))
}
