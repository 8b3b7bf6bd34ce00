package ir

import "fmt"

// Builder appends ops to a graph. The first error sticks: later calls return
// placeholder values, and Finish reports the error with the op and its loc.
type Builder struct {
	g      *Graph
	loc    string
	pos    Pos
	err    error
	byName map[string]*Value // sigil + name -> input, weight or state; made when one is declared
}

// NewBuilder starts a graph.
func NewBuilder(name string, meta ...Meta) *Builder {
	return &Builder{g: &Graph{Name: name, Meta: meta}}
}

// Err is the first error, or nil.
func (b *Builder) Err() error { return b.err }

func (b *Builder) fail(format string, args ...any) {
	if b.err != nil {
		return
	}
	where := b.loc
	if where == "" {
		where = b.g.Name
	}
	b.err = fmt.Errorf("%s: %w", where, fmt.Errorf(format, args...))
}

// At sets the loc of the ops that follow.
func (b *Builder) At(loc string) { b.loc, b.pos = loc, Pos{} }

// AtOp gives the ops that follow the loc and the position of the op that they
// stand for.
func (b *Builder) AtOp(op *Op) { b.loc, b.pos = op.Loc, op.Pos }

// Sym declares a symbol.
func (b *Builder) Sym(name string) Dim {
	b.g.Syms = append(b.g.Syms, name)
	return Sym(name)
}

// Let declares a derived symbol and returns its definition.
func (b *Builder) Let(name string, d Dim) Dim {
	b.g.Lets = append(b.g.Lets, Let{Name: name, Dim: d})
	return d
}

func (b *Builder) declare(list *[]*Value, kind ValueKind, name string, t Type) *Value {
	v := &Value{Kind: kind, Name: name, Type: t}
	if b.byName == nil { // an Edit has what the old graph declares
		b.byName = map[string]*Value{}
		for _, list := range [][]*Value{b.g.Inputs, b.g.Weights, b.g.States} {
			for _, old := range list {
				b.byName[old.String()] = old
			}
		}
	}
	if old, ok := b.byName[v.String()]; ok {
		if !old.Type.Equal(t) {
			b.fail("%s is declared as %s and as %s", v, old.Type, t)
		}
		return old
	}
	b.byName[v.String()] = v
	*list = append(*list, v)
	return v
}

// Input declares an input; asking again for the same name returns the same value.
func (b *Builder) Input(name string, t Type) *Value {
	return b.declare(&b.g.Inputs, InputValue, name, t)
}

// Weight declares a weight by its checkpoint name (without ".weight"). One "*"
// in the name stands for 0..n-1, stacked along the first axis.
func (b *Builder) Weight(name string, t Type) *Value {
	return b.declare(&b.g.Weights, WeightValue, name, t)
}

// State declares a state pool.
func (b *Builder) State(name string, t Type) *Value {
	return b.declare(&b.g.States, StateValue, name, t)
}

// Op appends an op with several results.
func (b *Builder) Op(name string, attrs Attrs, args ...*Value) []*Value {
	d, err := Lookup(name)
	if err != nil {
		b.fail("%w", err)
		return placeholders(maxRank)
	}
	if b.err != nil {
		return placeholders(len(d.Results))
	}
	for i, a := range args {
		if a == nil {
			b.fail("%s: operand %d is nil", name, i)
			return placeholders(len(d.Results))
		}
	}
	o, err := newOp(d, args, attrs, b.loc, b.pos)
	if err != nil {
		b.fail("%s: %w", name, err)
		return placeholders(len(d.Results))
	}
	b.g.Ops = append(b.g.Ops, o)
	return o.Results
}

// Op1 appends an op with one result; an op with several is refused, since all but
// the first would be lost.
func (b *Builder) Op1(name string, attrs Attrs, args ...*Value) *Value {
	if d, err := Lookup(name); err == nil && len(d.Results) != 1 {
		b.fail("%s has %d results: use Op", name, len(d.Results))
	}
	return b.Op(name, attrs, args...)[0]
}

