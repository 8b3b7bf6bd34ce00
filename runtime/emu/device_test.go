package emu

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/runtime/device"
)

var _ device.Device = (*Device)(nil)

func openDevice(t *testing.T, o Options) *Device {
	t.Helper()
	d, err := Open(t.Context(), "gfx942", Loader{}, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDeviceMemory(t *testing.T) {
	d := openDevice(t, Options{})
	m, err := d.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	if m.Size() != 100 || m.Address()%plan.Align != 0 || len(m.Bytes()) != 100 {
		t.Errorf("%d bytes, view of %d, at %#x", m.Size(), len(m.Bytes()), m.Address())
	}
	if err := m.Write(97, []byte{1, 2, 3}); err != nil || !bytes.Equal(m.Bytes()[96:], []byte{0, 1, 2, 3}) {
		t.Errorf("after a write: %v (%v)", m.Bytes()[96:], err)
	}
	got := make([]byte, 2)
	if err := m.Read(98, got); err != nil || !bytes.Equal(got, []byte{2, 3}) {
		t.Errorf("read %v (%v)", got, err)
	}
	for _, offset := range []int64{-1, 99, 1 << 62} {
		for what, err := range map[string]error{"write": m.Write(offset, got), "read": m.Read(offset, got)} {
			if err == nil || !strings.HasSuffix(err.Error(), "of a block of 100") {
				t.Errorf("%s of 2 bytes at %d: %v", what, offset, err)
			}
		}
	}
	if err := m.Zero(); err != nil || len(bytes.Trim(m.Bytes(), "\x00")) > 0 {
		t.Errorf("not zero: %v (%v)", m.Bytes(), err)
	}
	if err := m.Free(); err != nil {
		t.Error(err)
	}
	if none, err := d.Alloc(0); err != nil || none.Size() != 0 || none.Address() == 0 {
		t.Errorf("zero bytes: %v (%v)", none, err)
	}
	for _, n := range []int64{-1, 1 << 62} {
		if m, err := d.Alloc(n); err == nil || m != nil {
			t.Errorf("%d bytes: %v (%v)", n, m, err)
		}
	}
}

// What nothing has written is reported when the host reads it.
func TestDeviceReadsUndefined(t *testing.T) {
	m, err := openDevice(t, Options{Sanitize: CheckUninit}).Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	if m.Bytes() != nil {
		t.Error("memory has a view, which would read past the sanitizer")
	}
	if err := m.Write(0, make([]byte, 32)); err != nil {
		t.Fatal(err)
	}
	if err := m.Read(0, make([]byte, 32)); err != nil {
		t.Error(err)
	}
	err = m.Read(16, make([]byte, 32))
	var found *SanitizerError
	if !errors.As(err, &found) || err.Error() != "uninit: undefined result: the host reads byte 32 of a block of 64, which is undefined" {
		t.Errorf("error %v", err)
	}
	if err := m.Zero(); err != nil {
		t.Fatal(err)
	}
	if err := m.Read(16, make([]byte, 32)); err != nil {
		t.Error(err)
	}
}

// A launch may touch what its arguments say, and read back what it is the first to
// write.
func TestDeviceSanitize(t *testing.T) {
	d := openDevice(t, Options{Sanitize: CheckMemory})
	s := d.sanitize(&device.Launch{Op: "add", Loc: "layers.1", Args: []device.Arg{
		{Int: 3},
		{Address: 0x1000, Bytes: 64, Mode: plan.Read, Label: "weight w"},
		{Address: 0x2000, Bytes: 32, Mode: plan.Write, Label: "value x", First: true},
		{Address: 0x3000, Bytes: 32, Mode: plan.Write, Label: "value y"},
		{Address: 0x4000, Bytes: 16, Mode: plan.Update, Label: "state s"},
	}})
	want := []Buffer{
		{Address: 0x1000, Bytes: 64, Mode: ModeRead, Label: "weight w"},
		{Address: 0x2000, Bytes: 32, Mode: ModeRead | ModeWrite, Label: "value x", Undefined: true},
		{Address: 0x3000, Bytes: 32, Mode: ModeWrite, Label: "value y"},
		{Address: 0x4000, Bytes: 16, Mode: ModeRead | ModeWrite, Label: "state s"},
	}
	if diff := cmp.Diff(want, s.Buffers); diff != "" || s.Op != "add" || s.Layer != "layers.1" || s.Checks != CheckMemory {
		t.Errorf("%+v; -want +got:\n%s", s, diff)
	}
	if openDevice(t, Options{}).sanitize(&device.Launch{}) != nil {
		t.Error("launches are checked that nobody asked to check")
	}
}

func TestPlanArgs(t *testing.T) {
	args := []device.Arg{{Int: -2}, {Address: 0x1234, Mode: plan.Read}}
	word := func(offset, size int, kind string) object.Arg {
		return object.Arg{Name: "a", Offset: offset, Size: size, ValueKind: kind}
	}
	for _, tc := range []struct {
		name string
		args []object.Arg
		want string // of the error, or of the segment
	}{
		{"words", []object.Arg{word(0, 8, "by_value"), word(8, 8, "global_buffer")}, "\xfe\xff\xff\xff\xff\xff\xff\xff\x34\x12\x00\x00\x00\x00\x00\x00"},
		{"too few", []object.Arg{word(0, 8, "by_value")}, "it has 1 arguments, the plan gives 2"},
		{"half a word", []object.Arg{word(0, 8, "by_value"), word(8, 4, "by_value")}, "argument 2 (a) has 4 bytes at 8, not 8 within 16"},
		{"beyond the end", []object.Arg{word(0, 8, "by_value"), word(16, 8, "by_value")}, "argument 2 (a) has 8 bytes at 16, not 8 within 16"},
		{"hidden", []object.Arg{word(0, 8, "by_value"), word(8, 8, "hidden_block_count_x")}, "it has the hidden argument hidden_block_count_x, a plan gives none"},
	} {
		got, err := planArgs(&object.Kernel{Args: tc.args, KernargBytes: 16}, args)
		text := string(got)
		if err != nil {
			text = err.Error()
		}
		if text != tc.want {
			t.Errorf("%s: %q (%v), want %q", tc.name, got, err, tc.want)
		}
	}
}

func TestDeviceRefuses(t *testing.T) {
	if _, err := Open(t.Context(), "gfx90a", Loader{}, Options{}); err == nil || err.Error() != "emu:gfx90a: unknown chip, only [gfx942 gfx950] can be executed" {
		t.Errorf("another chip: %v", err)
	}
	d := openDevice(t, Options{})
	if l, err := d.Load(nil, nil); err != nil || l.Close() != nil {
		t.Errorf("no code: %v", err)
	}
	if _, err := d.Load(nil, []string{"k"}); err == nil || err.Error() != "kernel k: the library is empty" {
		t.Errorf("no code, and a kernel: %v", err)
	}
	if _, err := d.Load([]byte("no code object"), nil); err == nil {
		t.Error("what is no code object was loaded")
	}
}
