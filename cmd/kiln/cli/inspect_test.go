package cli

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/object"
)

const (
	goldenMatmul = "../../../testdata/golden/triton/matmul_bf16.gfx950.hsaco"
	goldenAdd    = "../../../testdata/golden/triton/add.gfx942.hsaco"
	objectFiles  = "../../../codegen/object/testdata/"
)

// needObjdump skips a test that disassembles where that is not possible.
func needObjdump(t *testing.T) {
	t.Helper()
	tools, err := llvm.Find(t.Context(), llvm.FindOptions{})
	switch {
	case err != nil:
		t.Skip(err)
	case tools.ObjDump == "":
		t.Skipf("the LLVM of %s has no llvm-objdump", tools.Source)
	}
	if ok, err := tools.KnowsCPU(t.Context(), llvm.AMDGPU, "gfx950"); err != nil || !ok {
		t.Skipf("the LLVM of %s does not know gfx950 (%v)", tools.Source, err)
	}
}

func file(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// bundleOf writes an offload bundle of ids and the files' contents.
func bundleOf(t *testing.T, ids []string, bodies ...[]byte) string {
	t.Helper()
	at := 32
	for _, id := range ids {
		at += 24 + len(id)
	}
	out := binary.LittleEndian.AppendUint64([]byte("__CLANG_OFFLOAD_BUNDLE__"), uint64(len(ids)))
	for i, id := range ids {
		out = binary.LittleEndian.AppendUint64(out, uint64(at))
		out = binary.LittleEndian.AppendUint64(out, uint64(len(bodies[i])))
		out = binary.LittleEndian.AppendUint64(out, uint64(len(id)))
		out = append(out, id...)
		at += len(bodies[i])
	}
	return writeFile(t, "fat.bin", string(append(out, slices.Concat(bodies...)...)))
}

// noLLVM is a folder without programs.
func noLLVM(t *testing.T) []string { return []string{"--llvm", t.TempDir()} }

// unexported fields are not in the JSON.
var noObject = cmpopts.IgnoreUnexported(kernelRow{})

func TestInspectJSON(t *testing.T) {
	var got inspection
	kiln(t, append([]string{"inspect", goldenMatmul, "--json"}, noLLVM(t)...)...).decode(t, &got)
	pointer := func(offset int) argRow {
		return argRow{Offset: offset, Size: 8, ValueKind: "global_buffer", AddressSpace: ptrTo("global")}
	}
	value := func(offset int) argRow { return argRow{Offset: offset, Size: 4, ValueKind: "by_value"} }
	want := inspection{
		File: goldenMatmul, Kind: object.KindAMDGPU, Target: ptrTo("gfx950"), CodeObjectVersion: ptrTo(5),
		MadeBy: []string{"Linker: LLD 22.0.0 (https://github.com/llvm/llvm-project f6ded0be897e2878612dd903f7e8bb85448269e5)"},
		Kernels: []kernelRow{{
			Name: "k_matmul", Target: "gfx950", VGPR: ptrTo(72), AGPR: ptrTo(16), SGPR: ptrTo(34), VGPRSpills: ptrTo(0), SGPRSpills: ptrTo(0),
			LDSBytes: ptrTo(0), ScratchBytes: ptrTo(0), Occupancy: ptrTo(7), CodeBytes: ptrTo(3540), KernargBytes: ptrTo(56), PreloadBytes: ptrTo(56),
			MaxWorkgroup: ptrTo(256), Wavefront: ptrTo(64), DynamicStack: ptrTo(false),
			Args: []argRow{pointer(0), pointer(8), pointer(16), value(24), value(28), value(32), pointer(40), pointer(48)},
		}},
		Relocations: []relocationRow{}, Undefined: []string{}, Problems: []string{},
	}
	if len(got.Notes) != 1 || !strings.HasPrefix(got.Notes[0], "mfma is not known: llvm: no usable LLVM found") {
		t.Errorf("notes %q", got.Notes)
	}
	got.Notes = nil
	if diff := cmp.Diff(want, got, noObject); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What is not known is null, and present.
func TestInspectNull(t *testing.T) {
	r := kiln(t, "inspect", objectFiles+"host.so", "--json").ok(t)
	for _, part := range []string{
		`"kind":"host"`, `"target":"x86-64"`, `"code_object_version":null`, `"undefined":["expf","memcpy"]`,
		`{"name":"copy","target":"x86-64","vgpr":null,"agpr":null,"sgpr":null,"vgpr_spills":null,"sgpr_spills":null,"lds_bytes":null,"scratch_bytes":null,"occupancy":null,"code_bytes":8,"mfma":null,`,
		`"args":null`, `"problems":[]`,
	} {
		if !strings.Contains(r.stdout, part) {
			t.Errorf("%s lacks %s", r.stdout, part)
		}
	}
}

func TestInspectText(t *testing.T) {
	r := kiln(t, append([]string{"inspect", objectFiles + "undefined.o"}, noLLVM(t)...)...).ok(t)
	want := `file                 ../../../codegen/object/testdata/undefined.o
kind                 amdgpu
target               gfx942
code object version  6
relocations          3
undefined            llvm_amdgcn_workitem_id_x

kernel  target  vgpr  agpr  sgpr  vgpr spills  sgpr spills  lds  scratch  occupancy  code  mfma
calls   gfx942  41    0     42    0            0            0    0        8          100   -

problems:
  undefined symbol "llvm_amdgcn_workitem_id_x"
`
	if diff := cmp.Diff(want, r.stdout); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !strings.HasPrefix(r.stderr, "note: mfma is not known: ") {
		t.Errorf("standard error %q", r.stderr)
	}
}

func TestInspectKernel(t *testing.T) {
	r := kiln(t, append([]string{"inspect", goldenAdd, "--kernel", "k_add"}, noLLVM(t)...)...).ok(t)
	want := `
k_add (gfx942): 48 kernarg bytes, 48 of them preloaded; workgroup at most 256, wave 64
  offset  size  kind           address space  actual access  name
  0       8     global_buffer  global         -              -
  8       8     global_buffer  global         -              -
  16      8     global_buffer  global         -              -
  24      4     by_value       -              -              -
  32      8     global_buffer  global         -              -
  40      8     global_buffer  global         -              -
`
	if !strings.HasSuffix(r.stdout, want) {
		t.Errorf("standard output\n%swant at its end\n%s", r.stdout, want)
	}
	r = kiln(t, append([]string{"inspect", objectFiles + "fixture.gfx942.hsaco", "--kernel", "spills"}, noLLVM(t)...)...).ok(t)
	if !strings.Contains(r.stdout, "workgroup [64 2 1]") || strings.Contains(r.stdout, "lookup") {
		t.Errorf("standard output %s", r.stdout)
	}
	kiln(t, "inspect", objectFiles+"fixture.gfx942.hsaco", "--kernel", "spill").failed(t, exitUsage,
		`--kernel: `+objectFiles+`fixture.gfx942.hsaco has no kernel "spill": want one of hidden, lookup, mfma, spills`)
}

func TestInspectBundle(t *testing.T) {
	ids := []string{"host-x86_64-unknown-linux-gnu-", "hipv4-amdgcn-amd-amdhsa--gfx942", "hipv4-amdgcn-amd-amdhsa--gfx950"}
	path := bundleOf(t, ids, nil, file(t, goldenAdd), file(t, goldenMatmul))
	var got inspection
	kiln(t, append([]string{"inspect", path, "--json"}, noLLVM(t)...)...).decode(t, &got)
	if got.Kind != object.KindBundle || got.Target != nil || got.CodeObjectVersion == nil || *got.CodeObjectVersion != 5 {
		t.Errorf("kind %s, target %v, version %v", got.Kind, got.Target, got.CodeObjectVersion)
	}
	want := []entryRow{
		{ids[0], "host", "x86_64-unknown-linux-gnu", "", 196, 0, false},
		{ids[1], "hipv4", "amdgcn-amd-amdhsa-", "gfx942", 196, 5416, true},
		{ids[2], "hipv4", "amdgcn-amd-amdhsa-", "gfx950", 5612, 8520, true},
	}
	if diff := cmp.Diff(want, got.Entries); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(got.Kernels) != 2 || got.Kernels[0].Target != "gfx942" || got.Kernels[1].Target != "gfx950" {
		t.Errorf("kernels %+v", got.Kernels)
	}
	text := kiln(t, append([]string{"inspect", path}, noLLVM(t)...)...).ok(t).stdout
	for _, part := range []string{ids[0] + ", 0 bytes at 0xc4, skipped: not for an AMDGPU", ids[2] + ", 8520 bytes at 0x15ec, read"} {
		if !strings.Contains(text, part) {
			t.Errorf("standard output %s lacks %q", text, part)
		}
	}
}

func TestInspectErrors(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	old := file(t, goldenAdd)
	old[8] = 1
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no file", []string{none}, exitFailed, "open " + none},
		{"no argument", nil, exitUsage, "inspect takes 1 argument (FILE), got 0"},
		{"text", []string{writeFile(t, "k.ll", "define void @k()")}, exitFailed, `k.ll: magic at offset 0x0 is "defi": neither an ELF file nor an offload bundle`},
		{"compressed", []string{writeFile(t, "c.bin", "CCOB\x02\x00")}, exitRefused, "compressed offload bundle (magic CCOB): not supported"},
		{"code object version 3", []string{writeFile(t, "v3.hsaco", string(old))}, exitRefused, "elf e_ident[EI_ABIVERSION] at offset 0x8 is 1"},
		{"cut", []string{writeFile(t, "cut.hsaco", string(old[:1000]))}, exitFailed, "elf section table (e_shoff, e_shnum)"},
		{"asm without LLVM", append([]string{goldenAdd, "--asm"}, noLLVM(t)...), exitFailed, "try: make toolchain"},
		{"asm of the host", []string{objectFiles + "host.so", "--asm"}, exitRefused, "--asm disassembles AMDGPU code only"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kiln(t, append([]string{"inspect"}, tc.args...)...).failed(t, tc.code, tc.want)
		})
	}
}

