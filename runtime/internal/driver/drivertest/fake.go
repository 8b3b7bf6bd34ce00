package drivertest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/runtime/internal/driver"
)

// Device is a GPU that a Fake pretends to have.
type Device struct {
	Name   string
	Arch   string // gcnArchName: gfx942:sramecc+:xnack-; of a CUDA device: sm_90
	Memory int64  // bytes
}

// Options of a Fake.
type Options struct {
	Kind    driver.Kind
	Version string   // of Versions, which are HIP's; "" is 6.2. There is one of CUDA
	Devices []Device // may be none
	// Execute runs a kernel. Its error is a fault of the device, which is lost;
	// nil runs nothing but Launch.Step. It must not call the driver.
	Execute func(*Launch) error
	// Forgets: copies in a stream are checked and not done, so that a device has room
	// for more than this machine.
	Forgets bool
	// Without lists symbols that the library does not have.
	Without []string
}

// Launch is a kernel that a device was told to run.
type Launch struct {
	Device      int
	Object      *object.CodeObject // nil on CUDA
	Kernel      *object.Kernel     // on CUDA its name and parameters only
	Grid, Block [3]uint32          // workgroups, work-items of one
	Shared      uint32             // bytes of LDS beyond what the code declares
	// Kernarg is the argument segment. Hidden arguments in it are zero.
	Kernarg []byte
	Graph   bool // as a node, not from a stream

	waits bool // the kernel waits for the launch before
	fake  *Fake
}

// Memory is a part of the device's memory.
func (l *Launch) Memory(address uint64, n int64) ([]byte, error) {
	if b := l.fake.memory(uintptr(address), uintptr(n)); b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("kernel %s: no memory of %d bytes at address 0x%x", l.Kernel.Name, n, address)
}

// Blocks are all allocations, of every device and of the host, at their addresses.
func (l *Launch) Blocks() [][]byte {
	var list [][]byte
	for _, base := range sortedKeys(l.fake.blocks) {
		list = append(list, l.fake.blocks[base].bytes)
	}
	return list
}

// Fault is what goes wrong at a call.
type Fault struct {
	Call string // a C function
	Skip int    // calls of it that still go well
	Code int    // its result; 0 with Invalidate
	Lost bool   // the device is gone: every later call has this result
	// Invalidate breaks the captures off; the call itself reports Code, or success.
	Invalidate bool
}

// Fake is a HIP runtime, or a CUDA driver. Close it after the devices opened through it.
type Fake struct {
	Path string // of the library

	options Options
	release release
	set     *callbacks

	mu       sync.Mutex
	handles  map[uintptr]any
	next     uintptr
	blocks   map[uintptr]*memoryBlock
	current  map[int]int // device by thread
	threads  map[int]bool
	calls    map[string]int
	faults   []Fault
	lost     int // code of every call, once it is not 0
	dropped  int // launches that a capture still swallows
	launches []Launch
	pending  func() // a copy to a device that is still on its way, as drivers do small ones
	problems []string
	overlaps int               // edges of graphs by which a kernel begins before the one before has ended
	props    map[string]Layout // by the symbol that writes them
	headers  Layout            // of what is equal in all versions
}

// memoryBlock is an allocation.
type memoryBlock struct {
	bytes  []byte
	device int // -1: of the host
}

// Supported is an error where there are no fakes: their libraries are machine code.
func Supported() error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("the fake driver's library is for linux/amd64, this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	return nil
}

