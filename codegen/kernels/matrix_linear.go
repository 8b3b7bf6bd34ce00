package kernels

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// matchMatrixLinear takes bf16 operands. The op table gives linear no liberty to
// split f32 ones into bf16 parts.
func matchMatrixLinear(o *ir.Op, t *target.Target) string {
	if r := matrixRefuses(t, o.Args[1].Type); r != "" {
		return r
	}
	if x := o.Args[0].Type; x.DType != ir.BF16 {
		return fmt.Sprintf("x is %s, matrix units take bf16", x.DType)
	}
	return ""
}

func matchMatrixBlockLinear(o *ir.Op, t *target.Target) string {
	return matrixRefuses(t, o.Args[1].Type)
}

// matchMatrixExpert takes both experts' ops.
func matchMatrixExpert(o *ir.Op, t *target.Target) string {
	if r := matchExpert(o, t); r != "" {
		return r
	}
	w1, w3 := o.Args[1].Type, o.Args[2].Type
	if w1.DType != w3.DType {
		return fmt.Sprintf("w1 and w3, %s and %s, have different formats", w1, w3)
	}
	for _, w := range o.Args[1:4] {
		if r := matrixRefuses(t, w.Type); r != "" {
			return r
		}
	}
	return ""
}

func lowerMatrixLinear(l Lowering, o *ir.Op) error {
	x, w := dims(o.Args[0]), dims(o.Args[1])
	p := matrixLaunch{m: x[0], groups: 1, x: matrixOperand{x: l.Buf(o.Args[0])}}
	p.weights(l, w[0], o.Args[1])
	p.results(l, o)
	p.launch(l)
	return nil
}

func lowerMatrixGroupedLinear(l Lowering, o *ir.Op) error {
	x, w := dims(o.Args[0]), dims(o.Args[1])
	p := matrixLaunch{m: x[0], groups: x[1], x: matrixOperand{x: l.Buf(o.Args[0])}, y: []Ref{l.Buf(o.Results[0])}}
	p.weights(l, w[1], o.Args[1])
	p.launch(l)
	return nil
}

func lowerMatrixBlockLinear(l Lowering, o *ir.Op) error {
	x, w := dims(o.Args[0]), dims(o.Args[1])
	p := matrixLaunch{m: x[0], groups: 1}
	p.weights(l, w[0], o.Args[1])
	p.activations(l, l.Buf(o.Args[0]), powerOf2(x[0]), o.Int("act_block"))
	p.results(l, o)
	p.launch(l)
	return nil
}

// lowerMatrixExpert: gate, up and SwiGLU are one product.
func lowerMatrixExpert(l Lowering, o *ir.Op) error {
	x, w1 := dims(o.Args[0]), dims(o.Args[1])
	m, d, inner := x[0], x[1], w1[0]
	a := l.Scratch(ir.BF16, m*inner)
	gate := matrixLaunch{m: m, groups: 1, y: []Ref{a}, swiglu: &matrixSwiGLU{weight: l.Buf(o.Args[4]), limit: o.Float("limit")}}
	gate.weights(l, inner, o.Args[1], o.Args[2])
	gate.activations(l, l.Buf(o.Args[0]), powerOf2(m), o.Int("act_block"))
	gate.launch(l)
	down := matrixLaunch{m: m, groups: 1, y: []Ref{l.Buf(o.Results[0])}}
	down.weights(l, d, o.Args[3])
	down.activations(l, a, powerOf2(m), expertActBlock)
	down.launch(l)
	return nil
}

