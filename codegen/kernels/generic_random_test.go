package kernels_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// maxCells bounds the values of random graphs.
const maxCells = 2000

// dag builds a random graph of primitives, and data for it.
type dag struct {
	t      testing.TB
	r      *rand.Rand
	b      *ir.Builder
	vals   []*ir.Value // what later ops may use
	pools  []*ir.Value // states
	pool   map[*ir.Value]*ir.Value
	in     map[string]*eval.Tensor
	states map[string]*eval.Tensor
}

func pickOne[V any](r *rand.Rand, list ...V) V { return list[r.IntN(len(list))] }

// input is another input of the graph.
func (d *dag) input(x *eval.Tensor) *ir.Value {
	name := fmt.Sprintf("x%d", len(d.in))
	d.in[name] = x
	return d.b.Input(name, x.Type())
}

func newDAG(t testing.TB, seed uint64) *dag {
	r := rand.New(rand.NewPCG(6, seed))
	d := &dag{t: t, r: r, b: ir.NewBuilder("random"), pool: map[*ir.Value]*ir.Value{}, in: map[string]*eval.Tensor{}, states: map[string]*eval.Tensor{}}
	// Few extents, so that values fit each other.
	m, n := pickOne(r, 1, 2, 3, 5, 9), pickOne(r, 2, 4, 8, 10, 34)
	input := func(x *eval.Tensor) { d.vals = append(d.vals, d.input(x)) }
	input(random(t, r, ordinary, ir.F32, m, n))
	input(random(t, r, pickOne(r, ordinary, special, patterns), pickOne(r, floatTypes...), m, n))
	input(random(t, r, ordinary, pickOne(r, floatTypes...), 2, m, n))
	input(random(t, r, ordinary, pickOne(r, floatTypes...), n))
	input(random(t, r, ordinary, ir.F32, m, 1))
	input(random(t, r, ordinary, ir.I32, m, n))
	input(random(t, r, patterns, pickOne(r, intTypes...), m, n))
	input(random(t, r, patterns, ir.Bool, m, n))
	input(random(t, r, patterns, pickOne(r, append(codeTypes, ir.E8M0)...), m, n))
	input(randomScaled(t, r, ordinary, pickOne(r, codeTypes...), pickOne(r, 1, 2), pickOne(r, 2, 3, 8), 2, m, n))
	for i := range r.IntN(3) {
		name := fmt.Sprintf("s%d.%d", seed, i) // a unit has one pool of a name
		x := random(t, r, ordinary, pickOne(r, ir.F32, ir.BF16, ir.I32), m+1, n)
		d.states[name] = x
		s := d.b.State(name, x.Type())
		d.pools, d.pool[s] = append(d.pools, s), s
		d.vals = append(d.vals, s)
	}
	return d
}

func shapeOf(v *ir.Value) []int {
	s := make([]int, v.Type.Rank())
	for i, d := range v.Type.Dims {
		s[i], _ = d.Const()
	}
	return s
}