// New makes a fake whose library is a file in a folder.
func New(dir string, o Options) (*Fake, error) {
	if err := Supported(); err != nil {
		return nil, err
	}
	r, err := releaseOf(o.Kind, o.Version)
	if err != nil {
		return nil, err
	}
	f := &Fake{
		options: o, release: r, handles: map[uintptr]any{}, next: 0x1000, blocks: map[uintptr]*memoryBlock{},
		current: map[int]int{}, threads: map[int]bool{}, calls: map[string]int{},
	}
	older, err := LayoutOf("5.2.3")
	if err != nil {
		return nil, err
	}
	if f.headers, err = LayoutOf("6.2.2"); err != nil {
		return nil, err
	}
	f.props = map[string]Layout{"hipGetDeviceProperties": older, "hipGetDevicePropertiesR0600": f.headers}

	var names []string
	for _, s := range driver.Symbols(o.Kind) {
		if r.has(s.Since) && !slices.Contains(o.Without, s.Name) {
			names = append(names, s.Name)
		}
	}
	so, err := sharedObject(names)
	if err != nil {
		return nil, err
	}
	// A name of its own: the loader takes two files of one name for one.
	out, err := os.CreateTemp(dir, "lib"+o.Kind.String()+"-fake-*.so")
	if err != nil {
		return nil, err
	}
	f.Path = out.Name()
	_, err = out.Write(so)
	if err := errors.Join(err, out.Close()); err != nil {
		return nil, err
	}
	if f.Path, err = filepath.Abs(f.Path); err != nil {
		return nil, err
	}
	library, err := purego.Dlopen(f.Path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	slots, err := purego.Dlsym(library, slotsSymbol)
	if err != nil {
		return nil, err
	}
	if f.set, err = takeCallbacks(f); err != nil {
		return nil, err
	}
	for i, name := range names {
		*wordAt(slots + uintptr(wordBytes*i)) = f.set.functions[name]
	}
	return f, nil
}

// Close makes the library useless and its callbacks free for another fake.
func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set.give()
	return f.unmap()
}

// Inject adds a fault.
func (f *Fake) Inject(x Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, x)
}

// DropFromCapture lets the nth next launch that is captured vanish, counted from
// 1, as if it had succeeded.
func (f *Fake) DropFromCapture(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped = n
}

// Calls is how often a C function was called.
func (f *Fake) Calls(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[name]
}

// Threads counts the threads on which a device was current and was used.
func (f *Fake) Threads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.threads)
}

// Launches lists what the devices ran, and forgets it.
func (f *Fake) Launches() []Launch {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.launches
	f.launches = nil
	return list
}

// Problems lists what was done in a way that real drivers punish: graphs that are
// no chain, handles of what was destroyed.
func (f *Fake) Problems() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.problems)
}

// Overlaps is how many edges of graphs there were by which a kernel may begin before the
// one before has ended.
func (f *Fake) Overlaps() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.overlaps
}

// Open lists what was made and not given back, sorted.
func (f *Fake) Open() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []string
	for _, h := range f.handles {
		list = append(list, strings.TrimPrefix(fmt.Sprintf("%T", h), "*drivertest."))
	}
	for _, b := range f.blocks {
		where := "pinned memory"
		if b.device >= 0 {
			where = "memory"
		}
		list = append(list, where)
	}
	slices.Sort(list)
	return list
}

// Forget drops what is open, as the end of a process does after a device was lost. The
// next process has it again.
func (f *Fake) Forget() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.handles)
	f.lost = 0
	return f.unmap()
}

// unmap gives all memory back.
func (f *Fake) unmap() error {
	var errs []error
	for _, address := range sortedKeys(f.blocks) {
		errs = append(errs, syscall.Munmap(f.blocks[address].bytes))
	}
	clear(f.blocks)
	return errors.Join(errs...)
}

// enter is what happens before every call: with a code that is not 0 the call
// is not made.
func (f *Fake) enter(name string) int32 {
	f.calls[name]++
	if f.lost != 0 {
		return int32(f.lost)
	}
	for i := range f.faults {
		x := &f.faults[i]
		if x.Call != name {
			continue
		}
		if x.Skip--; x.Skip >= 0 {
			continue
		}
		hit := *x
		f.faults = slices.Delete(f.faults, i, i+1)
		if hit.Lost {
			f.lost = hit.Code
		}
		if hit.Invalidate {
			f.invalidate()
		}
		return int32(hit.Code)
	}
	return 0
}

func (f *Fake) problem(format string, args ...any) {
	f.problems = append(f.problems, fmt.Sprintf(format, args...))
}

// put stores an object and returns its handle.
func (f *Fake) put(object any) uintptr {
	f.next += 16
	f.handles[f.next] = object
	return f.next
}

// get finds an object of type T.
func get[T any](f *Fake, call string, handle uintptr) (T, bool) {
	v, ok := f.handles[handle].(T)
	if !ok {
		f.problem("%s: handle 0x%x is no %T", call, handle, v)
	}
	return v, ok
}

