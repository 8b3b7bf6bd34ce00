package devicetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
)

// The tiny checkpoint's ways to pack rows.
var (
	kvRows    = ir.RowFormat{To: ir.F8E4M3, Block: 64, Dims: 64, D: 128}
	indexRows = ir.RowFormat{To: ir.F4E2M1, Block: 32, Dims: 128, D: 128}
)

// PackedPools tests that a model with packed pools gives the bits of one with pools of
// bf16 numbers, in all outputs of steps, those of drafts among them, and in what is
// left in the pools: a prompt that fills the window and closes a group of 128, decode
// steps, and a verify step whose tokens are not kept.
func PackedPools(t *testing.T, wide, packed *Tiny) {
	const n, pages = 137, 2
	ids := Prompt(n + 8)
	run := func(m *Tiny) (map[string][]float32, []*device.State) {
		e, _ := m.Engine(t, 1, pages)
		s, err := e.NewSeq(0, pages)
		if err != nil {
			t.Fatal(err)
		}
		rows := map[string][]float32{}
		step := func(entry string, n int) []engine.Feed {
			f := []engine.Feed{{Seq: s, IDs: ids[s.Len:][:n]}}
			for i := range n {
				f[0].Out = append(f[0].Out, i)
			}
			out, err := e.Step(entry, f, engine.ShapeOf(f))
			if err != nil {
				t.Fatal(err)
			}
			next := []engine.Feed{{Seq: s, IDs: ids[s.Len+1:][:n], Out: f[0].Out}}
			draft, err := e.Draft(next, engine.ShapeOf(next), LastHidden(out))
			if err != nil {
				t.Fatal(err)
			}
			for what, list := range map[string]engine.Tensors{entry: out, "draft beside " + entry: draft} {
				for name, v := range list {
					rows[fmt.Sprintf("%s at %d, %s", what, s.Len, name)] = v.F
				}
			}
			return f
		}
		engine.Commit(step("prefill", n))
		step("verify", 4)
		engine.Commit(step("decode", 1))
		engine.Commit(step("decode", 1))
		return rows, m.Made
	}
	want, wantPools := run(wide)
	got, pools := run(packed)
	for name := range want {
		SameBits(t, name, want[name], got[name])
	}
	SamePools(t, wantPools, pools)
}

// SamePools holds pools, of which some are packed, to pools of bf16 numbers. Rows that
// still have the canary of Spoil have it in both.
func SamePools(t *testing.T, wide, packed []*device.State) {
	t.Helper()
	unpacked := 0
	for i, st := range packed {
		for _, name := range st.Names() {
			want, got := pool(t, wide[i], name), pool(t, st, name)
			if got.DType == ir.U8 {
				format := kvRows
				if strings.HasSuffix(name, "index_entries") {
					format = indexRows
				}
				got = unpack(t, format, got)
				unpacked++
			}
			rows, width := want.Shape[0], want.Shape[1]
			old, now := spoiledRows(PoolBytes(t, wide[i], name), rows), spoiledRows(PoolBytes(t, st, name), rows)
			for r := range rows {
				if old[r] != now[r] {
					t.Errorf("pool %s: row %d was written: %v, want %v", name, r, !now[r], !old[r])
				} else if !now[r] {
					SameBits(t, fmt.Sprintf("pool %s, row %d", name, r), want.F[r*width:][:width], got.F[r*width:][:width])
				}
			}
		}
	}
	if unpacked == 0 {
		t.Error("no pool is packed")
	}
}

// spoiledRows are the rows of a pool that are full of the canary.
func spoiledRows(b []byte, rows int) []bool {
	out := make([]bool, rows)
	for r := range out {
		row := b[r*len(b)/rows:][:len(b)/rows]
		out[r] = !slices.ContainsFunc(row, func(x byte) bool { return x != canary })
	}
	return out
}

func pool(t testing.TB, st *device.State, name string) *eval.Tensor {
	t.Helper()
	x, err := st.Pool(name)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// unpack is what packed rows stand for.
func unpack(t testing.TB, f ir.RowFormat, rows *eval.Tensor) *eval.Tensor {
	t.Helper()
	b := ir.NewBuilder("unpack")
	b.Output("x", b.Unpack(f, b.Input("rows", rows.Type())))
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	p, err := eval.Compile(g, eval.NewConsts(nil))
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Run(map[string]*eval.Tensor{"rows": rows}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out["x"]
}