func TestInspectAsm(t *testing.T) {
	needObjdump(t)
	var got inspection
	kiln(t, "inspect", goldenMatmul, "--json", "--asm").decode(t, &got)
	k := got.Kernels[0]
	if k.MFMA == nil || *k.MFMA != 6 || len(got.Notes) > 0 || len(got.Problems) > 0 {
		t.Errorf("mfma %v, notes %q, problems %q", cell(k.MFMA), got.Notes, got.Problems)
	}
	first, last := instruction{0, "s_load_dwordx2 s[2:3], s[0:1], 0x0"}, k.Asm[len(k.Asm)-1]
	if k.Asm[0] != first || last.Text != "s_endpgm" {
		t.Errorf("first %+v, last %+v", k.Asm[0], last)
	}
	text := kiln(t, "inspect", objectFiles+"fixture.gfx942.hsaco", "--asm", "--kernel", "mfma").ok(t)
	if !strings.Contains(text.stdout, "\n  +0x0028  v_mfma_f32_16x16x16_bf16 ") || strings.Contains(text.stdout, "v_mov_b32_e32 v1, s2") || text.stderr != "" {
		t.Errorf("standard output %s, standard error %s", text.stdout, text.stderr)
	}

	// A word that is no instruction, in one object of a bundle.
	bad := file(t, goldenAdd)
	binary.LittleEndian.PutUint32(bad[0x708:], 0xffffffff)
	path := bundleOf(t, []string{"hip-amdgcn-amd-amdhsa--gfx942", "hipv4-amdgcn-amd-amdhsa--gfx942"}, file(t, goldenAdd), bad)
	got = inspection{}
	kiln(t, "inspect", path, "--json").decode(t, &got)
	if want := []string{"hipv4-amdgcn-amd-amdhsa--gfx942: kernel k_add: no instruction at +0x108: .long 0xffffffff"}; !slices.Equal(got.Problems, want) {
		t.Errorf("problems %q, want %q", got.Problems, want)
	}
}
