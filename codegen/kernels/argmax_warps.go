package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// argmax on NVIDIA's GPUs, of rows that can be read as vectors. A group goes through a
// part of a row in batches, with the loads of the next batch under way, and looks for no
// more than the largest value of each: one instruction for two numbers of bf16, which NaN
// among them makes NaN. Only a warp that finds a larger value than it had, or NaN, looks
// where it stands.

// argmaxBatches is how rows are cut: groups have steps batches each, and a lane so many
// vectors of a batch, of per numbers.
type argmaxBatches struct {
	x                          Ref
	rows, n, columns           int
	per, vectors, steps, parts int
	lanes                      int // of a group
}

const (
	// argmaxBatch is how many vectors a lane has of a batch where rows have many batches,
	// and argmaxGroups how many groups there are where they can: about one for each of an
	// H200's processors. More groups with fewer batches take longer.
	argmaxBatch, argmaxGroups = 8, h200Processors

	// argmaxMostParts is how many parts of a row one warp joins.
	argmaxMostParts = 128

	// argmaxNowhere is the column of no value.
	argmaxNowhere = math.MaxInt32
)

// argmaxBatchesOf cuts rows, unless they do not lie in vectors.
func argmaxBatchesOf(l Lowering, x Ref, rows, n, columns int) (b *argmaxBatches, ok bool) {
	b = &argmaxBatches{x: x, rows: rows, n: n, columns: columns, vectors: argmaxBatch, lanes: l.Target().Lanes}
	if l.Target().Kind != target.NVPTX || x.DT != ir.BF16 && x.DT != ir.F32 {
		return nil, false
	}
	b.per = int(16 / x.DT.Bytes(1))
	if n%b.per != 0 || columns%b.per != 0 || columns > argmaxNowhere/2 {
		return nil, false
	}
	batches := func() int { return ceilDiv(columns, b.width()) }
	for b.vectors > 1 && rows*batches() < argmaxGroups/2 {
		b.vectors /= 2
	}
	if b.steps = ceilDiv(batches(), max(1, argmaxGroups/rows)); b.steps > 1 {
		b.steps += b.steps % 2 // two to a turn
	}
	b.parts = ceilDiv(batches(), b.steps)
	return b, true
}

// width is the number of columns of a batch.
func (b *argmaxBatches) width() int { return b.vectors * b.per * b.lanes }

// launch has store get what is known of a group's part.
func (b *argmaxBatches) launch(l Lowering, out []Ref, store func(k *kernel.K, out []*kernel.Buf, key, kinds kernel.V)) {
	l.Launch(Launch{
		Name: "argmax_warps", Spec: fmt.Sprintf("vectors%d steps%d alone%v", b.vectors, b.steps, b.parts == 1), Grid: b.rows * b.parts,
		Work: 2 * int64(b.rows) * int64(b.columns), In: []Ref{b.x}, Out: out, Ints: []int{b.n, b.columns, b.parts},
		Body: func(k *kernel.K, bufs []*kernel.Buf, ints []kernel.V) {
			row, part := k.UDiv(k.Group(), ints[2]), k.URem(k.Group(), ints[2])
			narrow := func(x kernel.V) kernel.V { return k.Convert(x, kernel.I32) }
			s := &argmaxScan{
				K: k, b: b, x: bufs[0].At(k.Mul(row, ints[0])),
				best: k.Var(k.Float(math.Inf(-1))), key: k.Var(k.Int32(math.MinInt32)), at: k.Var(k.Int32(argmaxNowhere)), kinds: k.Var(k.Int32(0)),
			}
			from := k.Mul(part, k.Int(b.steps*b.width()))
			s.first = narrow(k.Add(from, k.Mul(k.Lane(), k.Int(b.per))))
			s.last = narrow(k.Sub(k.Min(ints[1], k.Add(from, k.Int(b.steps*b.width()))), k.Int(b.per)))
			k.Resident(2) // registers for two batches
			s.scan()
			key, kinds := s.join()
			store(k, bufs[1:], key, kinds)
		},
	})
}

// launchRows is argmax by groups that have a row each.
func (b *argmaxBatches) launchRows(l Lowering, o *ir.Op) {
	b.launch(l, []Ref{l.Buf(o.Results[0]), l.Buf(o.Results[1])}, func(k *kernel.K, out []*kernel.Buf, key, kinds kernel.V) {
		storeArgmax(k, out[0], out[1], k.Group(), key, kinds)
	})
}

// launchParts looks at each part of the rows.
func (b *argmaxBatches) launchParts(l Lowering) rowParts {
	p := newRowParts(l, b.rows, b.parts)
	b.launch(l, []Ref{p.keys, p.kinds}, func(k *kernel.K, out []*kernel.Buf, key, kinds kernel.V) {
		k.First(func() {
			out[0].Store(k.Group(), key)
			out[1].Store(k.Group(), kinds)
		})
	})
	return p
}

