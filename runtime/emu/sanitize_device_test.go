package emu

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/runtime/device"
)

// A device with the uninit sanitizer knows what of its memory the host has written.
func TestDeviceMemoryUndefined(t *testing.T) {
	d, err := Open(t.Context(), "gfx942", Loader{}, Options{Sanitize: CheckUninit})
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	if m.Bytes() != nil {
		t.Error("the host can write to the memory unseen")
	}
	b := make([]byte, 16)
	if err := m.Write(16, b); err != nil {
		t.Fatal(err)
	}
	if err := m.Read(16, b); err != nil {
		t.Errorf("what was written: %v", err)
	}
	if err := m.Read(20, b); err == nil || !strings.Contains(err.Error(), "the host reads byte 32 of a block of 64, which is undefined") {
		t.Errorf("what was not written: error %v", err)
	}
	if err := m.Zero(); err != nil {
		t.Fatal(err)
	}
	if err := m.Read(40, b); err != nil {
		t.Errorf("zeros: %v", err)
	}
	if err := m.Free(); err != nil {
		t.Fatal(err)
	}
}

// The arguments of a plan's launch are all that it may touch.
func TestDeviceBuffers(t *testing.T) {
	d, err := Open(t.Context(), "gfx950", Loader{}, Options{Sanitize: CheckMemory | CheckRace})
	if err != nil {
		t.Fatal(err)
	}
	s := d.sanitize(&device.Launch{Op: "matmul", Loc: "layers.3", Args: []device.Arg{
		{Address: 0x1000, Bytes: 64, Mode: plan.Read, Label: "weight w"}, {Int: 7},
		{Address: 0x2000, Bytes: 32, Mode: plan.Write, Label: "value y", First: true}, {Address: 0x3000, Bytes: 16, Mode: plan.Update, Label: "state k"},
	}})
	want := []Buffer{
		{0x1000, 64, ModeRead, "weight w", false}, {0x2000, 32, ModeRead | ModeWrite, "value y", true}, {0x3000, 16, ModeRead | ModeWrite, "state k", false},
	}
	if s.Op != "matmul" || s.Layer != "layers.3" || s.Checks != CheckMemory|CheckRace || len(s.Buffers) != len(want) {
		t.Fatalf("%+v", s)
	}
	for i, b := range s.Buffers {
		if b != want[i] {
			t.Errorf("buffer %d: %+v, want %+v", i, b, want[i])
		}
	}
}
