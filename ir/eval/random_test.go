package eval

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

// maxCells bounds the values of random graphs.
const maxCells = 300

// pool is a state and its value so far.
type pool struct{ state, now *ir.Value }

// dag builds a random graph of primitives, with data for it.
type dag struct {
	t       *rapid.T
	b       *ir.Builder
	vals    []*ir.Value // what later ops may use
	pools   []*pool
	inputs  map[string]*Tensor
	states  map[string]*Tensor
	weights map[string]*Tensor
}

func newDAG(t *rapid.T) *dag {
	d := &dag{
		t: t, b: ir.NewBuilder("random"),
		inputs: map[string]*Tensor{}, states: map[string]*Tensor{}, weights: map[string]*Tensor{},
	}
	// Few extents, so that values fit each other.
	m, n := rapid.SampledFrom([]int{1, 2, 3}).Draw(t, "m"), 2*rapid.IntRange(1, 3).Draw(t, "n")
	input := func(dt ir.DType, shape ...int) { d.vals = append(d.vals, d.input(dt, shape...)) }
	input(ir.F32, m, n)
	input(rapid.SampledFrom(floatTypes).Draw(t, "dtype"), m, n)
	input(ir.F32, n)
	input(ir.BF16, 2, m, n)
	input(rapid.SampledFrom(valueTypes).Draw(t, "dtype"), m, n)
	input(rapid.SampledFrom(codeTypes).Draw(t, "dtype"), m, n)
	input(ir.I32, m, n)

	weight := func(w *Tensor) {
		name := fmt.Sprintf("w%d", len(d.weights))
		d.weights[name] = w
		d.vals = append(d.vals, d.b.Weight(name, w.Type()))
	}
	weight(drawNormal(t, ir.F32, m, n))
	weight(randScaled(drawRand(t), rapid.SampledFrom(codeTypes).Draw(t, "dtype"), 2, 3, 3, 3, 2, m, n))

	for i := range rapid.IntRange(0, 2).Draw(t, "states") {
		name := fmt.Sprintf("s%d", i)
		dt := rapid.SampledFrom([]ir.DType{ir.F32, ir.BF16, ir.I32}).Draw(t, "dtype")
		d.states[name] = drawNormal(t, dt, m+1, n)
		s := d.b.State(name, typ(dt, m+1, n))
		d.pools = append(d.pools, &pool{s, s})
		d.vals = append(d.vals, s)
	}
	return d
}

// input is another input of the graph.
func (d *dag) input(dt ir.DType, shape ...int) *ir.Value {
	name := fmt.Sprintf("x%d", len(d.inputs))
	d.inputs[name] = drawTensor(d.t, dt, shape...)
	return d.b.Input(name, typ(dt, shape...))
}

// pick draws a value that ok accepts, or nil if there is none.
func (d *dag) pick(ok func(v *ir.Value, shape []int) bool) *ir.Value {
	var fit []*ir.Value
	for _, v := range d.vals {
		if ok(v, shapeOf(v)) {
			fit = append(fit, v)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	// Recent values more often: deep graphs rather than wide ones.
	i := rapid.IntRange(0, len(fit)-1).Draw(d.t, "operand")
	if rapid.Bool().Draw(d.t, "recent") {
		i = len(fit) - 1 - i/2
	}
	return fit[i]
}

func oneOf(types ...ir.DType) func(v *ir.Value, shape []int) bool {
	return func(v *ir.Value, _ []int) bool { return v.Type.Quant == nil && slices.Contains(types, v.Type.DType) }
}

// bounded keeps integers small, so that no later op overflows.
func (d *dag) bounded(v *ir.Value, lo, hi int) *ir.Value {
	c := func(n int) *ir.Value { return d.b.Scalar(v.Type.DType, float64(n)) }
	return d.b.Bin("max", d.b.Bin("min", v, c(hi)), c(lo))
}

// wide are the integer dtypes that bounded arithmetic fits.
var wide = []ir.DType{ir.I32, ir.I64}

// partner picks an operand that broadcasts with x.
func (d *dag) partner(x *ir.Value) *ir.Value {
	return d.pick(func(v *ir.Value, shape []int) bool {
		if v.Type.DType != x.Type.DType || v.Type.Quant != nil {
			return false
		}
		return broadcasts(shape, shapeOf(x))
	})
}

func broadcasts(a, b []int) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] && a[i] != 1 && b[i] != 1 {
			return false
		}
	}
	return size(joined(a, b)) <= maxCells
}

