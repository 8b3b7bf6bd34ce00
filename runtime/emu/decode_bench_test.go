package emu_test

import (
	"testing"

	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/emu"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/weights"
)

// BenchmarkDecode is greedy decoding of the tiny checkpoint for one request of up to
// 512 positions.
func BenchmarkDecode(b *testing.B) {
	for _, chip := range emu.Chips {
		b.Run(chip, func(b *testing.B) {
			const dir, pages = "../../testdata/tiny-dsv4", 4
			config, err := dsv4.LoadConfig(dir)
			if err != nil {
				b.Fatal(err)
			}
			g, err := dsv4.Build(config, dsv4.Decode, dsv4.DefaultOptions())
			if err != nil {
				b.Fatal(err)
			}
			c := devicetest.Compiler(b)
			open := opener(chip, emu.Options{})
			m := &passes.Module{Target: devicetest.Target(b, c, open).ForPasses()}
			m.Entries = append(m.Entries, g)
			if err := passes.Run(m); err != nil {
				b.Fatal(err)
			}
			file, err := weights.Open(dir)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { file.Close() })
			x, err := devicetest.NewLazy(b, c, open, m.Entries, m.Pack, engine.CheckpointSource{File: file})
			if err != nil {
				b.Fatal(err)
			}
			l, err := engine.LayoutOf(m.Entries[0])
			if err != nil {
				b.Fatal(err)
			}
			e, err := engine.New(x, l, 1, pages)
			if err != nil {
				b.Fatal(err)
			}
			s, err := e.NewSeq(0, pages)
			if err != nil {
				b.Fatal(err)
			}
			id, n := int32(5), 0
			step := func() {
				out, err := e.DecodeOne(s, id)
				if err != nil {
					b.Fatal(err)
				}
				id = engine.Argmax(out["logits"].F)
				if s.Len++; s.Len == 512 {
					s.Len = 0
				}
			}
			step() // compiles
			for b.Loop() {
				step()
				n++
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tokens/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
