package devicetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/num"
	"github.com/kiln-project/kiln/runtime/device"
)

// The greedy matrix: rows, columns and dtypes of logits, each with every pattern.
var (
	greedyRows    = []int{1, 4, 33, 64, 256}
	greedyColumns = []int{1, 130, 2048, 32000, 129280}
	greedyTypes   = []ir.DType{ir.F32, ir.BF16}
)

// greedyPad is how many columns pad a vocabulary.
const greedyPad = 37

// greedyPattern fills rows of logits, of which it knows what argmax chooses; p is where
// a row's largest value belongs.
type greedyPattern struct {
	name   string
	padded bool
	fill   func(r *rand.Rand, row []float32, p int) (id, flags int64)
}

// spread are the columns from p on that hold the same value: as many as every shard and
// every lane of a group has some of.
const spread = 61

var (
	posInf, negInf, nan = float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())
	negZero             = float32(math.Copysign(0, -1))
)

// below is a row of numbers from -2 to 1.
func below(r *rand.Rand, row []float32) {
	for i := range row {
		row[i] = float32(r.Uint32()>>8)*(3.0/(1<<24)) - 2
	}
}

func all(row []float32, x float32) {
	for i := range row {
		row[i] = x
	}
}

// ties writes x at p, behind it wherever spread says, and at the end.
func ties(row []float32, p int, x float32) {
	for i := p; i < len(row); i += spread {
		row[i] = x
	}
	row[len(row)-1] = x
}

// largestAt is a row whose only largest value is at p.
func largestAt(r *rand.Rand, row []float32, p int) (id, flags int64) {
	below(r, row)
	row[p] = 5
	return int64(p), 0
}

var greedyPatterns = []greedyPattern{
	{"one largest", false, largestAt},
	{"all equal", false, func(_ *rand.Rand, row []float32, _ int) (id, flags int64) {
		all(row, 0.5)
		return 0, 0
	}},
	{"all negative", false, func(r *rand.Rand, row []float32, p int) (id, flags int64) {
		below(r, row)
		for i := range row {
			row[i] -= 3
		}
		row[p] = -1.5
		return int64(p), 0
	}},
	{"all -Inf", false, func(_ *rand.Rand, row []float32, _ int) (id, flags int64) {
		all(row, negInf)
		return 0, ir.ArgmaxAllLow
	}},
	{"all -Inf but one", false, func(_ *rand.Rand, row []float32, p int) (id, flags int64) {
		all(row, negInf)
		row[p] = -0x1p127
		return int64(p), 0
	}},
	{"ties across shards", false, func(r *rand.Rand, row []float32, p int) (id, flags int64) {
		below(r, row)
		ties(row, p, 5)
		return int64(p), 0
	}},
	{"zeros", false, func(_ *rand.Rand, row []float32, p int) (id, flags int64) {
		all(row, -1)
		ties(row, p, 0)
		row[p] = negZero
		return int64(p), 0
	}},
	{"NaN", false, func(r *rand.Rand, row []float32, p int) (id, flags int64) {
		below(r, row)
		ties(row, 0, nan)
		row[p] = 5
		if len(row) == 1 {
			return 0, 0
		}
		return int64(p), ir.ArgmaxNaN
	}},
	{"all NaN", false, func(_ *rand.Rand, row []float32, _ int) (id, flags int64) {
		all(row, nan)
		return 0, ir.ArgmaxNaN | ir.ArgmaxAllNaN
	}},
	{"+Inf", false, func(r *rand.Rand, row []float32, p int) (id, flags int64) {
		below(r, row)
		ties(row, p, posInf)
		return int64(p), ir.ArgmaxHigh
	}},
	{"padded columns", true, largestAt},
	{"padded columns, all -Inf", true, func(_ *rand.Rand, row []float32, _ int) (id, flags int64) {
		all(row, negInf)
		return 0, ir.ArgmaxAllLow
	}},
}

