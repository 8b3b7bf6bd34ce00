package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// The indexer's scores on NVIDIA's matrix units. A warp multiplies 16 keys, which it
// decodes in registers, with the heads of a token, eight at a time: q lies in shared memory,
// each lane's fragment in one piece. It goes through several such tiles, the next one's
// bytes under way, so that q is read once. The heads' scores are added by products with
// ones: what a lane has of two eights of heads is what it has of a first operand.

const (
	// maxWarpQueries bounds the bytes of q in shared memory.
	maxWarpQueries = 40 << 10

	// scoreGroups is how many groups a processor has at a time.
	scoreGroups = 2

	// scoreChains is how many products of eight heads go on side by side.
	scoreChains = 4

	// maxScoreSteps is the most tiles of a warp, and scoreStart how many tiles' time a group
	// takes before its first one.
	maxScoreSteps, scoreStart = 32, 2

	// keyPiece is the elements of a row of which each of its lanes has the codes of a
	// vector, those of one scale.
	keyPiece = lanesPerRow * target.ScaleBlock
)

func matchWarpScores(o *ir.Op, _ *target.Target) string {
	q := dims(o.Args[0])
	switch bytes := 2 * ceilDiv(q[1], target.MMACols) * target.MMACols * q[2]; {
	case q[2]%(lanesPerRow*matrixRun) != 0:
		return fmt.Sprintf("heads of %d elements are no multiple of %d", q[2], lanesPerRow*matrixRun)
	case bytes > maxWarpQueries:
		return fmt.Sprintf("%d heads of %d elements take %d bytes of shared memory, more than %d", q[1], q[2], bytes, maxWarpQueries)
	}
	return matchMatrixRows(rowsOf(o, 2, q[2]), ir.F4E2M1)
}

// scoreSteps is how many tiles of a row of n entries a warp takes: as many as have all
// groups done first.
func scoreSteps(t, n, perStep int) int {
	best, least := 1, math.MaxInt
	for s := 1; s <= maxScoreSteps; s++ {
		if time := ceilDiv(t*ceilDiv(n, s*perStep), scoreGroups*processors) * (s + scoreStart); time < least {
			best, least = s, time
		}
	}
	return best
}

// warpScores is one warp.
type warpScores struct {
	*kernel.K
	unit       *matrixUnit
	together   bool // warpgroups multiply
	h, d       int
	keysAre    ir.RowFormat
	keys       *kernel.Buf
	sub, group kernel.V
	shared     *kernel.Buf // q
	w, mask    []kernel.V  // of the lane's two heads of each eight; a mask if there may be one
}

func (e *warpScores) eights() int { return ceilDiv(e.h, target.MMACols) }
func (e *warpScores) runs() int   { return e.d / codeRun }

// wide reports whether lanes read their codes of a row's piece in one vector, and have
// their scales in one word.
func (e *warpScores) wide() bool {
	f := e.keysAre
	return e.d%keyPiece == 0 && (!f.Packed() || f.Dims == f.D && (keyPiece%f.Block == 0 || f.Block%keyPiece == 0))
}

// runAt is the first of the lane's matrixRun elements of run i.
func (e *warpScores) runAt(group kernel.V, i int) kernel.V {
	if !e.wide() {
		return runElement(e.K, group, i)
	}
	each := target.ScaleBlock / matrixRun
	return e.Add(e.Mul(group, e.Int(target.ScaleBlock)), e.Int(i/each*keyPiece+i%each*matrixRun))
}

func (e *warpScores) clamp(head kernel.V) kernel.V {
	return e.Select(e.Cmp(kernel.LT, head, e.Int(e.h)), head, e.Int(e.h-1))
}

// share brings q to shared memory, each lane's fragment in one piece. All lanes of the
// group must get here.
func (e *warpScores) share(q *kernel.Buf) {
	e.shared = e.Shared(ir.BF16, e.eights()*target.MMACols*e.d)
	e.fragments(q, func(eight, _, lane kernel.V, run int, x kernel.Vec) {
		at := e.Add(e.Mul(e.Add(e.Mul(eight, e.Int(e.runs())), e.Int(run)), e.Int(e.T.Wave)), lane)
		e.shared.StoreVec(e.Mul(at, e.Int(matrixRun)), x)
	})
	e.Barrier()
}

