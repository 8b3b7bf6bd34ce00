package kernels_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/ir"
)

// wide is a graph whose shapes make each form take its way for long rows, where
// a workgroup's lanes share the work.
func wide(t *testing.T) *ir.Graph {
	r := rand.New(rand.NewPCG(7, 1))
	c := newBatch(t)
	f32, bf16 := random(t, r, ordinary, ir.F32, 5, 600), random(t, r, ordinary, ir.BF16, 5, 600)
	c.op("mul", nil, exact, f32, random(t, r, ordinary, ir.F32, 5, 1))
	c.op("add", nil, exact, bf16, bf16)
	c.op("transpose", ir.A("perm", []int{1, 0}), exact, bf16)
	c.op("concat", ir.A("axis", 1), exact, bf16, random(t, r, ordinary, ir.BF16, 5, 7))
	c.op("broadcast", ir.A("shape", intDims([]int{5, 600})), exact, random(t, r, ordinary, ir.F32, 1, 600))
	for axis := range 2 {
		c.op("reduce_sum", ir.A("axis", axis, "to", ir.BF16), sums, bf16)
		c.op("reduce_max", ir.A("axis", axis), exact, f32)
	}
	c.op("dot", ir.A("to", ir.BF16), sums, bf16, bf16)
	for _, k := range []int{8, 100, 9000} {
		c.op("topk", ir.A("k", k), exact, f32)
	}
	c.op("argmax", nil, exact, bf16)
	c.op("sample", nil, exact, slices.Insert(randomDraws(t, r, 5), 0, bf16)...)
	c.op("linear_argmax", nil, exact, bf16, random(t, r, ordinary, ir.BF16, 500, 600))
	c.op("gather_rows", nil, exact, bf16, intsOf(t, ir.I32, []int64{0, -1}, 2))
	c.op("scatter_rows", nil, exact, bf16, intsOf(t, ir.I32, []int64{0, -1}, 2), random(t, r, ordinary, ir.BF16, 2, 600))
	c.op("take_along", nil, exact, f32, blank(t, ir.T(ir.I32, ir.Int(5), ir.Int(300))))
	for _, to := range codeTypes {
		c.op("quantize", ir.A("to", to, "block", 600, "floor", 1e-4), exact, bf16)
		c.op("dequantize", ir.A("to", ir.BF16), exact, randomScaled(t, r, ordinary, to, 1, 300, 5, 600))
		c.op("dequantize", ir.A("to", ir.F32), exact, randomScaled(t, r, ordinary, to, 128, 128, 5, 600))
	}
	c.op("recode_fnuz", nil, exact, randomScaled(t, r, ordinary, ir.F8E4M3, 128, 128, 5, 600))
	return c.graph()
}

var (
	asmKernel = regexp.MustCompile(`(?m)^    \.symbol: +(\S+)\.kd$`)
	asmCount  = regexp.MustCompile(`(?m)^    \.(vgpr_spill_count|sgpr_spill_count|private_segment_fixed_size): +(\d+)$`)
	asmHidden = regexp.MustCompile(`\.value_kind: +(hidden_\w+)`)
	asmExtern = regexp.MustCompile(`[\w.$]+@(?:gotpcrel32|rel32|abs32)\w*@\w+|s_swappc_b64`)
)

// Every form compiles for the GPUs: no register spills to memory, no hidden
// arguments, no symbol is left undefined.
func TestGPUCode(t *testing.T) {
	graphs := []*ir.Graph{wide(t)}
	names := slices.Sorted(maps.Keys(makers))
	for i := range (len(names) + 1) / 2 {
		d := newDAG(t, uint64(i))
		graphs = append(graphs, d.graph(4, []string{names[2*i%len(names)], names[(2*i+1)%len(names)]}))
	}
	for _, name := range []string{"gfx942", "gfx950"} {
		u := codegen.NewUnit(mustTarget(t, name))
		for _, g := range graphs {
			if _, err := u.Lower(g); err != nil {
				t.Fatalf("%v\n%s", err, ir.Text(g))
			}
		}
		t.Logf("%s: %d kernels", name, len(u.Kernels))
		asm, parts := compileMerged(t, u.Kernels, u.Target, llvm.Asm)
		for i := range asm {
			for _, problem := range gpuProblems(string(asm[i]), parts[i]) {
				t.Errorf("%s: %s", name, problem)
			}
		}
	}
}