// maxRank is more axes, and more results, than any op has.
const maxRank = 16

// placeholders stand for the results of an op that failed: with axes, so that
// code which builds on them may look at any of their extents.
func placeholders(n int) []*Value {
	ones := make([]Dim, maxRank)
	for i := range ones {
		ones[i] = Int(1)
	}
	out := make([]*Value, n)
	for i := range out {
		out[i] = &Value{Type: T(F32, ones...)}
	}
	return out
}

// Output names a result of the graph.
func (b *Builder) Output(name string, v *Value) {
	b.g.Outputs = append(b.g.Outputs, Output{Name: name, Value: v})
}

// Update binds the new value of a state pool.
func (b *Builder) Update(state, v *Value) {
	b.g.Updates = append(b.g.Updates, Update{State: state, Value: v})
}

// Finish verifies the graph and returns it.
func (b *Builder) Finish() (*Graph, error) {
	if b.err != nil {
		return nil, fmt.Errorf("graph @%s: %w", b.g.Name, b.err)
	}
	if err := Verify(b.g); err != nil {
		return nil, err
	}
	return b.g, nil
}

// Short forms for the primitives that decompositions use all the time.

// Scalar is a rank-0 constant.
func (b *Builder) Scalar(dt DType, v float64) *Value {
	return b.Op1("const", Attrs{{"value", v}, {"dtype", dt}})
}

// F is a rank-0 f32 constant.
func (b *Builder) F(v float64) *Value { return b.Scalar(F32, v) }

// I is a rank-0 i32 constant.
func (b *Builder) I(n int) *Value { return b.Scalar(I32, float64(n)) }

// Bin appends a two-operand elementwise op.
func (b *Builder) Bin(op string, x, y *Value) *Value { return b.Op1(op, nil, x, y) }

// Un appends a one-operand elementwise op.
func (b *Builder) Un(op string, x *Value) *Value { return b.Op1(op, nil, x) }

// Select appends select(cond, x, y).
func (b *Builder) Select(cond, x, y *Value) *Value { return b.Op1("select", nil, cond, x, y) }

// Cast rounds x to dt; casting to its own dtype returns x.
func (b *Builder) Cast(x *Value, dt DType) *Value {
	if x.Type.DType == dt {
		return x
	}
	return b.Op1("cast", Attrs{{"to", dt}}, x)
}

// Reshape gives x another shape.
func (b *Builder) Reshape(x *Value, dims ...Dim) *Value {
	return b.Op1("reshape", Attrs{{"shape", dims}}, x)
}

// Broadcast repeats x's 1-extents to dims.
func (b *Builder) Broadcast(x *Value, dims ...Dim) *Value {
	return b.Op1("broadcast", Attrs{{"shape", dims}}, x)
}

// Slice takes size elements from start along axis.
func (b *Builder) Slice(x *Value, axis, start, size int) *Value {
	return b.Op1("slice", Attrs{{"axis", axis}, {"start", start}, {"size", size}}, x)
}

// Concat joins values along axis.
func (b *Builder) Concat(axis int, xs ...*Value) *Value {
	return b.Op1("concat", Attrs{{"axis", axis}}, xs...)
}

// Transpose permutes axes.
func (b *Builder) Transpose(x *Value, perm ...int) *Value {
	return b.Op1("transpose", Attrs{{"perm", perm}}, x)
}

// Sum reduces axis to extent 1 and rounds once to dt.
func (b *Builder) Sum(x *Value, axis int, dt DType) *Value {
	return b.Op1("reduce_sum", Attrs{{"axis", axis}, {"to", dt}}, x)
}

// Dot multiplies x [..,M,K] by w [..,N,K] and rounds once to dt.
func (b *Builder) Dot(x, w *Value, dt DType) *Value {
	return b.Op1("dot", Attrs{{"to", dt}}, x, w)
}

// Iota counts along axis.
func (b *Builder) Iota(axis int, dims ...Dim) *Value {
	return b.Op1("iota", Attrs{{"axis", axis}, {"shape", dims}})
}