// fragments reads what a lane of a warp has of q, by eight and run, each lane of the group
// something: head sub of the eight. All of a lane's loads are under way together.
func (e *warpScores) fragments(q *kernel.Buf, store func(eight, sub, lane kernel.V, run int, x kernel.Vec)) {
	e.Lanes(e.Int(e.eights()*e.T.Wave), func(i kernel.V) {
		lane, eight := e.URem(i, e.Int(e.T.Wave)), e.UDiv(i, e.Int(e.T.Wave))
		sub, group := e.unit.place(e.K, lane)
		row := e.Mul(e.clamp(e.Add(e.Mul(eight, e.Int(target.MMACols)), sub)), e.Int(e.d))
		var runs []kernel.Vec
		for j := range e.runs() {
			runs = append(runs, q.LoadVec(e.Add(row, e.runAt(group, j)), matrixRun))
		}
		for j, x := range runs {
			store(eight, sub, lane, j, e.BF16Apart(x))
		}
	})
}

// weights reads those of the lane's heads, two to a word.
func (e *warpScores) weights(w *kernel.Buf) {
	for i := range e.eights() {
		head := e.Add(e.Mul(e.group, e.Int(2)), e.Int(i*target.MMACols))
		if (i+1)*target.MMACols <= e.h && e.h%2 == 0 {
			e.w, e.mask = append(e.w, e.At(w.LoadVec(head, 2), 0)), append(e.mask, kernel.V{})
			continue
		}
		next := e.Add(head, e.Int(1))
		e.w = append(e.w, e.PackBF16(w.Load(e.clamp(head)), w.Load(e.clamp(next))))
		half := func(head kernel.V, bits int) kernel.V {
			return e.Select(e.Cmp(kernel.LT, head, e.Int(e.h)), e.Int32(bits), e.Int32(0))
		}
		e.mask = append(e.mask, e.Or(half(head, 1<<16-1), half(next, -1<<16)))
	}
}

// queries is the lane's run of a head of eight i.
func (e *warpScores) queries(i, run int) kernel.Vec {
	return e.shared.LoadVec(e.Mul(e.Add(e.WaveLane(), e.Int((i*e.runs()+run)*e.T.Wave)), e.Int(matrixRun)), matrixRun)
}

// fetch reads what the lane has of the row of a key, as it lies in memory; of the first row
// if there is no such key. Nothing is done with it here: that would wait for it.
func (e *warpScores) fetch(row kernel.V) []kernel.Vec {
	f := e.keysAre
	r := matrixRowAt(e.K, f, e.keys)
	r.at = e.Mul(e.Convert(e.Max(row, e.Int32(0)), kernel.I64), e.Int(f.Width()))
	var out []kernel.Vec
	if f.Packed() {
		out = append(out, r.scales())
	}
	switch {
	case f.Packed() && e.wide():
		r.b = e.keys.At(e.Mul(e.group, e.Int(target.ScaleBlock/2)))
		for i := range e.d / keyPiece {
			out = append(out, r.load(e.Int(i*keyPiece/2), target.ScaleBlock/2))
		}
	case f.Packed():
		for i := range e.runs() {
			out = append(out, r.words(e.group, i))
		}
	default:
		for i := range e.runs() {
			out = append(out, r.load(e.runAt(e.group, i), matrixRun))
		}
	}
	return out
}

// decode makes bf16 numbers, by halves, of what fetch has read of the lane's keys: by run
// and key.
func (e *warpScores) decode(rows [][]kernel.Vec) [][]kernel.Vec {
	out := make([][]kernel.Vec, e.runs())
	f := e.keysAre
	both := func(i int) []kernel.Vec {
		var list []kernel.Vec
		for _, r := range rows {
			list = append(list, r[i])
		}
		return list
	}
	// apart decodes codes whose scales are number block, and further ones of the same word.
	apart := func(codes []kernel.Vec, block int, further kernel.V) []kernel.Vec {
		shift := e.Convert(e.Mul(e.Add(e.Int(block%4), further), e.Int(8)), kernel.I32)
		var scales []kernel.V
		for _, word := range both(0) {
			scales = append(scales, e.And(e.LShr(e.At(word, block/4), shift), e.Int32(0xFF)))
		}
		return e.E2M1RowsApart(codes, scales)
	}
	for i := range out {
		switch each := target.ScaleBlock / matrixRun; {
		case f.Packed() && e.wide():
			if i%each > 0 {
				continue
			}
			further := e.UDiv(e.Mul(e.group, e.Int(target.ScaleBlock)), e.Int(f.Block))
			for _, x := range apart(both(i/each+1), i/each*keyPiece/f.Block, further) {
				for j := range each {
					out[i+j] = append(out[i+j], e.Part(x, j*matrixRun/2, matrixRun/2))
				}
			}
		case f.Packed() && i*codeRun < f.Dims:
			out[i] = apart(both(i+1), i*codeRun/f.Block, e.Int(0))
		default:
			at := i
			if f.Packed() {
				at++ // behind the scales
			}
			for _, x := range both(at) {
				out[i] = append(out[i], e.BF16Apart(x))
			}
		}
	}
	return out
}

