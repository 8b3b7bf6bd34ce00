package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// Attention on matrix units. A group has one token and 16 of its heads, and takes the
// rows that the token sees, those that are not -1, in parts of attentionPart: rows of
// all sets in one list, so that a part has the same rows wherever they lie. Wave i
// multiplies 16 rows of a part with q, and the waves exchange the scores; then each
// multiplies the probabilities with a quarter of the elements of all rows of the part.
//
// The sum of each part starts at 0 and is then added to that of the parts before it,
// both scaled to the larger maximum. Either one group does so part after part, or each
// part is a group's and a second launch adds them: the same steps with the same bits.

const (
	attentionPart  = 64                                // rows
	attentionTiles = attentionPart / target.MatrixTile // of a part: one for each wave
	// attentionList is how many rows are listed at a time, in LDS.
	attentionList = 2048
	// maxAttentionParts bounds the bytes of the parts' sums.
	maxAttentionParts = 128 << 20
)

func matchMatrixAttention(o *ir.Op, _ *target.Target) string {
	if d := dims(o.Args[0])[2]; d != 128 && d != 256 && d != 512 {
		return fmt.Sprintf("heads of %d elements, want 128, 256 or 512", d)
	}
	return matchMatrixRows(rowsOf(o, 2, dims(o.Args[0])[2]), ir.F8E4M3)
}

// matrixAttention is what the code depends on.
type matrixAttention struct {
	unit    *matrixUnit
	h, d    int
	rowsAre ir.RowFormat
	scale   float64
	sets    int
	inParts bool // a part per group
}

func (a *matrixAttention) headTiles() int { return ceilDiv(a.h, target.MatrixTile) }

// run is how many elements of a row one lane has of a wave's quarter.
func (a *matrixAttention) run() int { return a.d / matrixWaves / target.MatrixTile }

func (a *matrixAttention) spec() string {
	return fmt.Sprintf("h%d d%d sets%d scale%g parts%v%s", a.h, a.d, a.sets, a.scale, a.inParts, rowSpec(a.rowsAre))
}

// attentionOperands are q, the sinks and the sets of rows with their lists, the widths of
// the lists, and what is touched of the rows.
func attentionOperands(l Lowering, o *ir.Op, rows ir.RowFormat) (in []Ref, widths []int, touched map[Ref]int64) {
	t := dims(o.Args[0])[0]
	in, touched = []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1])}, map[Ref]int64{}
	for i := 2; i < len(o.Args); i += 2 {
		kv, width := l.Buf(o.Args[i]), dims(o.Args[i+1])[1]
		in = append(in, kv, l.Buf(o.Args[i+1]))
		widths = append(widths, width)
		touched[kv] += int64(requests(l, t)*width) * rowBytes(rows)
	}
	return in, widths, touched
}

func lowerMatrixAttention(l Lowering, o *ir.Op) error {
	q := dims(o.Args[0])
	t := q[0]
	a := &matrixAttention{unit: unitOf(l.Target()), h: q[1], d: q[2], scale: o.Float("scale"), sets: len(o.Args)/2 - 1}
	a.rowsAre = rowsOf(o, 2, a.d)
	in, widths, touched := attentionOperands(l, o, a.rowsAre)
	columns := attentionColumns(o)
	parts := ceilDiv(columns, attentionPart)
	y, sums := l.Buf(o.Results[0]), t*parts*a.h*a.d
	a.inParts = parts > 1 && t < l.Threshold(passes.NoSplitTokens) && 4*sums <= maxAttentionParts
	macs := 2 * int64(t*a.h*columns) * int64(a.d)
	launch := Launch{
		Name: "matrix_attention", Spec: a.spec(), Grid: t * a.headTiles(), Work: macs, Flops: 2 * macs, In: in, Out: []Ref{y}, Touched: touched,
		Ints: append([]int{parts}, widths...), Body: a.body,
	}
	if !a.inParts {
		l.Launch(launch)
		return nil
	}
	acc, softmax, count := l.Scratch(ir.F32, sums), l.Scratch(ir.F32, t*parts*a.h*2), l.Scratch(ir.I32, t)
	launch.Grid, launch.Out = launch.Grid*parts, []Ref{acc, softmax, count}
	l.Launch(launch)
	l.Launch(Launch{
		Name: "attention_sum", Spec: a.spec(), Grid: t * a.h, Work: int64(2 * sums), In: []Ref{acc, softmax, count, in[1]}, Out: []Ref{y},
		Ints: []int{parts}, Body: a.addParts,
	})
	return nil
}

