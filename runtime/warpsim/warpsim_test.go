package warpsim

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/num"
	"github.com/kiln-project/kiln/runtime/device"
)

// pool is how many bytes of shared memory launch gives a kernel that has a pool.
const pool = 4096

// launch runs a kernel over one group, with f32 buffers of so many elements; the last
// is written, and returned.
func launch(t *testing.T, in [][]float32, out int, body func(k *kernel.K, b []*kernel.Buf)) ([]float32, error) {
	t.Helper()
	tg, err := target.Lookup("sm_90")
	if err != nil {
		t.Fatal(err)
	}
	m := kernel.NewModule(tg)
	var params []kernel.Param
	for i := range in {
		params = append(params, kernel.Param{Name: fmt.Sprintf("in%d", i), Mem: ir.F32})
	}
	params = append(params, kernel.Param{Name: "out", Mem: ir.F32, Out: true})
	if err := m.Build("k", params, func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) { body(k, b) }); err != nil {
		t.Fatal(err)
	}
	d := Open("sm_90")
	l, err := d.Load([]byte(m.Text()), []string{"k"})
	if err != nil {
		t.Fatal(err)
	}
	x := device.Launch{Symbol: "k", Grid: 1, Block: tg.Lanes, Shared: min(pool, m.Pool("k"))}
	var result device.Memory
	for _, v := range append(in, make([]float32, out)) {
		mem, err := d.Alloc(int64(4 * len(v)))
		if err != nil {
			t.Fatal(err)
		}
		defer mem.Free()
		for i, f := range v {
			put(mem.Bytes()[4*i:4*i+4], uint64(math.Float32bits(f)))
		}
		x.Args = append(x.Args, device.Arg{Address: mem.Address(), Bytes: mem.Size(), Mode: plan.Read})
		result = mem
	}
	x.Args[len(x.Args)-1].Mode = plan.Write
	s, err := l.Prepare([]device.Launch{x})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(); err != nil {
		return nil, err
	}
	y := make([]float32, out)
	for i := range y {
		y[i] = math.Float32frombits(uint32(get(result.Bytes()[4*i : 4*i+4])))
	}
	return y, nil
}

