package object

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The made-up object: every field of the metadata and of the descriptor, by
// literals that differ from one another.
func TestMetadata(t *testing.T) {
	k := append(goodKernel(), pair{".reqd_workgroup_size", []any{64, 2, 1}}, pair{".language", "OpenCL C"}, pair{".language_version", []any{2, 0}})
	o := mustRead(t, testObject(pack(append(rootOf(k), pair{"amdhsa.printf", []any{"1:1:4:%d"}})), goodDescriptor())).Object
	want := Kernel{
		Name: "k", Symbol: "k.kd",
		Args: []Arg{
			{Name: "out", Offset: 0, Size: 8, ValueKind: "global_buffer", AddressSpace: "global", ActualAccess: "write_only"},
			{Offset: 8, Size: 4, ValueKind: "by_value"},
			{Offset: 16, Size: 4, ValueKind: "hidden_block_count_x"},
		},
		KernargBytes: 24, KernargAlign: 8, VGPRs: 12, AGPRs: ptr(4), SGPRs: 20, VGPRSpills: ptr(2), SGPRSpills: ptr(1),
		LDSBytes: 1024, ScratchBytes: 16, MaxWorkgroup: 256, RequiredWorkgroup: []int{64, 2, 1}, Wavefront: 64, DynamicStack: ptr(false),
		Descriptor: &Descriptor{
			Address: testRodata, LDSBytes: 1024, ScratchBytes: 16, KernargBytes: 24, EntryOffset: testText - testRodata,
			Rsrc1: 1 | 2<<6, Rsrc2: 6<<1 | 1<<7 | 1<<9 | 1<<11, Rsrc3: 1, Properties: 10, Preload: 2 | 1<<7,
		},
		Section: ".text", Address: testText, Occupancy: ptr(8),
	}
	if diff := cmp.Diff([]Kernel{want}, o.Kernels, sameKernel); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if o.Problems != nil {
		t.Errorf("problems %q", o.Problems)
	}
	if got := o.Kernels[0].HiddenArgs(); len(got) != 1 || got[0].Offset != 16 {
		t.Errorf("hidden arguments %+v", got)
	}
	d := o.Kernels[0].Descriptor
	got := []int{d.VGPRGranules(), d.SGPRGranules(), d.AccumOffset(), d.UserSGPRs(), d.WorkitemIDs(), d.PreloadLength(), d.PreloadOffset()}
	if diff := cmp.Diff([]int{2, 3, 8, 6, 2, 2, 1}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := d.WorkgroupIDs(); got != [3]bool{true, false, true} {
		t.Errorf("workgroup ids %v", got)
	}
	if diff := cmp.Diff([]string{"a linker"}, o.Comments); diff != "" {
		t.Errorf("comments: %s", diff)
	}
}

// Values that the metadata does not state are nil, not 0.
func TestMetadataUnknown(t *testing.T) {
	k := goodKernel()
	for _, key := range []string{".agpr_count", ".sgpr_spill_count", ".vgpr_spill_count", ".uses_dynamic_stack", ".args"} {
		k = k.with(key, drop)
	}
	o := mustRead(t, testObject(pack(rootOf(k)), goodDescriptor())).Object
	got := o.Kernels[0]
	if got.AGPRs != nil || got.SGPRSpills != nil || got.VGPRSpills != nil || got.DynamicStack != nil || got.Args != nil || got.RequiredWorkgroup != nil {
		t.Errorf("kernel %+v", got)
	}
	if want := []string{"kernel k: metadata .agpr_count is missing"}; !slices.Equal(o.Problems, want) {
		t.Errorf("problems %q, want %q", o.Problems, want)
	}
}

func TestMetadataErrors(t *testing.T) {
	kernel := func(key string, value any) pairs { return rootOf(goodKernel().with(key, value)) }
	arg := func(key string, value any) pairs {
		args := goodArgs()
		args[1] = args[1].(pairs).with(key, value)
		return kernel(".args", args)
	}
	for _, tc := range []struct {
		name string
		root any
		want string // part of the error
	}{
		{"no alignment", kernel(".kernarg_segment_align", drop), `metadata amdhsa.kernels[0].kernarg_segment_align at offset 0x65: is missing from the map (kernel "k")`},
		{"no size", kernel(".kernarg_segment_size", drop), "amdhsa.kernels[0].kernarg_segment_size at offset 0x65: is missing"},
		{"no LDS", kernel(".group_segment_fixed_size", drop), "amdhsa.kernels[0].group_segment_fixed_size at offset"},
		{"no scratch", kernel(".private_segment_fixed_size", drop), "amdhsa.kernels[0].private_segment_fixed_size at offset"},
		{"no wave size", kernel(".wavefront_size", drop), "amdhsa.kernels[0].wavefront_size at offset"},
		{"no VGPRs", kernel(".vgpr_count", drop), "amdhsa.kernels[0].vgpr_count at offset"},
		{"no SGPRs", kernel(".sgpr_count", drop), "amdhsa.kernels[0].sgpr_count at offset"},
		{"no workgroup size", kernel(".max_flat_workgroup_size", drop), "amdhsa.kernels[0].max_flat_workgroup_size at offset"},
		{"no name", kernel(".name", drop), "metadata amdhsa.kernels[0].name at offset 0x65: is missing from the map"},
		{"no symbol", kernel(".symbol", drop), "amdhsa.kernels[0].symbol at offset"},
		{"second kernel", rootOf(goodKernel(), goodKernel().with(".name", "l").with(".sgpr_count", drop)), `amdhsa.kernels[1].sgpr_count at offset`},
		{"argument without offset", arg(".offset", drop), `amdhsa.kernels[0].args[1].offset at offset`},
		{"argument without size", arg(".size", drop), "amdhsa.kernels[0].args[1].size at offset"},
		{"argument without kind", arg(".value_kind", drop), "amdhsa.kernels[0].args[1].value_kind at offset"},
		{"argument of another type", kernel(".args", []any{7}), "amdhsa.kernels[0].args[0] at offset"},
		{"arguments of another type", kernel(".args", "none"), "amdhsa.kernels[0].args at offset 0x79: is a string, want an array"},
		{"count as text", kernel(".vgpr_count", "12"), "amdhsa.kernels[0].vgpr_count at offset"},
		{"negative", kernel(".sgpr_count", -1), "is a negative integer, want an unsigned integer"},
		{"huge", kernel(".group_segment_fixed_size", uint64(1)<<31), "amdhsa.kernels[0].group_segment_fixed_size at offset"},
		{"stack as a number", kernel(".uses_dynamic_stack", 1), "is an unsigned integer, want a boolean"},
		{"name as nil", kernel(".name", nil), "is nil, want a string"},
		{"name as a float", kernel(".name", 1.5), "is a float, want a string"},
		{"name as bytes", kernel(".name", []byte("k")), "is binary data, want a string"},
		{"name with a control character", kernel(".name", "k\x1b[2J"), `the string "k\x1b[2J" has control characters`},
		{"name that is not UTF-8", kernel(".name", "k\xff"), `the string "k\xff" is not UTF-8`},
		{"two sides", kernel(".reqd_workgroup_size", []any{1, 2}), "amdhsa.kernels[0].reqd_workgroup_size at offset"},
		{"four sides", kernel(".reqd_workgroup_size", []any{1, 2, 3, 4}), "reqd_workgroup_size[3] at offset"},
		{"twice", rootOf(append(goodKernel(), pair{".sgpr_count", 3})), "amdhsa.kernels[0].sgpr_count at offset"},
		{"key that is no string", rootOf(append(goodKernel(), pair{7, 3})), "amdhsa.kernels[0](key) at offset"},
		{"the same kernel twice", rootOf(goodKernel(), goodKernel()), `kernel "k" is there twice`},
		{"no target", rootOf().with("amdhsa.target", drop), "metadata amdhsa.target at offset 0x54: is missing from the map"},
		{"no version", rootOf().with("amdhsa.version", drop), "metadata amdhsa.version at offset 0x54"},
		{"no kernels", rootOf().with("amdhsa.kernels", drop), "metadata amdhsa.kernels at offset 0x54"},
		{"version of one number", rootOf().with("amdhsa.version", []any{1}), "metadata amdhsa.version at offset"},
		{"no map", []any{}, "metadata note at offset 0x54: is an array, want a map"},
		{"nothing", []byte(nil), "binary data"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Read(testObject(pack(tc.root), goodDescriptor()))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
}

// A note that is cut off anywhere is an error with an offset inside the note.
func TestMetadataCut(t *testing.T) {
	note := pack(rootOf(goodKernel()))
	for n := range note {
		_, err := decodeMetadata(note[:n:n], 0x1000)
		e, ok := err.(*fieldError)
		if !ok {
			t.Fatalf("%d of %d bytes: error %v", n, len(note), err)
		}
		if e.offset < 0x1000 || e.offset > 0x1000+uint64(n) {
			t.Errorf("%d bytes: %v: offset outside the note", n, err)
		}
	}
	if _, err := decodeMetadata(append(note, 0xc0), 0); err == nil || !strings.Contains(err.Error(), "1 bytes follow the map") {
		t.Errorf("a byte more: error %v", err)
	}
}

// The facts that two places of an object state must agree; each row changes
// one of them.
func TestProblems(t *testing.T) {
	meta := func(key string, value any) func() []byte {
		return func() []byte { return testObject(pack(rootOf(goodKernel().with(key, value))), goodDescriptor()) }
	}
	arg := func(n int, key string, value any) func() []byte {
		args := goodArgs()
		args[n] = args[n].(pairs).with(key, value)
		return meta(".args", args)
	}
	descriptor := func(at int, value byte) func() []byte {
		return func() []byte {
			d := goodDescriptor()
			d[at] = value
			return testObject(pack(rootOf(goodKernel())), d)
		}
	}
	for _, tc := range []struct {
		name   string
		object func() []byte
		want   []string
	}{
		{"none", goodObject, nil},
		{"LDS", meta(".group_segment_fixed_size", 2048), []string{"kernel k: LDS bytes: descriptor has 1024, metadata has 2048"}},
		{"scratch", meta(".private_segment_fixed_size", 20), []string{"kernel k: scratch bytes: descriptor has 16, metadata has 20"}},
		{"kernarg", meta(".kernarg_segment_size", 32), []string{"kernel k: kernarg bytes: descriptor has 24, metadata has 32"}},
		{"stack", meta(".uses_dynamic_stack", true), []string{"kernel k: dynamic stack: descriptor has false, metadata has true"}},
		{"stack bit", descriptor(57, 8), []string{"kernel k: dynamic stack: descriptor has true, metadata has false"}},
		{"wave size", meta(".wavefront_size", 32), []string{"kernel k: wave size 32: descriptor has false, metadata has true"}},
		{"wave size 16", meta(".wavefront_size", 16), []string{"kernel k: metadata .wavefront_size is 16, want 32 or 64"}},
		{"workgroup", meta(".max_flat_workgroup_size", 2048), []string{"kernel k: metadata .max_flat_workgroup_size is 2048, want 1 to 1024"}},
		{"required workgroup", meta(".reqd_workgroup_size", []any{64, 8, 1}), []string{"kernel k: metadata .reqd_workgroup_size [64 8 1] does not go with .max_flat_workgroup_size 256"}},
		{"required workgroup that overflows", meta(".reqd_workgroup_size", []any{1 << 30, 1 << 30, 1 << 30}), []string{"kernel k: metadata .reqd_workgroup_size [1073741824 1073741824 1073741824] does not go with .max_flat_workgroup_size 256"}},
		{"VGPRs", meta(".vgpr_count", 24), []string{"kernel k: VGPRs: descriptor allocates 16, metadata counts 24", "kernel k: AGPRs: descriptor places them at 8, metadata counts 4 of 24 registers"}},
		{"too many VGPRs", meta(".vgpr_count", 513), []string{
			"kernel k: 513 VGPRs and 1024 LDS bytes, where gfx942 has 512 and 65536",
			"kernel k: VGPRs: descriptor allocates 16, metadata counts 513", "kernel k: AGPRs: descriptor places them at 8, metadata counts 4 of 513 registers"}},
		{"SGPRs", meta(".sgpr_count", 25), []string{"kernel k: SGPRs: descriptor allocates 24, metadata counts 25"}},
		{"AGPRs", meta(".agpr_count", 5), []string{"kernel k: AGPRs: descriptor places them at 8, metadata counts 5 of 12 registers"}},
		{"no AGPR", meta(".agpr_count", 0), []string{"kernel k: VGPRs: descriptor places the AGPRs at 8, metadata counts 12 VGPRs and no AGPR"}},
		{"symbol", meta(".symbol", "l.kd"), []string{`kernel k: no symbol "l.kd" for its descriptor`, `kernel k: no function symbol "l" for its code`, `kernel descriptor "k.kd" has no metadata`}},
		{"symbol of another form", meta(".symbol", "k"), []string{`kernel k: metadata .symbol "k" does not end in .kd`, `kernel descriptor "k.kd" has no metadata`}},
		{"unknown key", meta(".colour", pairs{{"a", []any{1, nil}}}), []string{`kernel k: metadata key ".colour" is not known`}},
		{"unknown key of an argument", arg(1, ".colour", 1.5), []string{`kernel k: metadata key ".args[1].colour" is not known`}},
		{"value kind", arg(1, ".value_kind", "hidden_treasure"), []string{`kernel k: argument 1: value kind "hidden_treasure" is not known`}},
		{"argument outside", arg(1, ".offset", 21), []string{"kernel k: argument 1: 4 bytes at offset 21 of 24 kernarg bytes"}},
		{"argument of no size", arg(1, ".size", 0), []string{"kernel k: argument 1: 0 bytes at offset 8 of 24 kernarg bytes"}},
		{"overlap", arg(1, ".offset", 4), []string{"kernel k: arguments at offsets 0 (8 bytes) and 4 overlap"}},
		{"alignment", meta(".kernarg_segment_align", 12), []string{"kernel k: metadata .kernarg_segment_align is 12, want a power of 2"}},
		{"entry", descriptor(17, 0x10), []string{"kernel k: descriptor's entry is 0x2100, the function's symbol is at 0x2000"}},
		{"reserved bytes", descriptor(13, 1), []string{"kernel k: descriptor: reserved bytes 12 to 15 are not zero"}},
		{"reserved bytes in the middle", descriptor(43, 1), []string{"kernel k: descriptor: reserved bytes 24 to 43 are not zero"}},
		{"reserved bytes at the end", descriptor(60, 1), []string{"kernel k: descriptor: reserved bytes 60 to 63 are not zero"}},
		{"reserved properties", descriptor(57, 1), []string{"kernel k: descriptor: reserved bits 0x100 of kernel_code_properties are set"}},
		{"reserved register bits", descriptor(45, 1), []string{"kernel k: descriptor: reserved bits 0x100 of compute_pgm_rsrc3 are set"}},
		{"preload", descriptor(58, 0x86), []string{"kernel k: descriptor preloads 24 bytes at offset 4 of 24 kernarg bytes"}},
		{"short descriptor", func() []byte { return testObject(pack(rootOf(goodKernel())), goodDescriptor()[:60]) }, []string{"kernel k: symbol k.kd: a kernel descriptor has 64 bytes, not 60"}},
		{"target", func() []byte {
			return testObject(pack(rootOf(goodKernel()).with("amdhsa.target", "amdgcn-amd-amdhsa--gfx942:xnack+")), goodDescriptor())
		}, []string{"metadata amdhsa.target is gfx942:xnack+, the ELF header's is gfx942"}},
		{"no target", func() []byte {
			return testObject(pack(rootOf(goodKernel()).with("amdhsa.target", "sm_90")), goodDescriptor())
		}, []string{`metadata amdhsa.target: target ID "sm_90": "sm_90" is no AMDGPU processor`}},
		{"version", func() []byte {
			return testObject(pack(rootOf(goodKernel()).with("amdhsa.version", []any{1, 1})), goodDescriptor())
		}, []string{"metadata amdhsa.version is 1.1, code object version 5 has 1.2"}},
		{"unknown root key", func() []byte {
			return testObject(pack(append(rootOf(goodKernel()), pair{"amdhsa.colour", "red"})), goodDescriptor())
		}, []string{`metadata key "amdhsa.colour" is not known`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := mustRead(t, tc.object())
			if diff := cmp.Diff(tc.want, f.Problems); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(f.Problems, f.Object.Problems); diff != "" {
				t.Errorf("the file and its object differ:\n%s", diff)
			}
		})
	}
}

// Resources that no chip has give no occupancy, rather than 0.
func TestOccupancyUnknown(t *testing.T) {
	for name, k := range map[string]pairs{
		"VGPRs":     goodKernel().with(".vgpr_count", 513),
		"LDS":       goodKernel().with(".group_segment_fixed_size", 65537),
		"workgroup": goodKernel().with(".max_flat_workgroup_size", 0),
		"required":  goodKernel().with(".reqd_workgroup_size", []any{512, 1, 1}),
	} {
		o := mustRead(t, testObject(pack(rootOf(k)), goodDescriptor())).Object
		if o.Kernels[0].Occupancy != nil {
			t.Errorf("%s: occupancy %d", name, *o.Kernels[0].Occupancy)
		}
		if o.Problems == nil {
			t.Errorf("%s: no problem", name)
		}
	}
}

// The list of problems is cut, and says so.
func TestProblemsCut(t *testing.T) {
	k := goodKernel()
	for i := range 150 {
		k = append(k, pair{strings.Repeat("x", i+1), nil})
	}
	o := mustRead(t, testObject(pack(rootOf(k)), goodDescriptor())).Object
	if n := len(o.Problems); n != maxProblems+1 || o.Problems[n-1] != "1 more problems" {
		t.Errorf("%d problems, last %q", n, o.Problems[n-1])
	}
}
