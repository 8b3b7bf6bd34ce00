// Package ir stands for Kiln's package ir in the test packages.
package ir

type Type struct{ Dims []int }

type Value struct {
	Name string
	Type Type
	Op   *Op
}

type Attrs []struct {
	Key string
	Val any
}

type Op struct {
	Name    string
	Args    []*Value
	Attrs   Attrs
	Results []*Value
	Loc     string
}

type Output struct {
	Name  string
	Value *Value
}

type Update struct{ State, Value *Value }

type Graph struct {
	Name    string
	Syms    []string
	Inputs  []*Value
	Weights []*Value
	States  []*Value
	Ops     []*Op
	Outputs []Output
	Updates []Update
}

type Builder struct{ g Graph }

func NewBuilder(name string) *Builder { return &Builder{g: Graph{Name: name}} }

func (b *Builder) Err() error                                           { return nil }
func (b *Builder) At(loc string)                                        {}
func (b *Builder) Input(name string, t Type) *Value                     { return nil }
func (b *Builder) Op(name string, attrs Attrs, args ...*Value) []*Value { return nil }
func (b *Builder) Bin(op string, x, y *Value) *Value                    { return nil }
func (b *Builder) Output(name string, v *Value)                         {}
func (b *Builder) Finish() (*Graph, error)                              { return &b.g, nil }

func Bind(g *Graph, values map[string]int) (*Graph, error) {
	out := &Graph{}
	for _, op := range g.Ops {
		out.Ops = append(out.Ops, op)
	}
	for range out.Ops {
		out.Ops = append(out.Ops, nil) // want `out.Ops changes while it is walked`
	}
	g.Name = "a store in package ir is its own affair"
	return out, nil
}
