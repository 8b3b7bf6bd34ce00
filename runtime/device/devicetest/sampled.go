package devicetest

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/device"
)

// SampleMatrix is op sample on a device, over mixed batches.
type SampleMatrix struct {
	Compile Compile // nil for the compiler's own
}

// sampleKinds are rows of a mixed batch: each kind comes several times, over other
// numbers.
var sampleKinds = []eval.Draw{
	{}, {Temperature: 1}, {Temperature: 0.7, TopK: 5}, {Temperature: 1, TopP: 0.9}, {Temperature: 2, TopK: 100, TopP: 0.5},
	{Temperature: 0x1p-149}, {Temperature: math.MaxFloat32}, {Temperature: 1, TopK: math.MaxInt32, TopP: 1}, {Temperature: 30, TopP: 0x1p-149},
	{Temperature: -1}, {Temperature: 1, TopP: 1.5}, {Temperature: 1, TopK: -1},
}

// sampleShape is one shape of the matrix.
type sampleShape struct {
	rows, columns int
	dtype         ir.DType
	graph         *ir.Graph
	plan          *plan.Plan
}

// drawInputs are the operands of op sample behind the logits.
func drawInputs(b *ir.Builder, rows int) []*ir.Value {
	by := func(name string, dt ir.DType) *ir.Value { return b.Input(name, ir.T(dt, ir.Int(rows))) }
	return []*ir.Value{by("temperature", ir.F32), by("top_k", ir.I32), by("top_p", ir.F32), by("seed", ir.I64), by("pos", ir.I32)}
}

// setDraws writes how each row is drawn.
func setDraws(in map[string]*eval.Tensor, draw func(row int) eval.Draw) {
	for row := range in["pos"].I {
		d := draw(row)
		in["temperature"].F[row], in["top_k"].I[row], in["top_p"].F[row] = d.Temperature, int64(d.TopK), d.TopP
		in["seed"].I[row], in["pos"].I[row] = int64(d.Seed), int64(d.Pos)
	}
}

func sampleShapes() ([]*sampleShape, error) {
	var list []*sampleShape
	for _, rows := range []int{1, 24} {
		for _, columns := range greedyColumns {
			for _, dt := range greedyTypes {
				b := ir.NewBuilder("sample")
				x := b.Input("x", ir.T(dt, ir.Int(rows), ir.Int(columns)))
				r := b.Op("sample", nil, append([]*ir.Value{x}, drawInputs(b, rows)...)...)
				b.Output("ids", r[0])
				b.Output("flags", r[1])
				g, err := b.Finish()
				if err != nil {
					return nil, err
				}
				list = append(list, &sampleShape{rows: rows, columns: columns, dtype: dt, graph: g})
			}
		}
	}
	return list, nil
}

// inputs are numbers as logits are, a row of few different ones and a row with NaN.
func (s *sampleShape) inputs(r *rand.Rand) (map[string]*eval.Tensor, error) {
	in := map[string]*eval.Tensor{}
	for _, v := range s.graph.Inputs {
		x, err := eval.New(v.Type)
		if err != nil {
			return nil, err
		}
		in[v.Name] = x
	}
	x := in["x"]
	for i := range x.F {
		x.F[i] = float32(3 * r.NormFloat64())
	}
	setDraws(in, func(row int) eval.Draw {
		d := sampleKinds[(row+1)%len(sampleKinds)]
		d.Seed, d.Pos = r.Uint64(), r.Int32()
		return d
	})
	for row := range s.rows {
		logits := x.F[row*s.columns : (row+1)*s.columns]
		switch row % 8 {
		case 3:
			for i, v := range logits {
				logits[i] = float32(math.Round(float64(v) / 2))
			}
		case 7:
			logits[s.columns/2] = nan
		}
	}
	if s.dtype == ir.BF16 {
		round(x.F)
	}
	return in, nil
}

func (m SampleMatrix) build(t testing.TB, c *codegen.Compiler, tg *target.Target, list []*sampleShape) (*codegen.Unit, *codegen.Compiled) {
	t.Helper()
	u := codegen.NewUnit(tg)
	for _, s := range list {
		var err error
		if s.plan, err = u.Lower(s.graph); err != nil {
			t.Fatal(err)
		}
	}
	return u, m.Compile.unit(t, c, u)
}

// Record compiles all that Run runs.
func (m SampleMatrix) Record(t testing.TB, c *codegen.Compiler, tg *target.Target) {
	t.Helper()
	list, err := sampleShapes()
	if err != nil {
		t.Fatal(err)
	}
	m.build(t, c, tg, list)
}

// Run holds the device to the evaluator, which draws the same tokens, over so many sets
// of numbers. It returns how many rows that were.
func (m SampleMatrix) Run(t testing.TB, c *codegen.Compiler, open Opener, sets int) (rows int) {
	t.Helper()
	dev, err := open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	tg, err := target.Lookup(dev.Chip())
	if err != nil {
		t.Fatal(err)
	}
	list, err := sampleShapes()
	if err != nil {
		t.Fatal(err)
	}
	u, code := m.build(t, c, tg, list)
	model, err := device.NewModel(dev, code.Object, u.Module)
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	for _, s := range list {
		prog, err := model.Load(s.plan)
		if err != nil {
			t.Fatal(err)
		}
		oracle, err := eval.Compile(s.graph, eval.NewConsts(nil))
		if err != nil {
			t.Fatal(err)
		}
		for set := range sets {
			in, err := s.inputs(rand.New(rand.NewPCG(uint64(s.columns), uint64(set))))
			if err != nil {
				t.Fatal(err)
			}
			want, err := oracle.Run(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := prog.Run(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if row := firstOther(got, want["ids"].I, want["flags"].I); row >= 0 {
				t.Errorf("%s: %s[%d,%d], set %d: row %d has id %d, flags %d; want %d, %d", dev.Name(), s.dtype, s.rows, s.columns, set, row,
					got["ids"].I[row], got["flags"].I[row], want["ids"].I[row], want["flags"].I[row])
			}
			rows += s.rows
		}
		if err := prog.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return rows
}
