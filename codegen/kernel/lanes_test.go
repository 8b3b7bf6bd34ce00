package kernel_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// Reductions and prefix sums over the lanes, with a ragged end.
func TestLaneExchange(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	var units []unit
	for _, n := range []int{1, 3, 4, 5, 8, 9, 100} {
		x := ints(t, ir.I32, make([]int64, n)...)
		for i := range x.I {
			x.I[i] = int64(r.IntN(2000) - 1000)
		}
		// prefix sums of all n, lanes by lanes
		units = append(units, unit{name: "prefix", in: []*eval.Tensor{x}, out: ir.T(ir.I32, ir.Int(n+1)),
			body: func(k *kernel.K, in []*kernel.Buf, out *kernel.Buf) {
				sum := k.UniformVar(k.Int32(0))
				k.Chunks(k.Int(n), func(i, inside kernel.V) {
					v := k.Var(k.Int32(0))
					k.If(inside, func() { v.Set(in[0].Load(i)) })
					before, total := k.Prefix(v.Get())
					k.If(inside, func() { out.Store(i, k.Add(before, sum.Get())) })
					sum.Set(k.Add(sum.Get(), total))
				})
				k.First(func() { out.Store(k.Int(n), sum.Get()) })
			},
			check: wantInts(func(i int) int64 {
				s := int64(0)
				for _, v := range x.I[:i] {
					s += v
				}
				return s
			})})
		fold := func(name string, start func(k *kernel.K) kernel.V, step func(k *kernel.K, a, b kernel.V) kernel.V, elem kernel.Elem, want func(a, b int64) int64) unit {
			return unit{name: name, in: []*eval.Tensor{x}, out: ir.T(ir.I64, ir.Int(1)),
				body: func(k *kernel.K, in []*kernel.Buf, out *kernel.Buf) {
					acc := k.Var(start(k))
					k.Lanes(k.Int(n), func(i kernel.V) { acc.Set(step(k, acc.Get(), k.Convert(in[0].Load(i), elem))) })
					total := k.Reduce(acc.Get(), func(a, b kernel.V) kernel.V { return step(k, a, b) })
					k.First(func() { out.Store(k.Int(0), k.Convert(total, kernel.I64)) })
				},
				check: wantInts(func(int) int64 {
					m := x.I[0]
					for _, v := range x.I[1:] {
						m = want(m, v)
					}
					return m
				})}
		}
		add, most := func(a, b int64) int64 { return a + b }, func(a, b int64) int64 { return max(a, b) }
		units = append(units,
			fold("sum i32", func(k *kernel.K) kernel.V { return k.Int32(0) }, (*kernel.K).Add, kernel.I32, add),
			fold("sum i64", func(k *kernel.K) kernel.V { return k.Int(0) }, (*kernel.K).Add, kernel.I64, add),
			fold("sum f32", func(k *kernel.K) kernel.V { return k.Float(0) }, (*kernel.K).Add, kernel.F32, add),
			fold("sum f64", func(k *kernel.K) kernel.V { return k.Double(0) }, (*kernel.K).Add, kernel.F64, add),
			fold("max i64", func(k *kernel.K) kernel.V { return k.Int(math.MinInt64) }, (*kernel.K).Max, kernel.I64, most),
			fold("max f64", func(k *kernel.K) kernel.V { return k.Double(math.Inf(-1)) }, (*kernel.K).MaxNaN, kernel.F64, most),
		)
	}
	run(t, units)
}

