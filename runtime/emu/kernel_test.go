package emu

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/object"
)

// A kernel that a launch could not set up is refused when it is loaded.
func TestKernelsThatAreRefused(t *testing.T) {
	usual := object.Descriptor{Rsrc1: floatMode<<12 | modeBits}
	for _, c := range []struct {
		name   string
		change func(d *object.Descriptor)
		want   string
	}{
		{"as LLVM makes them", func(*object.Descriptor) {}, ""},
		{"wave32", func(d *object.Descriptor) { d.Properties = uint16(object.Wavefront32) }, "wavefronts of 32 lanes"},
		{"dynamic stack", func(d *object.Descriptor) { d.Properties = uint16(object.UsesDynamicStack) }, "dynamic stack"},
		{"denormals flushed", func(d *object.Descriptor) { d.Rsrc1 &^= 0x30 << 12 }, "float mode"},
		{"no DX10_CLAMP", func(d *object.Descriptor) { d.Rsrc1 &^= 1 << 21 }, "float mode"},
		{"queue pointer", func(d *object.Descriptor) { d.Properties = uint16(object.QueuePtr) }, `"amdgpu-no-queue-ptr"`},
		{"dispatch id", func(d *object.Descriptor) { d.Properties = uint16(object.DispatchID) }, `"amdgpu-no-dispatch-id"`},
		{"private segment buffer", func(d *object.Descriptor) { d.Properties = uint16(object.PrivateSegmentBuffer) }, "private segment buffer"},
	} {
		d := usual
		c.change(&d)
		k := &Kernel{Meta: &object.Kernel{Name: "k", Descriptor: &d, Code: []byte{0}}}
		err := k.check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}