// powerOf2 is the power of two that is n, or the next.
func powerOf2(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// matrixLaunch is y[m,n] = x[m,k] w[n,k]^T on matrix units.
type matrixLaunch struct {
	matrixProduct
	x               matrixOperand
	unrounded       bool  // x is still to be rounded
	codesOf, scales []Ref // the weights, by product
	m               int
	groups          int // products side by side, as in matProduct
	// The results' columns follow each other; all but the last end at the cuts.
	y      []Ref
	cuts   []int
	swiglu *matrixSwiGLU // y is SwiGLU of the two products
}

type matrixSwiGLU struct {
	weight Ref // f32 [m], factors of the rows
	limit  float64
}

// weights has the product be with matrices of n rows.
func (p *matrixLaunch) weights(l Lowering, n int, ws ...*ir.Value) {
	t := ws[0].Type
	p.matrixProduct = matrixProduct{t: l.Target(), n: n, depth: extent(t.Dims[t.Rank()-1]), w: t.DType, products: len(ws)}
	for _, w := range ws {
		p.codesOf = append(p.codesOf, l.Buf(w))
		if q := w.Type.Quant; q != nil {
			p.block, p.scales = q.Block, append(p.scales, l.Scales(w))
		}
	}
}

// results has the product give the results of o: one, or several side by side.
func (p *matrixLaunch) results(l Lowering, o *ir.Op) {
	end := 0
	for i, r := range o.Results {
		p.y = append(p.y, l.Buf(r))
		if i < len(o.Results)-1 {
			end += o.Ints("sizes")[i]
			p.cuts = append(p.cuts, end)
		}
	}
}

// launch runs one group per tile. Tiles of one weight row follow each other over the
// rows of x: the weights stay cached.
func (p *matrixLaunch) launch(l Lowering) {
	p.shape(p.m, p.groups)
	p.choose(l)
	spec := fmt.Sprintf("%s groups%d cuts%v", p.spec(), p.groups, p.cuts)
	p.arrange(l)
	in := []Ref{p.x.x}
	if p.codes {
		in = append(in, p.x.scales)
	}
	in = append(append(in, p.codesOf...), p.scales...)
	if p.swiglu != nil {
		in, spec = append(in, p.swiglu.weight), fmt.Sprintf("%s swiglu%g", spec, p.swiglu.limit)
	}
	macs := int64(p.products) * int64(p.m) * int64(p.n) * int64(p.depth) * int64(p.groups)
	l.Launch(Launch{
		Name: "matrix_product", Spec: spec, Grid: p.colTiles() * ceilDiv(p.m, p.tileRows()) * p.groups,
		Work: macs, Flops: 2 * macs, Pooled: p.streams() || p.gemm != nil, In: in, Out: p.y, Ints: append([]int{p.m}, p.stripArg()...),
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) { p.body(k, b, ints[0], p.stripOf(k, ints)) },
	})
}

// place is which tiles of rows of the weights a group has, and of which of the matrices,
// and the first row of x.
func (p *matrixLaunch) place(k *kernel.K, m kernel.V) (colTile, group, m0 kernel.V) {
	colTile, group, m0 = k.Group(), k.Int(0), k.Int(0)
	if !p.streams() { // those have one tile for all rows
		rowTiles := k.UDiv(k.Add(m, k.Int(p.tileRows()-1)), k.Int(p.tileRows()))
		var rowTile kernel.V
		if p.gemm != nil && p.gemm.together {
			colTile, rowTile = p.tileInBlocks(k, rowTiles)
		} else {
			colTile, rowTile = k.UDiv(k.Group(), rowTiles), k.URem(k.Group(), rowTiles)
		}
		m0 = k.Mul(rowTile, k.Int(p.tileRows()))
	}
	if p.groups > 1 {
		group, colTile = k.UDiv(colTile, k.Int(p.colTiles())), k.URem(colTile, k.Int(p.colTiles()))
	}
	return colTile, group, m0
}

func (p *matrixLaunch) body(k *kernel.K, b []*kernel.Buf, m, strip kernel.V) {
	take := func(n int) []*kernel.Buf {
		out := b[:n]
		b = b[n:]
		return out
	}
	x := matrixRows{x: take(1)[0]}
	if p.codes {
		x.scales, x.count = take(1)[0], k.Mul(m, k.Int(p.groups))
	}
	ws, scales := take(p.products), take(len(p.scales))
	var weight *kernel.Buf
	if p.swiglu != nil {
		weight = take(1)[0]
	}
	colTile, group, m0 := p.place(k, m)
	if p.streams() {
		k.Ahead(func() {
			colTile, group, _ := p.place(k, m)
			for _, w := range ws {
				p.prefetch(k, w, group, colTile, strip)
			}
		})
	}
	u := unitOf(p.t)
	inM := func(row kernel.V) kernel.V {
		return k.Select(k.Cmp(kernel.LT, row, m), row, k.Sub(m, k.Int(1)))
	}
	x.row = func(i kernel.V) kernel.V { return k.Add(k.Mul(inM(k.Add(m0, i)), k.Int(p.groups)), group) }
	for r := range p.rows {
		row := inM(k.Add(m0, k.Add(u.sub(k, k.Lane()), k.Int(r*u.cols))))
		x.at = append(x.at, k.Add(k.Mul(row, k.Int(p.groups)), group))
		x.staged = append(x.staged, row)
	}
	for r := range p.stage {
		x.stage = append(x.stage, k.Add(k.Mul(inM(k.Int(r)), k.Int(p.groups)), group))
	}
	list := make([]matrixWeight, p.products)
	for i := range list {
		list[i].rows, list[i].index = ws[i], group
		if len(scales) > 0 {
			list[i].scales = scales[i]
		}
	}
	p.multiplyTiles(k, x, list, colTile, strip, func(row, col kernel.V, sums []kernel.Vec) {
		row = k.Add(m0, row)
		inside := k.And(k.Cmp(kernel.LT, row, m), k.Cmp(kernel.LT, col, k.Int(p.n)))
		k.If(inside, func() {
			y := sums[0]
			if p.swiglu != nil {
				y = swigluOfSums(k, sums, weight.Load(row), p.swiglu.limit)
			}
			p.store(k, b, k.Add(k.Mul(row, k.Int(p.groups)), group), col, y)
		})
	})
}