// A product by the instruction, its operands laid out by hand as the PTX ISA says, is
// the plain one.
func TestMatrixProduct(t *testing.T) {
	const rows, cols, depth = 16, 8, 16
	a, b := make([]float32, rows*depth), make([]float32, depth*cols)
	for i := range a {
		a[i] = num.RoundBF16(float32(i%23) - 9.5)
	}
	for i := range b {
		b[i] = num.RoundBF16(float32(i%17)/4 - 2)
	}
	got, err := launch(t, [][]float32{a, b}, rows*cols, func(k *kernel.K, buf []*kernel.Buf) {
		k.If(k.Cmp(kernel.EQ, k.Wave(), k.Int(0)), func() {
			group, in := k.LShr(k.WaveLane(), k.Int(2)), k.Mul(k.And(k.WaveLane(), k.Int(3)), k.Int(2))
			word := func(at func(i int) kernel.V, b *kernel.Buf) kernel.V { return k.PackBF16(b.Load(at(0)), b.Load(at(1))) }
			of := func(row, col int) kernel.V {
				return word(func(i int) kernel.V {
					return k.Add(k.Mul(k.Add(group, k.Int(row)), k.Int(depth)), k.Add(in, k.Int(col+i)))
				}, buf[0])
			}
			by := func(row int) kernel.V {
				return word(func(i int) kernel.V { return k.Add(k.Mul(k.Add(in, k.Int(row+i)), k.Int(cols)), group) }, buf[1])
			}
			d := k.WarpMMA(k.T.MMA(), k.MakeVec(of(0, 0), of(8, 0), of(0, 8), of(8, 8)), k.MakeVec(by(0), by(8)), k.ZeroVec(kernel.F32, 4))
			for e := range 4 {
				row, col := k.Add(group, k.Int(e/2*8)), k.Add(in, k.Int(e%2))
				buf[2].Store(k.Add(k.Mul(row, k.Int(cols)), col), k.At(d, e))
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for r := range rows {
		for c := range cols {
			var want float32
			for i := range depth {
				want += a[r*depth+i] * b[i*cols+c]
			}
			if got[r*cols+c] != want {
				t.Errorf("D[%d,%d] is %v, want %v", r, c, got[r*cols+c], want)
			}
		}
	}
}

// What a GPU would do in its own way is refused.
func TestRefused(t *testing.T) {
	for _, tc := range []struct {
		want string
		body func(k *kernel.K, b []*kernel.Buf)
	}{
		{"lane 200: 4 bytes at", func(k *kernel.K, b []*kernel.Buf) { b[1].Store(k.Lane(), k.Float(1)) }},
		{"are outside of the arguments (write: true)", func(k *kernel.K, b []*kernel.Buf) { b[0].Store(k.Int(0), k.Float(1)) }},
		{"reads what nobody wrote", func(k *kernel.K, b []*kernel.Buf) { b[1].Store(k.Int(0), k.Shared(ir.F32, 1).Load(k.Int(0))) }},
		{"with no barrier between", func(k *kernel.K, b []*kernel.Buf) {
			s := k.Shared(ir.F32, 256)
			s.Store(k.Lane(), k.Float(1))
			b[1].Store(k.Int(0), s.Load(k.Xor(k.Lane(), k.Int(1))))
		}},
		{"barrier: lanes 0x1 of the warp are there", func(k *kernel.K, _ []*kernel.Buf) { k.First(k.Barrier) }},
		{"1 of 8 warps wait at a barrier", func(k *kernel.K, _ []*kernel.Buf) {
			k.If(k.Cmp(kernel.EQ, k.Wave(), k.Int(3)), k.Barrier)
		}},
		{"shuffle: lanes 0x1 of the warp", func(k *kernel.K, b []*kernel.Buf) {
			k.First(func() { b[1].Store(k.Int(0), k.LaneXor(k.Float(1), 1)) })
		}},
	} {
		_, err := launch(t, [][]float32{make([]float32, 4)}, 200, tc.body)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want %q", err, tc.want)
		}
	}
}

// An instruction or intrinsic that is not known is named.
func TestUnknown(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"%0 = frem float 1.0, 2.0", "instruction frem"},
		{"%0 = call float @llvm.nvvm.sin.approx.f(float 1.0)", "intrinsic llvm.nvvm.sin.approx.f"},
		{"%0 = icmp ult i32 1, 2", "predicate ult"},
		{"%0 = add i32 %9, 2", "unknown value %9"},
		{"%0 = add i128 1, 2", `unknown type "i128"`},
	} {
		_, err := parse("define ptx_kernel void @k() {\nentry:\n\t" + tc.line + "\n\tret void\n}\n")
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.line, err, tc.want)
		}
	}
}

// Arithmetic that is not Go's own.
func TestScalars(t *testing.T) {
	bf16, f32 := &typ{kind: float, bits: 16}, &typ{kind: float, bits: 32}
	for _, tc := range []struct {
		what      string
		got, want uint64
	}{
		{"bf16 of a tie, to even", fromFloat(bf16, 1+0x1p-8), 0x3F80},
		{"bf16 of a tie, up", fromFloat(bf16, 1+3*0x1p-8), 0x3F82},
		{"bf16 NaN", fromFloat(bf16, math.NaN()) & 0x7FC0, 0x7FC0},
		{"product of a subnormal bf16", arithmetic["fmul"](bf16, 0x0040, 0x7E80), 0x3F00},
		{"prmt", permute(0x33221100, 0x77665544, 0x7206), 0x77220066},
		{"prmt of a sign", permute(0x80, 0, 0x8888), 0xFFFFFFFF},
		{"2^-127 flushed", flushed(f32, 0x1p-127), 0},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %#x, want %#x", tc.what, tc.got, tc.want)
		}
	}
}
