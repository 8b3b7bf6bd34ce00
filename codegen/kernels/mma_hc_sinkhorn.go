package kernels

import (
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
)

// The weights between streams, by a warp for a token. Sinkhorn steps keep the matrix K
// that they start from, and numbers u of its rows and v of its columns: the result is
// K[i,j] / (u_i v_j). Dividing the rows by their sums plus eps is
//
//	u' = K (1/v) + eps u
//
// and the same with columns; it is the same algebra with a quarter of the divisions. And
// 1/v_j is the product of the other v over the product of all of them: the sums need
// only the former, so that they run while the one reciprocal does.

// The products stay within f32's exponents with an eps that does not let numbers get
// much smaller or larger than 1.
const minSinkhornEps, maxSinkhornEps = 1e-8, 0.1

// weights are post and comb of a token.
func (m *hcMix) weights(token kernel.V) {
	c := m.p.c
	factors, terms := m.factors(), m.addends(token, m.Int(0), m.p.partRows(), 1)
	mix := m.mix(sumByPairs(m.K, terms), factors)
	post := m.Sub(m.lane, m.Int(c))
	m.If(m.And(m.Cmp(kernel.GE, post, m.Int(0)), m.Cmp(kernel.LT, post, m.Int(c))), func() {
		m.post.Store(m.Add(m.Mul(token, m.Int(c)), post), m.Mul(m.Float(2), m.sigmoid(mix)))
	})

	// The lane's element of the matrix, and the first of its row.
	at := m.Sub(m.lane, m.Int(2*c))
	mine := m.And(m.Cmp(kernel.GE, at, m.Int(0)), m.Cmp(kernel.LT, at, m.Int(c*c)))
	place := m.Select(mine, at, m.Int(0))
	row, column := m.UDiv(place, m.Int(c)), m.URem(place, m.Int(c))
	first := m.Add(m.Mul(row, m.Int(c)), m.Int(2*c))
	ofRow := func(x kernel.V) []kernel.V {
		out := make([]kernel.V, c)
		for j := range out {
			out[j] = m.FromLane(x, m.Add(first, m.Int(j)))
		}
		return out
	}
	top := ofRow(mix)
	for len(top) > 1 {
		top = append(top[2:], m.MaxNaN(top[0], top[1]))
	}
	power := m.Exp2(m.Mul(m.Sub(mix, top[0]), m.Float(math.Log2E)))
	own := m.FMA(power, m.Rcp(sumByPairs(m.K, ofRow(power))), m.Float(m.p.eps))
	a := make([]kernel.V, c*c)
	for i := range a {
		a[i] = m.FromLane(own, m.Int(2*c+i))
	}
	u, v := m.sinkhorn(a)
	value := m.Mul(m.Mul(own, m.pick(m.reciprocals(u), row)), m.pick(m.reciprocals(v), column))
	m.If(mine, func() { m.comb.Store(m.Add(m.Mul(token, m.Int(c*c)), at), value) })
}

// pick is xs[i].
func (m *hcMix) pick(xs []kernel.V, i kernel.V) kernel.V {
	out := xs[0]
	for j := 1; j < len(xs); j++ {
		out = m.Select(m.Cmp(kernel.EQ, i, m.Int(j)), xs[j], out)
	}
	return out
}

// sinkhorn is u and v after the steps on a [c,c].
func (m *hcMix) sinkhorn(a []kernel.V) (u, v []kernel.V) {
	c := m.p.c
	vars := make([]*kernel.Var, 2*c) // u and v
	for i := range vars {
		vars[i] = m.Var(m.Float(1))
	}
	get := func(from int) []kernel.V {
		out := make([]kernel.V, c)
		for i := range out {
			out[i] = vars[from+i].Get()
		}
		return out
	}
	// step has the sums over one index: line and element strides choose rows or columns.
	step := func(old, other []kernel.V, line, element, to int) {
		others, all := othersOf(m.K, other)
		inverse := m.Rcp(all)
		for i := range c {
			sum := m.Mul(a[i*line], others[0])
			for j := 1; j < c; j++ {
				sum = m.FMA(a[i*line+j*element], others[j], sum)
			}
			vars[to+i].Set(m.FMA(sum, inverse, m.Mul(old[i], m.Float(m.p.eps))))
		}
	}
	step(get(c), get(0), 1, c, c)
	m.For(m.Int(1), m.Int(m.p.iters), 1, func(kernel.V) {
		step(get(0), get(c), c, 1, 0)
		step(get(c), get(0), 1, c, c)
	})
	return get(0), get(c)
}

// othersOf is, of each number, the product of the others, and the product of all.
func othersOf(k *kernel.K, x []kernel.V) (others []kernel.V, all kernel.V) {
	if len(x) == 4 { // two levels
		a, b := k.Mul(x[0], x[1]), k.Mul(x[2], x[3])
		return []kernel.V{k.Mul(x[1], b), k.Mul(x[0], b), k.Mul(x[3], a), k.Mul(x[2], a)}, k.Mul(a, b)
	}
	all = x[0]
	for _, v := range x[1:] {
		all = k.Mul(all, v)
	}
	for i := range x {
		product := k.Float(1)
		for j, v := range x {
			if j != i {
				product = k.Mul(product, v)
			}
		}
		others = append(others, product)
	}
	return others, all
}

func (m *hcMix) reciprocals(x []kernel.V) []kernel.V {
	others, all := othersOf(m.K, x)
	inverse := m.Rcp(all)
	for i, v := range others {
		others[i] = m.Mul(v, inverse)
	}
	return others
}
