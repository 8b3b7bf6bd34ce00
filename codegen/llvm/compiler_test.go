package llvm

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) {
	MaybeServeWorker(os.Args)
	os.Exit(m.Run())
}

// toolchain returns the LLVM of this machine; tests that compile are skipped
// where there is none.
func toolchain(t testing.TB) *Toolchain {
	t.Helper()
	tc, err := Find(t.Context(), FindOptions{})
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

// compilers makes one compiler of each form. Where libLLVM does not load there is
// only one.
func compilers(t testing.TB, tc *Toolchain, opts Options) map[Mode]Compiler {
	t.Helper()
	cs := map[Mode]Compiler{}
	for _, mode := range []Mode{Worker, Programs} {
		opts.Mode = mode
		c, err := New(t.Context(), tc, opts)
		if err != nil {
			t.Logf("no mode %s here: %v", mode, err)
			continue
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		cs[mode] = c
	}
	return cs
}

const hostTriple = "x86_64-unknown-linux-gnu"

// fixture is a job with the IR of a file in testdata, named for its CPU.
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

// good is a small job that must compile after whatever went wrong before it.
func good(name string) Job {
	return Job{Name: name, Triple: AMDGPU, CPU: "gfx942", IR: []byte("define amdgpu_kernel void @" + name + "() {\n  ret void\n}\n")}
}

// Both forms give the same object, assembly and diagnostics, with and without opt.
func TestFormsAgree(t *testing.T) {
	tc := toolchain(t)
	cs := compilers(t, tc, Options{})
	if len(cs) < 2 {
		t.Skip("only one form of the compiler works here")
	}
	for _, cpu := range []string{"gfx950", "gfx942", "x86-64-v3"} {
		for _, passes := range []string{"default<O3>", "", "function(sroa,early-cse)"} {
			for _, output := range []Output{Object, Asm} {
				t.Run(cpu+"/"+passes+"/"+string(output), func(t *testing.T) {
					job := fixture(t, cpu)
					needCPU(t, tc, job.Triple, cpu)
					job.OptPasses, job.Output = passes, output
					want, err := cs[Programs].Compile(t.Context(), job)
					if err != nil {
						t.Fatal(err)
					}
					got, err := cs[Worker].Compile(t.Context(), job)
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(got.Output, want.Output) {
						t.Errorf("worker and programs give different output: %d and %d bytes", len(got.Output), len(want.Output))
						if output == Asm {
							t.Log(cmp.Diff(string(want.Output), string(got.Output)))
						}
					}
					if diff := cmp.Diff(want.Diags, got.Diags); diff != "" {
						t.Errorf("diagnostics (-programs +worker):\n%s", diff)
					}
				})
			}
		}
	}
}

func TestX(t *testing.T) {
	_ = context.Background
	_ = elf.EM_AMDGPU
	_ = errors.Is
	_ = strings.Cut
	_ = syscall.SIGKILL
	_ = time.Second
}