// scores are those of the lane's two keys.
func (e *warpScores) scores(keys [][]kernel.Vec) []kernel.V {
	var words []kernel.Vec
	for from := 0; from < e.eights(); from += scoreChains {
		sums := make([]kernel.Vec, min(scoreChains, e.eights()-from))
		for i := range sums {
			sums[i] = e.ZeroVec(kernel.F32, target.ResultRun)
		}
		for j := range keys {
			for i := range sums {
				sums[i] = e.unit.multiply(e.K, keys[j], e.queries(from+i, j), sums[i])
			}
		}
		words = append(words, e.pairs(from, sums)...)
	}
	sum, ones := e.ZeroVec(kernel.F32, target.ResultRun), e.MakeVec(e.Int32(onesBF16), e.Int32(onesBF16))
	for _, x := range words {
		sum = e.WarpMMA(e.unit.mma, x, ones, sum)
	}
	return []kernel.V{e.At(sum, 0), e.At(sum, 2)}
}

// weigh is what heads of eight i give the lane's keys, two heads to a word.
func (e *warpScores) weigh(i int, products kernel.Vec) []kernel.V {
	words := make([]kernel.V, e.unit.rows)
	for r := range words {
		words[r] = e.MulBF16(e.ReluBF16(e.At(products, 2*r), e.At(products, 2*r+1)), e.w[i])
		if (i+1)*target.MMACols > e.h {
			words[r] = e.And(words[r], e.mask[i])
		}
	}
	return words
}

// onesBF16 is a word of two ones.
const onesBF16 = 0x3F803F80

// pairs are what eights of heads, the first of that number, give the lane's keys, as first
// operands of products with ones: two eights to each.
func (e *warpScores) pairs(from int, products []kernel.Vec) []kernel.Vec {
	var out []kernel.Vec
	for i := 0; i < len(products); i += 2 {
		second := []kernel.V{e.Int32(0), e.Int32(0)}
		first := e.weigh(from+i, products[i])
		if i+1 < len(products) {
			second = e.weigh(from+i+1, products[i+1])
		}
		out = append(out, e.MakeVec(first[0], first[1], second[0], second[1]))
	}
	return out
}

// lowerWarpScores: one group per token and as many tiles of 16 entries for each of its
// warps as scoreSteps says.
func lowerWarpScores(l Lowering, o *ir.Op) error {
	q, n := dims(o.Args[0]), dims(o.Args[3])[1]
	t, h, d := q[0], q[1], q[2]
	unit := unitOf(l.Target())
	perStep := unit.waves * target.MatrixTile
	steps := scoreSteps(t, n, perStep)
	keys, format := l.Buf(o.Args[2]), rowsOf(o, 2, d)
	together := l.Target().Warpgroups() && d%blockElements == 0 && d <= maxGroupDepth && h <= maxGroupHeads
	macs := int64(t*n*h) * int64(d)
	l.Launch(Launch{
		Name: "matrix_scores", Spec: fmt.Sprintf("h%d d%d steps%d together%v%s", h, d, steps, together, rowSpec(format)), Grid: t * ceilDiv(n, steps*perStep), Work: macs, Flops: 2 * macs,
		In: []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1]), keys, l.Buf(o.Args[3])}, Out: []Ref{l.Buf(o.Results[0])}, Ints: []int{n},
		Touched: map[Ref]int64{keys: int64(requests(l, t)*n) * rowBytes(format)},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			n := ints[0]
			place := func() (token, chunk kernel.V) {
				chunks := k.UDiv(k.Add(n, k.Int(steps*perStep-1)), k.Int(steps*perStep))
				return k.UDiv(k.Group(), chunks), k.URem(k.Group(), chunks)
			}
			token, chunk := place()
			e := &warpScores{K: k, unit: unit, together: together, h: h, d: d, keysAre: format, keys: b[2]}
			k.Resident(scoreGroups)
			k.Ahead(func() { // a line of rows for each lane
				const each = kernel.PrefetchBytes / 4
				token, chunk := place()
				k.Lanes(k.Int(steps*perStep/each), func(i kernel.V) {
					entry := k.Add(k.Mul(chunk, k.Int(steps*perStep)), k.Mul(i, k.Int(each)))
					b[3].Prefetch(k.Add(k.Mul(token, n), k.Min(entry, k.Sub(n, k.Int(1)))))
				})
			})
			e.sub, e.group = unit.place(k, k.WaveLane())
			e.tiles(steps, perStep, scoreRows{
				n: n, from: k.Add(k.Mul(chunk, k.Int(steps*perStep)), k.Mul(k.Wave(), k.Int(target.MatrixTile))),
				rows: b[3].At(k.Mul(token, n)), out: b[4].At(k.Mul(token, n)),
			}, b[0].At(k.Mul(token, k.Int(h*d))), b[1].At(k.Mul(token, k.Int(h))))
		},
	})
	return nil
}