// argmaxScan is a lane of that launch.
type argmaxScan struct {
	*kernel.K
	b           *argmaxBatches
	x           *kernel.Buf // the row
	first, last kernel.V    // i32: the column of the lane's first vector, and of the part's last

	best, key *kernel.Var // of the warp, and its scoreKey
	at        *kernel.Var // the first column where the lane has it, or argmaxNowhere
	kinds     *kernel.Var // of the lane
}

// column is that of a vector of a batch, if no part of the row ended.
func (s *argmaxScan) column(step kernel.V, vector int) kernel.V {
	return s.Add(s.first, s.Add(s.Mul(step, s.Int32(s.b.width())), s.Int32(vector*s.b.per*s.b.lanes)))
}

// load reads a batch. Behind the part's end it is the last vector again, which another
// lane has with a lower column.
func (s *argmaxScan) load(step kernel.V) []kernel.Vec {
	words := make([]kernel.Vec, s.b.vectors)
	for i := range words {
		words[i] = s.x.LoadVec(s.Min(s.column(step, i), s.last), s.b.per)
	}
	return words
}

// scan goes through the batches, two to a turn: what is loaded stays where it is.
func (s *argmaxScan) scan() {
	if s.b.steps == 1 {
		s.look(s.Int32(0), s.load(s.Int32(0)))
		return
	}
	next := s.vars(s.load(s.Int32(0)))
	s.For(s.Int(0), s.Int(s.b.steps), 2, func(i kernel.V) {
		i = s.Convert(i, kernel.I32)
		even, odd := values(next), s.load(s.Add(i, s.Int32(1)))
		s.look(i, even)
		for j, x := range s.load(s.Add(i, s.Int32(2))) {
			next[j].Set(x)
		}
		s.look(s.Add(i, s.Int32(1)), odd)
	})
}

func (s *argmaxScan) vars(xs []kernel.Vec) []*kernel.VecVar {
	out := make([]*kernel.VecVar, len(xs))
	for i, x := range xs {
		out[i] = s.VecVar(x)
	}
	return out
}

func values(vars []*kernel.VecVar) []kernel.Vec {
	out := make([]kernel.Vec, len(vars))
	for i, x := range vars {
		out[i] = x.Get()
	}
	return out
}

// top is the largest number, or NaN if one is.
func (s *argmaxScan) top(words []kernel.Vec) kernel.V {
	narrow := s.b.per > words[0].Len()
	var tree []kernel.V
	for _, x := range words {
		for i := range x.Len() {
			w := s.At(x, i)
			if !narrow {
				w = s.Bits(w)
			}
			tree = append(tree, w)
		}
	}
	larger := s.MaxNaN
	if narrow {
		larger = s.MaxBF16
	}
	for len(tree) > 1 {
		tree = append(tree[2:], larger(tree[0], tree[1]))
	}
	if !narrow {
		return tree[0]
	}
	halves := s.UnpackBF16(tree[0])
	return s.MaxNaN(halves[0], halves[1])
}

// look takes a batch into account.
func (s *argmaxScan) look(step kernel.V, words []kernel.Vec) {
	top := s.top(words)
	number := s.Cmp(kernel.EQ, top, top)
	s.kinds.Set(s.Or(s.kinds.Get(), s.Select(number, s.Int32(kindNumber), s.Int32(kindNaN))))
	s.If(s.WaveAny(s.Not(s.Cmp(kernel.LE, top, s.best.Get()))), func() {
		most, numbers := s.Var(top), s.vars(words)
		s.If(s.WaveAny(s.Not(number)), func() { most.Set(s.withoutNaN(numbers)) })
		key := s.warpMax(scoreKey(s.K, most.Get()))
		s.If(s.Cmp(kernel.GT, key, s.key.Get()), func() {
			// A key is undone as it is made.
			best := s.Bits(s.Xor(key, s.And(s.AShr(key, s.Int32(31)), s.Int32(math.MaxInt32))))
			s.key.Set(key)
			s.best.Set(best)
			s.at.Set(s.find(step, values(numbers), best))
		})
	})
}

