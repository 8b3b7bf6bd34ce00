package host

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/runtime/device"
)

func openHost(t *testing.T) *Device {
	t.Helper()
	d, err := Open()
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

var _ device.Device = (*Device)(nil)

func TestMemory(t *testing.T) {
	d := openHost(t)
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
}

// Each way to touch memory makes Zero clear it.
func TestZero(t *testing.T) {
	d := openHost(t)
	for what, touch := range map[string]func(m *device.Mapped){
		"nothing": func(*device.Mapped) {},
		"write":   func(m *device.Mapped) { m.Write(3, []byte{7}) },
		"view":    func(m *device.Mapped) { m.Bytes()[3] = 7 },
		"kernel":  func(m *device.Mapped) { m.Address(); m.Whole()[3] = 7 }, // as one that has the address
	} {
		m, err := d.Alloc(8)
		if err != nil {
			t.Fatal(err)
		}
		touch(m.(*device.Mapped))
		if err := m.Zero(); err != nil || m.Bytes()[3] != 0 {
			t.Errorf("after %s: %v (%v)", what, m.Bytes(), err)
		}
		if err := m.Free(); err != nil {
			t.Error(err)
		}
	}
}

func TestNoMemory(t *testing.T) {
	d := openHost(t)
	m, err := d.Alloc(0)
	if err != nil || m.Size() != 0 || len(m.Bytes()) != 0 || m.Address() == 0 {
		t.Errorf("zero bytes: %v (%v)", m, err)
	}
	for _, n := range []int64{-1, 1 << 62} {
		if m, err := d.Alloc(n); err == nil || m != nil || !strings.HasPrefix(err.Error(), "allocating ") {
			t.Errorf("%d bytes: %v (%v)", n, m, err)
		}
	}
}

func TestLibrary(t *testing.T) {
	d := openHost(t)
	l, err := d.Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	for _, tc := range []struct{ code, want string }{
		{"", "kernel k: the library is empty"},
		{"no shared object", "loading compiled kernels: "},
	} {
		if l, err := d.Load([]byte(tc.code), []string{"k"}); err == nil || l != nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("code %q: %v, error %v, want %q", tc.code, l, err, tc.want)
		}
	}
}
