package kernels

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	// The first form that matches an op is taken: matrix units before lanes.
	register(
		&Form{Name: "linear_mfma", Op: "linear", Match: onMFMA(matchMatrixLinear), Lower: lowerMatrixLinear},
		&Form{Name: "linear_mma", Op: "linear", Match: onMMA(matchMatrixLinear), Lower: lowerMatrixLinear},
		&Form{Name: "linear2_mfma", Op: "linear2", Match: onMFMA(matchMatrixLinear), Lower: lowerMatrixLinear},
		&Form{Name: "linear2_mma", Op: "linear2", Match: onMMA(matchMatrixLinear), Lower: lowerMatrixLinear},
		&Form{Name: "linear3_mfma", Op: "linear3", Match: onMFMA(matchMatrixLinear), Lower: lowerMatrixLinear},
		&Form{Name: "linear3_mma", Op: "linear3", Match: onMMA(matchMatrixLinear), Lower: lowerMatrixLinear},
		&Form{Name: "linear4_mfma", Op: "linear4", Match: onMFMA(matchMatrixLinear), Lower: lowerMatrixLinear},
		&Form{Name: "linear4_mma", Op: "linear4", Match: onMMA(matchMatrixLinear), Lower: lowerMatrixLinear},
		&Form{Name: "grouped_linear_mfma", Op: "grouped_linear", Match: onMFMA(matchMatrixLinear), Lower: lowerMatrixGroupedLinear},
		&Form{Name: "grouped_linear_mma", Op: "grouped_linear", Match: onMMA(matchMatrixLinear), Lower: lowerMatrixGroupedLinear},
		&Form{Name: "block_linear_mfma", Op: "block_linear", Match: onMFMA(matchMatrixBlockLinear), Lower: lowerMatrixBlockLinear},
		&Form{Name: "block_linear_mma", Op: "block_linear", Match: onMMA(matchMatrixBlockLinear), Lower: lowerMatrixBlockLinear},
		&Form{Name: "split_linear_mfma", Op: "split_linear", Match: onMFMA(matchMatrixBlockLinear), Lower: lowerMatrixBlockLinear},
		&Form{Name: "split_linear_mma", Op: "split_linear", Match: onMMA(matchMatrixBlockLinear), Lower: lowerMatrixBlockLinear},
	)
	register(
		&Form{Name: "linear", Op: "linear", Match: always, Lower: lowerLinear},
		&Form{Name: "linear2", Op: "linear2", Match: always, Lower: lowerLinear},
		&Form{Name: "linear3", Op: "linear3", Match: always, Lower: lowerLinear},
		&Form{Name: "linear4", Op: "linear4", Match: always, Lower: lowerLinear},
		&Form{Name: "grouped_linear", Op: "grouped_linear", Match: always, Lower: lowerGroupedLinear},
		&Form{Name: "block_linear", Op: "block_linear", Match: matchBlockLinear, Lower: lowerBlockLinear},
		&Form{Name: "split_linear", Op: "split_linear", Match: matchBlockLinear, Lower: lowerBlockLinear},
	)
}

func lowerLinear(l Lowering, o *ir.Op) error {
	x, w := dims(o.Args[0]), dims(o.Args[1])
	p := matProduct{x: l.Buf(o.Args[0]), w: l.Buf(o.Args[1]), m: x[0], n: w[0], k: x[1]}
	p.results(l, o)
	matmul(l, p)
	return nil
}

// results has the product give the results of o: one, or several side by side.
func (p *matProduct) results(l Lowering, o *ir.Op) {
	p.y = l.Buf(o.Results[0])
	for i, r := range o.Results[1:] {
		p.cuts, p.rest = append(p.cuts, o.Ints("sizes")[i]), append(p.rest, l.Buf(r))
		if i > 0 {
			p.cuts[i] += p.cuts[i-1]
		}
	}
}

func lowerGroupedLinear(l Lowering, o *ir.Op) error {
	x, w := dims(o.Args[0]), dims(o.Args[1])
	matmul(l, matProduct{x: l.Buf(o.Args[0]), w: l.Buf(o.Args[1]), y: l.Buf(o.Results[0]), m: x[0], n: w[1], k: x[2], groups: x[1]})
	return nil
}

func matchBlockLinear(o *ir.Op, _ *target.Target) string {
	w := o.Args[1].Type
	k := extent(w.Dims[1])
	if q := w.Quant; k%q.Block[1] != 0 || q.Block[1]%32 != 0 {
		return fmt.Sprintf("block %v of %s does not divide K by whole vectors", q.Block, w)
	}
	return ""
}

