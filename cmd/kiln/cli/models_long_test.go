//go:build long

package cli

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// TestModelsForGPUs compiles the default buckets of every model for every AMD GPU,
// twice and without a cache, and reads the code objects back: what a loader, the
// hardware or a launch would stumble over, and what would make a kernel slow.
func TestModelsForGPUs(t *testing.T) {
	compiler := devicetest.Compiler(t)
	compiler.Cache = nil
	for _, model := range []string{tinyModel, flashConfig, proConfig} {
		for i := range target.Table {
			tg := &target.Table[i]
			if tg.Kind != target.AMDGPU {
				continue
			}
			t.Run(filepath.Base(model)+" "+tg.Name, func(t *testing.T) {
				var codes [2][]byte
				var modules [2]*plan.Module
				for n := range codes {
					u := defaultUnit(t, model, tg)
					modules[n] = u.Module
					out, err := compiler.Compile(t.Context(), u)
					if err != nil {
						t.Fatal(err)
					}
					if out.Stats.Cached > 0 {
						t.Fatalf("%d kernels came from a cache", out.Stats.Cached)
					}
					codes[n] = out.Object
				}
				if !bytes.Equal(codes[0], codes[1]) || !reflect.DeepEqual(modules[0], modules[1]) {
					t.Error("two compilations differ")
				}
				checkCode(t, compiler.Tools, tg, codes[0], modules[0])
			})
		}
	}
}

// checkCode reads a code object that a module's plans launch.
func checkCode(t *testing.T, tools *llvm.Toolchain, tg *target.Target, code []byte, m *plan.Module) {
	t.Helper()
	if n, err := metadataNotes(code); n != 1 || err != nil {
		t.Errorf("%d metadata notes, want one: %v", n, err)
	}
	f, err := object.Read(code)
	if err != nil {
		t.Fatal(err)
	}
	o := f.Object
	if o.Version != 5 || o.Target != tg.ID || len(o.Undefined) > 0 || len(o.Problems) > 0 {
		t.Errorf("code object version %d for %s, undefined %v, problems %v", o.Version, o.Target, o.Undefined, o.Problems)
	}
	lines, err := object.Disassemble(t.Context(), tools.ObjDump, code, "")
	if err != nil {
		t.Fatal(err)
	}
	launches := map[string][]plan.Launch{}
	for _, p := range m.Plans {
		for _, l := range p.Launches {
			name := m.Kernels[l.Kernel].Symbol
			launches[name] = append(launches[name], l)
		}
	}
	for i := range o.Kernels {
		k := &o.Kernels[i]
		for _, problem := range kernelProblems(k, lines[k.Name], launches[k.Name]) {
			t.Errorf("kernel %s: %s", k.Name, problem)
		}
		delete(launches, k.Name)
	}
	for name := range launches {
		t.Errorf("kernel %s is launched and not in the code object", name)
	}
	t.Logf("%d plans, %d kernels, %d bytes of code", len(m.Plans), len(o.Kernels), len(code))
}

func kernelProblems(k *object.Kernel, lines []object.Line, launches []plan.Launch) []string {
	out := object.Undecodable(k.Name, lines)
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, c := range []struct {
		n    *int
		what string
	}{{k.VGPRSpills, "VGPR spills"}, {k.SGPRSpills, "SGPR spills"}, {&k.ScratchBytes, "bytes of scratch"}} {
		if c.n == nil || *c.n != 0 {
			add("%s %s, want 0", cell(c.n), c.what)
		}
	}
	if k.DynamicStack == nil || *k.DynamicStack {
		add("the stack can grow")
	}
	if hidden := k.HiddenArgs(); len(hidden) > 0 {
		add("%d hidden arguments", len(hidden))
	}
	if len(lines) == 0 {
		add("no instructions")
	}
	// Pointers and integers of 8 bytes each: the segment has no holes.
	size := 0
	for _, a := range k.Args {
		size += a.Size
	}
	if size != k.KernargBytes {
		add("arguments of %d bytes in a segment of %d", size, k.KernargBytes)
	}
	if len(launches) == 0 {
		add("no plan launches it")
	}
	for _, l := range launches {
		if len(l.Args) != len(k.Args) {
			add("%d arguments, a launch at %s gives %d", len(k.Args), l.Loc, len(l.Args))
			continue
		}
		for i, a := range l.Args {
			want := "by_value"
			if a.Mode != "" {
				want = "global_buffer"
			}
			if got := k.Args[i].ValueKind; got != want {
				add("argument %d is %s, a launch at %s gives %s", i, got, l.Loc, want)
			}
		}
	}
	return out
}

