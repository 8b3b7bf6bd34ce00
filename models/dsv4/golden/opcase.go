package golden

import (
	"cmp"
	"fmt"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/weights"
)

// opCase builds a graph of one or a few ops with constant extents, and lists
// what its outputs must be. The first error sticks, as in ir.Builder.
type opCase struct {
	*ir.Builder
	s       *Suite
	name    string
	inputs  engine.Tensors
	weights ownWeights
	wants   []want
	err     error
}

// want is an expected output; scales: the output's block scales, not its codes.
type want struct {
	what   string // and the output's name
	scales bool
	values []float32
	limit  int
}

// opCheck makes a check of a graph that build makes.
func (s *Suite) opCheck(name string, build func(c *opCase)) Check {
	return Check{name, func() error {
		c := &opCase{Builder: ir.NewBuilder("op"), s: s, name: name, inputs: engine.Tensors{}, weights: ownWeights{}}
		build(c)
		if err := c.run(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}}
}

// run evaluates the graph and compares. A check that expects nothing is a fault
// of the check.
func (c *opCase) run() error {
	if c.err != nil {
		return c.err
	}
	if len(c.wants) == 0 {
		return fmt.Errorf("the check expects nothing")
	}
	g, err := c.Finish()
	if err != nil {
		return err
	}
	exec, err := c.s.executor(c.weights, g)
	if err != nil {
		return err
	}
	out, err := exec.Run(g.Name, nil, c.inputs, nil)
	if err != nil {
		return err
	}
	v := c.s.verdict(c.name)
	for _, w := range c.wants {
		t, ok := out[w.what]
		if !ok {
			return fmt.Errorf("%s did not return output %s", exec.Device(), w.what)
		}
		got := valuesOf(t)
		if w.scales {
			got = bytesOf(t.Scales)
		}
		v.compare(w.what, got, w.values, inPlaceOf(w.limit, exec))
	}
	return v.err()
}

// valuesOf gives numbers to compare: floats as they are, integers (ids and
// indices, far below 2^24) and codes as floats.
func valuesOf(t *eval.Tensor) []float32 {
	switch {
	case t.DType.IsFloat():
		return t.F
	case t.DType.IsInt():
		out := make([]float32, len(t.I))
		for i, v := range t.I {
			out[i] = float32(v)
		}
		return out
	}
	return bytesOf(t.Codes)
}

func bytesOf(b []byte) []float32 {
	out := make([]float32, len(b))
	for i, v := range b {
		out[i] = float32(v)
	}
	return out
}

// fail keeps the first error, which may be the builder's: what follows one of
// its errors does not fit either.
func (c *opCase) fail(err error) {
	if c.err == nil {
		c.err = cmp.Or(c.Err(), err)
	}
}

// stub stands for a tensor that could not be read.
var stub = &eval.Tensor{DType: ir.F32, Shape: []int{1}, F: []float32{0}}

// golden reads a golden operator tensor as dt under the given shape.
func (c *opCase) golden(name string, dt ir.DType, shape ...int) *eval.Tensor {
	t, err := c.s.ops.tensor(name, dt, shape...)
	if err != nil {
		c.fail(err)
		return stub
	}
	return t
}

// extent is one extent of a golden tensor.
func (c *opCase) extent(name string, axis int) int {
	t, err := c.s.ops.lookup(name)
	if err == nil && axis >= len(t.Shape) {
		err = fmt.Errorf("%s: tensor %s has %d axes, want more than %d", t.File, name, len(t.Shape), axis)
	}
	if err != nil {
		c.fail(err)
		return 1
	}
	return t.Shape[axis]
}

// floats and ints make tensors of hand-made numbers.
func (c *opCase) floats(dt ir.DType, v []float32, shape ...int) *eval.Tensor {
	t, err := eval.FromF32(dt, v, shape...)
	if err != nil {
		c.fail(err)
		return stub
	}
	return t
}

func (c *opCase) ints(v []int32, shape ...int) *eval.Tensor {
	t, err := eval.FromI32(v, shape...)
	if err != nil {
		c.fail(err)
		return stub
	}
	return t
}

// in declares an input with its value.
func (c *opCase) in(name string, t *eval.Tensor) *ir.Value {
	c.inputs[name] = t
	return c.Input(name, t.Type())
}

// own declares a weight with its value.
func (c *opCase) own(name string, t *eval.Tensor) *ir.Value {
	c.weights[name] = t
	return c.Weight(name, t.Type())
}

// expect compares an output with the golden tensor of its type.
func (c *opCase) expect(name string, v *ir.Value, goldenName string, limit int) {
	want := c.golden(goldenName, v.Type.DType, constShape(v.Type)...)
	c.expectValues(name, v, valuesOf(want), limit)
}

// expectScales compares the block scales of an output with a golden tensor,
// byte for byte.
func (c *opCase) expectScales(name string, v *ir.Value, goldenName string) {
	t, err := c.s.ops.lookup(goldenName)
	if err == nil && t.DType != weights.F8E8M0 {
		err = fmt.Errorf("%s: tensor %s is %s, want %s", t.File, goldenName, t.DType, weights.F8E8M0)
	}
	if err != nil {
		c.fail(err)
		return
	}
	c.Output(name, v)
	c.wants = append(c.wants, want{what: name, scales: true, values: bytesOf(t.Data), limit: exactLimit})
}

// expectValues compares an output with given numbers.
func (c *opCase) expectValues(name string, v *ir.Value, values []float32, limit int) {
	c.Output(name, v)
	c.wants = append(c.wants, want{what: name, values: values, limit: limit})
}
