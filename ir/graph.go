package ir

import "fmt"

// Pos is a place in .kir text; the zero value means "built, not parsed".
type Pos struct {
	File      string
	Line, Col int
}

func (p Pos) String() string {
	if p.Line == 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// ValueKind says where a value comes from.
type ValueKind uint8

// The kinds of values, with their sigil in text.
const (
	OpResult    ValueKind = iota // %12
	InputValue                   // %ids
	WeightValue                  // @layers.0.attn.wq_a
	StateValue                   // !layers.0.window
)

// Value is one SSA value: defined once, used any number of times.
type Value struct {
	Kind  ValueKind
	Name  string // inputs, weights and states: unique within their kind; results: see Graph.Number
	Type  Type
	Op    *Op // the defining op of an OpResult
	Index int // which result of Op
	Pos   Pos
	id    int // number of an OpResult within its graph
}

// Op is one operation.
type Op struct {
	Def     *OpDef
	Args    []*Value
	Attrs   Attrs
	Results []*Value
	Loc     string // dotted place in the model, e.g. "layers.3.attn"
	Pos     Pos
}

// Output is a named result of a graph.
type Output struct {
	Name  string
	Value *Value
	Pos   Pos
}

// Update binds the new value of a state pool.
type Update struct {
	State, Value *Value
	Pos          Pos
}

// Let declares a derived symbol.
type Let struct {
	Name string
	Dim  Dim
	Pos  Pos
}

// Meta is one name-value pair about a graph (model, entry, numerics).
type Meta struct{ Key, Val string }

// Graph is a pure SSA graph. Ops are in execution order: every operand is
// defined before its use (Verify checks it).
type Graph struct {
	Name    string
	Meta    []Meta // printed in this order
	Syms    []string
	Lets    []Let
	Inputs  []*Value
	Weights []*Value
	States  []*Value
	Ops     []*Op
	Outputs []Output
	Updates []Update
	Pos     Pos
}

// Get returns the value of a meta key, or "".
func (g *Graph) Get(key string) string {
	for _, m := range g.Meta {
		if m.Key == key {
			return m.Val
		}
	}
	return ""
}

// Number assigns result numbers in op order; Print calls it.
func (g *Graph) Number() {
	n := 0
	for _, op := range g.Ops {
		if op == nil {
			continue // Verify reports it
		}
		for _, r := range op.Results {
			if r != nil {
				r.id = n
				n++
			}
		}
	}
}

// String is the value's name in text, e.g. "%12" or "@norm".
func (v *Value) String() string {
	switch v.Kind {
	case WeightValue:
		return "@" + v.Name
	case StateValue:
		return "!" + v.Name
	case InputValue:
		return "%" + v.Name
	}
	return fmt.Sprintf("%%%d", v.id)
}

// Attribute accessors. Attributes were checked against the op table when the
// op was made, so a missing key or wrong type here is a bug in Kiln.

// Int returns an int attribute.
func (o *Op) Int(key string) int { return attr[int](o, key) }

// Float returns a float attribute.
func (o *Op) Float(key string) float64 { return attr[float64](o, key) }

// Bool returns a bool attribute.
func (o *Op) Bool(key string) bool { return attr[bool](o, key) }

// Str returns a string attribute.
func (o *Op) Str(key string) string { return attr[string](o, key) }

// Ints returns an int list attribute.
func (o *Op) Ints(key string) []int { return attr[[]int](o, key) }

// DType returns a dtype attribute.
func (o *Op) DType(key string) DType { return attr[DType](o, key) }

// Dim returns a dim attribute.
func (o *Op) Dim(key string) Dim { return attr[Dim](o, key) }

// Dims returns a dim list attribute.
func (o *Op) Dims(key string) []Dim { return attr[[]Dim](o, key) }

func attr[V any](o *Op, key string) V {
	v, ok := o.Attrs.Get(key)
	x, is := v.(V)
	if !ok || !is {
		panic(fmt.Sprintf("ir: op %s has no %T attribute %q", o.Def.Name, x, key))
	}
	return x
}

// Where describes the op for messages: its position in text, else its loc.
func (o *Op) Where() string {
	switch {
	case o.Pos.Line != 0 && o.Loc != "":
		return o.Pos.String() + " (" + o.Loc + ")"
	case o.Pos.Line != 0:
		return o.Pos.String()
	case o.Loc != "":
		return o.Loc
	}
	return "op"
}