// GreedyMatrix is op argmax, and the product of a head with it, on a device.
type GreedyMatrix struct {
	// Most is how many logits a case has at most; 0: any number.
	Most int
	// MostFused is that of cases that have a product.
	MostFused int
	// Compile is nil for the compiler's own.
	Compile Compile
}

// greedyShape is one shape of the matrix, for all patterns of it.
type greedyShape struct {
	rows, columns int
	dtype         ir.DType
	padded, fused bool
	graph         *ir.Graph
	plan          *plan.Plan
}

// headWidth is how many columns the weight of a fused case has: the first holds the
// logits of every row, the others zeros.
const headWidth = 8

func (g *greedyShape) String() string {
	op := map[bool]string{false: "argmax", true: "linear_argmax"}[g.fused]
	return fmt.Sprintf("%s of %s[%d,%d]", op, g.dtype, g.rows, g.columns)
}

// build makes the graph.
func (g *greedyShape) build() error {
	b := ir.NewBuilder("greedy")
	n, valid := g.columns, 0
	if g.padded {
		n, valid = n+greedyPad, n
	}
	var r []*ir.Value
	if g.fused {
		h, w := b.Input("h", ir.T(ir.BF16, ir.Int(g.rows), ir.Int(headWidth))), b.Input("w", ir.T(ir.BF16, ir.Int(n), ir.Int(headWidth)))
		r = b.Op("linear_argmax", ir.A("valid", valid), h, w)
	} else {
		r = b.Op("argmax", ir.A("valid", valid), b.Input("x", ir.T(g.dtype, ir.Int(g.rows), ir.Int(n))))
	}
	b.Output("ids", r[0])
	b.Output("flags", r[1])
	var err error
	g.graph, err = b.Finish()
	return err
}

// inputs makes tensors for the graph, which fill gives values.
func (g *greedyShape) inputs() (map[string]*eval.Tensor, error) {
	in := map[string]*eval.Tensor{}
	for _, v := range g.graph.Inputs {
		x, err := eval.New(v.Type)
		if err != nil {
			return nil, err
		}
		in[v.Name] = x
	}
	return in, nil
}

// fill writes a pattern and returns what must come out.
func (g *greedyShape) fill(p *greedyPattern, in map[string]*eval.Tensor) (ids, flags []int64) {
	r := rand.New(rand.NewPCG(uint64(g.rows), uint64(g.columns)))
	ids, flags = make([]int64, g.rows), make([]int64, g.rows)
	place := func(row int) int { return (7919*row + g.columns/3) % g.columns }
	pad := func(row []float32, b int) {
		all(row[g.columns:], []float32{posInf, nan, 9}[b%3])
	}
	if !g.fused {
		x := in["x"]
		n := x.Shape[1]
		for b := range g.rows {
			row := x.F[b*n : (b+1)*n]
			pad(row, b)
			ids[b], flags[b] = p.fill(r, row[:g.columns], place(b))
			if g.dtype == ir.BF16 {
				round(row)
			}
		}
		return ids, flags
	}
	row := make([]float32, in["w"].Shape[0])
	pad(row, g.rows)
	id, flag := p.fill(r, row[:g.columns], place(g.rows))
	round(row)
	for i, x := range row {
		in["w"].F[i*headWidth] = x
	}
	below(r, in["h"].F)
	round(in["h"].F)
	for b := range g.rows {
		in["h"].F[b*headWidth], ids[b], flags[b] = 1, id, flag
	}
	return ids, flags
}

func round(row []float32) {
	for i, x := range row {
		row[i] = num.RoundBF16(x)
	}
}