// lowerBlockLinear quantises the activations once, then multiplies. A rounded
// activation code * 2^s has 4 significant bits, so f32 holds it exactly. The two
// results of split_linear come from one product.
func lowerBlockLinear(l Lowering, o *ir.Op) error {
	x, w := dims(o.Args[0]), dims(o.Args[1])
	m, k := x[0], x[1]
	q := activations(l, o, m*k)
	t := o.Args[1].Type
	p := matProduct{x: q, w: l.Buf(o.Args[1]), scales: l.Scales(o.Args[1]), block: t.Quant.Block, m: m, n: w[0], k: k}
	p.results(l, o)
	matmul(l, p)
	return nil
}

// activations is an op's operand x, n elements, after its quantisation if the op
// asks for one.
func activations(l Lowering, o *ir.Op, n int) Ref {
	block := o.Int("act_block")
	if block == 0 {
		return l.Buf(o.Args[0])
	}
	q := l.Scratch(ir.F32, n)
	actQuant(l, l.Buf(o.Args[0]), q, n, block)
	return q
}

// actQuant rounds x through block-scaled f8e4m3 and stores the values.
func actQuant(l Lowering, x, y Ref, n, block int) {
	groups := n / block
	f, _ := codeFormatOf(ir.F8E4M3, l.Target())
	l.Launch(Launch{
		Name: "act_quant", Spec: fmt.Sprintf("b%d", block), Grid: groups, Work: int64(n * 8),
		In: []Ref{x}, Out: []Ref{y},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			at := k.Mul(k.Group(), k.Int(block))
			quantBlock(k, b[0].At(at), b[1].At(at), block, f)
		},
	})
}

// matProduct is y[m,n] = x[m,k] w[n,k]^T, w possibly block scaled.
type matProduct struct {
	x, w, scales, y Ref
	block           [2]int // of the scales; zero for none
	m, n, k         int
	groups          int // independent products side by side: x [m,groups,k], w [groups,n,k], y [m,groups,n]; 0 is 1
	// Columns from cuts[i] on go to rest[i], up to the next cut; those before all cuts
	// to y.
	cuts []int
	rest []Ref
	// If up is given, y is not w's product but SwiGLU of it and up's.
	up *upProduct
}

// upProduct is the other half of a SwiGLU, with blocks as w has.
type upProduct struct {
	w, scales Ref
	weight    Ref // f32 [m], factors of the rows
	limit     float64
}

// Tile sizes of matmul: rows of x and of w that one group multiplies.
const (
	tileM = 4
	tileN = 2
)

// matmul runs one group per tile. Lanes run along k; each output is summed over
// k in one fixed order per target, whatever m is, so a row's bits do not depend
// on its neighbours.
func matmul(l Lowering, p matProduct) {
	p.groups = max(p.groups, 1)
	mt := tileM
	if p.m < tileM {
		mt = 1
	}
	nt, products := tileN, int64(1) // columns of the result
	if p.up != nil {
		nt, products = tileN/2, 2
	}
	nTiles := (p.n + nt - 1) / nt
	mTiles := (p.m + mt - 1) / mt
	in := []Ref{p.x, p.w}
	scaled := p.block[0] > 0
	if scaled {
		in = append(in, p.scales)
	}
	if p.up != nil {
		in = append(in, p.up.w, p.up.scales, p.up.weight)
	}
	out, spec := []Ref{p.y}, fmt.Sprintf("n%d k%d mt%d block%v groups%d", p.n, p.k, mt, p.block, p.groups)
	if len(p.cuts) > 0 {
		out, spec = append(out, p.rest...), fmt.Sprintf("%s cuts%v", spec, p.cuts)
	}
	if p.up != nil {
		spec = fmt.Sprintf("%s swiglu%g", spec, p.up.limit)
	}
	macs := products * int64(p.m) * int64(p.n) * int64(p.k) * int64(p.groups)
	l.Launch(Launch{
		Name: "matmul", Spec: spec, Grid: nTiles * mTiles * p.groups,
		Work: macs, Flops: 2 * macs, In: in, Out: out, Ints: []int{p.m},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			// Tiles of one weight row follow each other over m: the weights stay cached.
			tiles := k.UDiv(k.Add(ints[0], k.Int(mt-1)), k.Int(mt))
			nTile := k.UDiv(k.Group(), tiles)
			group := k.Int(0)
			if p.groups > 1 {
				group = k.UDiv(nTile, k.Int(nTiles))
				nTile = k.URem(nTile, k.Int(nTiles))
			}
			n0 := k.Mul(nTile, k.Int(nt))
			m0 := k.Mul(k.URem(k.Group(), tiles), k.Int(mt))
			_, acc := p.tile(k, b, ints[0], group, m0, n0, mt, nt)
			y := b[len(in)]
			for r := range mt {
				for j := range nt {
					sum := k.Sum(acc[r*tileN+j].Get())
					if p.up != nil {
						up := k.Sum(acc[r*tileN+nt+j].Get())
						weight := b[5].Load(atMost(k, k.Add(m0, k.Int(r)), ints[0]))
						sum = swigluOf(k, k.RoundBF16(sum), k.RoundBF16(up), weight, p.up.limit)
					}
					row, col := k.Add(m0, k.Int(r)), k.Add(n0, k.Int(j))
					inside := k.And(k.Cmp(kernel.LT, row, ints[0]), k.Cmp(kernel.LT, col, k.Int(p.n)))
					if len(p.cuts) > 0 {
						p.storeCut(k, b[len(in):], inside, row, col, sum)
						continue
					}
					k.If(inside, func() {
						k.First(func() { y.Store(k.Add(k.Mul(k.Add(k.Mul(row, k.Int(p.groups)), group), k.Int(p.n)), col), sum) })
					})
				}
			}
		},
	})
}