// attentionEmitter is the state of a group.
type attentionEmitter struct {
	*matrixAttention
	*kernel.K
	sub, group kernel.V // of the lane: which of 16 rows or heads, and of 4 runs
	wave       kernel.V
	slice      kernel.V     // the first of the wave's elements
	element    kernel.V     // the first of the lane's in them
	q          []kernel.Vec // of the lane's head
	list       *kernel.Buf  // addresses of the rows, i64
	scores     *kernel.Buf  // of the waves, for exchange
}

func (a *matrixAttention) body(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
	parts, widths := ints[0], ints[1:]
	headTile, rest := k.URem(k.Group(), k.Int(a.headTiles())), k.UDiv(k.Group(), k.Int(a.headTiles()))
	token, part, list := rest, k.Int(0), attentionList
	if a.inParts {
		token, part = k.UDiv(rest, parts), k.URem(rest, parts)
		list = attentionPart
	}
	lane := k.WaveLane()
	e := &attentionEmitter{matrixAttention: a, K: k, sub: k.And(lane, k.Int(target.MatrixTile-1)), group: k.LShr(lane, k.Int(4)), wave: k.Wave()}
	e.slice = k.Mul(e.wave, k.Int(a.d/matrixWaves))
	e.element = k.Add(e.slice, k.Mul(e.sub, k.Int(a.run())))
	e.list = k.Shared(ir.I64, list)
	e.scores = k.Shared(ir.F32, 2*attentionPart*target.MatrixTile)
	head := k.Add(k.Mul(headTile, k.Int(target.MatrixTile)), e.sub)
	own := k.Cmp(kernel.LT, head, k.Int(a.h))
	e.q = tileRuns(k, e.sub, e.group, func(i kernel.V) matrixRow {
		head := k.Add(k.Mul(headTile, k.Int(target.MatrixTile)), i)
		head = k.Add(k.Mul(token, k.Int(a.h)), k.Select(k.Cmp(kernel.LT, head, k.Int(a.h)), head, k.Int(a.h-1)))
		return matrixRow{k: k, format: ir.RowFormat{D: a.d}, b: b[0], at: k.Mul(head, k.Int(a.d))}
	})
	rows := func(from kernel.V) (count kernel.V) { return e.rows(b[2:2+2*a.sets], widths, token, from, list) }

	if a.inParts {
		acc, softmax, counts := b[len(b)-3], b[len(b)-2], b[len(b)-1]
		from := k.Mul(part, k.Int(attentionPart))
		count := rows(from)
		k.If(k.Cmp(kernel.EQ, k.Add(part, headTile), k.Int(0)), func() {
			k.First(func() { counts.Store(token, count) })
		})
		left := k.Sub(k.Convert(count, kernel.I64), from)
		k.If(k.Cmp(kernel.GT, left, k.Int(0)), func() {
			sums, top, den := e.part(k.Int(0), left)
			heads := k.Mul(k.Add(k.Mul(token, parts), part), k.Int(a.h))
			var out []kernel.Vec
			v := e.elements(sums)
			for i := 0; i < len(v); i += 4 {
				out = append(out, k.MakeVec(v[i:i+4]...))
			}
			e.store(acc, heads, k.Mul(headTile, k.Int(target.MatrixTile)), out)
			k.If(own, func() {
				first := k.Cmp(kernel.EQ, k.Add(e.wave, e.group), k.Int(0))
				k.If(first, func() { softmax.StoreVec(k.Mul(k.Add(heads, head), k.Int(2)), k.MakeVec(top, den)) })
			})
		})
		return
	}

	s := newSoftmaxSum(k)
	acc := make([]*kernel.VecVar, a.run())
	for j := range acc {
		acc[j] = k.VecVar(k.ZeroVec(kernel.F32, target.ResultRun))
	}
	// The number of rows is known once they are listed.
	total := k.UniformVar(rows(k.Int(0)))
	a.eachPart(k, total, rows, func(from, left kernel.V) {
		sums, top, den := e.part(from, left)
		old, add := s.add(top, den)
		for j, v := range acc {
			v.Set(k.MapVec(func(x ...kernel.V) kernel.V { return addScaled(k, x[0], old, x[1], add) }, v.Get(), sums[j]))
		}
	})
	factor := s.factor(b[1].Load(k.Select(own, head, k.Int(a.h-1))), total.Get())
	var sums, out []kernel.Vec
	for _, v := range acc {
		sums = append(sums, v.Get())
	}
	v := e.elements(sums)
	for i := 0; i < len(v); i += matrixRun {
		var words []kernel.V
		for j := i; j < i+matrixRun; j += 2 {
			words = append(words, k.PackBF16(k.Mul(v[j], factor), k.Mul(v[j+1], factor)))
		}
		out = append(out, k.MakeVec(words...))
	}
	e.store(b[len(b)-1], k.Mul(token, k.Int(a.h)), k.Mul(headTile, k.Int(target.MatrixTile)), out)
}

