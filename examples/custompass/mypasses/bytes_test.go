package mypasses

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

func TestBytes(t *testing.T) {
	g := parse(t, `graph @g
input %x : bf16[1,256]
weight @layers.0.norm : bf16[256]
weight @layers.0.w : f8e4m3[256,256] block(128,128) scale e8m0
weight @norm : bf16[256]
%0 = rms_norm %x, @layers.0.norm {eps = 1e-06} : bf16[1,256] loc("layers.0.attn")
%1 = block_linear %0, @layers.0.w : bf16[1,256] loc("layers.0.attn")
%2 = rms_norm %1, @norm {eps = 1e-06} : bf16[1,256] loc("head")
output y = %2
`)
	m := apply(t, "bytes-per-layer", g)
	want := `analysis: bytes-per-layer @g layers.0.attn: rms_norm: layers.0: 66052 bytes in 2 weights
analysis: bytes-per-layer @g head: rms_norm: outside of the layers: 512 bytes in 1 weights
`
	if got := said(m); got != want { // 65536 codes, 4 scales, 512 of the norm
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if ir.Text(m.Entries[0]) != ir.Text(g) {
		t.Error("an analysis changed the graph")
	}
}

// Layers and the rest make up all weights of the model, packed ones included, and
// every layer's remark stands at an op of that layer.
func TestBytesModel(t *testing.T) {
	m := apply(t, "bytes-per-layer", tiny(t)...)
	for _, g := range m.Entries {
		var want, got int64
		for _, w := range g.Weights {
			data, scales, _ := w.Type.Bytes()
			want += data + scales
		}
		totals, err := bytesOf(g)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range totals {
			got += x.bytes
		}
		if got != want || len(totals) < 2 {
			t.Errorf("@%s: %d bytes in %d groups, want %d", g.Name, got, len(totals), want)
		}
	}
	for _, r := range m.Remarks {
		if r.Kind != passes.Analysis || !strings.HasPrefix(r.Text, layerOf(r.Loc)) && !strings.HasPrefix(r.Text, "outside") {
			t.Errorf("%s", r)
		}
	}
}

// What has no integer extents is refused, not counted as nothing.
func TestBytesRefuses(t *testing.T) {
	b := ir.NewBuilder("g")
	b.Output("y", b.Weight("w", ir.T(ir.F32, b.Sym("T"))))
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bytesOf(g); err == nil {
		t.Error("no error")
	}
}