// memory is n bytes at an address, or nil if they are not inside an allocation.
func (f *Fake) memory(address, n uintptr) []byte {
	for _, base := range sortedKeys(f.blocks) {
		b := f.blocks[base]
		if address >= base && address-base <= uintptr(len(b.bytes)) && n <= uintptr(len(b.bytes))-(address-base) {
			return b.bytes[address-base : address-base+n]
		}
	}
	return nil
}

// device is the one that is current on the calling thread.
func (f *Fake) device() int {
	thread := driver.ThreadID()
	f.threads[thread] = true
	return f.current[thread]
}

// callbacks are functions of C that end in a Fake. There is a small number of
// callbacks in a process and they are never freed, so they are used again.
type callbacks struct {
	fake      *Fake
	kind      driver.Kind
	functions map[string]uintptr
}

// idle are callbacks of fakes that were closed.
var idle struct {
	sync.Mutex
	list map[driver.Kind][]*callbacks
}

func takeCallbacks(f *Fake) (*callbacks, error) {
	idle.Lock()
	defer idle.Unlock()
	kind := f.options.Kind
	if list := idle.list[kind]; len(list) > 0 {
		c := list[len(list)-1]
		idle.list[kind] = list[:len(list)-1]
		c.fake = f
		return c, nil
	}
	// A function of CUDA that differs from HIP's has a method of its own.
	methods := map[string]string{}
	for _, s := range driver.Symbols(driver.HIP) {
		methods[s.Function] = strings.ToUpper(s.Name[:1]) + s.Name[1:]
	}
	c := &callbacks{fake: f, kind: kind, functions: map[string]uintptr{}}
	for _, s := range driver.Symbols(kind) {
		method := reflect.ValueOf(c).MethodByName(strings.ToUpper(s.Name[:1]) + s.Name[1:])
		if !method.IsValid() {
			method = reflect.ValueOf(c).MethodByName(methods[s.Function])
		}
		if !method.IsValid() {
			return nil, fmt.Errorf("the fake does not have %s", s.Name)
		}
		c.functions[s.Name] = purego.NewCallback(c.wrap(s.Name, method))
	}
	return c, nil
}

// wrap makes a call pass through the lock and through enter, which the texts of
// errors do not: they work whatever happened.
func (c *callbacks) wrap(name string, method reflect.Value) any {
	return reflect.MakeFunc(method.Type(), func(args []reflect.Value) []reflect.Value {
		f := c.of()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f != c.of() { // it was closed while this call waited
			if out := method.Type().Out(0); out.Kind() == reflect.Uintptr { // a text
				return []reflect.Value{reflect.Zero(out)}
			}
			return []reflect.Value{reflect.ValueOf(int32(codeNotInitialized))}
		}
		if !strings.Contains(name, "GetError") {
			if code := f.enter(name); code != 0 {
				return []reflect.Value{reflect.ValueOf(code)}
			}
		}
		return method.Call(args)
	}).Interface()
}

// of is the fake that a call is for.
func (c *callbacks) of() *Fake {
	idle.Lock()
	defer idle.Unlock()
	return c.fake
}

func (c *callbacks) give() {
	idle.Lock()
	defer idle.Unlock()
	c.fake = &Fake{lost: codeNotInitialized, calls: map[string]int{}}
	if idle.list == nil {
		idle.list = map[driver.Kind][]*callbacks{}
	}
	idle.list[c.kind] = append(idle.list[c.kind], c)
}

// sortedKeys keeps what is done to all handles in one order.
func sortedKeys[V any](m map[uintptr]V) []uintptr { return slices.Sorted(maps.Keys(m)) }

// pointerTo turns an address into a pointer. See package driver for the pragma.
//
//go:noinline
func pointerTo(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

func wordAt(address uintptr) *uintptr       { return (*uintptr)(pointerTo(address)) }
func int32At(address uintptr) *int32        { return (*int32)(pointerTo(address)) }
func bytesAt(address uintptr, n int) []byte { return unsafe.Slice((*byte)(pointerTo(address)), n) }

func textAt(address uintptr) string {
	n := 0
	for *(*byte)(unsafe.Add(pointerTo(address), n)) != 0 {
		n++
	}
	return string(bytesAt(address, n))
}
