package emu_test

import (
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/emu"
)

// BenchmarkKernels runs kernels of the library on one core: whole launches, with the
// inputs put in and the output read.
func BenchmarkKernels(b *testing.B) {
	for _, c := range []struct {
		name, graph string
		flops       float64
	}{
		{"rms_norm", "graph @g\ninput %x : bf16[512,4096]\ninput %w : bf16[4096]\n%0 = rms_norm %x, %w {eps = 1e-6} : bf16[512,4096]\noutput y = %0\n", 0},
		{"linear", "graph @g\ninput %x : bf16[256,512]\ninput %w : bf16[256,512]\n%0 = linear %x, %w : bf16[256,256]\noutput y = %0\n", 2 * 256 * 256 * 512},
	} {
		for _, chip := range emu.Chips {
			b.Run(c.name+"/"+chip, func(b *testing.B) {
				g, err := ir.ParseOne(c.name, c.graph)
				if err != nil {
					b.Fatal(err)
				}
				counters := &emu.Counters{}
				run := func(o emu.Options) func() {
					x, err := devicetest.NewLazy(b, devicetest.Compiler(b), opener(chip, o), []*ir.Graph{g}, nil, nil)
					if err != nil {
						b.Fatal(err)
					}
					in := map[string]*eval.Tensor{}
					for _, v := range g.Inputs {
						t, err := eval.New(v.Type)
						if err != nil {
							b.Fatal(err)
						}
						for i := range t.F {
							t.F[i] = float32(i%7) - 3
						}
						in[v.Name] = t
					}
					return func() {
						if _, err := x.Run("g", nil, in, nil); err != nil {
							b.Fatal(err)
						}
					}
				}
				run(emu.Options{Counters: counters})()
				var instructions int64
				for _, k := range counters.Kernels() {
					instructions += k.Instructions
				}
				step := run(emu.Options{Workers: 1})
				step()
				for b.Loop() {
					step()
				}
				seconds := b.Elapsed().Seconds() / float64(b.N)
				b.ReportMetric(float64(instructions)/seconds/1e6, "Minst/s")
				if c.flops > 0 {
					b.ReportMetric(c.flops/seconds/1e9, "GFLOP/s")
				}
			})
		}
	}
}
