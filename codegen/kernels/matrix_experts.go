package kernels

import (
	"fmt"
	"maps"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// lowerMatrixMoE multiplies tiles of pairs with their experts' weights, each pair's
// result rounded to bf16, and adds a token's results in ascending expert id.
func lowerMatrixMoE(l Lowering, o *ir.Op) error {
	x, w1 := dims(o.Args[0]), dims(o.Args[1])
	r := routingOf(l, o)
	pairs, d, inner := r.tokens*r.choices, x[1], w1[1]
	a := l.Scratch(ir.BF16, pairs*inner)

	gate := matrixRouted{routing: r, perToken: true, limit: o.Float("limit")}
	gate.weights(l, inner, o.Args[1], o.Args[2])
	gate.x = gate.activations(l, l.Buf(o.Args[0]), r.tokens, r.rowsRead(max(1, r.share)), o.Int("act_block"))
	gate.order(l, r.tokens)
	gate.launch(l, a)

	down := matrixRouted{routing: r}
	down.weights(l, d, o.Args[3])
	atOnce := r.single() && r.choices <= maxChoicesAtOnce && down.roomForX(r.choices)
	read := max(1, r.share)
	if atOnce {
		read = r.choices
	}
	down.x = down.activations(l, a, pairs, r.rowsRead(read), expertActBlock)
	var shared []Ref
	for _, v := range o.Args[6:] {
		shared = append(shared, l.Buf(v))
	}
	if atOnce {
		down.launchSum(l, shared, l.Buf(o.Results[0]))
		return nil
	}
	y := l.Scratch(ir.BF16, pairs*d)
	down.order(l, pairs)
	down.launch(l, y)
	sumPairs(l, r, y, shared, l.Buf(o.Results[0]), d)
	return nil
}

// maxChoicesAtOnce is how many choices of a token launchSum multiplies: their sums
// share the LDS.
const maxChoicesAtOnce = 8

// roomForX reports whether the rows of x of so many choices have room in the shared
// memory of a group that keeps them there.
func (p *matrixRouted) roomForX(choices int) bool {
	return !p.streams() || ceilDiv(p.depth, matrixChunk)*choices*matrixChunk*2 <= processorShared/2
}

// matrixRouted is a product of pairs with their experts' weights, [E,n,depth].
type matrixRouted struct {
	matrixProduct
	*routing
	x        matrixOperand
	perToken bool // x has a row per token, not per pair; then there are two weights, of a SwiGLU
	limit    float64

	rowsOf, scalesOf []Ref // the weights, by product
	touched          map[Ref]int64
}

// weights has the product be with stacks of matrices of n rows.
func (p *matrixRouted) weights(l Lowering, n int, ws ...*ir.Value) {
	var m matrixLaunch
	m.weights(l, n, ws...)
	p.matrixProduct, p.rowsOf, p.scalesOf = m.matrixProduct, m.codesOf, m.scales
	p.touched = map[Ref]int64{}
	for _, w := range ws {
		maps.Copy(p.touched, expertWeightOf(l, w, p.tokens*p.choices).touched)
	}
	if p.withExperts(p.size()) {
		return
	}
	u := unitOf(p.t)
	p.matrixProduct.rows, p.alike = ceilDiv(p.size(), u.cols), p.single()
	switch { // single tiles are bound by reading w
	case p.streams():
		p.few = p.share
		return // launch and launchSum choose the tile
	case p.single():
		p.cols = max(1, min(4, n/4096))
	case u.mma != nil:
		p.cols = max(1, min(2, n/1024))
	default:
		p.cols = max(1, min(4, n/1024))
	}
	p.cols = max(1, p.cols/len(ws))
}

// order brings x, of so many rows, in the order that the tile takes.
func (p *matrixRouted) order(l Lowering, rows int) {
	if p.gemm != nil {
		p.x.x = orderX(l, p.x.x, rows*p.depth, p.run()/matrixRun)
	}
}

// inputs are what a kernel reads, and operandsIn takes them apart again.
func (p *matrixRouted) inputs() []Ref {
	in := []Ref{p.x.x}
	if p.codes {
		in = append(in, p.x.scales)
	}
	return append(append(in, p.rowsOf...), p.scalesOf...)
}

func (p *matrixRouted) operandsIn(b []*kernel.Buf) (x matrixRows, ws, scales, rest []*kernel.Buf) {
	x.x, b = b[0], b[1:]
	if p.codes {
		x.scales, b = b[0], b[1:]
	}
	n := len(p.rowsOf)
	return x, b[:n], b[n : 2*n], b[2*n:]
}

// place is which tile of pairs a group has, and which of those that multiply all rows of
// w. In a stream, groups that read the same of an expert's weights run at a time: tiles,
// the first of the integers, says how many there are of the former. Else tiles of an
// expert follow each other, and their parts of its weights.
func (p *matrixRouted) place(k *kernel.K, tiles []kernel.V) (tile, colTile kernel.V) {
	if p.streams() {
		group, n := k.Convert(k.Group(), kernel.I32), k.Convert(tiles[0], kernel.I32)
		return k.Convert(k.URem(group, n), kernel.I64), k.Convert(k.UDiv(group, n), kernel.I64)
	}
	return k.UDiv(k.Group(), k.Int(p.colTiles())), k.URem(k.Group(), k.Int(p.colTiles()))
}

// launch writes the product's rows of y, [pairs, n]; those of pairs that do not count
// are left as they are, and nothing reads them.
func (p *matrixRouted) launch(l Lowering, y Ref) {
	if p.streams() {
		p.tune(p.size(), p.tiles, p.rowsRead(max(1, p.share)))
	}
	macs := int64(p.products) * int64(p.tokens*p.choices) * int64(p.n) * int64(p.depth)
	numbers := []int{p.tokens}
	if p.streams() {
		numbers = append(numbers, p.tiles)
	}
	l.Launch(Launch{
		Name: "matrix_experts", Spec: fmt.Sprintf("%s %s limit%g", p.matrixProduct.spec(), p.routing.spec(), p.limit),
		Grid: p.tiles * p.colTiles(), Work: macs, Flops: 2 * macs, Pooled: p.streams() || p.gemm != nil, Touched: p.touched,
		In: append(p.inputs(), p.operands()...), Out: []Ref{y}, Ints: append(numbers, p.stripArg()...),
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			x, ws, scales, b := p.operandsIn(b)
			tile, colTile := p.place(k, ints[1:])
			u := unitOf(p.t)
			if x.count = ints[0]; p.codes && !p.perToken {
				x.count = k.Mul(x.count, k.Int(p.choices))
			}
			if p.stage > 0 && p.share == 1 { // the row of the tile's one pair
				row := tile
				if p.perToken {
					row = k.UDiv(row, k.Int(p.choices))
				}
				x.stage = []kernel.V{row}
				p.loadEarly(k, &x)
			}
			p.tileIn(k, b, tile, ints[0], func(t routedTile) {
				x.row = func(i kernel.V) kernel.V {
					at, _ := t.pair(i)
					if p.perToken {
						at = k.UDiv(at, k.Int(p.choices))
					}
					return at
				}
				for i := range p.matrixProduct.rows {
					at := x.row(k.Add(u.sub(k, k.Lane()), k.Int(i*u.cols)))
					x.at = append(x.at, at)
				}
				x.behind = t.behind
				if p.stage > 0 { // of few tokens
					p.stageTile(k, &x, t)
				}
				list := make([]matrixWeight, p.products)
				for i := range list {
					list[i] = matrixWeight{ws[i], scales[i], t.expert}
				}
				p.multiplyTiles(k, x, list, colTile, p.stripOf(k, ints), func(row, col kernel.V, sums []kernel.Vec) {
					pair, own := t.pair(row)
					k.If(k.And(own, k.Cmp(kernel.LT, col, k.Int(p.n))), func() {
						v := sums[0]
						if p.perToken {
							var weight kernel.V
							if p.single() {
								weight = t.weight(row)
							} else {
								from := k.Mul(k.UDiv(pair, k.Int(p.choices)), k.Int(p.choices))
								_, weight = chosenPair(k, b[0], b[1], from, k.Sub(pair, from), p.choices)
							}
							v = swigluOfSums(k, sums, weight, p.limit)
						}
						storeResults(k, b[len(b)-1], k.Add(k.Mul(pair, k.Int(p.n)), col), v)
					})
				})
			})
		},
	})
}

