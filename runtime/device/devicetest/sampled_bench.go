package devicetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/device"
)

// Benchmarks of op argmax and op sample are over logits of the largest vocabulary, which
// lie on the device as a weight; parameters go there and tokens come back in each run.
const benchColumns = 129_280

// benchKinds are the ways to draw that are measured.
var benchKinds = []struct {
	name string
	draw eval.Draw
}{
	{"greedy", eval.Draw{}},
	{"temperature", eval.Draw{Temperature: 1}},
	{"top-p", eval.Draw{Temperature: 1, TopP: 0.95}},
	{"top-k", eval.Draw{Temperature: 1, TopK: 40}},
	{"top-k and top-p", eval.Draw{Temperature: 1, TopK: 40, TopP: 0.95}},
}

// benchGraph is op argmax or op sample of so many rows.
func benchGraph(rows int, op string) (*ir.Graph, error) {
	b := ir.NewBuilder(op)
	args := []*ir.Value{b.Weight("x", ir.T(ir.F32, ir.Int(rows), ir.Int(benchColumns)))}
	if op == "sample" {
		args = append(args, drawInputs(b, rows)...)
	}
	r := b.Op(op, nil, args...)
	b.Output("ids", r[0])
	b.Output("flags", r[1])
	return b.Finish()
}

// benchLogits are the weight, normally distributed.
type benchLogits struct{}

func (benchLogits) Weight(_ string, t ir.Type) (*eval.Tensor, error) {
	x, err := eval.New(t)
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range x.F {
		x.F[i] = float32(3 * r.NormFloat64())
	}
	return x, nil
}

func benchUnit(b testing.TB, c *codegen.Compiler, tg *target.Target, compile Compile, rows int, op string) (*codegen.Unit, *codegen.Compiled, *ir.Graph) {
	b.Helper()
	g, err := benchGraph(rows, op)
	if err != nil {
		b.Fatal(err)
	}
	u := codegen.NewUnit(tg)
	if _, err := u.Lower(g); err != nil {
		b.Fatal(err)
	}
	code := compile.unit(b, c, u)
	return u, code, g
}

// RecordSampleBench compiles what BenchSample runs.
func RecordSampleBench(t testing.TB, c *codegen.Compiler, tg *target.Target, compile Compile) {
	t.Helper()
	for _, op := range []string{"argmax", "sample"} {
		benchUnit(t, c, tg, compile, 1, op)
	}
}

// BenchSample measures op argmax and op sample for batches.
func BenchSample(b *testing.B, c *codegen.Compiler, open Opener, compile Compile, batches ...int) {
	for _, rows := range batches {
		b.Run(fmt.Sprintf("%d rows/argmax", rows), func(b *testing.B) { benchRun(b, c, open, compile, rows, "argmax", eval.Draw{}) })
		for _, k := range benchKinds {
			b.Run(fmt.Sprintf("%d rows/%s", rows, k.name), func(b *testing.B) { benchRun(b, c, open, compile, rows, "sample", k.draw) })
		}
	}
}

func benchRun(b *testing.B, c *codegen.Compiler, open Opener, compile Compile, rows int, op string, draw eval.Draw) {
	dev, err := open(c)
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	tg, err := target.Lookup(dev.Chip())
	if err != nil {
		b.Fatal(err)
	}
	u, code, g := benchUnit(b, c, tg, compile, rows, op)
	m, err := device.NewModel(dev, code.Object, u.Module)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	if err := m.BindWeights(b.Context(), benchLogits{}, nil); err != nil {
		b.Fatal(err)
	}
	prog, err := m.Load(u.Module.Plans[0])
	if err != nil {
		b.Fatal(err)
	}
	in := map[string]*eval.Tensor{}
	for _, v := range g.Inputs {
		if in[v.Name], err = eval.New(v.Type); err != nil {
			b.Fatal(err)
		}
	}
	pos := int32(0)
	for b.Loop() {
		if op == "sample" {
			pos++
			setDraws(in, func(row int) eval.Draw {
				d := draw
				d.Seed, d.Pos = uint64(row), pos
				return d
			})
		}
		if _, err := prog.Run(in, nil); err != nil {
			b.Fatal(err)
		}
	}
}
