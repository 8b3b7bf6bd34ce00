package engine_test

import (
	"context"
	"testing"

	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/weights"
)

// BenchmarkRefGenerate completes an 8-token prompt by 64 tokens on the oracle,
// tiny checkpoint, production numerics.
func BenchmarkRefGenerate(b *testing.B) {
	const dir, newTokens = "../../testdata/tiny-dsv4", 64
	c, err := dsv4.LoadConfig(dir)
	if err != nil {
		b.Fatal(err)
	}
	m := &passes.Module{}
	for _, e := range []dsv4.Entry{dsv4.Prefill, dsv4.Decode} {
		g, err := dsv4.Build(c, e, dsv4.DefaultOptions())
		if err != nil {
			b.Fatal(err)
		}
		m.Entries = append(m.Entries, g)
	}
	if err := passes.Run(m); err != nil {
		b.Fatal(err)
	}
	file, err := weights.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	exec, err := engine.NewRef(m.Entries, m.Pack, engine.CheckpointSource{File: file})
	if err != nil {
		b.Fatal(err)
	}
	layout, err := engine.LayoutOf(m.Entries[0])
	if err != nil {
		b.Fatal(err)
	}
	req := engine.Request{Prompt: []int32{0, 303, 222, 881, 296, 268, 94, 200}, MaxNew: newTokens}
	var decode, prefill float64
	for b.Loop() {
		e, err := engine.New(exec, layout, 1, 1)
		if err != nil {
			b.Fatal(err)
		}
		s, err := e.NewSeq(0, 1)
		if err != nil {
			b.Fatal(err)
		}
		_, st, err := e.Generate(context.Background(), s, req, nil, func(int32) error { return nil })
		if err != nil {
			b.Fatal(err)
		}
		decode += st.Decode.Seconds()
		prefill += st.Prefill.Seconds()
	}
	b.ReportMetric(float64(newTokens-1)*float64(b.N)/decode, "tokens/s")
	b.ReportMetric(prefill/float64(b.N)*1e3, "ms-to-first")
}