// launchSum is y[t,:], the sum of the products of token t's pairs in ascending expert
// id, and what is shared, if anything. The products of one token are multiplied at
// once, each weight with another row of x.
func (p *matrixRouted) launchSum(l Lowering, shared []Ref, y Ref) {
	p.products, p.apart, p.cols = p.choices, true, 1
	if p.streams() {
		p.few = 1
	}
	if p.streams() {
		p.tune(1, p.tokens, p.choices)
	}
	macs := int64(p.tokens*p.choices) * int64(p.n) * int64(p.depth)
	numbers := p.stripArg()
	if p.streams() || p.codes {
		numbers = append([]int{p.tokens}, numbers...)
	}
	l.Launch(Launch{
		Name: "matrix_experts_sum", Spec: fmt.Sprintf("%s shared%d", p.matrixProduct.spec(), len(shared)),
		Grid: p.tokens * p.colTiles(), Work: macs, Flops: 2 * macs, Pooled: p.streams(), Touched: p.touched,
		In: append(append(p.inputs(), p.ids), shared...), Out: []Ref{y}, Ints: numbers,
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			x, ws, scales, b := p.operandsIn(b)
			ids, shared, y := b[0], b[1:len(b)-1], b[len(b)-1]
			token, colTile := p.place(k, ints)
			if p.codes {
				x.count = k.Mul(ints[0], k.Int(p.choices))
			}
			from := k.Mul(token, k.Int(p.choices))
			if p.stage > 0 {
				for i := range p.choices {
					x.stage = append(x.stage, k.Add(from, k.Int(i)))
				}
				p.loadEarly(k, &x)
			}
			// The experts and their choices, from memory in every lane: scalar registers
			// would not hold as many addresses.
			chosen, places := k.Shared(ir.I32, p.choices), k.Shared(ir.I32, p.choices)
			experts := p.chosen(k, ids, from, func(rank, id, choice kernel.V) {
				chosen.Store(rank, id)
				places.Store(rank, k.Convert(choice, kernel.I32))
			})
			k.Barrier()
			store := func(col kernel.V, v kernel.Vec) {
				at := k.Add(k.Mul(token, k.Int(p.n)), col)
				for _, s := range shared {
					var more []kernel.V
					for i := range v.Len() {
						more = append(more, k.Add(k.At(v, i), s.Load(k.Add(at, k.Int(i)))))
					}
					v = k.MakeVec(more...)
				}
				storeResults(k, y, at, v)
			}
			has := k.Cmp(kernel.GT, experts, k.Int32(0))
			k.If(has, func() {
				var list []matrixWeight
				for i := range p.choices { // a place that is left multiplies the last, for nothing
					at := k.Select(k.Cmp(kernel.LT, k.Int32(i), experts), k.Int32(i), k.Sub(experts, k.Int32(1)))
					x.at = append(x.at, k.Add(from, k.Convert(places.Load(at), kernel.I64)))
					if p.stage > 0 {
						x.staged = append(x.staged, k.Convert(places.Load(at), kernel.I64))
					}
					list = append(list, matrixWeight{ws[0], scales[0], k.Convert(chosen.Load(at), kernel.I64)})
				}
				p.multiplyTiles(k, x, list, colTile, p.stripOf(k, ints), func(row, col kernel.V, sums []kernel.Vec) {
					total := k.ZeroVec(kernel.F32, sums[0].Len())
					for i, sum := range sums {
						counts := k.Cmp(kernel.LT, k.Int32(i), experts) // they come first
						total = k.MapVec(func(v ...kernel.V) kernel.V {
							return k.Select(counts, k.Add(v[0], k.RoundBF16(v[1])), v[0])
						}, total, sum)
					}
					k.If(k.Cmp(kernel.EQ, row, k.Int(0)), func() { store(col, total) })
				})
			})
			k.If(k.Not(has), func() {
				n0 := k.Mul(colTile, k.Int(p.tileCols()))
				zeros := func(col kernel.V) { store(col, k.ZeroVec(kernel.F32, target.ResultRun)) }
				if !p.streams() {
					k.Lanes(k.Int(p.tileCols()/target.ResultRun), func(i kernel.V) { zeros(k.Add(n0, k.Mul(i, k.Int(target.ResultRun)))) })
					return
				}
				strip := p.stripOf(k, ints)
				k.Lanes(k.Mul(strip, k.Int(p.tileCols()/target.ResultRun)), func(i kernel.V) {
					col := k.Add(k.Mul(n0, strip), k.Mul(i, k.Int(target.ResultRun)))
					k.If(k.Cmp(kernel.LT, col, k.Int(p.n)), func() { zeros(col) })
				})
			})
		},
	})
}

