package driver

import (
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Options say where the library is.
type Options struct {
	// Library replaces the search: the path of a file, or a bare name for the
	// loader's own search.
	Library string
	// Root is where the vendor's software is installed (ROCM_PATH); its lib is
	// searched before the usual folders. "" if unknown.
	Root string
}

// Library is a loaded driver library. It stays loaded until the process ends: it
// has threads of its own.
type Library struct {
	Kind   Kind
	Path   string   // as given to the loader
	Absent []string // optional symbols that it does not have

	fn      functions
	address uintptr      // of a function
	init    func() error // once
}

// names of libraries, newest first, and the folders below which they are looked
// for besides the loader's own search.
var (
	libraryNames = [...][]string{
		HIP:  {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"},
		CUDA: {"libcuda.so.1", "libcuda.so"},
	}
	libraryFolders = [...][]string{
		HIP:  {"/opt/rocm/lib"},
		CUDA: {"/usr/lib/x86_64-linux-gnu", "/usr/local/cuda/compat", "/usr/lib/wsl/lib"},
	}
	libraryRemedy = [...]string{
		HIP:  "install ROCm's HIP runtime (libamdhip64), or name the library with --hip-lib",
		CUDA: "install NVIDIA's driver (libcuda.so.1), or name the library with --cuda-lib",
	}
)

// Search lists what Open tries, in this order.
func Search(k Kind, o Options) []string {
	if o.Library != "" {
		return []string{o.Library}
	}
	folders := libraryFolders[k]
	if o.Root != "" {
		folders = append([]string{path.Join(o.Root, "lib")}, folders...)
	}
	var list []string
	for _, name := range libraryNames[k] {
		list = append(list, name)
		for _, folder := range folders {
			list = append(list, path.Join(folder, name))
		}
	}
	return list
}

// Attempt is a library that did not load.
type Attempt struct{ Path, Problem string }

// NotFoundError says that no library could be loaded.
type NotFoundError struct {
	Kind  Kind
	Tried []Attempt
}

func (e *NotFoundError) Error() string {
	var tried strings.Builder
	for i, a := range e.Tried {
		tried.WriteString(a.Path)
		if i+1 < len(e.Tried) && e.Tried[i+1].Problem == a.Problem {
			tried.WriteString(", ")
			continue
		}
		fmt.Fprintf(&tried, " (%s); ", a.Problem)
	}
	return fmt.Sprintf("no %s library could be loaded; tried %s%s", e.Kind, &tried, libraryRemedy[e.Kind])
}

// Open loads the library and looks up its functions; it does not look for a
// device. The error is a *NotFoundError if there is no library; a library without
// a required function is an error that names the function, not passed over.
func Open(k Kind, o Options) (*Library, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("%s is bound on linux only, this is %s", k, runtime.GOOS)
	}
	none := &NotFoundError{Kind: k}
	for _, file := range Search(k, o) {
		handle, err := load(file)
		if err != nil {
			problem := strings.TrimPrefix(err.Error(), file+": ")
			none.Tried = append(none.Tried, Attempt{file, problem})
			continue
		}
		l := &Library{Kind: k, Path: file}
		l.Absent, err = l.fn.resolve(k, func(name string) uintptr {
			address, err := purego.Dlsym(handle, name)
			if err != nil {
				return 0
			}
			l.address = address
			return address
		})
		if err != nil {
			return nil, fmt.Errorf("%s library %s %w; it is too old, or not what its name says; %s", k, file, err, libraryRemedy[k])
		}
		l.init = sync.OnceValue(func() error { return l.try(&l.fn.Init, 0) })
		return l, nil
	}
	return nil, none
}

// load gives a library to the loader. Why it does not load is kept by thread, and purego
// asks in a second call: both have to be on one thread.
func load(file string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// try calls a C function and makes an error of a result that is not 0.
//
//go:uintptrescapes
func (l *Library) try(f *function, args ...uintptr) error {
	if code := f.call(args...); code != 0 {
		return l.failure(f, code)
	}
	return nil
}

// Version is what the library calls itself: HIP 7.2.26015 is 70226015, CUDA 13.0
// is 13000. It needs no device.
func (l *Library) Version() (int, error) {
	f := &l.fn.DriverVersion
	if l.Kind == HIP {
		f = &l.fn.RuntimeVersion
	}
	var v int32
	err := l.try(f, uintptr(unsafe.Pointer(&v)))
	return int(v), err
}

// VersionText writes a version as its vendor does.
func VersionText(k Kind, v int) string {
	if k == CUDA {
		return fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	return fmt.Sprintf("%d.%d.%d", v/10_000_000, v/100_000%100, v%100_000)
}

// DeviceCount initialises the library and counts the devices. None is an error
// for which errors.Is(err, ErrNoDevice) holds.
func (l *Library) DeviceCount() (int, error) {
	var n int32
	err := l.init()
	if err == nil {
		err = l.try(&l.fn.DeviceCount, uintptr(unsafe.Pointer(&n)))
	}
	text := "it counts 0 devices"
	e, driver := err.(*Error)
	switch {
	case driver && (e.Code == codeNoDevice || e.Code == codeInvalidDevice):
		// An AMD library without a device says either, by version and call.
		text = fmt.Sprintf("%s says %d %s", e.Call, e.Code, e.Name)
	case err != nil:
		return 0, err
	case n > 0:
		return int(n), nil
	}
	version := "unknown"
	if v, err := l.Version(); err == nil {
		version = VersionText(l.Kind, v)
	}
	return 0, fmt.Errorf("%w: %s %s (%s): %s; %s", ErrNoDevice, l.Kind, version, l.Path, text, noDeviceRemedy[l.Kind])
}
