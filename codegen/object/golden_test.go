package object

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What llvm-readelf -h -s --notes and llvm-objdump -D print of the objects,
// read by hand.
func pointers(offsets ...int) []Arg {
	var args []Arg
	for _, at := range offsets {
		args = append(args, Arg{Offset: at, Size: 8, ValueKind: "global_buffer", AddressSpace: "global"})
	}
	return args
}

func values(offsets ...int) []Arg {
	var args []Arg
	for _, at := range offsets {
		args = append(args, Arg{Offset: at, Size: 4, ValueKind: "by_value"})
	}
	return args
}

func concat(lists ...[]Arg) []Arg {
	var out []Arg
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

var tritonObjects = []struct {
	file   string
	chip   string
	code   int
	mfma   int
	kernel Kernel
}{
	{"add.gfx942.hsaco", "gfx942", 748, 0, Kernel{
		Name: "k_add", Symbol: "k_add.kd", Args: concat(pointers(0, 8, 16), values(24), pointers(32, 40)),
		KernargBytes: 48, KernargAlign: 8, VGPRs: 14, AGPRs: ptr(0), SGPRs: 21, Occupancy: ptr(8), Address: 0x1600,
		Descriptor: &Descriptor{Address: 0x5c0, KernargBytes: 48, EntryOffset: 0x1040, Rsrc1: 0xaf0081, Rsrc2: 0x9c, Rsrc3: 3, Properties: 8, Preload: 12},
	}},
	{"add.gfx950.hsaco", "gfx950", 748, 0, Kernel{
		Name: "k_add", Symbol: "k_add.kd", Args: concat(pointers(0, 8, 16), values(24), pointers(32, 40)),
		KernargBytes: 48, KernargAlign: 8, VGPRs: 14, AGPRs: ptr(0), SGPRs: 21, Occupancy: ptr(8), Address: 0x1600,
		Descriptor: &Descriptor{Address: 0x5c0, KernargBytes: 48, EntryOffset: 0x1040, Rsrc1: 0xaf0081, Rsrc2: 0x9c, Rsrc3: 3, Properties: 8, Preload: 12},
	}},
	{"matmul_bf16.gfx942.hsaco", "gfx942", 2236, 4, Kernel{
		Name: "k_matmul", Symbol: "k_matmul.kd", Args: concat(pointers(0, 8, 16), values(24, 28, 32), pointers(40, 48)),
		KernargBytes: 56, KernargAlign: 8, VGPRs: 64, AGPRs: ptr(16), SGPRs: 32, Occupancy: ptr(8), Address: 0x1700,
		Descriptor: &Descriptor{Address: 0x600, KernargBytes: 56, EntryOffset: 0x1100, Rsrc1: 0xaf00c7, Rsrc2: 0x1a0, Rsrc3: 11, Properties: 8, Preload: 14},
	}},
	{"matmul_bf16.gfx950.hsaco", "gfx950", 3540, 6, Kernel{
		Name: "k_matmul", Symbol: "k_matmul.kd", Args: concat(pointers(0, 8, 16), values(24, 28, 32), pointers(40, 48)),
		KernargBytes: 56, KernargAlign: 8, VGPRs: 72, AGPRs: ptr(16), SGPRs: 34, Occupancy: ptr(7), Address: 0x1700,
		Descriptor: &Descriptor{Address: 0x600, KernargBytes: 56, EntryOffset: 0x1100, Rsrc1: 0xaf0108, Rsrc2: 0x1a0, Rsrc3: 13, Properties: 8, Preload: 14},
	}},
	{"rmsnorm.gfx942.hsaco", "gfx942", 1656, 0, Kernel{
		Name: "k_rmsnorm", Symbol: "k_rmsnorm.kd", Args: concat(pointers(0, 8, 16), values(24, 28), pointers(32, 40)),
		KernargBytes: 48, KernargAlign: 8, VGPRs: 33, AGPRs: ptr(0), SGPRs: 36, Occupancy: ptr(8), Address: 0x1700,
		Descriptor: &Descriptor{Address: 0x600, KernargBytes: 48, EntryOffset: 0x1100, Rsrc1: 0xaf0104, Rsrc2: 0x9c, Rsrc3: 8, Properties: 8, Preload: 12},
	}},
	{"rmsnorm.gfx950.hsaco", "gfx950", 1460, 0, Kernel{
		Name: "k_rmsnorm", Symbol: "k_rmsnorm.kd", Args: concat(pointers(0, 8, 16), values(24, 28), pointers(32, 40)),
		KernargBytes: 48, KernargAlign: 8, VGPRs: 33, AGPRs: ptr(0), SGPRs: 36, Occupancy: ptr(8), Address: 0x1700,
		Descriptor: &Descriptor{Address: 0x600, KernargBytes: 48, EntryOffset: 0x1100, Rsrc1: 0xaf0104, Rsrc2: 0x9c, Rsrc3: 8, Properties: 8, Preload: 12},
	}},
}

// sameKernel compares kernels but for the code's bytes.
var sameKernel = cmp.Options{
	cmpopts.IgnoreFields(Kernel{}, "Code", "unknown"),
	cmpopts.IgnoreFields(Descriptor{}, "reserved"),
}

func TestTritonObjects(t *testing.T) {
	for _, tc := range tritonObjects {
		t.Run(tc.file, func(t *testing.T) {
			f := mustRead(t, readTestFile(t, filepath.Join(golden, tc.file)))
			o := f.Object
			if f.Kind != KindAMDGPU || o.Version != 5 || o.ABIVersion != 3 || o.Relocatable || o.MetadataVersion != [2]int{1, 2} ||
				o.MetadataTarget != "amdgcn-amd-amdhsa--"+tc.chip || o.GenericVersion != 0 {
				t.Errorf("kind %s, version %d, ABI %d, relocatable %t, metadata %v of %s", f.Kind, o.Version, o.ABIVersion, o.Relocatable, o.MetadataVersion, o.MetadataTarget)
			}
			if want := (TargetID{tc.chip, SettingAny, SettingAny}); o.Target != want {
				t.Errorf("target %+v, want %+v", o.Target, want)
			}
			if len(f.Problems)+len(o.Relocations)+len(o.Undefined) > 0 {
				t.Errorf("problems %q, relocations %v, undefined %q", f.Problems, o.Relocations, o.Undefined)
			}
			want := tc.kernel
			want.VGPRSpills, want.SGPRSpills, want.DynamicStack = ptr(0), ptr(0), ptr(false)
			want.MaxWorkgroup, want.Wavefront, want.Section = 256, 64, ".text"
			if diff := cmp.Diff([]Kernel{want}, o.Kernels, sameKernel); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			k := &o.Kernels[0]
			if len(k.Code) != tc.code {
				t.Errorf("%d bytes of code, want %d", len(k.Code), tc.code)
			}
			// The mapped address of the code leads to the same bytes.
			for _, s := range o.Segments {
				if s.Exec && string(s.Data[k.Address-s.Address:][:len(k.Code)]) != string(k.Code) {
					t.Error("the executable segment has other bytes at the kernel's address")
				}
			}
			if len(o.Segments) != 3 || o.Segments[0].Exec || !o.Segments[1].Exec || !o.Segments[2].Writable {
				t.Errorf("segments %+v", o.Segments)
			}
			if want := []string{"Linker: LLD 22.0.0 (https://github.com/llvm/llvm-project f6ded0be897e2878612dd903f7e8bb85448269e5)"}; !cmp.Equal(o.Comments, want) {
				t.Errorf("comments %q", o.Comments)
			}
		})
	}
}

// What llvm-objdump -D prints for k_matmul.kd of gfx942, field by field.
func TestDescriptorFields(t *testing.T) {
	o := mustRead(t, readTestFile(t, golden+"/matmul_bf16.gfx942.hsaco")).Object
	d := o.Kernels[0].Descriptor
	got := []int{
		8 * d.VGPRGranules(), 8 * d.SGPRGranules(), d.AccumOffset(), d.FloatMode(), d.UserSGPRs(), d.WorkitemIDs(), d.PreloadLength(), d.PreloadOffset(),
	}
	if diff := cmp.Diff([]int{64, 32, 48, 0xf0, 16, 1, 14, 0}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := d.WorkgroupIDs(); got != [3]bool{true, true, false} {
		t.Errorf("workgroup ids %v", got)
	}
	for p, want := range map[Property]bool{KernargSegmentPtr: true, DispatchPtr: false, PrivateSegmentSize: false, UsesDynamicStack: false, Wavefront32: false} {
		if d.Has(p) != want {
			t.Errorf("property %#x is %t", p, !want)
		}
	}
}

func TestDisassembleTriton(t *testing.T) {
	objdump := tool(t, "llvm-objdump")
	for _, tc := range tritonObjects {
		data := readTestFile(t, filepath.Join(golden, tc.file))
		found, err := Disassemble(context.Background(), objdump, data, tc.chip)
		if err != nil {
			t.Fatalf("%s: %v", tc.file, err)
		}
		lines := found[tc.kernel.Name]
		if len(found) != 1 || len(lines) == 0 {
			t.Fatalf("%s: %d kernels, %d lines", tc.file, len(found), len(lines))
		}
		if n := CountMFMA(lines); n != tc.mfma {
			t.Errorf("%s: %d MFMA, want %d", tc.file, n, tc.mfma)
		}
		if p := Undecodable(tc.kernel.Name, lines); p != nil {
			t.Errorf("%s: %q", tc.file, p)
		}
		if last := lines[len(lines)-1]; last.Text != "s_endpgm" || last.Words[0] != 0xbf810000 {
			t.Errorf("%s: last line %+v", tc.file, last)
		}
		// The arguments are preloaded, so the real code begins at +256.
		if i := 4; lines[i].Text != "s_branch 56" || lines[i].Offset != 0x1c {
			t.Errorf("%s: line %d is %+v", tc.file, i, lines[i])
		}
	}
}