// eachPart calls f for the parts of total rows: where the part begins in the list of
// them, which rows makes from a row on, and how many rows are left.
func (a *matrixAttention) eachPart(k *kernel.K, total *kernel.Var, rows func(from kernel.V) kernel.V, f func(from, left kernel.V)) {
	listed := k.UniformVar(k.Int(0))
	k.For(k.Int(0), k.UDiv(k.Add(k.Convert(total.Get(), kernel.I64), k.Int(attentionPart-1)), k.Int(attentionPart)), 1, func(part kernel.V) {
		from := k.Mul(part, k.Int(attentionPart))
		k.If(k.Cmp(kernel.GE, k.Sub(from, listed.Get()), k.Int(attentionList)), func() {
			k.Barrier() // the last readers are done
			rows(from)
			listed.Set(from)
		})
		f(k.Sub(from, listed.Get()), k.Sub(k.Convert(total.Get(), kernel.I64), from))
	})
}

// rows lists the addresses of the rows that the token sees, from number from on, as
// many as there is room for, and returns how many it sees in all, uniform i32. A part
// that is not full is filled up with the last row, whose scores part takes no heed of:
// memory that no row names is never read.
func (e *attentionEmitter) rows(sets []*kernel.Buf, widths []kernel.V, token, from kernel.V, room int) kernel.V {
	count := e.UniformVar(e.Int32(0))
	for s := range e.sets {
		kv, rows := sets[2*s], sets[2*s+1].At(e.Mul(token, widths[s]))
		e.Chunks(widths[s], func(j, in kernel.V) {
			row := e.Var(e.Int32(-1))
			e.If(in, func() { row.Set(rows.Load(j)) })
			there := e.Cmp(kernel.GE, row.Get(), e.Int32(0))
			before, total := e.Rank(there)
			at := e.Sub(e.Convert(e.Add(count.Get(), before), kernel.I64), from)
			fits := e.And(e.Cmp(kernel.GE, at, e.Int(0)), e.Cmp(kernel.LT, at, e.Int(room)))
			e.If(e.And(there, fits), func() {
				e.list.StoreBits(at, kv.Address(e.Mul(e.Convert(row.Get(), kernel.I64), e.Int(e.rowsAre.Width()))))
			})
			count.Set(e.Add(count.Get(), total))
		})
	}
	e.Barrier()
	end := e.Sub(e.Convert(count.Get(), kernel.I64), from)
	fill := e.Add(end, e.Lane())
	ragged := e.And(e.Cmp(kernel.GT, end, e.Int(0)), e.Cmp(kernel.LT, end, e.Int(room)))
	inPart := e.Cmp(kernel.LT, fill, e.And(e.Add(end, e.Int(attentionPart-1)), e.Int(-attentionPart)))
	e.If(e.And(ragged, inPart), func() { e.list.StoreBits(fill, e.list.LoadBits(e.Sub(end, e.Int(1)))) })
	e.Barrier()
	return count.Get()
}

// row is listed row i.
func (e *attentionEmitter) row(i kernel.V) matrixRow {
	return matrixRowAt(e.K, e.rowsAre, e.ReadAt(e.list.LoadBits(i), e.rowsAre.Elements()))
}