// Lanes that do not act keep variables and memory as they were.
func TestMasks(t *testing.T) {
	const n = 21
	x := ints(t, ir.I32, make([]int64, n)...)
	for i := range x.I {
		x.I[i] = int64(i*7%5 - 2)
	}
	run(t, []unit{{name: "if in if", in: []*eval.Tensor{x}, out: ir.T(ir.I32, ir.Int(n)),
		body: func(k *kernel.K, in []*kernel.Buf, out *kernel.Buf) {
			k.Lanes(k.Int(n), func(i kernel.V) {
				v := in[0].Load(i)
				y := k.Var(k.Int32(100))
				out.Store(i, k.Int32(7))
				k.If(k.Cmp(kernel.GE, v, k.Int32(0)), func() {
					y.Set(v)
					k.If(k.Cmp(kernel.GT, v, k.Int32(1)), func() {
						y.Set(k.Add(y.Get(), k.Int32(50)))
						out.Store(k.Sub(k.Int(n-1), i), k.Int32(9)) // elsewhere
					})
				})
				k.If(k.Cmp(kernel.LT, v, k.Int32(0)), func() { out.Store(i, y.Get()) })
			})
		},
		// The stores of one round of lanes follow each other, so element i may be
		// replaced by that of a later lane only.
		check: func(t *testing.T, y *eval.Tensor) {
			for i, v := range x.I {
				mirrored := x.I[n-1-i] > 1
				switch g := y.I[i]; {
				case v < 0 && g != 100 && !(mirrored && g == 9), v >= 0 && g != 7 && !(mirrored && g == 9):
					t.Errorf("element %d of %d became %d", i, v, g)
				}
			}
		}}})
}

// Misuse is an error of Build, not broken IR.
func TestMisuse(t *testing.T) {
	tg, err := target.Lookup("x86-64-v3")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		body func(k *kernel.K, b []*kernel.Buf)
	}{
		{"add: operand types differ: i32 and i64", func(k *kernel.K, _ []*kernel.Buf) { k.Add(k.Int32(1), k.Int(1)) }},
		{"if: condition is i32", func(k *kernel.K, _ []*kernel.Buf) { k.If(k.Int32(1), func() {}) }},
		{"load of packed f4e2m1", func(k *kernel.K, b []*kernel.Buf) { b[0].Load(k.Int(0)) }},
		{"load of packed f4e2m1", func(k *kernel.K, b []*kernel.Buf) { b[0].LoadBits(k.Int(0)) }},
		{"store to packed f4e2m1", func(k *kernel.K, b []*kernel.Buf) { b[0].Store(k.Int(0), k.Int32(0)) }},
		{"store of i64 to f32", func(k *kernel.K, b []*kernel.Buf) { b[1].Store(k.Int(0), k.Int(0)) }},
		{"store of the bits of i64 to f32", func(k *kernel.K, b []*kernel.Buf) { b[1].StoreBits(k.Int(0), k.Int(0)) }},
		{"store of the bits of f32 to f32", func(k *kernel.K, b []*kernel.Buf) { b[1].StoreBits(k.Int(0), k.Float(0)) }},
		{"store of a varying value to one element", func(k *kernel.K, b []*kernel.Buf) { b[1].Store(k.Int(0), b[1].Load(k.Lane())) }},
		{"of which some may not act", func(k *kernel.K, b []*kernel.Buf) {
			k.If(k.Cmp(kernel.EQ, b[1].Load(k.Lane()), k.Float(0)), func() { b[1].Store(k.Int(0), k.Float(1)) })
		}},
		{"reduction of a uniform value", func(k *kernel.K, _ []*kernel.Buf) { k.Sum(k.Float(1)) }},
		{"prefix sum of a uniform value or of f32", func(k *kernel.K, b []*kernel.Buf) { k.Prefix(b[1].Load(k.Lane())) }},
		{"variable of f32 (uniform false) set to i32", func(k *kernel.K, _ []*kernel.Buf) { k.Var(k.Float(0)).Set(k.Int32(0)) }},
		{"a uniform variable starts with a varying value", func(k *kernel.K, b []*kernel.Buf) { k.UniformVar(b[1].Load(k.Lane())) }},
	} {
		m := kernel.NewModule(tg)
		err := m.Build("bad", []kernel.Param{{Name: "a", Mem: ir.F4E2M1}, {Name: "b", Mem: ir.F32}}, func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) { c.body(k, b) })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}
