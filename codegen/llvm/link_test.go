package llvm

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"slices"
	"strings"
	"testing"
)

// compileOne compiles a job in whichever form works.
func compileOne(t testing.TB, tc *Toolchain, job Job) []byte {
	t.Helper()
	c, err := New(t.Context(), tc, Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.Compile(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	return r.Output
}

func TestLinkCodeObject(t *testing.T) {
	tc := toolchain(t)
	one := compileOne(t, tc, fixture(t, "gfx942"))
	two := compileOne(t, tc, amd("empty", emptyKernel))
	code, err := tc.Link(t.Context(), "kernels", [][]byte{one, two})
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range symbols {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	if want := []string{"empty", "empty.kd", "rowsum", "rowsum.kd"}; f.Type != elf.ET_DYN || !slices.Equal(names, want) {
		t.Errorf("a %v with symbols %v, want %v", f.Type, names, want)
	}
	again, err := tc.Link(t.Context(), "other", [][]byte{one, two})
	if err != nil || !bytes.Equal(again, code) {
		t.Errorf("a second link gives other bytes, error %v", err)
	}
}

func TestLinkErrors(t *testing.T) {
	tc := toolchain(t)
	kernel := compileOne(t, tc, amd("empty", emptyKernel))
	calls := compileOne(t, tc, amd("calls", `declare void @helper(ptr)
declare void @another()
define amdgpu_kernel void @caller(ptr addrspace(1) %p) {
  %q = addrspacecast ptr addrspace(1) %p to ptr
  call void @helper(ptr %q)
  call void @another()
  ret void
}
`))
	host := compileOne(t, tc, Job{Name: "host", Triple: hostTriple, CPU: "x86-64-v3", PIC: true, IR: []byte(`declare float @expf(float)
define float @sigmoid(float %x) {
  %n = fneg float %x
  %e = call float @expf(float %n)
  %d = fadd float %e, 1.0
  %r = fdiv float 1.0, %d
  ret float %r
}
`)})
	// Absolute addresses, which a library cannot have.
	fixed := compileOne(t, tc, Job{Name: "fixed", Triple: hostTriple, CPU: "x86-64-v3", IR: []byte(`@table = dso_local global [4 x i32] zeroinitializer
define i32 @get(i64 %i) {
  %p = getelementptr i32, ptr @table, i64 %i
  %v = load i32, ptr %p
  ret i32 %v
}
`)})
	linked, err := tc.Link(t.Context(), "empty", [][]byte{kernel})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		objs [][]byte
		want string
	}{
		{"none", nil, "llvm: none: link: no objects"},
		{"garbage", [][]byte{kernel, bytes.Repeat([]byte("garbage "), 8)}, "llvm: garbage: link: object 1: bad magic number"},
		{"linked", [][]byte{linked}, "llvm: linked: link: object 0: its type is ET_DYN, not ET_REL"},
		{"mixed", [][]byte{kernel, host}, "llvm: mixed: link: object 1 is for EM_X86_64, object 0 for EM_AMDGPU"},
		{"twice", [][]byte{kernel, kernel}, "llvm: twice: link: duplicate symbol: empty"},
		{"fixed", [][]byte{fixed}, "llvm: fixed: link: relocation R_X86_64_"},
		{"callers", [][]byte{kernel, calls}, "llvm: callers: link: undefined symbol another (in the object of caller), helper (in the object of caller)"},
		{"host", [][]byte{host}, "llvm: host: link: undefined symbol expf (in the object of sigmoid)"},
	} {
		_, err := tc.Link(t.Context(), tt.name, tt.objs)
		var e *Error
		if !errors.As(err, &e) || e.Stage != "link" || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tc.Link(ctx, "cancelled", [][]byte{kernel}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}
