package eval

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

// benchmark runs one op on inputs of the given data; bytes is what one run
// reads of its operands.
func benchmark(b *testing.B, op string, attrs ir.Attrs, bytes int, args ...*Tensor) {
	b.Helper()
	g, err := opGraph(op, attrs, args, (*ir.Builder).Input)
	if err != nil {
		b.Fatal(err)
	}
	p, err := Compile(g, NewConsts(nil))
	if err != nil {
		b.Fatal(err)
	}
	in := map[string]*Tensor{}
	for i, a := range args {
		in[fmt.Sprintf("a%d", i)] = a
	}
	b.SetBytes(int64(bytes))
	for b.Loop() {
		if _, err := p.Run(in, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDot(b *testing.B) {
	for _, s := range []struct{ m, k, n int }{{1, 256, 256}, {32, 256, 256}, {1, 2048, 256}, {1, 256, 2048}} {
		b.Run(fmt.Sprintf("%dx%dx%d", s.m, s.k, s.n), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 1))
			x, w := randTensor(r, normal, ir.BF16, s.m, s.k), randTensor(r, normal, ir.F32, s.n, s.k)
			benchmark(b, "dot", ir.A("to", ir.BF16), 4*s.n*s.k, x, w)
		})
	}
}

func BenchmarkDequantize(b *testing.B) {
	for _, dt := range []ir.DType{ir.F8E4M3, ir.F4E2M1} {
		b.Run(dt.String(), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 1))
			b0, b1 := 128, 128
			if dt == ir.F4E2M1 {
				b0, b1 = 1, 32
			}
			q := randScaled(r, dt, b0, b1, 5, 5, 256, 256)
			benchmark(b, "dequantize", nil, len(q.Codes), q)
		})
	}
}

func BenchmarkQuantize(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	x := randTensor(r, normal, ir.BF16, 32, 1024)
	benchmark(b, "quantize", ir.A("to", ir.F8E4M3, "block", 128, "floor", 1e-4), 4*x.Len(), x)
}

func BenchmarkElementwise(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	x, y := randTensor(r, normal, ir.F32, 64, 1024), randTensor(r, normal, ir.F32, 64, 1024)
	row, column := randTensor(r, normal, ir.F32, 1, 1024), randTensor(r, normal, ir.F32, 64, 1)
	half := randTensor(r, normal, ir.BF16, 64, 1024)
	for _, c := range []struct {
		name, op string
		attrs    ir.Attrs
		args     []*Tensor
	}{
		{"mul", "mul", nil, []*Tensor{x, y}},
		{"mul row", "mul", nil, []*Tensor{x, row}},
		{"mul column", "mul", nil, []*Tensor{x, column}},
		{"mul column left", "mul", nil, []*Tensor{column, x}},
		{"mul bf16", "mul", nil, []*Tensor{half, half}},
		{"div", "div", nil, []*Tensor{x, y}},
		{"ge", "ge", nil, []*Tensor{x, y}},
		{"exp", "exp", nil, []*Tensor{x}},
		{"neg", "neg", nil, []*Tensor{x}},
		{"cast bf16", "cast", ir.A("to", ir.BF16), []*Tensor{x}},
		{"transpose", "transpose", ir.A("perm", []int{1, 0}), []*Tensor{x}},
		{"broadcast", "broadcast", ir.A("shape", dims(64, 1024)), []*Tensor{column}},
		{"reduce_sum last", "reduce_sum", ir.A("axis", 1), []*Tensor{x}},
		{"reduce_sum first", "reduce_sum", ir.A("axis", 0), []*Tensor{x}},
		{"reduce_max last", "reduce_max", ir.A("axis", 1), []*Tensor{x}},
		{"topk 32", "topk", ir.A("k", 32), []*Tensor{x}},
	} {
		b.Run(c.name, func(b *testing.B) { benchmark(b, c.op, c.attrs, 4*x.Len(), c.args...) })
	}
}