// storeResults stores results that follow each other, or one.
func storeResults(k *kernel.K, y *kernel.Buf, at kernel.V, v kernel.Vec) {
	if v.Len() == 1 {
		y.Store(at, k.At(v, 0))
		return
	}
	y.StoreVec(at, packedAs(k, v, y.Format()))
}

// chosen calls each, in one lane, with each expert that a token chose: how many of them
// have lower ids, the id and the first choice that has it. It returns how many there are.
func (p *matrixRouted) chosen(k *kernel.K, ids *kernel.Buf, from kernel.V, each func(rank, id, choice kernel.V)) kernel.V {
	if p.streams() { // nothing may take long before w is under way
		return rankExperts(k, ids, from, p.choices, each)
	}
	count := k.UniformVar(k.Int32(0))
	eachExpert(k, ids, from, p.choices, func(id, choice kernel.V) {
		k.First(func() { each(count.Get(), id, choice) })
		count.Set(k.Add(count.Get(), k.Int32(1)))
	})
	return count.Get()
}

// sumPairs is y[t,:], the sum of the rows of token t's pairs in ascending expert id,
// and what is shared, if anything. Pairs that do not count add nothing.
func sumPairs(l Lowering, r *routing, rows Ref, shared []Ref, y Ref, d int) {
	pieces := ceilDiv(d, l.Target().Lanes)
	l.Launch(Launch{
		Name: "expert_sum", Spec: fmt.Sprintf("d%d choices%d shared%d", d, r.choices, len(shared)), Grid: r.tokens * pieces,
		Work: int64(r.tokens * r.choices * d), In: append([]Ref{r.ids, rows}, shared...), Out: []Ref{y},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			token, piece := k.UDiv(k.Group(), k.Int(pieces)), k.URem(k.Group(), k.Int(pieces))
			col := k.Add(k.Mul(piece, k.Int(l.Target().Lanes)), k.Lane())
			k.If(k.Cmp(kernel.LT, col, k.Int(d)), func() {
				total := k.Var(k.Float(0))
				from := k.Mul(token, k.Int(r.choices))
				eachExpert(k, b[0], from, r.choices, func(_, choice kernel.V) {
					v := b[1].Load(k.Add(k.Mul(k.Add(from, choice), k.Int(d)), col))
					total.Set(k.Add(total.Get(), v))
				})
				at, sum := k.Add(k.Mul(token, k.Int(d)), col), total.Get()
				for i := range shared {
					sum = k.Add(sum, b[2+i].Load(at))
				}
				b[len(b)-1].Store(at, sum)
			})
		},
	})
}
