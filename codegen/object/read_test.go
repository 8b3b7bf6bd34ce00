package object

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

func TestBundle(t *testing.T) {
	code := goodObject()
	other := goodObject()
	le.PutUint32(other[ehFlags:], 0xe4c) // sramecc on, xnack off
	text := []byte("not an ELF file")
	f := mustRead(t, testBundle(
		bundled{"host-x86_64-unknown-linux-gnu-", nil},
		bundled{"hipv4-amdgcn-amd-amdhsa--gfx942", code},
		bundled{"hip-spirv64-amd-amdhsa-unknown-amdgcnspirv", text},
		bundled{"hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-", other},
		bundled{"openmp-amdgcn-amd-amdhsa-gfx950", slices.Concat(code)},
	))
	if f.Kind != KindBundle || f.Object != nil || f.Host != nil {
		t.Errorf("kind %s, object %v, host %v", f.Kind, f.Object, f.Host)
	}
	type row struct {
		kind, triple, target string
		size                 int
		object               bool
	}
	var got []row
	for _, e := range f.Entries {
		got = append(got, row{e.Kind, e.Triple, e.Target, int(e.Size), e.Object != nil})
	}
	want := []row{
		{"host", "x86_64-unknown-linux-gnu", "", 0, false},
		{"hipv4", "amdgcn-amd-amdhsa-", "gfx942", len(code), true},
		{"hip", "spirv64-amd-amdhsa-unknown", "amdgcnspirv", len(text), false},
		{"hipv4", "amdgcn-amd-amdhsa-", "gfx942:sramecc+:xnack-", len(code), true},
		{"openmp", "amdgcn-amd-amdhsa", "gfx950", len(code), true},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// The second object's note still says gfx942; the third is under a wrong name.
	wantProblems := []string{
		"hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-: metadata amdhsa.target is gfx942, the ELF header's is gfx942:sramecc+:xnack-",
		"openmp-amdgcn-amd-amdhsa-gfx950: the entry's target is gfx950, its code object's is gfx942",
	}
	if diff := cmp.Diff(wantProblems, f.Problems); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if n := len(f.Objects()); n != 3 {
		t.Errorf("%d code objects", n)
	}

	// The most specific object that fits the device.
	for _, tc := range []struct {
		device TargetID
		want   int // entry, -1 for none
	}{
		{TargetID{"gfx942", SettingOff, SettingOn}, 3},
		{TargetID{"gfx942", SettingOn, SettingOn}, 1},
		{TargetID{"gfx942", SettingOff, SettingOff}, 1},
		{TargetID{"gfx950", SettingOff, SettingOn}, -1},
	} {
		o, err := f.ForDevice(tc.device)
		switch {
		case tc.want >= 0 && (err != nil || o != f.Entries[tc.want].Object):
			t.Errorf("%s: another object, or error %v", tc.device, err)
		case tc.want < 0:
			want := "no code object for this device: have amdgcn-amd-amdhsa--gfx942, amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-, amdgcn-amd-amdhsa--gfx942, need amdgcn-amd-amdhsa--gfx950:sramecc+:xnack-"
			if err == nil || err.Error() != want {
				t.Errorf("%s: error %v, want %s", tc.device, err, want)
			}
		}
	}
	if _, err := mustRead(t, readTestFile(t, "testdata/host.so")).ForDevice(TargetID{Chip: "gfx942"}); err == nil || !strings.Contains(err.Error(), "have no AMDGPU code object, need amdgcn-amd-amdhsa--gfx942") {
		t.Errorf("host object: error %v", err)
	}
}

func TestBundleErrors(t *testing.T) {
	const id = "hipv4-amdgcn-amd-amdhsa--gfx942"
	good := testBundle(bundled{id, goodObject()})
	change := func(at int, value uint64) []byte {
		b := slices.Clone(good)
		le.PutUint64(b[at:], value)
		return b
	}
	for _, tc := range []struct {
		name string
		data []byte
		want string
	}{
		{"compressed", []byte("CCOB\x03\x00"), "compressed offload bundle (magic CCOB): not supported"},
		{"count", change(24, 1<<40), "bundle: number of entries at offset 0x18 is 1099511627776, more than 4096"},
		{"more entries than there are", change(24, 2), "bundle entry 1"},
		{"offset", change(32, 1<<63), "bundle entry 0 (" + id + "): offset, size: 0x561 bytes at offset 0x8000000000000000 lie outside"},
		{"size", change(40, 1<<63), "bundle entry 0 (" + id + "): offset, size: 0x8000000000000000 bytes at offset 0x57 lie outside"},
		{"ID length", change(48, 5000), "bundle entry 0: length of the ID at offset 0x30 is 5000, more than 4096"},
		{"ID", testBundle(bundled{"hip v4", nil}), `bundle entry 0: ID at offset 0x38 is "hip v4", want printable ASCII`},
		{"twice", testBundle(bundled{id, goodObject()}, bundled{id, goodObject()}), "bundle entry 1 at offset 0x57: ID " + id + " is there twice"},
		{"no ELF file", testBundle(bundled{id, []byte("text")}), "bundle entry 0 (" + id + `) at offset 0x57: magic is "text": not an ELF file`},
		{"nothing", testBundle(bundled{id, nil}), `magic is "": not an ELF file`},
		{"host object", testBundle(bundled{id, readTestFile(t, "testdata/host.so")}), "elf e_machine at offset 0x12 is 62, want 224 (AMDGPU)"},
		{"damaged object", testBundle(bundled{id, goodObject()[:600]}), "bundle entry 0 (" + id + ") at offset 0x57: elf section table"},
		{"bundle in a bundle", testBundle(bundled{id, good}), `magic is "__CL": not an ELF file`},
		{"overlap", func() []byte {
			b := testBundle(bundled{"a-b", []byte("1234")}, bundled{"c-d", []byte("5678")})
			le.PutUint64(b[32:], le.Uint64(b[32:])+1)
			return b
		}(), "bundle entries a-b (0x4 bytes at offset 0x57) and c-d (at offset 0x5a) overlap"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Read(tc.data)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
			if errors.Is(err, ErrUnsupported) != (tc.name == "compressed") {
				t.Errorf("error %v: unsupported is %t", err, errors.Is(err, ErrUnsupported))
			}
		})
	}
}