// shapes lists the shapes of the matrix.
func (m GreedyMatrix) shapes() ([]*greedyShape, error) {
	var list []*greedyShape
	for _, rows := range greedyRows {
		for _, columns := range greedyColumns {
			for _, padded := range []bool{false, true} {
				if m.Most == 0 || rows*columns <= m.Most {
					for _, dt := range greedyTypes {
						list = append(list, &greedyShape{rows: rows, columns: columns, dtype: dt, padded: padded})
					}
				}
				if rows*columns <= m.MostFused {
					list = append(list, &greedyShape{rows: rows, columns: columns, dtype: ir.BF16, padded: padded, fused: true})
				}
			}
		}
	}
	for _, g := range list {
		if err := g.build(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// build compiles the matrix without a form of kernels, if disable names one.
func (m GreedyMatrix) build(t testing.TB, c *codegen.Compiler, tg *target.Target, list []*greedyShape, disable string) (*codegen.Unit, *codegen.Compiled) {
	t.Helper()
	u := codegen.NewUnit(tg)
	u.Disable[disable] = disable != ""
	for _, g := range list {
		var err error
		if g.plan, err = u.Lower(g.graph); err != nil {
			t.Fatalf("%v: %v", g, err)
		}
	}
	return u, m.Compile.unit(t, c, u)
}

// unfused has the product and argmax of its rows as two ops.
const unfused = "linear_argmax"

// Record compiles all that Run runs.
func (m GreedyMatrix) Record(t testing.TB, c *codegen.Compiler, tg *target.Target) {
	t.Helper()
	list, err := m.shapes()
	if err != nil {
		t.Fatal(err)
	}
	m.build(t, c, tg, list, "")
	m.build(t, c, tg, fusedOf(list), unfused)
}

func fusedOf(list []*greedyShape) []*greedyShape {
	return slices.DeleteFunc(slices.Clone(list), func(g *greedyShape) bool { return !g.fused })
}

// Run holds the device and the evaluator to what the patterns say, and returns how many
// cases that were; a case of the product counts once fused, once as two ops.
func (m GreedyMatrix) Run(t testing.TB, c *codegen.Compiler, open Opener) int {
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
	list, err := m.shapes()
	if err != nil {
		t.Fatal(err)
	}
	u, code := m.build(t, c, tg, list, "")
	n := runGreedy(t, dev, u, code, list)
	if list = fusedOf(list); len(list) > 0 {
		u, code = m.build(t, c, tg, list, unfused)
		n += runGreedy(t, dev, u, code, list)
	}
	return n
}

func runGreedy(t testing.TB, dev device.Device, u *codegen.Unit, code *codegen.Compiled, list []*greedyShape) (cases int) {
	t.Helper()
	model, err := device.NewModel(dev, code.Object, u.Module)
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	for _, g := range list {
		in, err := g.inputs()
		if err != nil {
			t.Fatal(err)
		}
		oracle, err := eval.Compile(g.graph, eval.NewConsts(nil))
		if err != nil {
			t.Fatal(err)
		}
		prog, err := model.Load(g.plan)
		if err != nil {
			t.Fatal(err)
		}
		for i := range greedyPatterns {
			p := &greedyPatterns[i]
			if p.padded != g.padded {
				continue
			}
			ids, flags := g.fill(p, in)
			want, err := oracle.Run(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := prog.Run(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			cases++
			for _, of := range []struct {
				what string
				out  map[string]*eval.Tensor
			}{{"evaluator", want}, {dev.Name(), got}} {
				if row := firstOther(of.out, ids, flags); row >= 0 {
					t.Errorf("%s: %v, %s: row %d has id %d, flags %d; want %d, %d", of.what, g, p.name, row, of.out["ids"].I[row], of.out["flags"].I[row], ids[row], flags[row])
				}
			}
		}
		if err := prog.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return cases
}

// firstOther is the first row of a choice that is another, or -1.
func firstOther(out map[string]*eval.Tensor, ids, flags []int64) int {
	for row := range ids {
		if out["ids"].I[row] != ids[row] || out["flags"].I[row] != flags[row] {
			return row
		}
	}
	return -1
}
