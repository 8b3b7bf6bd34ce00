package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(
		&Form{Name: "generic_reduce_sum", Op: "reduce_sum", Match: always, Lower: lowerReduceSum},
		&Form{Name: "generic_reduce_max", Op: "reduce_max", Match: always, Lower: lowerReduceMax},
		&Form{Name: "generic_dot", Op: "dot", Match: always, Lower: lowerDot},
	)
}

// reduction folds n elements, inner apart, to one.
type reduction struct {
	name, spec string
	x, y       Ref
	outer, n   int
	inner      int
	start      func(k *kernel.K) kernel.V
	step       func(k *kernel.K, acc, x kernel.V) kernel.V
	combine    func(k *kernel.K) func(a, b kernel.V) kernel.V
	finish     func(k *kernel.K, acc kernel.V) kernel.V
}

// reduceAxis splits the operand's extents at the reduced axis.
func reduceAxis(l Lowering, o *ir.Op, r reduction) {
	shape, axis := dims(o.Args[0]), o.Int("axis")
	r.x, r.y = l.Buf(o.Args[0]), l.Buf(o.Results[0])
	r.outer, r.n, r.inner = product(shape[:axis]), shape[axis], product(shape[axis+1:])
	r.launch(l)
}

// launch chooses who folds: a whole group each run of neighbours that is at
// least as long as the group, else each lane a result of its own, in index
// order. The choice, and so every result's bits, depends on n and inner alone.
func (r reduction) launch(l Lowering) {
	la := Launch{
		Name: r.name, Work: int64(r.outer) * int64(r.n) * int64(r.inner),
		In: []Ref{r.x}, Out: []Ref{r.y},
	}
	if r.inner == 1 && r.n >= l.Target().Lanes {
		per := max(1, chunk/r.n)
		la.Spec, la.Grid, la.Ints = r.spec+" group", ceilDiv(r.outer, per), []int{r.outer, r.n, per}
		la.Body = func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			groupRows(k, ints[0], ints[2], func(row kernel.V) {
				x := b[0].At(k.Mul(row, ints[1]))
				acc := k.Var(r.start(k))
				k.Lanes(ints[1], func(i kernel.V) { acc.Set(r.step(k, acc.Get(), x.Load(i))) })
				total := k.Reduce(acc.Get(), r.combine(k))
				k.First(func() { b[1].Store(row, r.finish(k, total)) })
			})
		}
		l.Launch(la)
		return
	}
	s := spreadOver(l.Target(), r.outer, r.inner, r.n)
	la.Spec, la.Grid, la.Ints = fmt.Sprintf("%s %s", r.spec, s.mode), s.grid(), append(s.ints(), r.n)
	la.Body = func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
		inner, n := ints[1], ints[spreadInts]
		s.each(k, ints, func(row kernel.V) func(col, at kernel.V) {
			first := k.Mul(row, k.Mul(n, inner))
			return func(col, at kernel.V) {
				from := k.Add(col, first)
				acc := k.Var(r.start(k))
				k.For(k.Int(0), n, 1, func(i kernel.V) {
					acc.Set(r.step(k, acc.Get(), b[0].Load(k.Add(from, k.Mul(i, inner)))))
				})
				b[1].Store(at, r.finish(k, acc.Get()))
			}
		})
	}
	l.Launch(la)
}

// groupRows runs body for this group's rows, per of them.
func groupRows(k *kernel.K, rows, per kernel.V, body func(row kernel.V)) {
	from := k.Mul(k.Group(), per)
	to := k.Add(from, per)
	k.For(from, k.Select(k.Cmp(kernel.LT, to, rows), to, rows), 1, body)
}

func lowerReduceSum(l Lowering, o *ir.Op) error {
	to := o.DType("to")
	reduceAxis(l, o, reduction{
		name: "reduce_sum", spec: to.String(),
		start:   func(k *kernel.K) kernel.V { return k.Double(0) },
		step:    func(k *kernel.K, acc, x kernel.V) kernel.V { return k.Add(acc, k.Convert(x, kernel.F64)) },
		combine: func(k *kernel.K) func(a, b kernel.V) kernel.V { return k.Add },
		finish:  func(k *kernel.K, acc kernel.V) kernel.V { return k.Narrow(acc, to) },
	})
	return nil
}

func lowerReduceMax(l Lowering, o *ir.Op) error {
	reduceAxis(l, o, reduction{
		name:    "reduce_max",
		start:   func(k *kernel.K) kernel.V { return k.Float(math.Inf(-1)) },
		step:    func(k *kernel.K, acc, x kernel.V) kernel.V { return k.MaxNaN(acc, x) },
		combine: func(k *kernel.K) func(a, b kernel.V) kernel.V { return k.MaxNaN },
		finish:  func(_ *kernel.K, acc kernel.V) kernel.V { return acc },
	})
	return nil
}

// dotProduct is y[b,m,n] = sum_k x[b,m,k] w[b,n,k]; batch gives the matrices of
// x and w at a point of the batch axes.
type dotProduct struct {
	x, w, y Ref
	batch   axes
	count   int // of batches
	m, n, k int
	to      ir.DType
}