// indices is an i32 value within -1..n-1.
func (d *dag) indices(n int, ok func(shape []int) bool) *ir.Value {
	v := d.pick(func(v *ir.Value, shape []int) bool { return v.Type.DType == ir.I32 && ok(shape) })
	if v == nil {
		return nil
	}
	return d.bounded(v, -1, n-1)
}

// axis draws an axis of v.
func (d *dag) axis(v *ir.Value) int {
	return rapid.IntRange(0, v.Type.Rank()-1).Draw(d.t, "axis")
}

func ranked(types ...ir.DType) func(v *ir.Value, shape []int) bool {
	of := oneOf(types...)
	return func(v *ir.Value, shape []int) bool { return of(v, shape) && len(shape) > 0 }
}

func dagUnary(op string) func(d *dag) *ir.Value {
	return func(d *dag) *ir.Value {
		types := floatTypes
		if op == "neg" || op == "abs" {
			types = append(slices.Clone(floatTypes), wide...)
		}
		x := d.pick(oneOf(types...))
		if op == "not" {
			x = d.pick(oneOf(ir.Bool))
		}
		if x == nil {
			return nil
		}
		if x.Type.DType.IsInt() {
			x = d.bounded(x, -100, 100)
		}
		return d.b.Un(op, x)
	}
}

func dagBinary(op string) func(d *dag) *ir.Value {
	return func(d *dag) *ir.Value {
		types := append(slices.Clone(floatTypes), wide...)
		switch op {
		case "mod":
			types = wide
		case "and", "or":
			types = []ir.DType{ir.Bool}
		case "min", "max", "eq", "ne", "lt", "le", "gt", "ge":
			types = numTypes
		}
		x := d.pick(oneOf(types...))
		if x == nil {
			return nil
		}
		y := d.partner(x) // at least x itself
		if slices.Contains(wide, x.Type.DType) {
			x, y = d.bounded(x, -100, 100), d.bounded(y, -100, 100)
			if op == "div" || op == "mod" {
				y = d.b.Bin("add", d.b.Bin("mul", y, y), d.b.Scalar(y.Type.DType, 1))
			}
		}
		return d.b.Bin(op, x, y)
	}
}