// mostRowTiles is how many tiles of rows of x are in a block of tiles: as many groups as
// run at a time read about as much of w then as of x, which is the least of both.
const mostRowTiles = 12

// tileInBlocks is the group's tile where tiles of one weight row follow each other in
// blocks of rows of x only, which are as long as each other or one tile shorter.
func (p *matrixLaunch) tileInBlocks(k *kernel.K, rowTiles kernel.V) (colTile, rowTile kernel.V) {
	up := func(x, y kernel.V) kernel.V { return k.UDiv(k.Add(x, k.Sub(y, k.Int(1))), y) }
	rows := up(rowTiles, up(rowTiles, k.Int(mostRowTiles)))
	cols := k.Int(p.colTiles() * p.groups)
	block := k.UDiv(k.Group(), k.Mul(rows, cols))
	first := k.Mul(block, rows)
	left := k.Sub(rowTiles, first)
	in := k.Sub(k.Group(), k.Mul(first, cols))
	rows = k.Select(k.Cmp(kernel.LT, left, rows), left, rows)
	return k.UDiv(in, rows), k.Add(first, k.URem(in, rows))
}

// swigluOfSums is SwiGLU of two products, each rounded to bf16.
func swigluOfSums(k *kernel.K, sums []kernel.Vec, weight kernel.V, limit float64) kernel.Vec {
	return k.MapVec(func(v ...kernel.V) kernel.V {
		return swigluOf(k, k.RoundBF16(v[0]), k.RoundBF16(v[1]), weight, limit)
	}, sums...)
}

// store writes four columns of a row, each in the result that has it. Where results
// begin at multiples of four columns, one store does.
func (p *matrixLaunch) store(k *kernel.K, ys []*kernel.Buf, row, col kernel.V, v kernel.Vec) {
	ends := append(slices.Clone(p.cuts), p.n)
	whole := !slices.ContainsFunc(ends, func(end int) bool { return end%target.ResultRun != 0 })
	from := 0
	for i, end := range ends {
		width, y, dt := end-from, ys[i], p.y[i].DT
		place := func(col kernel.V) kernel.V { return k.Add(k.Mul(row, k.Int(width)), k.Sub(col, k.Int(from))) }
		here := func(col kernel.V, store func()) {
			if len(ends) == 1 && whole {
				store()
				return
			}
			k.If(k.And(k.Cmp(kernel.GE, col, k.Int(from)), k.Cmp(kernel.LT, col, k.Int(end))), store)
		}
		if whole {
			here(col, func() { y.StoreVec(place(col), packedAs(k, v, dt)) })
		} else {
			for j := range v.Len() {
				c := k.Add(col, k.Int(j))
				here(c, func() { y.Store(place(c), k.At(v, j)) })
			}
		}
		from = end
	}
}

// packedAs is four f32 as they lie in memory as bf16 or f32.
func packedAs(k *kernel.K, v kernel.Vec, dt ir.DType) kernel.Vec {
	if dt != ir.BF16 {
		return v
	}
	return k.MakeVec(k.PackBF16(k.At(v, 0), k.At(v, 1)), k.PackBF16(k.At(v, 2), k.At(v, 3)))
}