// atMost is i, or the last of n where i is past it.
func atMost(k *kernel.K, i, n kernel.V) kernel.V {
	return k.Select(k.Cmp(kernel.LT, i, n), i, k.Sub(n, k.Int(1)))
}

// tile multiplies mt rows of x, from m0 on, by the rows of w from n0 on, those
// past the end being the last one: nt of them, and for SwiGLU the same of up. It
// returns which rows of w they are, and the lanes' parts of their sums, row by row
// of x.
func (p *matProduct) tile(k *kernel.K, b []*kernel.Buf, m, group, m0, n0 kernel.V, mt, nt int) (cols []kernel.V, acc []*kernel.Var) {
	xs, ws := make([]*kernel.Buf, mt), make([]*kernel.Buf, tileN)
	for i := range xs {
		row := k.Add(k.Mul(atMost(k, k.Add(m0, k.Int(i)), m), k.Int(p.groups)), group)
		xs[i] = b[0].At(k.Mul(row, k.Int(p.k)))
	}
	cols = make([]kernel.V, tileN)
	codes, scales := make([]*kernel.Buf, tileN), make([]*kernel.Buf, tileN)
	for j := range ws {
		codes[j], scales[j] = b[1], b[2]
		if j >= nt {
			codes[j], scales[j] = b[3], b[4]
		}
		cols[j] = atMost(k, k.Add(n0, k.Int(j%nt)), k.Int(p.n))
		ws[j] = codes[j].At(k.Mul(k.Add(k.Mul(group, k.Int(p.n)), cols[j]), k.Int(p.k)))
	}
	acc = make([]*kernel.Var, mt*tileN)
	for i := range acc {
		acc[i] = k.Var(k.Float(0))
	}
	scaled, span := p.block[0] > 0, p.k
	if scaled {
		span = p.block[1]
	}
	k.For(k.Int(0), k.Int(p.k), span, func(from kernel.V) {
		part := acc
		if scaled { // sum a block, then scale it
			part = make([]*kernel.Var, len(acc))
			for i := range part {
				part[i] = k.Var(k.Float(0))
			}
		}
		k.Lanes(k.Int(min(span, p.k)), func(i kernel.V) {
			i = k.Add(i, from)
			w := make([]kernel.V, tileN)
			for j := range w {
				w[j] = ws[j].LoadWeight(i)
			}
			for r := range xs {
				x := xs[r].Load(i)
				for j := range w {
					a := part[r*tileN+j]
					a.Set(k.FMA(x, w[j], a.Get()))
				}
			}
		})
		if !scaled {
			return
		}
		for j := range ws {
			row := k.UDiv(cols[j], k.Int(p.block[0]))
			s := scales[j].Load(k.Add(k.Mul(row, k.Int((p.k+p.block[1]-1)/p.block[1])), k.UDiv(from, k.Int(p.block[1]))))
			for r := range xs {
				acc[r*tileN+j].Set(k.FMA(part[r*tileN+j].Get(), s, acc[r*tileN+j].Get()))
			}
		}
	})
	return cols, acc
}

// storeCut stores an element of the product, if it is inside, in the result that
// has its column.
func (p *matProduct) storeCut(k *kernel.K, ys []*kernel.Buf, inside, row, col, v kernel.V) {
	ends := append(slices.Clone(p.cuts), p.n)
	from := 0
	for i, end := range ends {
		here := inside
		if i > 0 {
			here = k.And(here, k.Cmp(kernel.GE, col, k.Int(from)))
		}
		if i < len(p.cuts) {
			here = k.And(here, k.Cmp(kernel.LT, col, k.Int(end)))
		}
		first := from
		k.If(here, func() {
			k.First(func() { ys[i].Store(k.Add(k.Mul(row, k.Int(end-first)), k.Sub(col, k.Int(first))), v) })
		})
		from = end
	}
}