// dagOps adds one op of each primitive; a nil result means that nothing fits.
var dagOps = map[string]func(d *dag) *ir.Value{
	"select": func(d *dag) *ir.Value {
		c, x := d.pick(oneOf(ir.Bool)), d.pick(oneOf(valueTypes...))
		if c == nil || x == nil || !broadcasts(shapeOf(c), shapeOf(x)) {
			return nil
		}
		y := d.partner(x)
		if !broadcasts(shapeOf(y), shapeOf(c)) || !broadcasts(joined(shapeOf(y), shapeOf(x)), shapeOf(c)) {
			return nil
		}
		return d.b.Select(c, x, y)
	},
	"cast": func(d *dag) *ir.Value {
		x := d.pick(func(v *ir.Value, shape []int) bool { return v.Type.Quant == nil })
		switch dt := x.Type.DType; {
		case slices.Contains(wide, dt):
			x = d.bounded(x, -100, 100)
		case dt.IsFloat() && rapid.Bool().Draw(d.t, "to integer"):
			ok := d.b.Bin("lt", d.b.Un("abs", x), d.b.Scalar(dt, 100))
			x = d.b.Select(ok, x, d.b.Scalar(dt, 0))
			return d.b.Op1("cast", ir.A("to", rapid.SampledFrom(wide).Draw(d.t, "to")), x)
		}
		to := rapid.SampledFrom([]ir.DType{ir.F32, ir.BF16, ir.F16, ir.F8E4M3, ir.F8E4M3FNUZ, ir.E8M0}).Draw(d.t, "to")
		return d.b.Op1("cast", ir.A("to", to), x)
	},
	"const": func(d *dag) *ir.Value {
		dt := rapid.SampledFrom(numTypes).Draw(d.t, "dtype")
		return d.b.Scalar(dt, float64(rapid.IntRange(0, 9).Draw(d.t, "value")))
	},
	"iota": func(d *dag) *ir.Value {
		x := d.pick(func(_ *ir.Value, shape []int) bool { return len(shape) > 0 })
		return d.b.Iota(d.axis(x), x.Type.Dims...)
	},
	"reshape": func(d *dag) *ir.Value {
		x := d.pick(func(v *ir.Value, shape []int) bool { return len(shape) > 1 })
		s := x.Type.Dims
		switch {
		case x.Type.Quant != nil:
			return d.b.Reshape(x, append([]ir.Dim{ir.Int(1)}, s...)...)
		case rapid.Bool().Draw(d.t, "flat"):
			n, _ := x.Type.Size()
			return d.b.Reshape(x, ir.Int(n))
		}
		return d.b.Reshape(x, append([]ir.Dim{s[0].Mul(s[1])}, s[2:]...)...)
	},
	"broadcast": func(d *dag) *ir.Value {
		like := d.pick(func(v *ir.Value, shape []int) bool { return len(shape) > 0 && shape[len(shape)-1]%2 == 0 })
		x := d.pick(func(v *ir.Value, shape []int) bool {
			return v.Type.Quant == nil && (len(shape) == 0 || len(shape) == like.Type.Rank()) && broadcasts(shape, shapeOf(like)) && slices.Equal(joined(shape, shapeOf(like)), shapeOf(like))
		})
		if x == nil {
			return nil
		}
		return d.b.Broadcast(x, like.Type.Dims...)
	},
	"transpose": func(d *dag) *ir.Value {
		x := d.pick(ranked(without(allTypes, ir.F4E2M1)...))
		axes := make([]int, x.Type.Rank())
		for i := range axes {
			axes[i] = i
		}
		return d.b.Transpose(x, rapid.Permutation(axes).Draw(d.t, "perm")...)
	},
	"slice": func(d *dag) *ir.Value {
		x := d.pick(func(v *ir.Value, shape []int) bool {
			if v.Type.Quant != nil || v.Type.DType == ir.F4E2M1 {
				return len(shape) > 2
			}
			return len(shape) > 0
		})
		axis := 0
		if x.Type.Quant == nil && x.Type.DType != ir.F4E2M1 {
			axis = d.axis(x)
		}
		n := shapeOf(x)[axis]
		start := rapid.IntRange(0, n-1).Draw(d.t, "start")
		return d.b.Slice(x, axis, start, rapid.IntRange(1, n-start).Draw(d.t, "size"))
	},
	"concat": func(d *dag) *ir.Value {
		x := d.pick(func(v *ir.Value, shape []int) bool { return len(shape) > 0 && size(shape) <= maxCells/3 })
		axis := 0
		if x.Type.Quant == nil && x.Type.DType != ir.F4E2M1 {
			axis = d.axis(x)
		}
		if (x.Type.Quant != nil || x.Type.DType == ir.F4E2M1) && x.Type.Rank() < 3 {
			return nil
		}
		parts := []*ir.Value{x}
		for range rapid.IntRange(0, 2).Draw(d.t, "more") {
			parts = append(parts, d.pick(func(v *ir.Value, shape []int) bool {
				if len(shape) != x.Type.Rank() || size(shape) > maxCells/3 {
					return false
				}
				t := v.Type.With(slices.Clone(v.Type.Dims)...)
				t.Dims[axis] = x.Type.Dims[axis]
				return t.Equal(x.Type)
			}))
		}
		return d.b.Concat(axis, parts...)
	},
	"hadamard_matrix": func(d *dag) *ir.Value {
		return d.b.Op1("hadamard_matrix", ir.A("n", 1<<rapid.IntRange(0, 3).Draw(d.t, "log2 n")))
	},
	"rope_freqs": func(d *dag) *ir.Value {
		return d.b.Op1("rope_freqs", ir.A("dim", 2*rapid.IntRange(1, 4).Draw(d.t, "half"), "base", 10000.0))
	},
	"reduce_sum": func(d *dag) *ir.Value {
		x := d.pick(ranked(floatTypes...))
		return d.b.Sum(x, d.axis(x), rapid.SampledFrom(floatTypes).Draw(d.t, "to"))
	},
	"reduce_max": func(d *dag) *ir.Value {
		x := d.pick(ranked(floatTypes...))
		return d.b.Op1("reduce_max", ir.A("axis", d.axis(x)), x)
	},
	"dot": func(d *dag) *ir.Value {
		x := d.pick(func(v *ir.Value, shape []int) bool { return v.Type.DType.IsFloat() && len(shape) >= 2 })
		xs := shapeOf(x)
		r := len(xs)
		w := d.pick(func(v *ir.Value, s []int) bool {
			return v.Type.DType.IsFloat() && len(s) == r && s[r-1] == xs[r-1] && broadcasts(s[:r-2], xs[:r-2]) &&
				size(joined(s[:r-2], xs[:r-2]))*xs[r-2]*s[r-2] <= maxCells
		})
		if w == nil {
			return nil
		}
		return d.b.Dot(x, w, rapid.SampledFrom(floatTypes).Draw(d.t, "to"))
	},
	"topk": func(d *dag) *ir.Value {
		return d.b.Op1("topk", ir.A("k", rapid.IntRange(1, 4).Draw(d.t, "k")), d.pick(ranked(floatTypes...)))
	},
	"argmax": func(d *dag) *ir.Value {
		x := d.pick(func(v *ir.Value, shape []int) bool { return len(shape) == 2 && oneOf(ir.F32, ir.BF16)(v, shape) })
		if x == nil {
			return nil
		}
		return rapid.SampledFrom(d.b.Op("argmax", nil, x)).Draw(d.t, "result")
	},
	"sample": func(d *dag) *ir.Value {
		x := d.pick(func(v *ir.Value, shape []int) bool { return oneOf(ir.F32, ir.BF16)(v, shape) && len(shape) == 2 })
		args, rows := []*ir.Value{x}, shapeOf(x)[0]
		for _, dt := range []ir.DType{ir.F32, ir.I32, ir.F32, ir.I64, ir.I32} {
			args = append(args, d.input(dt, rows))
		}
		return rapid.SampledFrom(d.b.Op("sample", nil, args...)).Draw(d.t, "result")
	},
	"gather_rows": func(d *dag) *ir.Value {
		x := d.pick(ranked(valueTypes...))
		s := shapeOf(x)
		rows := d.indices(s[0], func(shape []int) bool {
			return len(shape)+len(s)-1 <= 4 && size(shape)*size(s[1:]) <= maxCells
		})
		if rows == nil {
			return nil
		}
		return d.b.Op1("gather_rows", nil, x, rows)
	},
	"scatter_rows": scatterOp,
	"take_along": func(d *dag) *ir.Value {
		x := d.pick(ranked(numTypes...))
		s := shapeOf(x)
		cols := d.indices(s[len(s)-1], func(shape []int) bool {
			return len(shape) == len(s) && slices.Equal(shape[:len(s)-1], s[:len(s)-1])
		})
		if cols == nil {
			return nil
		}
		return d.b.Op1("take_along", ir.A("fill", 2.0), x, cols)
	},
	"quantize": func(d *dag) *ir.Value {
		x := d.pick(func(v *ir.Value, shape []int) bool {
			return v.Type.DType.IsFloat() && len(shape) >= 2 && shape[len(shape)-1]%2 == 0
		})
		s := shapeOf(x)
		block := s[len(s)-1]
		if rapid.Bool().Draw(d.t, "short") {
			block = 2 - block/2%2 // 1 or 2
		}
		to := rapid.SampledFrom(codeTypes).Draw(d.t, "to")
		return d.b.Op1("quantize", ir.A("to", to, "block", block, "floor", 1e-4), x)
	},
	"dequantize": func(d *dag) *ir.Value {
		x := d.pick(func(v *ir.Value, _ []int) bool { return v.Type.Quant != nil })
		return d.b.Op1("dequantize", ir.A("to", rapid.SampledFrom(floatTypes).Draw(d.t, "to")), x)
	},
	"recode_fnuz": func(d *dag) *ir.Value {
		x := d.pick(func(v *ir.Value, _ []int) bool { return v.Type.Quant != nil && v.Type.DType == ir.F8E4M3 })
		if x == nil {
			return nil
		}
		return d.b.Op1("recode_fnuz", nil, x)
	},
	"pack_rows":   rowsThroughBytes,
	"unpack_rows": rowsThroughBytes,
}