func lowerDot(l Lowering, o *ir.Op) error {
	xs, ws, ys := dims(o.Args[0]), dims(o.Args[1]), dims(o.Results[0])
	r := len(xs)
	batch := ys[:r-2]
	p := dotProduct{
		x: l.Buf(o.Args[0]), w: l.Buf(o.Args[1]), y: l.Buf(o.Results[0]),
		batch: mergeAxes(batch, rowMajor(xs[:r-2]), rowMajor(ws[:r-2])), count: product(batch),
		m: xs[r-2], n: ws[r-2], k: xs[r-1], to: o.DType("to"),
	}
	// Sums are f64, where every product is exact.
	if p.k < l.Target().Lanes {
		p.lanes(l)
	} else {
		p.tiles(l)
	}
	return nil
}

func (p dotProduct) work() int64 { return int64(p.count) * int64(p.m) * int64(p.n) * int64(p.k) }

// lanes lets each lane sum a result of its own, in index order.
func (p dotProduct) lanes(l Lowering) {
	s := spreadOver(l.Target(), p.count*p.m, p.n, p.k)
	base := spreadInts + 2
	l.Launch(Launch{
		Name: "dot", Spec: fmt.Sprintf("%s %s %s", p.to, s.mode, p.batch.spec()), Grid: s.grid(), Work: p.work(),
		In: []Ref{p.x, p.w}, Out: []Ref{p.y}, Ints: append(append(s.ints(), p.m, p.k), p.batch.ints()...),
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			n, m, kd := ints[1], ints[spreadInts], ints[spreadInts+1]
			s.each(k, ints, func(row kernel.V) func(col, at kernel.V) {
				which := k.UDiv(row, m)
				matrix := p.batch.offsets(k, ints[base:], which)
				x := k.Mul(k.Add(k.Mul(matrix[0], m), k.Sub(row, k.Mul(which, m))), kd)
				return func(col, at kernel.V) {
					w := k.Mul(k.Add(k.Mul(matrix[1], n), col), kd)
					acc := k.Var(k.Double(0))
					k.For(k.Int(0), kd, 1, func(i kernel.V) {
						acc.Set(multiplyAdd(k, b[0].Load(k.Add(x, i)), b[1].Load(k.Add(w, i)), acc.Get()))
					})
					b[2].Store(at, k.Narrow(acc.Get(), p.to))
				}
			})
		},
	})
}

func multiplyAdd(k *kernel.K, x, y, z kernel.V) kernel.V {
	return k.FMA(k.Convert(x, kernel.F64), k.Convert(y, kernel.F64), z)
}

// tiles gives each group a tile of results, lanes along k. A result's order of
// summation depends on k alone.
func (p dotProduct) tiles(l Lowering) {
	mt, nt := tileM, tileN
	if p.m < mt {
		mt = 1
	}
	if p.n < nt {
		nt = 1
	}
	base := 5
	l.Launch(Launch{
		Name: "dot", Spec: fmt.Sprintf("%s tile%dx%d %s", p.to, mt, nt, p.batch.spec()), Grid: p.count * ceilDiv(p.m, mt) * ceilDiv(p.n, nt), Work: p.work(),
		In: []Ref{p.x, p.w}, Out: []Ref{p.y}, Ints: append([]int{p.m, p.n, p.k, ceilDiv(p.m, mt), ceilDiv(p.n, nt)}, p.batch.ints()...),
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			m, n, kd, mTiles, nTiles := ints[0], ints[1], ints[2], ints[3], ints[4]
			rest := k.UDiv(k.Group(), mTiles)
			m0 := k.Mul(k.Sub(k.Group(), k.Mul(rest, mTiles)), k.Int(mt))
			which := k.UDiv(rest, nTiles)
			n0 := k.Mul(k.Sub(rest, k.Mul(which, nTiles)), k.Int(nt))
			matrix := p.batch.offsets(k, ints[base:], which)
			// rows are the first of a tile's rows in matrix; past the last one, that.
			rows := func(buf *kernel.Buf, matrix, first, count kernel.V, tile int) []*kernel.Buf {
				out := make([]*kernel.Buf, tile)
				for i := range out {
					row := k.Add(first, k.Int(i))
					row = k.Select(k.Cmp(kernel.LT, row, count), row, k.Sub(count, k.Int(1)))
					out[i] = buf.At(k.Mul(k.Add(k.Mul(matrix, count), row), kd))
				}
				return out
			}
			xs, ws := rows(b[0], matrix[0], m0, m, mt), rows(b[1], matrix[1], n0, n, nt)
			acc := make([]*kernel.Var, mt*nt)
			for i := range acc {
				acc[i] = k.Var(k.Double(0))
			}
			k.Lanes(kd, func(i kernel.V) {
				w := make([]kernel.V, nt)
				for j := range w {
					w[j] = ws[j].Load(i)
				}
				for r := range xs {
					x := xs[r].Load(i)
					for j := range w {
						a := acc[r*nt+j]
						a.Set(multiplyAdd(k, x, w[j], a.Get()))
					}
				}
			})
			for r := range xs {
				for j := range ws {
					sum := k.Sum(acc[r*nt+j].Get())
					row, col := k.Add(m0, k.Int(r)), k.Add(n0, k.Int(j))
					k.If(k.And(k.Cmp(kernel.LT, row, m), k.Cmp(kernel.LT, col, n)), func() {
						at := k.Add(k.Mul(k.Add(k.Mul(which, m), row), n), col)
						k.First(func() { b[2].Store(at, k.Narrow(sum, p.to)) })
					})
				}
			}
		},
	})
}
