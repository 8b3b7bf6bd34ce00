package engine

import (
	"fmt"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
)

// unpackPool is what the rows of a packed pool stand for.
func unpackPool(t testing.TB, f ir.RowFormat, v *eval.Tensor) []float32 {
	t.Helper()
	b := ir.NewBuilder("unpack")
	b.Output("numbers", b.Unpack(f, b.Input("rows", v.Type())))
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	p, err := eval.Compile(g, eval.NewConsts(nil))
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Run(map[string]*eval.Tensor{"rows": v}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out["numbers"].F
}

// samePacked compares pools with packed rows with pools of bf16 numbers.
func (m *tinyModel) samePacked(t testing.TB, what string, wide, packed Tensors) {
	t.Helper()
	seen := 0
	for name, v := range packed {
		if v.I == nil {
			sameBits(t, what+": "+name, wide[name].F, v.F)
			continue
		}
		seen++
		sameBits(t, what+": "+name, wide[name].F, unpackPool(t, m.format(name), v))
	}
	if want := 2*m.cfg.Layers + 1; seen < want { // windows, those of MTP too, and entries
		t.Errorf("%s: %d packed pools, want at least %d", what, seen, want)
	}
}

// Packed pools are bf16 pools bit for bit, in all that steps output and leave behind:
// prompts in chunks, decode steps, verify steps of which drafts are rejected, and the
// MTP steps beside them.
func TestPackedPools(t *testing.T) {
	m := tiny(t, dsv4.Production)
	o := tinyOptions(dsv4.Production)
	o.BF16Pools = true
	wide, err := buildModel(m.cfg, o, CheckpointSource{m.file})
	if err != nil {
		t.Fatal(err)
	}
	ids := goldenIDs(t, "long")
	type side struct {
		*tinyModel
		e *Engine
		s *Seq
	}
	var sides [2]side
	for i, m := range []*tinyModel{wide, m} {
		e, s := m.one(t)
		sides[i] = side{m, e, s}
	}
	step := func(entry string, stream []int32, n, commit int) {
		t.Helper()
		var outs [2]Tensors
		what := fmt.Sprintf("%s of %d at %d", entry, n, sides[0].s.Len)
		for i, x := range sides {
			f, next := all(x.s, stream, n)
			outs[i] = x.step(t, x.e, entry, []Feed{f}, [][]int32{next}, ShapeOf([]Feed{f}))
		}
		sameRows(t, what, outRows(outs[0], 0, n), outRows(outs[1], 0, n))
		m.samePacked(t, what, sides[0].e.allPools(), sides[1].e.allPools())
		for _, x := range sides {
			x.s.Len += commit
		}
	}
	step(entryPrefill, ids, 61, 61)
	step(entryPrefill, ids, 63, 63)
	for n := sides[0].s.Len; n < 132; n = sides[0].s.Len {
		wrong := append(append([]int32{}, ids[:n+2]...), wrongIDs(ids[n+2:], 4)...)
		step(entryVerify, wrong, 4, 2)
		step(entryDecode, ids, 1, 1)
	}
}