// rowsThroughBytes packs rows and unpacks them.
func rowsThroughBytes(d *dag) *ir.Value {
	x := d.pick(func(v *ir.Value, shape []int) bool {
		return v.Type.DType == ir.BF16 && len(shape) >= 2 && shape[len(shape)-1] >= 2
	})
	if x == nil {
		return nil
	}
	n := shapeOf(x)[x.Type.Rank()-1]
	f := ir.RowFormat{To: ir.F8E4M3, Block: 2, Dims: n / 2 * 2, D: n}
	return d.b.Unpack(f, d.b.Op1("pack_rows", append(f.Attrs(), ir.A("floor", 1e-4)...), x))
}

func init() {
	for op := range unaryOf {
		dagOps[op] = dagUnary(op)
	}
	for op := range maps.Keys(bigBinary) {
		dagOps[op] = dagBinary(op)
	}
	for op := range maps.Keys(comparisons) {
		dagOps[op] = dagBinary(op)
	}
	dagOps["not"] = dagUnary("not")
}

// scatterOp writes distinct rows of a pool, or of any other value.
func scatterOp(d *dag) *ir.Value {
	var state *pool
	target := d.pick(func(v *ir.Value, shape []int) bool {
		return ranked(numTypes...)(v, shape) && !slices.ContainsFunc(d.pools, func(p *pool) bool { return p.now == v })
	})
	if len(d.pools) > 0 && rapid.IntRange(0, 3).Draw(d.t, "state") > 0 {
		state = rapid.SampledFrom(d.pools).Draw(d.t, "pool")
		target = state.now
	}
	s := shapeOf(target)
	rows := d.pick(func(v *ir.Value, shape []int) bool {
		return v != target && v.Type.DType == target.Type.DType && len(shape) == len(s) && slices.Equal(shape[1:], s[1:])
	})
	if rows == nil {
		return nil
	}
	// Slots ascend from an offset; those past the end, and some others, are none.
	n := shapeOf(rows)[0]
	slots := d.b.Bin("add", d.b.Iota(0, ir.Int(n)), d.b.I(rapid.IntRange(0, s[0]).Draw(d.t, "offset")))
	slots = d.b.Select(d.b.Bin("lt", slots, d.b.I(s[0])), slots, d.b.I(-1))
	if c := d.pick(func(v *ir.Value, shape []int) bool { return v.Type.DType == ir.Bool && slices.Equal(shape, []int{n}) }); c != nil {
		slots = d.b.Select(c, slots, d.b.I(-1))
	}
	out := d.b.Op1("scatter_rows", nil, target, slots, rows)
	if state != nil { // the old value is gone
		state.now = out
		d.vals = slices.DeleteFunc(d.vals, func(v *ir.Value) bool { return v == target })
	}
	return out
}