// withoutNaN makes every NaN -inf, and is the largest number.
func (s *argmaxScan) withoutNaN(words []*kernel.VecVar) kernel.V {
	most, kinds := s.Float(math.Inf(-1)), s.Int32(0)
	for _, x := range words {
		w, numbers := x.Get(), make([]kernel.V, s.b.per)
		for j := range numbers {
			v := numberOf(s.K, w, j, s.b.per)
			kinds = s.Or(kinds, s.Select(s.Cmp(kernel.EQ, v, v), s.Int32(kindNumber), s.Int32(0)))
			numbers[j] = s.Select(s.Cmp(kernel.EQ, v, v), v, s.Float(math.Inf(-1)))
			most = s.Max(numbers[j], most)
		}
		if s.b.per > w.Len() {
			x.Set(rowWords(s.K, numbers))
			continue
		}
		for j, v := range numbers {
			numbers[j] = s.Bits(v)
		}
		x.Set(s.MakeVec(numbers...))
	}
	s.kinds.Set(s.Or(s.kinds.Get(), kinds))
	return most
}

// find is the first column where the lane has a number.
func (s *argmaxScan) find(step kernel.V, words []kernel.Vec, number kernel.V) kernel.V {
	at := s.Int32(argmaxNowhere)
	for i := len(words) - 1; i >= 0; i-- {
		in := s.Int32(-1)
		for j := s.b.per - 1; j >= 0; j-- {
			in = s.Select(s.Cmp(kernel.EQ, numberOf(s.K, words[i], j, s.b.per), number), s.Int32(j), in)
		}
		at = s.Select(s.Cmp(kernel.GE, in, s.Int32(0)), s.Add(s.column(step, i), in), at)
	}
	return at
}

// warpMax is the largest i32 of the warp.
func (s *argmaxScan) warpMax(x kernel.V) kernel.V {
	const sign = math.MinInt32
	return s.Xor(s.WaveMaxUnsigned(s.Xor(x, s.Int32(sign))), s.Int32(sign))
}

// join is the group's best key and kinds.
func (s *argmaxScan) join() (key, kinds kernel.V) {
	at := s.Xor(s.warpMax(s.Xor(s.at.Get(), s.Int32(-1))), s.Int32(-1)) // the lowest
	key = argmaxKey(s.K, s.best.Get(), s.Convert(at, kernel.I64))
	kinds = s.Int32(0)
	for _, kind := range []int{kindNaN, kindNumber} {
		has := s.WaveAny(s.Cmp(kernel.NE, s.And(s.kinds.Get(), s.Int32(kind)), s.Int32(0)))
		kinds = s.Or(kinds, s.Select(has, s.Int32(kind), s.Int32(0)))
	}
	waves := s.b.lanes / s.T.Wave
	keys, all := s.Shared(ir.I64, waves), s.Shared(ir.I32, waves)
	s.If(s.Cmp(kernel.EQ, s.WaveLane(), s.Int(0)), func() {
		keys.Store(s.Wave(), key)
		all.Store(s.Wave(), kinds)
	})
	s.Barrier()
	key, kinds = s.Int(noKey), s.Int32(0)
	for i := range waves {
		key, kinds = s.Max(keys.Load(s.Int(i)), key), s.Or(all.Load(s.Int(i)), kinds)
	}
	return key, kinds
}

// launchWarpParts is launchOfParts on NVIDIA's GPUs: a warp has a row, and loads all that
// is known of its parts together.
func launchWarpParts(l Lowering, o *ir.Op, p rowParts) {
	warps := l.Target().Lanes / l.Target().Wave
	each := ceilDiv(p.parts, l.Target().Wave)
	l.Launch(Launch{
		Name: "argmax_warp_parts", Spec: fmt.Sprintf("each%d", each), Grid: ceilDiv(p.rows, warps), Work: 4 * int64(p.rows) * int64(p.parts),
		In: []Ref{p.keys, p.kinds}, Out: []Ref{l.Buf(o.Results[0]), l.Buf(o.Results[1])}, Ints: []int{p.rows, p.parts},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			row := k.Add(k.Mul(k.Group(), k.Int(warps)), k.Wave())
			there := k.Cmp(kernel.LT, row, ints[0])
			first := k.Mul(k.Min(row, k.Sub(ints[0], k.Int(1))), ints[1])
			key, kinds := k.Int(noKey), k.Int32(0)
			for i := range each {
				at := k.Add(first, k.Min(k.Add(k.WaveLane(), k.Int(i*k.T.Wave)), k.Sub(ints[1], k.Int(1))))
				key, kinds = k.Max(b[0].Load(at), key), k.Or(b[1].Load(at), kinds)
			}
			for mask := k.T.Wave / 2; mask >= 1; mask /= 2 {
				key, kinds = k.Max(k.LaneXor(key, mask), key), k.Or(k.LaneXor(kinds, mask), kinds)
			}
			id, flags := argmaxOf(k, key, kinds)
			k.If(k.And(there, k.Cmp(kernel.EQ, k.WaveLane(), k.Int(0))), func() {
				b[2].Store(row, k.Convert(id, kernel.I32))
				b[3].Store(row, flags)
			})
		},
	})
}
