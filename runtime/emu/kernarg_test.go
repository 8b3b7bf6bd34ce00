package emu

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen/object"
)

func TestSegment(t *testing.T) {
	k := &Kernel{Meta: &object.Kernel{Name: "k", KernargBytes: 48, Args: []object.Arg{
		{Name: "p", Offset: 0, Size: 8, ValueKind: "global_buffer"},
		{Name: "n", Offset: 8, Size: 4, ValueKind: "by_value"},
		{Name: "s", Offset: 12, Size: 3, ValueKind: "by_value"},
		{Offset: 16, Size: 4, ValueKind: "hidden_block_count_x"},
		{Offset: 20, Size: 2, ValueKind: "hidden_group_size_y"},
		{Offset: 22, Size: 2, ValueKind: "hidden_grid_dims"},
		{Offset: 24, Size: 8, ValueKind: "hidden_global_offset_z"},
		{Offset: 32, Size: 4, ValueKind: "hidden_dynamic_lds_size"},
		{Offset: 36, Size: 4, ValueKind: "hidden_shared_base"},
		{Offset: 40, Size: 8, ValueKind: "hidden_none"},
	}}}
	l := Launch{Grid: [3]int{0x12345, 2, 3}, Block: [3]int{64, 3, 1}, LDS: 512}
	p, n, s := []byte{1, 2, 3, 4, 5, 6, 7, 8}, []byte{9, 10, 11, 12}, []byte{13, 14, 15}
	want := []byte{
		1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0,
		0x45, 0x23, 1, 0, 3, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	}
	for _, args := range [][]Argument{
		{{Data: p}, {Data: n}, {Data: s}},
		{{Name: "s", Data: s}, {Name: "p", Data: p}, {Name: "n", Data: n}},
		{{Data: p}, {Name: "s", Data: s}, {Name: "n", Data: n}},
	} {
		got, err := k.Segment(l, args...)
		if err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	for _, c := range []struct {
		args []Argument
		want string
	}{
		{[]Argument{{Data: p}, {Data: n}}, "argument 3 (s) is not given"},
		{[]Argument{{Data: p}, {Data: n}, {Data: n}}, "4 bytes for argument 3 (s), which has 3"},
		{[]Argument{{Data: p}, {Data: n}, {Data: s}, {Data: s}}, "argument 4 is given, the kernel has 3"},
		{[]Argument{{Data: p}, {Data: n}, {Name: "n", Data: n}}, "argument 2 (n) is given twice"},
		{[]Argument{{Name: "q", Data: p}}, `no argument is named "q"`},
	} {
		_, err := k.Segment(l, c.args...)
		if err == nil || !strings.Contains(err.Error(), "kernel k: "+c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
	for kind, want := range map[string]string{
		"hidden_hostcall_buffer": "wants argument hidden_hostcall_buffer, which is not supported",
		"sampler":                "argument 1 is of kind sampler, which is not supported",
	} {
		k := &Kernel{Meta: &object.Kernel{Name: "k", KernargBytes: 8, Args: []object.Arg{{Size: 8, ValueKind: kind}}}}
		if _, err := k.Segment(l, Argument{Data: p}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	k.Meta.Args[3].Size = 2
	if _, err := k.Segment(l, Argument{Data: p}, Argument{Data: n}, Argument{Data: s}); err == nil || !strings.Contains(err.Error(), "cannot hold 74565") {
		t.Errorf("error %v, want one about 74565", err)
	}
}

func TestRelocations(t *testing.T) {
	for _, c := range []struct {
		r    object.Relocation
		want int64 // from the image; negative: refused
	}{
		{object.Relocation{Offset: 8, Type: "R_AMDGPU_RELATIVE64", Addend: 24}, 24},
		{object.Relocation{Offset: 8, Type: "R_AMDGPU_ABS64", Symbol: "s", Addend: -4}, 12},
		{object.Relocation{Offset: 8, Type: "R_AMDGPU_ABS64", Symbol: "other"}, -1},
		{object.Relocation{Offset: 8, Type: "R_AMDGPU_REL32", Symbol: "s"}, -1},
		{object.Relocation{Offset: 60, Type: "R_AMDGPU_RELATIVE64"}, -1},
	} {
		p := &Program{object: &object.CodeObject{
			Segments:    []object.Segment{{Address: 0, Data: []byte{1}, MemSize: 16}, {Address: 16, MemSize: 48, Writable: true}},
			Relocations: []object.Relocation{c.r}, Exported: map[string]uint64{"s": 16},
		}}
		err := p.load()
		switch {
		case c.want < 0:
			if err == nil || !strings.Contains(err.Error(), "0x") {
				t.Errorf("%v: error %v, want one that names the place", c.r, err)
			}
		case err != nil:
			t.Errorf("%v: %v", c.r, err)
		default:
			if got := int64(le.Uint64(p.image[8:]) - Address(p.image)); got != c.want || Address(p.image)%imageAlign != 0 || p.image[0] != 1 {
				t.Errorf("%v: the address is %d bytes from the image, want %d", c.r, got, c.want)
			}
			if len(p.regions) != 2 || !p.regions[0].readOnly || p.regions[1].readOnly {
				t.Errorf("regions %v, want one to be read and one to be written", p.regions)
			}
		}
	}
}