// drawGraph builds a graph; every value that may be read at its end is in live.
func drawGraph(t *rapid.T) (g *ir.Graph, d *dag, live []*ir.Value) {
	d = newDAG(t)
	names := slices.Sorted(maps.Keys(dagOps))
	for range rapid.IntRange(3, 25).Draw(t, "ops") {
		if v := dagOps[rapid.SampledFrom(names).Draw(t, "op")](d); v != nil {
			d.vals = append(d.vals, v)
		}
	}
	for _, v := range d.vals {
		if v.Kind == ir.OpResult || rapid.IntRange(0, 3).Draw(t, "leaf") == 0 {
			live = append(live, v)
		}
	}
	n := 0
	for _, v := range live {
		if rapid.IntRange(0, 3).Draw(t, "output") == 0 {
			d.b.Output(fmt.Sprintf("o%d", n), v)
			n++
		}
	}
	if n == 0 {
		d.b.Output("o", d.vals[len(d.vals)-1])
	}
	for _, p := range d.pools {
		if p.now != p.state {
			d.b.Update(p.state, p.now)
		}
	}
	g, err := d.b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return g, d, live
}

// evaluation is what a run leaves behind: outputs and states.
type evaluation map[string]*Tensor

func (d *dag) program(g *ir.Graph) *Program {
	d.t.Helper()
	p, err := Compile(g, NewConsts(&mapSource{tensors: d.weights}))
	if err != nil {
		d.t.Fatalf("%v\n%s", err, ir.Text(g))
	}
	poison(p)
	return p
}