func TestHost(t *testing.T) {
	f := mustRead(t, readTestFile(t, "testdata/host.so"))
	// What llvm-readelf --dyn-syms prints.
	want := &HostObject{
		Functions: []Function{{"copy", 0x13f0, ptr(8)}, {"scale", 0x13a0, ptr(69)}},
		Undefined: []string{"expf", "memcpy"},
		Comments:  []string{"Linker: Debian LLD 22.1.8"},
	}
	if diff := cmp.Diff(want, f.Host); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if f.Kind != KindHost || f.Problems != nil || f.Objects() != nil {
		t.Errorf("kind %s, problems %q, objects %v", f.Kind, f.Problems, f.Objects())
	}
	data := readTestFile(t, "testdata/host.so")
	data[16] = 1
	if _, err := Read(data); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "elf e_type at offset 0x10 is 1, want 3") {
		t.Errorf("relocatable: error %v", err)
	}
}

// Objects that LLVM 22.1.8 made (testdata/README.md), by what its llvm-readelf
// prints.
func TestFixtures(t *testing.T) {
	type row struct {
		name                      string
		vgpr, agpr, sgpr, vspills int
		lds, scratch, workgroup   int
		code, args, hidden        int
	}
	rows := []row{
		{"hidden", 2, 0, 12, 0, 0, 0, 128, 60, 21, 19},
		{"lookup", 2, 0, 14, 0, 0, 260, 64, 120, 2, 0},
		{"mfma", 24, 20, 12, 0, 4096, 0, 256, 96, 2, 0},
		{"spills", 24, 12, 12, 3, 0, 16, 256, 696, 2, 0},
	}
	for _, tc := range []struct {
		file        string
		target      string
		version     int
		relocatable bool
		segments    int
		relocations []Relocation
	}{
		{"fixture.gfx942.hsaco", "gfx942:sramecc+:xnack-", 5, false, 3, nil},
		{"fixture.gfx950.o", "gfx950", 6, true, 0, []Relocation{
			{".text", 0x11c, "R_AMDGPU_REL32_LO", ".rodata", 0x104},
			{".text", 0x124, "R_AMDGPU_REL32_HI", ".rodata", 0x10c},
			{".rodata", 0x10, "R_AMDGPU_REL64", "hidden", 0x10},
			{".rodata", 0x50, "R_AMDGPU_REL64", "lookup", 0x10},
			{".rodata", 0x90, "R_AMDGPU_REL64", "mfma", 0x10},
			{".rodata", 0xd0, "R_AMDGPU_REL64", "spills", 0x10},
		}},
	} {
		t.Run(tc.file, func(t *testing.T) {
			o := mustRead(t, readTestFile(t, "testdata/"+tc.file)).Object
			if o.Target.String() != tc.target || o.Version != tc.version || o.Relocatable != tc.relocatable || len(o.Segments) != tc.segments || o.Problems != nil {
				t.Errorf("target %s, version %d, relocatable %t, %d segments, problems %q", o.Target, o.Version, o.Relocatable, len(o.Segments), o.Problems)
			}
			if diff := cmp.Diff(tc.relocations, o.Relocations); diff != "" {
				t.Errorf("relocations: -want +got:\n%s", diff)
			}
			var got []row
			for _, k := range o.Kernels {
				got = append(got, row{
					k.Name, k.VGPRs, *k.AGPRs, k.SGPRs, *k.VGPRSpills, k.LDSBytes, k.ScratchBytes, k.MaxWorkgroup,
					len(k.Code), len(k.Args), len(k.HiddenArgs()),
				})
			}
			if diff := cmp.Diff(rows, got, cmp.AllowUnexported(row{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			hidden := o.Kernels[0].HiddenArgs()
			if want := (Arg{Offset: 28, Size: 2, ValueKind: "hidden_group_size_x"}); hidden[3] != want {
				t.Errorf("hidden argument 3 is %+v", hidden[3])
			}
			if want := (Arg{Name: "out", Size: 8, ValueKind: "global_buffer", AddressSpace: "global", ActualAccess: "write_only"}); o.Kernels[0].Args[0] != want {
				t.Errorf("argument 0 is %+v", o.Kernels[0].Args[0])
			}
			if w := o.Kernels[3].RequiredWorkgroup; !slices.Equal(w, []int{64, 2, 1}) {
				t.Errorf("required workgroup %v", w)
			}
		})
	}
}

// A misspelt intrinsic compiles to a call of a function that nobody has.
func TestUndefined(t *testing.T) {
	o := mustRead(t, readTestFile(t, "testdata/undefined.o")).Object
	const name = "llvm_amdgcn_workitem_id_x"
	if !slices.Equal(o.Undefined, []string{name}) || !slices.Equal(o.Problems, []string{`undefined symbol "` + name + `"`}) {
		t.Errorf("undefined %q, problems %q", o.Undefined, o.Problems)
	}
	want := []Relocation{
		{".text", 0x20, "R_AMDGPU_GOTPCREL32_LO", name, 4},
		{".text", 0x28, "R_AMDGPU_GOTPCREL32_HI", name, 12},
		{".rodata", 0x10, "R_AMDGPU_REL64", "calls", 16},
	}
	if diff := cmp.Diff(want, o.Relocations); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if d := o.Kernels[0].Descriptor; !d.Has(UsesDynamicStack) || !*o.Kernels[0].DynamicStack {
		t.Error("a call of an unknown function needs a dynamic stack")
	}
}

func TestKernelByName(t *testing.T) {
	o := mustRead(t, readTestFile(t, "testdata/fixture.gfx942.hsaco")).Object
	if k, err := o.Kernel("mfma"); err != nil || k != &o.Kernels[2] {
		t.Errorf("kernel %v, error %v", k, err)
	}
	if _, err := o.Kernel("mfna"); err == nil || err.Error() != `no kernel "mfna": the code object has hidden, lookup, mfma, spills` {
		t.Errorf("error %v", err)
	}
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprint(i))
	}
	if got := listNames(names); !strings.HasSuffix(got, "48, 49 and 10 more") || listNames(nil) != "none" {
		t.Errorf("list %q, empty list %q", got, listNames(nil))
	}
}

func FuzzRead(f *testing.F) {
	for _, tc := range tritonObjects {
		f.Add(readTestFile(f, golden+"/"+tc.file))
	}
	for _, name := range []string{"fixture.gfx942.hsaco", "fixture.gfx950.o", "undefined.o", "host.so"} {
		f.Add(readTestFile(f, "testdata/"+name))
	}
	f.Add(goodObject())
	f.Add(testBundle(bundled{"host-x86_64-unknown-linux-gnu-", nil}, bundled{"hipv4-amdgcn-amd-amdhsa--gfx942", goodObject()}))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Read(data)
		if err != nil {
			if file != nil || err.Error() == "" {
				t.Fatalf("file %v with error %q", file, err)
			}
			return
		}
		if (file.Object != nil) != (file.Kind == KindAMDGPU) || (file.Host != nil) != (file.Kind == KindHost) || len(file.Problems) > maxProblems+1 {
			t.Fatalf("kind %s, object %v, host %v, %d problems", file.Kind, file.Object, file.Host, len(file.Problems))
		}
		for _, o := range file.Objects() {
			if _, err := file.ForDevice(o.Target); err != nil && o.Target.XNACK != SettingAny && o.Target.SRAMECC != SettingAny {
				t.Errorf("no object for the target of one: %v", err)
			}
			for i := range o.Kernels {
				k := &o.Kernels[i]
				if got, err := o.Kernel(k.Name); got != k || err != nil {
					t.Errorf("kernel %q is not found: %v", k.Name, err)
				}
				if k.Occupancy != nil && (*k.Occupancy < 1 || *k.Occupancy > 8) {
					t.Errorf("occupancy %d", *k.Occupancy)
				}
				if k.Code != nil && !inside(o.Data, k.Code) {
					t.Error("code outside the object")
				}
			}
			for _, s := range o.Segments {
				if s.MemSize < uint64(len(s.Data)) {
					t.Error("segment larger in the file than in memory")
				}
			}
		}
	})
}

// inside tells whether part is a part of whole, not only equal to one.
func inside(whole, part []byte) bool {
	a, b := uintptr(unsafe.Pointer(unsafe.SliceData(whole))), uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	return b >= a && b+uintptr(len(part)) <= a+uintptr(len(whole))
}
