package golden

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/engine"
)

// chunk is the number of prompt tokens in one step of every run.
const chunk = 32

// part is the graph of a piece of the model with its executor.
type part struct {
	exec   engine.Executor
	graph  *ir.Graph
	layout engine.Layout
	input  *ir.Value // the activations: x [T,D] or h [T,C,D]
	output string
}

// part makes the executor of a part, once per suite.
func (s *Suite) part(kind dsv4.Part, layer int) (*part, error) {
	return once(s, fmt.Sprintf("part %s %d", kind, layer), func() (*part, error) {
		g, err := dsv4.BuildPart(s.model, kind, layer, s.options())
		if err != nil {
			return nil, err
		}
		p := &part{graph: g}
		for _, in := range g.Inputs {
			if in.Type.DType == ir.BF16 {
				p.input = in
			}
		}
		if p.input == nil || len(g.Outputs) != 1 {
			return nil, fmt.Errorf("part %s: want one bf16 input and one output", kind)
		}
		p.output = g.Outputs[0].Name
		if p.layout, err = engine.LayoutOf(g); err != nil {
			return nil, err
		}
		p.exec, err = s.executor(nil, g)
		return p, err
	})
}

// partRun is one sequence through a part.
type partRun struct {
	*part
	state engine.State
	seq   *engine.Seq
}

// start makes fresh state for a sequence of n positions.
func (p *part) start(n int) (*partRun, error) {
	r := &partRun{part: p, seq: &engine.Seq{}}
	for i := range p.layout.Pages(n) {
		r.seq.Pages = append(r.seq.Pages, i)
	}
	var err error
	r.state, err = p.exec.NewState(p.graph.Name, r.bind(engine.Shape{}))
	return r, err
}

// bind gives the graph's symbols for a step.
func (r *partRun) bind(s engine.Shape) map[string]int {
	all := map[string]int{"T": s.T, "B": s.B, "O": s.O, "P": s.P, "R": 1, "N": len(r.seq.Pages)}
	b := map[string]int{}
	for _, name := range r.graph.Syms {
		b[name] = all[name]
	}
	return b
}

// width is the number of values per token row of the input.
func (p *part) width() int {
	n := 1
	for _, d := range p.input.Type.Dims[1:] {
		c, _ := d.Const()
		n *= c
	}
	return n
}

// step feeds one row of activations x per id, wants output for the last row if
// the part has output rows, and returns the output.
func (r *partRun) step(ids []int32, x []float32) ([]float32, error) {
	f := []engine.Feed{{Seq: r.seq, IDs: ids, Out: []int{len(ids) - 1}}}
	shape := engine.ShapeOf(f)
	in, err := engine.Metadata(r.layout, f, shape)
	if err != nil {
		return nil, err
	}
	dims := []int{len(ids)}
	for _, d := range r.input.Type.Dims[1:] {
		n, _ := d.Const()
		dims = append(dims, n)
	}
	if in[r.input.Name], err = eval.FromF32(ir.BF16, x, dims...); err != nil {
		return nil, err
	}
	for name := range in { // a part declares only the inputs that it uses
		if !slices.ContainsFunc(r.graph.Inputs, func(v *ir.Value) bool { return v.Name == name }) {
			delete(in, name)
		}
	}
	out, err := r.exec.Run(r.graph.Name, r.bind(shape), in, r.state)
	if err != nil {
		return nil, err
	}
	engine.Commit(f)
	t, ok := out[r.output]
	if !ok {
		return nil, fmt.Errorf("%s did not return output %s", r.exec.Device(), r.output)
	}
	return t.F, nil
}

// feed runs all rows in chunks of at most size and returns the outputs joined.
func (r *partRun) feed(ids []int32, x []float32, size int) ([]float32, error) {
	w := r.width()
	if len(x) != len(ids)*w {
		return nil, fmt.Errorf("part %s: %d values for %d rows of %d", r.graph.Name, len(x), len(ids), w)
	}
	var all []float32
	for from := 0; from < len(ids); from += size {
		to := min(from+size, len(ids))
		y, err := r.step(ids[from:to], x[from*w:to*w])
		if err != nil {
			return nil, err
		}
		all = append(all, y...)
	}
	return all, nil
}

// goldenParts is the number of layers whose attention and moe have goldens.
const goldenParts = 5

// partChecks compare the attention and moe sublayers of the first layers.
func (s *Suite) partChecks() []Check {
	var list []Check
	for l := range goldenParts {
		p := fmt.Sprintf("attn.%d.", l)
		for _, k := range []string{"prefill", "decode"} {
			name := fmt.Sprintf("attn.%d/%s", l, k)
			list = append(list, Check{name, func() error {
				y, err := s.attention(l)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				want, err := s.ops.floats(p + k)
				if err != nil {
					return err
				}
				v := s.verdict(name)
				v.compare("y", y[k], want, attentionLimit)
				return v.err()
			}})
		}
	}
	if s.cfg.Numerics == dsv4.Production {
		return list
	}
	for l := range goldenParts {
		name := fmt.Sprintf("moe.%d", l)
		list = append(list, Check{name, func() error {
			if err := s.moe(name, l); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		}})
	}
	return list
}

// attention runs a layer's attention over the golden prompt in chunks, then one
// token at a time, and returns both outputs.
func (s *Suite) attention(layer int) (map[string][]float32, error) {
	return once(s, fmt.Sprintf("attention %d", layer), func() (map[string][]float32, error) {
		p := fmt.Sprintf("attn.%d.", layer)
		prompt, err := s.ops.floats(p + "x")
		if err != nil {
			return nil, err
		}
		more, err := s.ops.floats(p + "decode_x")
		if err != nil {
			return nil, err
		}
		part, err := s.part(dsv4.AttentionPart, layer)
		if err != nil {
			return nil, err
		}
		w := part.width()
		n, m := len(prompt)/w, len(more)/w
		run, err := part.start(n + m)
		if err != nil {
			return nil, err
		}
		y := map[string][]float32{}
		ids := make([]int32, n+m) // attention does not look at them
		if y["prefill"], err = run.feed(ids[:n], prompt, chunk); err != nil {
			return nil, err
		}
		y["decode"], err = run.feed(ids[n:], more, 1)
		return y, err
	})
}

func (s *Suite) moe(name string, layer int) error {
	x, err := s.ops.floats(name + ".x")
	if err != nil {
		return err
	}
	ids, err := s.ops.i32s(name + ".ids")
	if err != nil {
		return err
	}
	want, err := s.ops.floats(name + ".y")
	if err != nil {
		return err
	}
	p, err := s.part(dsv4.MoEPart, layer)
	if err != nil {
		return err
	}
	run, err := p.start(len(ids))
	if err != nil {
		return err
	}
	got, err := run.feed(ids, x, len(ids))
	if err != nil {
		return err
	}
	v := s.verdict(name)
	v.compare("y", got, want, bf16Limit)
	return v.err()
}
