package passes

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// hardFloats are the numbers that algebra is wrong about.
var hardFloats = []float32{
	float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0, float32(math.Copysign(0, -1)),
	1, -1.5, 0x1p-130, -0x1p-126, 3e38, 1e-8,
}

// The text cases compute the same bits after the pass, of inputs that hold NaN,
// infinities, zeros of both signs and subnormal numbers.
func TestFoldKeepsEveryBit(t *testing.T) {
	files, err := filepath.Glob("testdata/fold/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before := module(t, file, string(txtar.Parse(text).Files[0].Data))
		after := &Module{Entries: slices.Clone(before.Entries)}
		p, err := Lookup("fold")
		if err != nil {
			t.Fatal(err)
		}
		if err := runOne(p, after); err != nil {
			t.Fatal(err)
		}
		want, got := runHard(t, before.Entries[0]), runHard(t, after.Entries[0])
		for name, w := range want {
			g := got[name]
			same := func(x, y float32) bool {
				return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
			}
			if !slices.EqualFunc(w.F, g.F, same) || !slices.Equal(w.I, g.I) {
				t.Errorf("%s: output %s is %v %v, want %v %v", file, name, g.F, g.I, w.F, w.I)
			}
		}
	}
}

// runHard runs a graph with symbols of 3 on hard numbers.
func runHard(t *testing.T, g *ir.Graph) map[string]*eval.Tensor {
	t.Helper()
	bind := map[string]int{}
	for _, s := range g.Syms {
		bind[s] = 3
	}
	g, err := ir.Bind(g, bind)
	if err != nil {
		t.Fatal(err)
	}
	fill := func(v *ir.Value) *eval.Tensor {
		x, err := eval.New(v.Type)
		if err != nil {
			t.Fatal(err)
		}
		for i := range x.F {
			x.F[i] = hardFloats[i%len(hardFloats)]
			if v.Type.DType == ir.BF16 {
				x.F[i] = math.Float32frombits(math.Float32bits(x.F[i]) &^ 0xFFFF)
			}
		}
		for i := range x.I {
			x.I[i] = int64(i % 2)
		}
		return x
	}
	in, states := map[string]*eval.Tensor{}, map[string]*eval.Tensor{}
	for _, v := range g.Inputs {
		in[v.Name] = fill(v)
	}
	for _, v := range g.States {
		states[v.Name] = fill(v)
	}
	p, err := eval.Compile(g, eval.NewConsts(nil))
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Run(in, states)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