// part multiplies the listed rows from number from on, of which left are there, with
// the probabilities that they have among themselves. sums has the lane's elements of
// the result, in the order that each tells; top is the largest score of the lane's
// head, as a power of two, and den the sum of 2^(score - top).
func (e *attentionEmitter) part(from, left kernel.V) (sums []kernel.Vec, top, den kernel.V) {
	row := func(i kernel.V) matrixRow { return e.row(e.Add(from, i)) }
	first := e.Mul(e.group, e.Int(target.ResultRun))

	mine := e.Mul(e.wave, e.Int(target.MatrixTile))
	keys := tileRuns(e.K, e.sub, e.group, func(i kernel.V) matrixRow { return row(e.Add(mine, i)) })
	s := e.ZeroVec(kernel.F32, target.ResultRun)
	for i, x := range keys {
		s = multiplyWords(e.K, e.unit.mfma, x, e.q[i], s)
	}
	if !e.inParts && !e.rowsAre.Packed() { // registers do not hold rows twice beside all sums
		e.InOrder()
	}
	// While the scores are exchanged, the rows are read again, by element.
	var values []kernel.Vec
	for i := range attentionPart / lanesPerRow {
		tile, r := i/target.ResultRun, i%target.ResultRun
		at := e.Add(first, e.Int(tile*target.MatrixTile+r))
		values = append(values, row(at).part(e.element, e.run()))
	}
	var list []kernel.V
	for i := range target.ResultRun {
		there := e.Cmp(kernel.LT, e.Add(e.Add(mine, first), e.Int(i)), left)
		list = append(list, e.Select(there, e.Mul(e.At(s, i), e.Float(e.scale*math.Log2E)), e.Float(math.Inf(-1))))
	}
	list = e.exchange(from, e.MakeVec(list...))
	top = list[0]
	for _, x := range list[1:] {
		top = e.Max(top, x)
	}
	for _, mask := range []int{16, 32} { // the lanes of the head
		top = e.Max(top, e.LaneXor(top, mask))
	}
	var words []kernel.V
	base := finiteOr0(e.K, top)
	for i, x := range list {
		list[i] = e.Exp2(e.Sub(x, base))
		if i%2 == 1 {
			words = append(words, e.PackBF16(list[i-1], list[i]))
		}
	}
	den = list[0]
	for _, x := range list[1:] {
		den = e.Add(den, x)
	}
	for _, mask := range []int{16, 32} {
		den = e.Add(den, e.LaneXor(den, mask))
	}
	p := e.MakeVec(words...)
	for j := range e.run() {
		var v []kernel.V
		pick := e.LowerHalves
		if j%2 == 1 {
			pick = e.UpperHalves
		}
		for i := 0; i < len(values); i += 2 {
			v = append(v, pick(e.At(values[i], j/2), e.At(values[i+1], j/2)))
		}
		sums = append(sums, multiplyWords(e.K, e.unit.mfma, e.MakeVec(v...), p, e.ZeroVec(kernel.F32, target.ResultRun)))
	}
	return sums, top, den
}

// exchange gives each lane the scores of its head that the lanes with the same group
// have in all waves. Parts that follow each other use different memory, so that one
// barrier does.
func (e *attentionEmitter) exchange(from kernel.V, s kernel.Vec) []kernel.V {
	half := e.URem(e.UDiv(from, e.Int(attentionPart)), e.Int(2))
	place := func(wave kernel.V) kernel.V {
		tile := e.Add(e.Mul(half, e.Int(attentionTiles)), wave)
		return e.Mul(e.Add(e.Mul(tile, e.Int(target.MatrixLanes)), e.WaveLane()), e.Int(target.ResultRun))
	}
	e.scores.StoreVec(place(e.wave), s)
	e.Barrier()
	var out []kernel.V
	for w := range attentionTiles {
		x := e.AsF32(e.scores.LoadVec(place(e.Int(w)), target.ResultRun))
		for i := range x.Len() {
			out = append(out, e.At(x, i))
		}
	}
	return out
}

// elements are those that a lane has of sums, which follow each other: all its own of the
// wave's slice of its head, after those of the lanes of lower groups.
func (e *attentionEmitter) elements(sums []kernel.Vec) []kernel.V {
	var list []kernel.V
	for i := range target.ResultRun {
		for _, sum := range sums {
			list = append(list, e.At(sum, i))
		}
	}
	return list
}

