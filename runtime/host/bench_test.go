package host_test

import (
	"context"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/host"
	"github.com/kiln-project/kiln/runtime/weights"
)

// tinyOnHost compiles the tiny checkpoint for one request of up to 512
// positions and returns an engine with its pools.
func tinyOnHost(b *testing.B) (*engine.Engine, engine.Layout) {
	b.Helper()
	const dir, pages = "../../testdata/tiny-dsv4", 4
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
	name, err := host.Target()
	if err != nil {
		b.Skip(err)
	}
	tg, err := target.Lookup(name)
	if err != nil {
		b.Fatal(err)
	}
	u := codegen.NewUnit(tg)
	bind := map[string]int{"T": 512, "B": 1, "O": 1, "R": 1, "P": pages, "N": pages}
	_, err = u.LowerAll(m.Entries, []passes.Bucket{{Entry: "prefill", Bind: bind}, {Entry: "decode", Bind: bind}})
	if err != nil {
		b.Fatal(err)
	}
	out, err := devicetest.Compiler(b).Compile(context.Background(), u)
	if err != nil {
		b.Fatal(err)
	}
	file, err := weights.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { file.Close() })
	w, err := engine.BindPack(m.Pack, engine.CheckpointSource{File: file})
	if err != nil {
		b.Fatal(err)
	}
	cpu, err := host.Open()
	if err != nil {
		b.Fatal(err)
	}
	x, err := device.NewExecutor(b.Context(), cpu, out.Object, u.Module, w, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { x.Close() })
	l, err := engine.LayoutOf(m.Entries[0])
	if err != nil {
		b.Fatal(err)
	}
	e, err := engine.New(x, l, 1, pages)
	if err != nil {
		b.Fatal(err)
	}
	return e, l
}

// BenchmarkHostDecode is single-stream greedy decoding of the tiny checkpoint.
func BenchmarkHostDecode(b *testing.B) {
	e, _ := tinyOnHost(b)
	id, n := int32(5), 0
	s, err := e.NewSeq(0, 4)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		out, err := e.DecodeOne(s, id)
		if err != nil {
			b.Fatal(err)
		}
		id = engine.Argmax(out["logits"].F)
		n++
		if s.Len++; s.Len == 512 {
			s.Len = 0
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tokens/s")
}

// BenchmarkHostPrefill feeds prompts of 512 tokens in one step.
func BenchmarkHostPrefill(b *testing.B) {
	e, l := tinyOnHost(b)
	ids := make([]int32, 512)
	for i := range ids {
		ids[i] = int32(2 + i*7%(l.Vocab-2))
	}
	n := 0
	for b.Loop() {
		s, err := e.NewSeq(0, 4)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.Prefill(s, ids, 512, nil); err != nil {
			b.Fatal(err)
		}
		n += len(ids)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tokens/s")
}
