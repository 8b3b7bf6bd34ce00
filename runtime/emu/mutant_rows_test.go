package emu

import (
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/device"
)

// packedRows are the formats of the tiny model's pools, with the floors of their blocks.
var packedRows = []struct {
	ir.RowFormat
	floor float64
}{{kvRows, 1e-4}, {indexRows, 6 * 0x1p-126}}

// rowSubjects are the kernels that pack and unpack rows by themselves: the model's do it
// as part of others.
func rowSubjects(t *testing.T, c *codegen.Compiler, chip string) []*subject {
	const n = 5
	rng := rand.New(rand.NewPCG(7, 1))
	b := ir.NewBuilder("rows")
	in := map[string]*eval.Tensor{}
	for _, f := range packedRows {
		name := f.To.String()
		attrs := append(f.Attrs(), ir.A("floor", f.floor)...)
		x := input(t, b, in, "x_"+name, ir.T(ir.BF16, ir.Int(n), ir.Int(f.D)))
		index := input(t, b, in, "index_"+name, ir.T(ir.I32, ir.Int(n)))
		for i := range in["x_"+name].F {
			in["x_"+name].F[i] = float32(rng.IntN(257) - 128)
		}
		for i := range n {
			in["index_"+name].I[i] = int64(rng.IntN(n+1) - 1)
		}
		rows := b.Op1("pack_rows", attrs, x)
		b.Output("rows_"+name, rows)
		b.Output("y_"+name, b.Op1("unpack_rows", append(f.Attrs(), ir.A("d", f.D)...), rows, index))
	}
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	tg, err := target.Lookup(chip)
	if err != nil {
		t.Fatal(err)
	}
	u := codegen.NewUnit(tg)
	p, err := u.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Compile(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	rec := &recorder{kept: map[string]*kept{}}
	if err := rec.open(t, c, chip); err != nil {
		t.Fatal(err)
	}
	m, err := device.NewModel(rec, out.Object, u.Module)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	prog, err := m.Load(p)
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	if _, err := prog.Run(in, nil); err != nil {
		t.Fatal(err)
	}
	if len(rec.kept) != 2*len(packedRows) {
		t.Fatalf("%s: %d kernels pack and unpack rows of %d formats", chip, len(rec.kept), len(packedRows))
	}
	return rec.subjects(t, chip)
}

// input adds an input of zeros.
func input(t *testing.T, b *ir.Builder, in map[string]*eval.Tensor, name string, typ ir.Type) *ir.Value {
	x, err := eval.New(typ)
	if err != nil {
		t.Fatal(err)
	}
	in[name] = x
	return b.Input(name, typ)
}