// scoreRows is a token's entries.
type scoreRows struct {
	n, from   kernel.V // from is the warp's first one
	rows, out *kernel.Buf
}

// at is where the entry's key stands, -1 if there is no such entry.
func (r scoreRows) at(k *kernel.K, entry kernel.V) kernel.V {
	in := k.Cmp(kernel.LT, entry, r.n)
	return k.Select(in, r.rows.Load(k.Select(in, entry, k.Int(0))), k.Int32(-1))
}

// store is for lanes where own holds, and entries that there are.
func (r scoreRows) store(k *kernel.K, own, entry, score kernel.V) {
	k.If(k.And(own, k.Cmp(kernel.LT, entry, r.n)), func() { r.out.Store(entry, score) })
}

// tiles goes through the warp's tiles, perStep entries apart.
func (e *warpScores) tiles(steps, perStep int, r scoreRows, q, w *kernel.Buf) {
	tile := func(step kernel.V) kernel.V { return e.Add(r.from, e.Mul(step, e.Int(perStep))) }
	at := func(step kernel.V) (entries, rows []kernel.V) {
		for i := range e.unit.rows {
			entry := e.Add(tile(step), e.Add(e.sub, e.Int(i*target.MMACols)))
			entries, rows = append(entries, entry), append(rows, r.at(e.K, entry))
		}
		return entries, rows
	}
	// Entries that are not there yet follow those that are: most groups of a long row have
	// none, and need no q. Half of the lanes look at a tile.
	last := e.Int32(0)
	for i := range ceilDiv(steps, 2) {
		step := e.Add(e.LShr(e.WaveLane(), e.Int(4)), e.Int(2*i))
		own := e.Cmp(kernel.LT, step, e.Int(steps))
		row := r.at(e.K, e.Add(tile(step), e.And(e.WaveLane(), e.Int(target.MatrixTile-1))))
		there := e.And(own, e.Cmp(kernel.GE, row, e.Int32(0)))
		last = e.Select(there, e.Convert(e.Add(step, e.Int(1)), kernel.I32), last)
	}
	count := e.Convert(e.Reduce(last, e.Max), kernel.I64) // of the group's tiles that have entries, and those before
	e.If(e.Cmp(kernel.GT, count, e.Int(0)), func() {
		if e.together {
			e.groupTiles(count, perStep, r, q, w)
		} else {
			e.warpTiles(count, at, r, q, w)
		}
	})
	e.For(count, e.Int(steps), 1, func(step kernel.V) {
		entry := e.Add(tile(step), e.WaveLane())
		r.store(e.K, e.Cmp(kernel.LT, e.WaveLane(), e.Int(target.MatrixTile)), entry, e.Float(math.Inf(-1)))
	})
}

// warpTiles goes through the count tiles of a warp that may have entries; at is what entries
// of a tile the lane has, and their rows. Of the next tile the bytes are under way while one
// is multiplied, and the rows of the tile after it.
func (e *warpScores) warpTiles(count kernel.V, at func(step kernel.V) (entries, rows []kernel.V), r scoreRows, q, w *kernel.Buf) {
	_, first := at(e.Int(0))
	_, second := at(e.Int(1))
	var now, next []*kernel.Var
	var bytes [][]*kernel.VecVar
	for i := range first {
		now, next = append(now, e.Var(first[i])), append(next, e.Var(second[i]))
		bytes = append(bytes, e.vars(e.fetch(first[i])))
	}
	e.weights(w)
	e.share(q)
	e.For(e.Int(0), count, 1, func(step kernel.V) {
		entries, _ := at(step)
		_, later := at(e.Add(step, e.Int(2)))
		have := make([][]kernel.Vec, len(now))
		there := make([]kernel.V, len(now))
		for i := range now {
			there[i] = e.Cmp(kernel.GE, now[i].Get(), e.Int32(0))
			come := e.fetch(next[i].Get())
			for j, x := range bytes[i] {
				have[i] = append(have[i], x.Get())
				x.Set(come[j])
			}
			now[i].Set(next[i].Get())
			next[i].Set(later[i])
		}
		for i, total := range e.scores(e.decode(have)) {
			score := e.Select(there[i], total, e.Float(math.Inf(-1)))
			r.store(e.K, e.Cmp(kernel.EQ, e.group, e.Int(0)), entries[i], score)
		}
	})
}

func (e *warpScores) vars(x []kernel.Vec) []*kernel.VecVar {
	var out []*kernel.VecVar
	for _, v := range x {
		out = append(out, e.VecVar(v))
	}
	return out
}