// metadataNotes counts the notes of a code object that a loader takes for
// metadata, by the ELF file's segments and not by Kiln's own reader.
func metadataNotes(code []byte) (int, error) {
	f, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		return 0, err
	}
	n := 0
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		data, err := io.ReadAll(p.Open())
		if err != nil {
			return 0, err
		}
		for len(data) > 0 {
			var head struct{ Name, Desc, Type uint32 }
			if err := binary.Read(bytes.NewReader(data), binary.LittleEndian, &head); err != nil {
				return 0, err
			}
			end := 12 + (int(head.Name)+3)&^3 + (int(head.Desc)+3)&^3
			if end > len(data) {
				return 0, fmt.Errorf("a note of %d bytes where %d are left", end, len(data))
			}
			if bytes.HasPrefix(data[12:], []byte("AMDGPU\x00")) && head.Type == 32 {
				n++
			}
			data = data[end:]
		}
	}
	return n, nil
}

// The checks find what they look for.
func TestKernelProblems(t *testing.T) {
	zero, one, no := 0, 1, false
	good := object.Kernel{
		Name: "k", VGPRSpills: &zero, SGPRSpills: &zero, DynamicStack: &no, KernargBytes: 16,
		Args: []object.Arg{{Size: 8, ValueKind: "global_buffer"}, {Offset: 8, Size: 8, ValueKind: "by_value"}},
	}
	launch := plan.Launch{Loc: "here", Args: []plan.Arg{{Mode: plan.Read}, {Int: 1}}}
	end := object.Line{Text: "s_endpgm"}
	for _, tc := range []struct {
		want string
		edit func(k *object.Kernel, lines *[]object.Line, launches *[]plan.Launch)
	}{
		{"[]", func(*object.Kernel, *[]object.Line, *[]plan.Launch) {}},
		{"[1 VGPR spills, want 0]", func(k *object.Kernel, _ *[]object.Line, _ *[]plan.Launch) { k.VGPRSpills = &one }},
		{"[- SGPR spills, want 0]", func(k *object.Kernel, _ *[]object.Line, _ *[]plan.Launch) { k.SGPRSpills = nil }},
		{"[4 bytes of scratch, want 0]", func(k *object.Kernel, _ *[]object.Line, _ *[]plan.Launch) { k.ScratchBytes = 4 }},
		{"[the stack can grow]", func(k *object.Kernel, _ *[]object.Line, _ *[]plan.Launch) { k.DynamicStack = nil }},
		{"[arguments of 16 bytes in a segment of 20]", func(k *object.Kernel, _ *[]object.Line, _ *[]plan.Launch) { k.KernargBytes = 20 }},
		{"[kernel k: no instruction at +0x0: .long 0x1]", func(_ *object.Kernel, l *[]object.Line, _ *[]plan.Launch) {
			*l = []object.Line{{Text: ".long 0x1"}, end}
		}},
		{"[no instructions]", func(_ *object.Kernel, l *[]object.Line, _ *[]plan.Launch) { *l = nil }},
		{"[no plan launches it]", func(_ *object.Kernel, _ *[]object.Line, l *[]plan.Launch) { *l = nil }},
		{"[2 arguments, a launch at here gives 1]", func(_ *object.Kernel, _ *[]object.Line, l *[]plan.Launch) { (*l)[0].Args = launch.Args[:1] }},
		{"[argument 1 is by_value, a launch at here gives global_buffer]", func(_ *object.Kernel, _ *[]object.Line, l *[]plan.Launch) {
			(*l)[0].Args = []plan.Arg{launch.Args[0], launch.Args[0]}
		}},
		{"[1 hidden arguments argument 1 is hidden_none, a launch at here gives by_value]", func(k *object.Kernel, _ *[]object.Line, _ *[]plan.Launch) {
			k.Args = []object.Arg{k.Args[0], {Offset: 8, Size: 8, ValueKind: "hidden_none"}}
		}},
	} {
		k, lines, launches := good, []object.Line{end}, []plan.Launch{launch}
		tc.edit(&k, &lines, &launches)
		if got := fmt.Sprint(kernelProblems(&k, lines, launches)); got != tc.want {
			t.Errorf("problems %s, want %s", got, tc.want)
		}
	}
}
