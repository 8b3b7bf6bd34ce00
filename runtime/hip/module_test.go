package hip

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
)

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// retarget changes for what a code object says it is: e_flags, and the code object
// version, of which generic processors need 6.
func retarget(image []byte, flags uint32, version byte) []byte {
	b := append([]byte{}, image...)
	b[8] = version - 2
	binary.LittleEndian.PutUint32(b[0x30:], flags)
	return b
}

// bundle is an offload bundle of code objects.
func bundle(ids []string, images [][]byte) []byte {
	header := []byte("__CLANG_OFFLOAD_BUNDLE__")
	word := func(n int) { header = binary.LittleEndian.AppendUint64(header, uint64(n)) }
	word(len(ids))
	const first = 4096
	at := first
	for i, id := range ids {
		word(at)
		word(len(images[i]))
		word(len(id))
		header = append(header, id...)
		at += len(images[i])
	}
	b := append(header, make([]byte, first-len(header))...)
	for _, image := range images {
		b = append(b, image...)
	}
	return b
}

// withDevice runs f on a device that is left with nothing open.
func withDevice(t *testing.T, arch string, f func(d *Device, fake *drivertest.Fake)) {
	t.Helper()
	if err := drivertest.Supported(); err != nil {
		t.Skip(err)
	}
	fake, err := drivertest.New(t.TempDir(), drivertest.Options{Devices: []drivertest.Device{{Name: "MI", Arch: arch, Memory: 1 << 30}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(Options{Library: fake.Path})
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.OpenDevice(0)
	if err != nil {
		t.Fatal(err)
	}
	f(d, fake)
	err = errors.Join(d.Close(), fake.Close())
	if open := fake.Open(); err != nil || len(open) > 0 {
		t.Errorf("%s: open %v, error %v", arch, open, err)
	}
}

// The load rule through the bindings: what is refused does not reach the driver,
// and the error has both target IDs; what is not refused, the driver takes.
func TestLoadRule(t *testing.T) {
	add := readFile(t, "../../testdata/golden/triton/add.gfx942.hsaco")
	const any, off, on = 1, 2, 3
	flags := func(machine, xnack, sramecc uint32) uint32 { return machine | xnack<<8 | sramecc<<10 }
	const gfx942, gfx950, gfx94generic = 0x4c, 0x4f, 0x5f | 1<<24
	devices := []string{"gfx942:sramecc+:xnack-", "gfx942:sramecc-:xnack+", "gfx950:sramecc+:xnack-", "gfx90a:sramecc+:xnack-"}
	for _, tc := range []struct {
		target  string
		flags   uint32
		version byte
		runs    string // by device
	}{
		{"gfx942", flags(gfx942, any, any), 5, "yy.."},
		{"gfx942:xnack-", flags(gfx942, off, any), 5, "y..."},
		{"gfx942:xnack+", flags(gfx942, on, any), 5, ".y.."},
		{"gfx942:sramecc+", flags(gfx942, any, on), 5, "y..."},
		{"gfx942:sramecc-", flags(gfx942, any, off), 5, ".y.."},
		{"gfx942:sramecc+:xnack-", flags(gfx942, off, on), 5, "y..."},
		{"gfx942:sramecc-:xnack+", flags(gfx942, on, off), 5, ".y.."},
		{"gfx942:sramecc+:xnack+", flags(gfx942, on, on), 5, "...."},
		{"gfx942:sramecc-:xnack-", flags(gfx942, off, off), 5, "...."},
		{"gfx950", flags(gfx950, any, any), 5, "..y."},
		{"gfx950:xnack+", flags(gfx950, on, any), 5, "...."},
		{"gfx9-4-generic", flags(gfx94generic, any, any), 6, "yyy."},
		{"gfx9-4-generic:xnack-", flags(gfx94generic, off, any), 6, "y.y."},
		{"gfx9-4-generic:sramecc-:xnack+", flags(gfx94generic, on, off), 6, ".y.."},
	} {
		image := retarget(add, tc.flags, tc.version)
		for i, arch := range devices {
			withDevice(t, arch, func(d *Device, fake *drivertest.Fake) {
				m, err := Load(d, "add", image)
				if tc.runs[i] == 'y' {
					if err != nil || m.Object.Target.String() != tc.target {
						t.Errorf("%s on %s: %v", tc.target, arch, err)
						return
					}
					if err := m.Close(); err != nil {
						t.Error(err)
					}
					return
				}
				want := "module add on device 0 (MI): code is not for this device: no code object for this device: have amdgcn-amd-amdhsa--" +
					tc.target + ", need amdgcn-amd-amdhsa--" + arch + "; compile with --target " + arch
				if !errors.Is(err, ErrWrongImage) || err.Error() != want {
					t.Errorf("%s on %s: error %v, want %s", tc.target, arch, err, want)
				}
				if n := fake.Calls("hipModuleLoadData"); n != 0 {
					t.Errorf("%s on %s: hipModuleLoadData was called", tc.target, arch)
				}
				// The driver's own rule is the same.
				if _, err := d.LoadModule("add", image); !errors.Is(err, ErrWrongImage) || !strings.Contains(err.Error(), "hipModuleLoadData: error 209 hipErrorNoBinaryForGpu") {
					t.Errorf("%s on %s: the driver says %v", tc.target, arch, err)
				}
			})
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	const objects = "../../codegen/object/testdata/"
	withDevice(t, "gfx942:sramecc+:xnack-", func(d *Device, fake *drivertest.Fake) {
		_, err := Load(d, "m", readFile(t, objects+"undefined.o"))
		if want := "code is not for this device: undefined symbols "; !errors.Is(err, ErrWrongImage) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	})
	withDevice(t, "gfx950:sramecc+:xnack-", func(d *Device, fake *drivertest.Fake) {
		for file, want := range map[string]string{
			objects + "fixture.gfx950.o": "the code object for gfx950 is not linked",
			objects + "host.so":          "have no AMDGPU code object, need amdgcn-amd-amdhsa--gfx950:sramecc+:xnack-",
			objects + "fixture.ll":       "neither an ELF file nor an offload bundle",
		} {
			if _, err := Load(d, "m", readFile(t, file)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %s", file, err, want)
			}
		}
		if fake.Calls("hipModuleLoadData") != 0 {
			t.Error("hipModuleLoadData was called")
		}
	})
}

// Of a bundle the device's own code object is loaded.
func TestLoadBundle(t *testing.T) {
	ids := []string{"hipv4-amdgcn-amd-amdhsa--gfx942", "hipv4-amdgcn-amd-amdhsa--gfx950"}
	data := bundle(ids, [][]byte{
		readFile(t, "../../testdata/golden/triton/add.gfx942.hsaco"), readFile(t, "../../testdata/golden/triton/add.gfx950.hsaco"),
	})
	for _, arch := range []string{"gfx942:sramecc+:xnack-", "gfx950:sramecc+:xnack-"} {
		withDevice(t, arch, func(d *Device, _ *drivertest.Fake) {
			m, err := Load(d, "add", data)
			if err != nil {
				t.Fatal(err)
			}
			if chip, _, _ := strings.Cut(arch, ":"); m.Object.Target.Chip != chip {
				t.Errorf("on %s the object for %s was loaded", arch, m.Object.Target)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestKernel(t *testing.T) {
	withDevice(t, "gfx942:sramecc+:xnack-", func(d *Device, fake *drivertest.Fake) {
		m, err := Load(d, "fixture", readFile(t, "../../codegen/object/testdata/fixture.gfx942.hsaco"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Kernel("absent"); err == nil || !strings.Contains(err.Error(), `module fixture: no kernel "absent": the code object has hidden, lookup, mfma, spills`) {
			t.Errorf("error %v", err)
		}
		k, err := m.Kernel("hidden") // (pointer, i32) and hidden arguments
		if err != nil {
			t.Fatal(err)
		}
		one := [3]uint32{1, 1, 1}
		for _, tc := range []struct {
			block [3]uint32
			args  int
			want  string
		}{
			{[3]uint32{128, 1, 1}, 11, "kernel hidden: 11 bytes of arguments, it takes 12"},
			{[3]uint32{129, 1, 1}, 12, "kernel hidden: block [129 1 1]: compiled for at most 128 work-items"},
		} {
			if _, err := k.Launch(one, tc.block, 0, make([]byte, tc.args)); err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		}
		launch, err := k.Launch([3]uint32{3, 2, 1}, [3]uint32{64, 2, 1}, 256, []byte("0123456789ab"))
		if err != nil {
			t.Fatal(err)
		}
		q, err := d.Prepare([]Launch{launch})
		if err != nil {
			t.Fatal(err)
		}
		s, err := d.NewStream()
		if err == nil {
			err = errors.Join(s.Run(q), s.Sync(), s.Close(), q.Close(), m.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		ran := fake.Launches()
		if len(ran) != 1 {
			t.Fatalf("%d launches", len(ran))
		}
		// The hidden arguments are the runtime's, which the fake leaves empty.
		l := ran[0]
		if l.Grid != launch.Grid || l.Block != launch.Block || l.Shared != 256 || string(l.Kernarg[:12]) != "0123456789ab" ||
			len(l.Kernarg) != k.Meta.KernargBytes || strings.Trim(string(l.Kernarg[12:]), "\x00") != "" {
			t.Errorf("launched %+v", l)
		}
	})
}

// A kernel that was compiled for one size of workgroup.
func TestRequiredWorkgroup(t *testing.T) {
	k := &Kernel{Meta: &object.Kernel{Name: "k", MaxWorkgroup: 256, RequiredWorkgroup: []int{64, 4, 1}}}
	one := [3]uint32{1, 1, 1}
	if _, err := k.Launch(one, [3]uint32{64, 4, 1}, 0, nil); err != nil {
		t.Error(err)
	}
	_, err := k.Launch(one, [3]uint32{256, 1, 1}, 0, nil)
	if want := "kernel k: block [256 1 1]: compiled for [64 4 1]"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestOpenWithoutLibrary(t *testing.T) {
	_, err := Open(Options{Library: "/absent/libamdhip64.so"})
	var none *NotFoundError
	if !errors.As(err, &none) || none.Tried[0].Path != "/absent/libamdhip64.so" {
		t.Errorf("error %v", err)
	}
}
