package llvm

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) {
	MaybeServeWorker(os.Args)
	os.Exit(m.Run())
}

var found = sync.OnceValues(func() (*Toolchain, error) { return Find(context.Background(), FindOptions{}) })

// toolchain returns the LLVM of this machine; tests that compile are skipped
// where there is none.
func toolchain(t testing.TB) *Toolchain {
	t.Helper()
	tc, err := found()
	if err != nil {
		t.Skipf("this test compiles with LLVM, and there is none: %v", err)
	}
	return tc
}

// needCPU skips a test whose CPU an old LLVM does not know.
func needCPU(t testing.TB, tc *Toolchain, triple, cpu string) {
	t.Helper()
	if err := tc.CheckTarget(t.Context(), triple, cpu, ""); err != nil {
		t.Skipf("this test compiles for %s: %v", cpu, err)
	}
}

// compilers makes one compiler of each form. The worker is left out only where
// libLLVM cannot load.
func compilers(t testing.TB, tc *Toolchain, opts Options) map[Mode]Compiler {
	t.Helper()
	cs := map[Mode]Compiler{}
	for _, mode := range []Mode{Worker, Programs} {
		opts.Mode = mode
		c, err := New(t.Context(), tc, opts)
		if err != nil {
			if mode == Programs || tc.Loader != nil {
				t.Fatalf("mode %s: %v", mode, err)
			}
			t.Logf("no mode %s here: %v", mode, err)
			continue
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		if got, why := c.Mode(); got != mode || why == "" {
			t.Errorf("mode %q because %q, want %q", got, why, mode)
		}
		cs[mode] = c
	}
	return cs
}

const hostTriple = "x86_64-linux-gnu"

// fixture is a job with the IR of a file in testdata, which is named for its CPU.
func fixture(t testing.TB, cpu string) Job {
	t.Helper()
	ir, err := os.ReadFile(filepath.Join("testdata", cpu+".ll"))
	if err != nil {
		t.Fatal(err)
	}
	j := Job{Name: "fixture " + cpu, IR: ir, Triple: AMDGPU, CPU: cpu, OptPasses: "default<O3>"}
	if cpu == "x86-64-v3" {
		j.Triple, j.PIC = hostTriple, true
	}
	return j
}

// amd is a job for gfx942 with the given text and no passes.
func amd(name, ir string) Job {
	return Job{Name: name, Triple: AMDGPU, CPU: "gfx942", IR: []byte(ir)}
}

const emptyKernel = "define amdgpu_kernel void @empty() {\n  ret void\n}\n"

// unselectable is a job that LLVM dies of: it asks a GPU for a matrix instruction
// that only later ones have.
func unselectable(name string) Job {
	return Job{Name: name, Triple: AMDGPU, CPU: "gfx906", IR: []byte(`declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x16bf16.1k(<4 x i16>, <4 x i16>, <4 x float>, i32, i32, i32)
define amdgpu_kernel void @f(ptr addrspace(1) %p) {
  %a = load <4 x i16>, ptr addrspace(1) %p
  %r = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16bf16.1k(<4 x i16> %a, <4 x i16> %a, <4 x float> zeroinitializer, i32 0, i32 0, i32 0)
  store <4 x float> %r, ptr addrspace(1) %p
  ret void
}
`)}
}

// Both forms give the same object, assembly and diagnostics, with and without opt.
func TestFormsAgree(t *testing.T) {
	tc := toolchain(t)
	cs := compilers(t, tc, Options{})
	if cs[Worker] == nil {
		t.Skip("libLLVM does not load here, so there is one form only")
	}
	for _, tt := range []struct {
		cpu, passes string
		output      Output
	}{
		{"gfx950", "default<O3>", Object},
		{"gfx942", "default<O3>", Object},
		{"x86-64-v3", "default<O3>", Object},
		{"gfx950", "", Object},
		{"gfx942", "", Asm},
		{"x86-64-v3", "function(sroa,early-cse)", Asm},
	} {
		t.Run(fmt.Sprintf("%s %q %q", tt.cpu, tt.passes, tt.output), func(t *testing.T) {
			job := fixture(t, tt.cpu)
			needCPU(t, tc, job.Triple, tt.cpu)
			job.OptPasses, job.Output = tt.passes, tt.output
			want, err := cs[Programs].Compile(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			got, err := cs[Worker].Compile(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Output, want.Output) {
				t.Errorf("worker and programs give different output, %d and %d bytes", len(got.Output), len(want.Output))
				if tt.output == Asm {
					t.Log(cmp.Diff(string(want.Output), string(got.Output)))
				}
			}
			if diff := cmp.Diff(want.Diags, got.Diags); diff != "" {
				t.Errorf("diagnostics (-programs +worker):\n%s", diff)
			}
		})
	}
}

// The remarks say what became of a kernel; LLVM's other remarks stay out.
func TestRemarks(t *testing.T) {
	tc := toolchain(t)
	for mode, c := range compilers(t, tc, Options{Workers: 1}) {
		r, err := c.Compile(t.Context(), fixture(t, "gfx942"))
		if err != nil {
			t.Fatal(mode, err)
		}
		if len(r.Diags) == 0 || r.Diags[0] != (Diag{SevRemark, "Function Name: rowsum"}) {
			t.Fatalf("%s: diagnostics %v do not begin with the kernel's name", mode, r.Diags)
		}
		keys := map[string]string{}
		for _, d := range r.Diags[1:] {
			key, value, ok := strings.Cut(d.Text, ": ")
			if d.Severity != SevRemark || !ok {
				t.Errorf("%s: diagnostic %+v is not a remark with a key", mode, d)
			}
			keys[key] = value
		}
		for _, key := range []string{"VGPRs", "AGPRs", "VGPRs Spill", "Occupancy [waves/SIMD]", "LDS Size [bytes/block]"} {
			if keys[key] == "" {
				t.Errorf("%s: no remark %s in %v", mode, key, r.Diags)
			}
		}
		// The amdgpu-agpr-alloc attribute of the fixture says so.
		if keys["AGPRs"] != "0" {
			t.Errorf("%s: %s AGPRs, want 0", mode, keys["AGPRs"])
		}
	}
}

// The ABI version in the ELF header is the code object version less two.
func TestCodeObjectVersion(t *testing.T) {
	tc := toolchain(t)
	for mode, c := range compilers(t, tc, Options{Workers: 1}) {
		for version, abi := range map[int]byte{0: 3, CodeObjectV5: 3, CodeObjectV6: 4} {
			job := amd("empty", emptyKernel)
			job.CodeObjectVersion = version
			job.OptPasses = "default<O1>"
			r, err := c.Compile(t.Context(), job)
			if err != nil {
				t.Fatal(mode, version, err)
			}
			code, err := tc.Link(t.Context(), "empty", [][]byte{r.Output})
			if err != nil {
				t.Fatal(mode, version, err)
			}
			for what, data := range map[string][]byte{"object": r.Output, "code object": code} {
				f, err := elf.NewFile(bytes.NewReader(data))
				if err != nil {
					t.Fatal(err)
				}
				if f.ABIVersion != abi || f.Machine != elf.EM_AMDGPU {
					t.Errorf("%s, version %d: the %s has ABI version %d for %v, want %d", mode, version, what, f.ABIVersion, f.Machine, abi)
				}
			}
		}
	}
}

func TestPTX(t *testing.T) {
	tc := toolchain(t)
	job := Job{Name: "scale", Triple: NVPTX, CPU: "sm_90", Output: Asm, OptPasses: "default<O3>", IR: []byte(`
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
define ptx_kernel void @scale(ptr addrspace(1) %p) {
  %i = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %q = getelementptr float, ptr addrspace(1) %p, i32 %i
  %v = load float, ptr addrspace(1) %q
  %w = fmul float %v, 2.0
  store float %w, ptr addrspace(1) %q
  ret void
}
`)}
	if err := tc.CheckTarget(t.Context(), job.Triple, job.CPU, ""); err != nil {
		t.Skipf("this LLVM has no NVPTX target: %v", err)
	}
	var outputs []string
	forms := compilers(t, tc, Options{Workers: 1})
	for _, mode := range slices.Sorted(maps.Keys(forms)) {
		r, err := forms[mode].Compile(t.Context(), job)
		if err != nil {
			t.Fatal(mode, err)
		}
		for _, want := range []string{".target sm_90", ".visible .entry scale(", "%tid.x", "st.global"} {
			if !strings.Contains(string(r.Output), want) {
				t.Errorf("%s: no %q in\n%s", mode, want, r.Output)
			}
		}
		outputs = append(outputs, string(r.Output))
	}
	if len(outputs) == 2 {
		if diff := cmp.Diff(outputs[0], outputs[1]); diff != "" {
			t.Errorf("the forms give different PTX:\n%s", diff)
		}
	}
}

// What LLVM refuses, dies of, or lets pass wrongly is an error that names the job
// and says LLVM's first line, and the next job works.
func TestCompileErrors(t *testing.T) {
	tc := toolchain(t)
	both := func(s string) map[Mode]string { return map[Mode]string{Worker: s, Programs: s} }
	tests := []struct {
		job   Job
		stage map[Mode]string
		want  []string
	}{
		{
			job:   amd("unparsable", emptyKernel+"define void @g() {\n  ret i32\n}\n"),
			stage: map[Mode]string{Worker: "parse", Programs: "llc"},
			want:  []string{"llvm: unparsable (gfx942): ", ": line 6, column 1: expected value token"},
		}, {
			job:   Job{Name: "unparsable.opt", Triple: AMDGPU, CPU: "gfx942", OptPasses: "default<O3>", IR: []byte("\nnonsense")},
			stage: map[Mode]string{Worker: "parse", Programs: "opt"},
			want:  []string{"llvm: unparsable.opt (gfx942): ", ": line 2, column 1: expected top-level entity"},
		}, {
			job:   amd("unsound", "define i32 @f(i1 %c) {\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 2\n  br label %b\nb:\n  ret i32 %x\n}\n"),
			stage: map[Mode]string{Worker: "verify", Programs: "llc"},
			want:  []string{"unsound (gfx942)", "Instruction does not dominate all uses!"},
		}, {
			job:   Job{Name: "unsound.opt", Triple: AMDGPU, CPU: "gfx942", OptPasses: "default<O3>", IR: []byte("define void @f() {\n  %x = add i32 %x, 1\n  ret void\n}\n")},
			stage: map[Mode]string{Worker: "verify", Programs: "opt"},
			want:  []string{"unsound.opt (gfx942)", "Only PHI nodes may reference their own value!"},
		}, {
			job:   Job{Name: "pipeline", Triple: AMDGPU, CPU: "gfx942", OptPasses: "no-such-pass", IR: []byte(emptyKernel)},
			stage: map[Mode]string{Worker: "passes", Programs: "opt"},
			want:  []string{"pipeline (gfx942)", "unknown pass name 'no-such-pass'"},
		}, {
			job:   unselectable("unselectable"),
			stage: map[Mode]string{Worker: "worker", Programs: "llc"},
			want:  []string{"unselectable (gfx906)", "LLVM ERROR: Cannot select: intrinsic %llvm.amdgcn.mfma.f32.16x16x16bf16.1k"},
		}, {
			job: amd("overflow", `@l = internal addrspace(3) global [200000 x i8] poison
define amdgpu_kernel void @f(i32 %i) {
  %p = getelementptr i8, ptr addrspace(3) @l, i32 %i
  store volatile i8 0, ptr addrspace(3) %p
  ret void
}
`),
			stage: map[Mode]string{Worker: "emit", Programs: "llc"},
			want:  []string{"overflow (gfx942)", "local memory (200000) exceeds limit (65536) in function 'f'"},
		}, {
			job:   amd("assembly", "define void @f() {\n  call void asm sideeffect \"v_nonsense\", \"\"()\n  ret void\n}\n"),
			stage: map[Mode]string{Worker: "emit", Programs: "llc"},
			want:  []string{"assembly (gfx942)", "invalid instruction"},
		}, {
			job:   amd("misspelt", "declare void @llvm.amdgcn.no.such.thing()\ndefine amdgpu_kernel void @f() {\n  call void @llvm.amdgcn.no.such.thing()\n  ret void\n}\n"),
			stage: both("output"),
			want:  []string{"misspelt (gfx942)", "no intrinsic llvm.amdgcn.no.such.thing in this LLVM"},
		},
	}
	misspelt := tests[len(tests)-1]
	misspelt.job.Output = Asm
	tests = append(tests, misspelt)
	misspelt.job.Triple, misspelt.job.CPU = hostTriple, "x86-64-v3"
	misspelt.job.IR = bytes.ReplaceAll(misspelt.job.IR, []byte("amdgpu_kernel "), nil)
	misspelt.want = misspelt.want[1:]
	tests = append(tests, misspelt)
	if tc.CheckTarget(t.Context(), NVPTX, "sm_90", "") == nil {
		misspelt.job.Triple, misspelt.job.CPU = NVPTX, "sm_90"
		tests = append(tests, misspelt)
	}

	for mode, c := range compilers(t, tc, Options{Workers: 1}) {
		for _, tt := range tests {
			_, err := c.Compile(t.Context(), tt.job)
			var e *Error
			if !errors.As(err, &e) {
				t.Errorf("%s, %s: error %v is no *Error", mode, tt.job.Name, err)
				continue
			}
			if e.Stage != tt.stage[mode] || e.Job != tt.job.Name {
				t.Errorf("%s, %s: stage %s of job %s, want stage %s: %v", mode, tt.job.Name, e.Stage, e.Job, tt.stage[mode], err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: error %q does not contain %q", mode, err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%s, %s: error of several lines: %q", mode, tt.job.Name, err)
			}
			if mode == Programs { // nothing is left of a job
				continue
			}
			if _, err := c.Compile(t.Context(), amd("next", emptyKernel)); err != nil {
				t.Errorf("%s: after %s: %v", mode, tt.job.Name, err)
			}
		}
	}
}

// What can be refused without LLVM is, in the same words in both forms.
func TestRefusedJobs(t *testing.T) {
	tc := toolchain(t)
	edit := func(f func(*Job)) Job {
		j := amd("refused", emptyKernel)
		f(&j)
		return j
	}
	cs := compilers(t, tc, Options{Workers: 1})
	for want, job := range map[string]Job{
		"the job has no Name":                  edit(func(j *Job) { j.Name = "" }),
		"the job has no Triple":                edit(func(j *Job) { j.Triple = "" }),
		"the job has no CPU":                   edit(func(j *Job) { j.CPU = "" }),
		"the job has no IR":                    edit(func(j *Job) { j.IR = []byte(" \n") }),
		`Features "+a\x00" contains a zero`:    edit(func(j *Job) { j.Features = "+a\x00" }),
		"the IR contains a zero byte at offs":  edit(func(j *Job) { j.IR = []byte("a\x00") }),
		"the IR is bitcode":                    edit(func(j *Job) { j.IR = []byte("BC\xc0\xde----") }),
		"the IR sets a data layout":            edit(func(j *Job) { j.IR = []byte("target datalayout = \"e\"\n") }),
		"the IR sets amdhsa_code_object_versi": edit(func(j *Job) { j.IR = []byte("!0 = !{i32 1, !\"amdhsa_code_object_version\", i32 600}\n") }),
		"the IR is for x86_64-pc-linux-gnu, t": edit(func(j *Job) { j.IR = []byte("; x\n\ttarget triple=\"x86_64-pc-linux-gnu\"\n") }),
		`unknown output "hsaco"`:               edit(func(j *Job) { j.Output = "hsaco" }),
		"code object version 400: only 500 an": edit(func(j *Job) { j.CodeObjectVersion = 400 }),
		"code object version 500 given for x8": edit(func(j *Job) { j.CodeObjectVersion = 500; j.Triple = hostTriple; j.CPU = "x86-64" }),
		`does not know the CPU "gfx999" of am`: edit(func(j *Job) { j.CPU = "gfx999" }),
		`does not know the feature "speed" of`: edit(func(j *Job) { j.Features = "+xnack,+speed" }),
		`feature "xnack" is not of the form +`: edit(func(j *Job) { j.Features = "xnack" }),
		"has no target none-none-none: ":       edit(func(j *Job) { j.Triple = "none-none-none" }),
	} {
		for mode, c := range cs {
			_, err := c.Compile(t.Context(), job)
			var e *Error
			if !errors.As(err, &e) || e.Stage != "job" || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want one of stage job with %q", mode, err, want)
			}
		}
	}
	ok := edit(func(j *Job) {
		j.Features = "+xnack,-sramecc"
		j.IR = []byte("target triple = \"" + AMDGPU + "\"\n" + emptyKernel)
	})
	for mode, c := range cs {
		if _, err := c.Compile(t.Context(), ok); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// Many jobs at a time give what one at a time gives.
func TestConcurrentJobs(t *testing.T) {
	tc := toolchain(t)
	c, err := New(t.Context(), tc, Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const n = 12
	ir := func(i int) Job {
		return amd(fmt.Sprintf("k%d", i), strings.ReplaceAll(emptyKernel, "empty", fmt.Sprintf("k%d", i)))
	}
	outputs := make([][]byte, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			job := ir(i)
			if i%4 == 1 { // with failures among them, which end workers
				job = unselectable("bad")
			}
			r, err := c.Compile(t.Context(), job)
			outputs[i], errs[i] = r.Output, err
		})
	}
	wg.Wait()
	for i := range n {
		if i%4 == 1 {
			if errs[i] == nil {
				t.Errorf("job %d compiled", i)
			}
			continue
		}
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		r, err := c.Compile(t.Context(), ir(i))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(r.Output, outputs[i]) {
			t.Errorf("job %d: another object on its own", i)
		}
		if diff := cmp.Diff(Diag{SevRemark, fmt.Sprintf("Function Name: k%d", i)}, r.Diags[0]); diff != "" {
			t.Errorf("job %d: diagnostics of another job:\n%s", i, diff)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for want, opts := range map[string]Options{
		"must not be negative":  {Workers: -1},
		"timeout -1ns":          {Timeout: -1},
		`unknown mode "thread"`: {Mode: "thread"},
		"contains LLVM itself":  {Mode: Worker},
	} {
		c, err := New(t.Context(), &Toolchain{LibLLVMWhy: "llc contains LLVM itself"}, opts)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: compiler %v, error %v, want %q", opts, c, err, want)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	tc := toolchain(b)
	for _, cpu := range []string{"gfx942", "x86-64-v3"} {
		for mode, c := range compilers(b, tc, Options{Workers: 1}) {
			b.Run(cpu+"/"+string(mode), func(b *testing.B) {
				job := fixture(b, cpu)
				for b.Loop() {
					if _, err := c.Compile(b.Context(), job); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