// eval runs p on copies of the data.
func (d *dag) eval(p *Program) evaluation {
	d.t.Helper()
	states, inputs := cloned(d.states), cloned(d.inputs)
	out, err := p.Run(inputs, states)
	if err != nil {
		d.t.Fatalf("%v\n%s", err, ir.Text(p.graph))
	}
	for name, x := range d.inputs {
		if diff := difference(inputs[name], x); diff != "" {
			d.t.Fatalf("input %s changed: %s\n%s", name, diff, ir.Text(p.graph))
		}
	}
	for name, s := range states {
		out["state "+name] = s
	}
	return out
}

func cloned(m map[string]*Tensor) map[string]*Tensor {
	out := map[string]*Tensor{}
	for k, v := range m {
		out[k] = v.Clone()
	}
	return out
}

// stepwise evaluates g op by op, each alone in a graph of its own: no storage is
// shared or reused, and a pool's old value stays what it was.
func (d *dag) stepwise(g *ir.Graph) evaluation {
	d.t.Helper()
	vals := map[*ir.Value]*Tensor{}
	for _, list := range []struct {
		values []*ir.Value
		data   map[string]*Tensor
	}{{g.Inputs, d.inputs}, {g.Weights, d.weights}, {g.States, d.states}} {
		for _, v := range list.values {
			vals[v] = list.data[v.Name]
		}
	}
	for _, op := range g.Ops {
		args := make([]*Tensor, len(op.Args))
		named := map[string]*Tensor{}
		for i, a := range op.Args {
			args[i] = vals[a]
			named[fmt.Sprintf("a%d", i)] = vals[a].Clone()
		}
		single, err := opGraph(op.Def.Name, op.Attrs, args, (*ir.Builder).Input)
		if err != nil {
			d.t.Fatal(err)
		}
		p, err := Compile(single, NewConsts(nil))
		if err != nil {
			d.t.Fatal(err)
		}
		out, err := p.Run(named, nil)
		if err != nil {
			d.t.Fatalf("%v\n%s", err, ir.Text(g))
		}
		for i, r := range op.Results {
			vals[r] = out[fmt.Sprintf("r%d", i)]
		}
	}
	out := evaluation{}
	for _, o := range g.Outputs {
		out[o.Name] = vals[o.Value]
	}
	for _, s := range g.States {
		out["state "+s.Name] = vals[s]
	}
	for _, u := range g.Updates {
		out["state "+u.State.Name] = vals[u.Value]
	}
	return out
}

// equal compares two evaluations in what both have; want must have all of got.
func (d *dag) equal(what string, g *ir.Graph, got, want evaluation) {
	d.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if want[name] == nil {
			d.t.Fatalf("%s: no %s\n%s", what, name, ir.Text(g))
		}
		if diff := difference(got[name], want[name]); diff != "" {
			d.t.Fatalf("%s: %s: %s\n%s", what, name, diff, ir.Text(g))
		}
	}
}

// Random graphs give the same bits with storage reused, in a second run, on one
// processor, with every value kept, op by op, and through text.
func TestRandomGraphs(t *testing.T) {
	used := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		g, d, live := drawGraph(t)
		for _, op := range g.Ops {
			used[op.Def.Name]++
		}
		p := d.program(g)
		got := d.eval(p)
		d.equal("second run", g, got, d.eval(p))

		procs := runtime.GOMAXPROCS(1)
		serial := d.eval(p)
		runtime.GOMAXPROCS(procs)
		d.equal("one processor", g, got, serial)

		d.equal("op by op", g, got, d.stepwise(g))

		all := *g
		all.Outputs = slices.Clone(g.Outputs)
		for i, v := range live {
			all.Outputs = append(all.Outputs, ir.Output{Name: fmt.Sprintf("all%d", i), Value: v})
		}
		if err := ir.Verify(&all); err != nil {
			t.Fatal(err)
		}
		kept := d.eval(d.program(&all))
		d.equal("every value kept", g, got, kept)
		d.equal("every value kept, op by op", &all, kept, d.stepwise(&all))

		text := ir.Text(g)
		parsed, err := ir.ParseOne("random.kir", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if again := ir.Text(parsed); again != text {
			t.Fatalf("text of the parsed graph differs:\n%s\n%s", text, again)
		}
		d.equal("through text", g, got, d.eval(d.program(parsed)))
	})
	for _, def := range ir.Ops() {
		if def.Primitive() && used[def.Name] == 0 {
			t.Errorf("no random graph has the primitive %s", def.Name)
		}
	}
}