func cells(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// of accepts unscaled values of some formats.
func of(types ...ir.DType) func(*ir.Value) bool {
	return func(v *ir.Value) bool { return v.Type.Quant == nil && slices.Contains(types, v.Type.DType) }
}

// ranked accepts those with an axis.
func ranked(types ...ir.DType) func(*ir.Value) bool {
	ok := of(types...)
	return func(v *ir.Value) bool { return ok(v) && v.Type.Rank() > 0 }
}

// pick draws a value that every condition accepts, recent ones more often; nil
// if there is none.
func (d *dag) pick(ok ...func(*ir.Value) bool) *ir.Value {
	var fit []*ir.Value
	for _, v := range d.vals {
		if !slices.ContainsFunc(ok, func(f func(*ir.Value) bool) bool { return !f(v) }) {
			fit = append(fit, v)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return fit[max(d.r.IntN(len(fit)), d.r.IntN(len(fit)))]
}

func (d *dag) axis(v *ir.Value) int { return d.r.IntN(v.Type.Rank()) }

// repeats accepts values that broadcast together with x.
func repeats(x *ir.Value) func(*ir.Value) bool {
	return func(v *ir.Value) bool {
		a, b := shapeOf(v), shapeOf(x)
		if len(a) == 0 || len(b) == 0 {
			return true
		}
		if len(a) != len(b) {
			return false
		}
		n := 1
		for i := range a {
			if a[i] != b[i] && a[i] != 1 && b[i] != 1 {
				return false
			}
			n *= max(a[i], b[i])
		}
		return n <= maxCells
	}
}

// bounded keeps integers in a range, so that no later op overflows.
func (d *dag) bounded(v *ir.Value, lo, hi int) *ir.Value {
	if !v.Type.DType.IsInt() {
		return v
	}
	if v.Type.DType == ir.U8 {
		lo = max(lo, 0)
	}
	c := func(n int) *ir.Value { return d.b.Scalar(v.Type.DType, float64(n)) }
	return d.b.Bin("max", d.b.Bin("min", v, c(hi)), c(lo))
}

func (d *dag) op(op string, attrs ir.Attrs, args ...*ir.Value) *ir.Value {
	if slices.Contains(args, nil) {
		return nil
	}
	return d.b.Op1(op, attrs, args...)
}

// rowsOf is an i32 value within -1..n-1 whose shape is fit.
func (d *dag) rowsOf(n int, fit func(*ir.Value) bool) *ir.Value {
	v := d.pick(of(ir.I32), fit)
	if v == nil {
		return nil
	}
	return d.bounded(v, -1, n-1)
}

var numTypes = append(slices.Clone(floatTypes), intTypes...)

func unaryOf(op string) func(d *dag) *ir.Value {
	return func(d *dag) *ir.Value {
		switch op {
		case "not":
			return d.op(op, nil, d.pick(of(ir.Bool)))
		case "neg", "abs":
			x := d.pick(of(append(slices.Clone(floatTypes), ir.I64, ir.I32, ir.I8)...))
			return d.op(op, nil, d.bounded(x, -100, 100))
		}
		return d.op(op, nil, d.pick(of(floatTypes...)))
	}
}

func binaryOf(op string) func(d *dag) *ir.Value {
	return func(d *dag) *ir.Value {
		types := numTypes
		switch op {
		case "and", "or":
			types = []ir.DType{ir.Bool}
		case "mod":
			types = intTypes
		}
		x := d.pick(of(types...))
		y := d.pick(of(x.Type.DType), repeats(x)) // at least x itself
		if x.Type.DType.IsInt() && slices.Contains([]string{"add", "sub", "mul", "div", "mod"}, op) {
			x, y = d.bounded(x, -9, 9), d.bounded(y, -9, 9)
			switch op {
			case "sub":
				if x.Type.DType == ir.U8 {
					x = d.b.Bin("add", x, d.b.Scalar(ir.U8, 9))
				}
			case "div", "mod":
				y = d.b.Bin("add", d.b.Bin("mul", y, y), d.b.Scalar(y.Type.DType, 1))
			}
		}
		return d.op(op, nil, x, y)
	}
}

// makers add one op of each primitive; nil means that nothing fits.
var makers = map[string]func(d *dag) *ir.Value{
	"select": func(d *dag) *ir.Value {
		c := d.pick(of(ir.Bool))
		x := d.pick(of(append(slices.Clone(numTypes), ir.Bool)...), repeats(c))
		y := d.pick(of(x.Type.DType), repeats(x), repeats(c))
		return d.op("select", nil, c, x, y)
	},
	"cast": func(d *dag) *ir.Value {
		x := d.pick(of(allTypes...))
		dt := x.Type.DType
		to := pickOne(d.r, ir.F32, ir.BF16, ir.F16, ir.F8E4M3, ir.F8E4M3FNUZ, ir.E8M0, ir.F4E2M1)
		if s := shapeOf(x); to == ir.F4E2M1 && (len(s) == 0 || s[len(s)-1]%2 != 0) {
			to = ir.F32
		}
		if dt.IsFloat() && d.r.IntN(2) == 0 {
			x = d.op("select", nil, d.b.Bin("lt", d.op("abs", nil, x), d.b.Scalar(dt, 100)), x, d.b.Scalar(dt, 0))
			to = pickOne(d.r, ir.I64, ir.I32, ir.I8)
		}
		return d.op("cast", ir.A("to", to), d.bounded(x, -100, 100))
	},
	"const": func(d *dag) *ir.Value {
		return d.b.Scalar(pickOne(d.r, numTypes...), float64(d.r.IntN(9)))
	},
	"iota": func(d *dag) *ir.Value {
		x := d.pick(ranked(allTypes...))
		return d.b.Iota(d.axis(x), x.Type.Dims...)
	},
	"reshape": func(d *dag) *ir.Value {
		x := d.pick(func(v *ir.Value) bool { return v.Type.Rank() > 1 })
		s := x.Type.Dims
		switch {
		case x.Type.Quant != nil:
			return d.b.Reshape(x, append([]ir.Dim{ir.Int(1)}, s...)...)
		case d.r.IntN(2) == 0:
			return d.b.Reshape(x, ir.Int(cells(shapeOf(x))))
		}
		return d.b.Reshape(x, append([]ir.Dim{s[0].Mul(s[1])}, s[2:]...)...)
	},
	"broadcast": func(d *dag) *ir.Value {
		like := d.pick(ranked(allTypes...))
		x := d.pick(of(allTypes...), func(v *ir.Value) bool {
			a, b := shapeOf(v), shapeOf(like)
			if v.Type.DType == ir.F4E2M1 && b[len(b)-1]%2 != 0 || len(a) != 0 && len(a) != len(b) {
				return false
			}
			for i := range a {
				if a[i] != 1 && a[i] != b[i] {
					return false
				}
			}
			return true
		})
		if x == nil {
			return nil
		}
		return d.b.Broadcast(x, like.Type.Dims...)
	},
	"transpose": func(d *dag) *ir.Value {
		x := d.pick(ranked(allTypes...), func(v *ir.Value) bool { return v.Type.DType != ir.F4E2M1 })
		return d.b.Transpose(x, d.r.Perm(x.Type.Rank())...)
	},
	"slice": func(d *dag) *ir.Value {
		x := d.pick(func(v *ir.Value) bool {
			n := v.Type.Rank()
			return n > 2 || n > 0 && v.Type.Quant == nil && v.Type.DType != ir.F4E2M1
		})
		axis := d.axis(x)
		if x.Type.Quant != nil || x.Type.DType == ir.F4E2M1 {
			axis = d.r.IntN(x.Type.Rank() - 2)
		}
		n := shapeOf(x)[axis]
		start := d.r.IntN(n)
		return d.b.Slice(x, axis, start, 1+d.r.IntN(n-start))
	},
	"concat": func(d *dag) *ir.Value {
		x := d.pick(func(v *ir.Value) bool {
			n := v.Type.Rank()
			return cells(shapeOf(v)) < maxCells/3 && (n > 2 || n > 0 && v.Type.Quant == nil && v.Type.DType != ir.F4E2M1)
		})
		axis := d.axis(x)
		if x.Type.Quant != nil || x.Type.DType == ir.F4E2M1 {
			axis = 0
		}
		parts := []*ir.Value{x}
		for range d.r.IntN(3) {
			parts = append(parts, d.pick(func(v *ir.Value) bool {
				if v.Type.Rank() != x.Type.Rank() || cells(shapeOf(v)) >= maxCells/3 {
					return false
				}
				t := v.Type.With(slices.Clone(v.Type.Dims)...)
				t.Dims[axis] = x.Type.Dims[axis]
				return t.Equal(x.Type)
			}))
		}
		return d.b.Concat(axis, parts...)
	},
	"reduce_sum": func(d *dag) *ir.Value {
		x := d.pick(ranked(floatTypes...))
		return d.b.Sum(x, d.axis(x), pickOne(d.r, floatTypes...))
	},
	"reduce_max": func(d *dag) *ir.Value {
		x := d.pick(ranked(floatTypes...))
		return d.op("reduce_max", ir.A("axis", d.axis(x)), x)
	},
	"dot": func(d *dag) *ir.Value {
		x := d.pick(of(floatTypes...), func(v *ir.Value) bool { return v.Type.Rank() >= 2 })
		xs := shapeOf(x)
		r := len(xs)
		w := d.pick(of(floatTypes...), func(v *ir.Value) bool {
			s := shapeOf(v)
			if len(s) != r || s[r-1] != xs[r-1] {
				return false
			}
			n := xs[r-2] * s[r-2]
			for i := range r - 2 {
				if s[i] != xs[i] && s[i] != 1 && xs[i] != 1 {
					return false
				}
				n *= max(s[i], xs[i])
			}
			return n <= maxCells
		})
		return d.b.Dot(x, w, pickOne(d.r, floatTypes...)) // at least with itself
	},
	"topk": func(d *dag) *ir.Value {
		return d.op("topk", ir.A("k", pickOne(d.r, 1, 2, 5, 20)), d.pick(ranked(floatTypes...), func(v *ir.Value) bool { return cells(shapeOf(v)) < maxCells/20 }))
	},
	"argmax": func(d *dag) *ir.Value {
		x := d.pick(of(ir.F32, ir.BF16), func(v *ir.Value) bool { return v.Type.Rank() == 2 && cells(shapeOf(v)) < maxCells/20 })
		if x == nil {
			return nil
		}
		valid := d.r.IntN(shapeOf(x)[1] + 1)
		return pickOne(d.r, d.b.Op("argmax", ir.A("valid", valid), x)...)
	},
	"sample": func(d *dag) *ir.Value {
		x := d.pick(of(ir.F32, ir.BF16), func(v *ir.Value) bool { return v.Type.Rank() == 2 && cells(shapeOf(v)) < maxCells/20 })
		if x == nil {
			return nil
		}
		args := []*ir.Value{x}
		for _, p := range randomDraws(d.t, d.r, shapeOf(x)[0]) {
			args = append(args, d.input(p))
		}
		valid := d.r.IntN(shapeOf(x)[1] + 1)
		return pickOne(d.r, d.b.Op("sample", ir.A("valid", valid), args...)...)
	},
	"gather_rows": func(d *dag) *ir.Value {
		x := d.pick(ranked(append(slices.Clone(numTypes), ir.Bool)...))
		s := shapeOf(x)
		return d.op("gather_rows", nil, x, d.rowsOf(s[0], func(v *ir.Value) bool {
			return v.Type.Rank()+len(s)-1 <= 4 && cells(shapeOf(v))*cells(s[1:]) <= maxCells
		}))
	},
	"take_along": func(d *dag) *ir.Value {
		x := d.pick(ranked(numTypes...))
		s := shapeOf(x)
		return d.op("take_along", ir.A("fill", 2.0), x, d.rowsOf(s[len(s)-1], func(v *ir.Value) bool {
			c := shapeOf(v)
			return len(c) == len(s) && slices.Equal(c[:len(c)-1], s[:len(s)-1])
		}))
	},
	"scatter_rows": func(d *dag) *ir.Value {
		var state *ir.Value
		x := d.pick(ranked(numTypes...), func(v *ir.Value) bool {
			for _, p := range d.pool {
				if v == p {
					return false
				}
			}
			return true
		})
		if len(d.pools) > 0 && d.r.IntN(3) > 0 {
			state = pickOne(d.r, d.pools...)
			x = d.pool[state]
		}
		s := shapeOf(x)
		rows := d.pick(of(x.Type.DType), func(v *ir.Value) bool {
			c := shapeOf(v)
			return v != x && len(c) == len(s) && slices.Equal(c[1:], s[1:])
		})
		if rows == nil {
			return nil
		}
		// Slots ascend from an offset; those past the end are none.
		n := shapeOf(rows)[0]
		at := d.b.Bin("add", d.b.Iota(0, ir.Int(n)), d.b.I(d.r.IntN(s[0]+1)))
		at = d.op("select", nil, d.b.Bin("lt", at, d.b.I(s[0])), at, d.b.I(-1))
		out := d.op("scatter_rows", nil, x, at, rows)
		if state != nil { // the old value is gone
			d.pool[state] = out
			d.vals = slices.DeleteFunc(d.vals, func(v *ir.Value) bool { return v == x })
		}
		return out
	},
	"quantize": func(d *dag) *ir.Value {
		x := d.pick(of(floatTypes...), func(v *ir.Value) bool {
			return v.Type.Rank() >= 2 && shapeOf(v)[v.Type.Rank()-1]%2 == 0
		})
		n := shapeOf(x)[x.Type.Rank()-1]
		return d.op("quantize", ir.A("to", pickOne(d.r, codeTypes...), "block", pickOne(d.r, 1, 2, n), "floor", 1e-4), x)
	},
	"dequantize": func(d *dag) *ir.Value {
		return d.op("dequantize", ir.A("to", pickOne(d.r, floatTypes...)), d.pick(func(v *ir.Value) bool { return v.Type.Quant != nil }))
	},
	"recode_fnuz": func(d *dag) *ir.Value {
		return d.op("recode_fnuz", nil, d.pick(func(v *ir.Value) bool { return v.Type.Quant != nil && v.Type.DType == ir.F8E4M3 }))
	},
	"pack_rows":   rowsThroughBytes,
	"unpack_rows": rowsThroughBytes,
}

// rowsThroughBytes packs rows of bf16 and unpacks them: their bytes are no numbers to
// compare, as a NaN may become another one. e2m1 has -0 on every chip.
func rowsThroughBytes(d *dag) *ir.Value {
	x := d.pick(of(ir.BF16), func(v *ir.Value) bool { return v.Type.Rank() >= 2 && shapeOf(v)[v.Type.Rank()-1] >= 4 })
	if x == nil {
		return nil
	}
	n := shapeOf(x)[x.Type.Rank()-1]
	f := ir.RowFormat{To: ir.F4E2M1, Block: 2, Dims: n / 4 * 4, D: n}
	return d.b.Unpack(f, d.op("pack_rows", append(f.Attrs(), ir.A("floor", 1e-4)...), x))
}

func init() {
	for _, op := range []string{"neg", "abs", "exp", "log1p", "sqrt", "rsqrt", "sigmoid", "cos", "sin", "not"} {
		makers[op] = unaryOf(op)
	}
	for _, op := range []string{"add", "sub", "mul", "div", "mod", "min", "max", "and", "or", "eq", "ne", "lt", "le", "gt", "ge"} {
		makers[op] = binaryOf(op)
	}
}

// graph adds n ops, the given ones first, and makes outputs of some values that
// may be read at the end.
func (d *dag) graph(n int, given []string) *ir.Graph {
	d.t.Helper()
	names := slices.Sorted(maps.Keys(makers))
	for i := range n {
		name := pickOne(d.r, names...)
		if i < len(given) {
			name = given[i]
		}
		if v := makers[name](d); v != nil {
			d.vals = append(d.vals, v)
		}
	}
	outputs := 0
	for _, v := range d.vals {
		if v.Kind == ir.OpResult && d.r.IntN(2) == 0 {
			d.b.Output(fmt.Sprintf("o%d", outputs), v)
			outputs++
		}
	}
	d.b.Output("last", d.vals[len(d.vals)-1])
	for _, s := range d.pools {
		if v := d.pool[s]; v != s {
			d.b.Update(s, v)
		}
	}
	g, err := d.b.Finish()
	if err != nil {
		d.t.Fatal(err)
	}
	return g
}

// opLimit is how far a primitive's form may be from the evaluator.
func opLimit(op string) limit {
	switch op {
	case "reduce_sum", "dot", "exp", "log1p", "rsqrt", "sigmoid", "cos", "sin":
		return limit{ulps: 1, share: 1}
	}
	return exact
}

// values evaluates g op by op: a pool's old value stays what it was.
func (d *dag) values(g *ir.Graph) map[*ir.Value]*eval.Tensor {
	d.t.Helper()
	vals := map[*ir.Value]*eval.Tensor{}
	for _, v := range g.Inputs {
		vals[v] = d.in[v.Name]
	}
	for _, v := range g.States {
		vals[v] = d.states[v.Name]
	}
	for _, op := range g.Ops {
		one := newBatch(d.t)
		var args []*eval.Tensor
		for _, a := range op.Args {
			args = append(args, vals[a])
		}
		one.op(op.Def.Name, op.Attrs, exact, args...)
		out, _ := one.want(one.graph())
		for i, r := range op.Results {
			vals[r] = out[fmt.Sprintf("y%d", i)]
		}
	}
	return vals
}

// Random graphs: every op, fed the evaluator's inputs, is within its limit, and
// whole graphs give the evaluator's results. All of them are one library.
func TestRandomGraphs(t *testing.T) { randomGraphs(t, bothHosts...) }

// randomGraphs runs the graphs on machines.
func randomGraphs(t *testing.T, machines ...string) {
	const count, ops = 30, 8
	names := slices.Sorted(maps.Keys(makers))
	used := map[string]int{}
	single := newBatch(t)
	var dags []*dag
	var graphs []*ir.Graph
	for i := range count {
		d := newDAG(t, uint64(i))
		// Every primitive gets its turn.
		g := d.graph(ops, []string{names[2*i%len(names)], names[(2*i+1)%len(names)]})
		vals := d.values(g)
		for _, op := range g.Ops {
			used[op.Def.Name]++
			var args []*eval.Tensor
			for _, a := range op.Args {
				args = append(args, vals[a])
			}
			single.op(op.Def.Name, op.Attrs, opLimit(op.Def.Name), args...)
		}
		dags, graphs = append(dags, d), append(graphs, g)
	}
	for _, def := range ir.Ops() {
		if def.Primitive() && !def.Table && used[def.Name] == 0 {
			t.Errorf("no random graph has the primitive %s", def.Name)
		}
	}
	t.Logf("%d ops", len(single.what))

	all := single.graph()
	want, _ := single.want(all)
	for _, name := range machines {
		dev, plans := load(t, name, append(graphs, all)...)
		got, _ := execute(t, dev, plans[count], single.in, nil)
		for i, what := range single.what {
			if diff := single.limit[i].compare(want[fmt.Sprintf("y%d", i)], got[fmt.Sprintf("y%d", i)]); diff != "" {
				t.Errorf("%s: %s: %s", name, what, diff)
			}
		}
		for i, d := range dags {
			p, err := eval.Compile(graphs[i], eval.NewConsts(nil))
			if err != nil {
				t.Fatal(err)
			}
			wantStates := clones(d.states)
			want, err := p.Run(d.in, wantStates)
			if err != nil {
				t.Fatal(err)
			}
			got, states := execute(t, dev, plans[i], d.in, d.states)
			for n, s := range wantStates {
				want["state "+n], got["state "+n] = s, states[n]
			}
			for _, n := range slices.Sorted(maps.Keys(want)) {
				if diff := exact.compare(want[n], got[n]); diff != "" {
					t.Errorf("%s: graph %d: %s: %s\n%s", name, i, n, diff, ir.Text(graphs[i]))
				}
			}
		}
		dev.Close()
	}
}

// Long chains of elementwise ops of one format, of which the last value alone is an
// output: what is between them stays in registers, and must be rounded as a store
// would round it.
func TestRandomChains(t *testing.T) {
	const count, ops = 2, 30
	var graphs []*ir.Graph
	var inputs []map[string]*eval.Tensor
	for _, dt := range floatTypes {
		for i := range count {
			r := rand.New(rand.NewPCG(7, uint64(i)))
			b := ir.NewBuilder("chain")
			in := map[string]*eval.Tensor{}
			var leaves []*ir.Value
			for j := range 3 {
				x := random(t, r, ordinary, dt, 3, 34)
				name := fmt.Sprintf("x%d", j)
				in[name] = x
				leaves = append(leaves, b.Input(name, x.Type()))
			}
			// Sums and products stay of ordinary size, so that every rounding shows.
			v := leaves[0]
			for range ops {
				other := pickOne(r, leaves...)
				switch r.IntN(5) {
				case 0:
					v = b.Bin("sub", v, other)
				case 1:
					v = b.Bin("mul", v, b.Scalar(dt, 0.8125))
				case 2:
					v = b.Bin("add", b.Op1("neg", nil, v), other)
				case 3:
					v = b.Op1("select", nil, b.Bin("lt", v, other), b.Bin("add", v, other), b.Bin("mul", v, b.Scalar(dt, 0.59375)))
				case 4:
					v = b.Bin("div", b.Bin("add", v, other), b.Scalar(dt, 1.5))
				}
			}
			b.Output("last", v)
			g, err := b.Finish()
			if err != nil {
				t.Fatal(err)
			}
			graphs, inputs = append(graphs, g), append(inputs, in)
		}
	}
	for _, name := range bothHosts {
		dev, plans := load(t, name, graphs...)
		for i, g := range graphs {
			if got, most := len(plans[i].Launches), len(g.Ops)/2; got > most {
				t.Errorf("%s: graph %d: %d ops are %d launches: no chains", name, i, len(g.Ops), got)
			}
			p, err := eval.Compile(g, eval.NewConsts(nil))
			if err != nil {
				t.Fatal(err)
			}
			want, err := p.Run(inputs[i], nil)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := execute(t, dev, plans[i], inputs[i], nil)
			if diff := exact.compare(want["last"], got["last"]); diff != "" {
				t.Errorf("%s: graph %d: %s\n%s", name, i, diff, ir.Text(g))
			}
		}
		dev.Close()
	}
}