// store writes the elements, in vectors of 16 bytes, of the heads from tile on, which in y
// are rows from row number heads on. Lanes exchange them, so that those that write at once
// have what lies together.
func (e *attentionEmitter) store(y *kernel.Buf, heads, tile kernel.V, list []kernel.Vec) {
	n := len(list)
	if n > 1 {
		list = e.TransposeLanes(list)
	}
	lanes := target.MatrixTile / n
	each := target.ResultRun * e.run() / n // elements of a vector
	element := e.Add(e.Mul(e.group, e.Int(n)), e.UDiv(e.sub, e.Int(lanes)))
	element = e.Add(e.slice, e.Mul(element, e.Int(each)))
	for i, x := range list {
		head := e.Add(tile, e.Add(e.URem(e.sub, e.Int(lanes)), e.Int(i*lanes)))
		e.If(e.Cmp(kernel.LT, head, e.Int(e.h)), func() {
			y.StoreVec(e.Add(e.Mul(e.Add(heads, head), e.Int(e.d)), element), x)
		})
	}
}

// addParts adds the parts of a token and head, lanes over the elements.
func (a *matrixAttention) addParts(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
	token, head := k.UDiv(k.Group(), k.Int(a.h)), k.URem(k.Group(), k.Int(a.h))
	count := b[2].Load(token)
	parts := k.UDiv(k.Add(k.Convert(count, kernel.I64), k.Int(attentionPart-1)), k.Int(attentionPart))
	sink := b[3].Load(head)
	k.Lanes(k.Int(a.d), func(i kernel.V) {
		s, acc := newSoftmaxSum(k), k.Var(k.Float(0))
		k.For(k.Int(0), parts, 1, func(part kernel.V) {
			at := k.Add(k.Mul(k.Add(k.Mul(token, ints[0]), part), k.Int(a.h)), head)
			old, add := s.add(b[1].Load(k.Mul(at, k.Int(2))), b[1].Load(k.Add(k.Mul(at, k.Int(2)), k.Int(1))))
			acc.Set(addScaled(k, acc.Get(), old, b[0].Load(k.Add(k.Mul(at, k.Int(a.d)), i)), add))
		})
		b[4].Store(k.Add(k.Mul(k.Group(), k.Int(a.d)), i), k.Mul(acc.Get(), s.factor(sink, count)))
	})
}

// softmaxSum is the denominator of a softmax over parts.
type softmaxSum struct {
	k        *kernel.K
	top, den *kernel.Var // the maximum, in powers of two, and the sum of 2^(score - top)
}

func newSoftmaxSum(k *kernel.K) *softmaxSum {
	return &softmaxSum{k, k.Var(k.Float(math.Inf(-1))), k.Var(k.Float(0))}
}

// add adds a part. old and add are the factors of the sums of the parts before and of
// this one.
func (s *softmaxSum) add(top, den kernel.V) (old, add kernel.V) {
	old, add = s.addTop(top)
	s.addDen(den, old, add)
	return old, add
}

// addTop is add but for the denominator, which addDen adds.
func (s *softmaxSum) addTop(top kernel.V) (old, add kernel.V) {
	k := s.k
	most := k.Max(s.top.Get(), top)
	base := finiteOr0(k, most)
	old, add = k.Exp2(k.Sub(s.top.Get(), base)), k.Exp2(k.Sub(top, base))
	s.top.Set(most)
	return old, add
}

func (s *softmaxSum) addDen(den, old, add kernel.V) {
	s.den.Set(addScaled(s.k, s.den.Get(), old, den, add))
}

func addScaled(k *kernel.K, x, old, y, add kernel.V) kernel.V {
	return k.FMA(y, add, k.Mul(x, old))
}

// factor is what the sum of the parts of so many rows is multiplied with, 0 if there
// are none. Scores that are all -inf have no softmax.
func (s *softmaxSum) factor(sink, rows kernel.V) kernel.V {
	k := s.k
	top := s.top.Get()
	total := k.Add(s.den.Get(), k.Exp2(k.Sub(k.Mul(sink, k.Float(math.Log2E)), top)))
	f := k.Div(k.Float(1), total)
	f = k.Select(k.Cmp(kernel.EQ, top, k.Float(math.Inf(-1))), k.Float(math.NaN()), f)
	return k.Select(k.Cmp(kernel.GT, rows, k.Int32(0)), f, k.Float(0))
}

// finiteOr0 is x, or 0 for -inf: what may be subtracted from -inf.
func finiteOr0(k *kernel.K, x kernel.V) kernel.V {
	return k.Select(k.Cmp(kernel.EQ, x, k.Float(math.Inf(-1))), k.Float(0), x)
}