// The reading of assembly finds a call of what is not there, and spilled
// registers.
func TestGPUProblems(t *testing.T) {
	kernels := []*codegen.Kernel{{Symbol: "outside", IR: `target triple = "amdgcn-amd-amdhsa"
declare i32 @elsewhere(i32)
define amdgpu_kernel void @outside(ptr addrspace(1) %p, i32 %n) {
  %x = call i32 @elsewhere(i32 %n)
  store i32 %x, ptr addrspace(1) %p
  ret void
}
define amdgpu_kernel void @scratch(ptr addrspace(1) %p, i32 %n) "amdgpu-no-implicitarg-ptr" {
  %a = alloca [100 x i32], addrspace(5)
  %i = getelementptr i32, ptr addrspace(5) %a, i32 %n
  store volatile i32 %n, ptr addrspace(5) %i
  ret void
}
`}}
	asm, _ := compileMerged(t, kernels, mustTarget(t, "gfx950"), llvm.Asm)
	got := strings.Join(gpuProblems(string(asm[0]), []*codegen.Kernel{{Symbol: "outside"}, {Symbol: "scratch"}, {Symbol: "gone"}}), "\n")
	for _, want := range []string{"outside symbol or call: elsewhere@", "outside (): argument hidden_", "scratch (): private_segment_fixed_size is ", "gone: not in the metadata"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// gpuProblems reads assembly.
func gpuProblems(asm string, ks []*codegen.Kernel) []string {
	var out []string
	_, meta, ok := strings.Cut(asm, "amdhsa.kernels:")
	if !ok {
		return []string{"the assembly has no kernel metadata"}
	}
	meta, _, _ = strings.Cut(meta, "\namdhsa.target:")
	spec := map[string]string{}
	for _, k := range ks {
		spec[k.Symbol] = k.Spec
	}
	for _, entry := range strings.Split(meta, "\n  - ")[1:] {
		name := asmKernel.FindStringSubmatch("\n    " + entry)
		if name == nil {
			return append(out, "a kernel without a symbol")
		}
		where := fmt.Sprintf("%s (%s)", name[1], spec[name[1]])
		delete(spec, name[1])
		counts := asmCount.FindAllStringSubmatch(entry, -1)
		if len(counts) != 3 {
			out = append(out, fmt.Sprintf("%s: metadata %v", where, counts))
		}
		for _, c := range counts {
			if c[2] != "0" {
				out = append(out, fmt.Sprintf("%s: %s is %s", where, c[1], c[2]))
			}
		}
		if h := asmHidden.FindStringSubmatch(entry); h != nil {
			out = append(out, fmt.Sprintf("%s: argument %s", where, h[1]))
		}
	}
	for s := range spec {
		out = append(out, s+": not in the metadata")
	}
	for _, x := range asmExtern.FindAllString(asm, -1) {
		if !strings.Contains(x, ".lds") {
			out = append(out, "outside symbol or call: "+x)
		}
	}
	slices.Sort(out)
	return out
}

// Tables of the model have no form: they are packed. What the evaluator refuses
// has none either.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		want  string
		build func(b *ir.Builder) *ir.Value
	}{
		{"rope_freqs: makes a table from attributes alone: passes move it into the pack graph", func(b *ir.Builder) *ir.Value {
			return b.Op1("rope_freqs", ir.A("dim", 8, "base", 10000.0))
		}},
		{"cast: no kernel form: generic_cast: cast from f8e4m3 to i32: go through f32", func(b *ir.Builder) *ir.Value {
			return b.Op1("cast", ir.A("to", ir.I32), b.Input("x", ir.T(ir.F8E4M3, ir.Int(4))))
		}},
		{"cast: no kernel form: generic_cast: cast from e8m0 to u8: go through f32", func(b *ir.Builder) *ir.Value {
			return b.Op1("cast", ir.A("to", ir.U8), b.Input("x", ir.T(ir.E8M0, ir.Int(4))))
		}},
	} {
		b := ir.NewBuilder("g")
		b.Output("y", c.build(b))
		g, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		_, err = codegen.NewUnit(mustTarget(t, "gfx950")).Lower(g)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// Graphs that differ in the number of rows only share their kernels.
func TestRowsAreNotInTheCode(t *testing.T) {
	build := func(rows int) *ir.Graph {
		b := ir.NewBuilder("g")
		n := func(d ...int) []ir.Dim { return append([]ir.Dim{ir.Int(rows)}, intDims(d)...) }
		x, q := b.Input("x", ir.T(ir.BF16, n(6, 320)...)), b.Input("q", ir.Scaled(ir.F8E4M3, 1, 32, n(320)...))
		id := b.Input("id", ir.T(ir.I32, n()...))
		w := b.Input("w", ir.T(ir.BF16, intDims([]int{6, 9, 320})...))
		flat := b.Reshape(x, n(6*320)...)
		for i, v := range []*ir.Value{
			b.Bin("mul", x, b.Input("s", ir.T(ir.BF16, n(6, 1)...))), b.Un("exp", x), b.Transpose(x, 1, 0, 2), b.Slice(x, 2, 64, 128), b.Concat(1, x, x),
			b.Sum(x, 2, ir.F32), b.Sum(x, 1, ir.F32), b.Op1("reduce_max", ir.A("axis", 2), x), b.Op1("topk", ir.A("k", 3), flat),
			b.Dot(b.Transpose(x, 1, 0, 2), w, ir.BF16), b.Op1("gather_rows", nil, flat, id), b.Broadcast(b.Reshape(id, n(1)...), n(320)...),
			b.Op1("scatter_rows", nil, b.Input("pool", ir.T(ir.BF16, intDims([]int{99, 1920})...)), id, flat), b.Iota(1, n(5)...),
			b.Op1("quantize", ir.A("to", ir.F4E2M1, "block", 32, "floor", 1e-4), x), b.Op1("dequantize", nil, q), b.Op1("recode_fnuz", nil, q),
			b.Op1("take_along", nil, flat, b.Input("cols", ir.T(ir.I32, n(7)...))), b.Cast(x, ir.F4E2M1),
		} {
			b.Output(fmt.Sprintf("y%d", i), v)
		}
		g, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	for _, name := range []string{"x86-64-v3", "gfx950"} {
		u := codegen.NewUnit(mustTarget(t, name))
		if _, err := u.Lower(build(5)); err != nil {
			t.Fatal(err)
		}
		n := len(u.Kernels)
		if _, err := u.Lower(build(67)); err != nil {
			t.Fatal(err)
		}
		for _, k := range u.Kernels[n:] {
			t.Errorf("%s: a kernel for 67 rows of its own: %s", name, k.Spec)
		}
	}
}
