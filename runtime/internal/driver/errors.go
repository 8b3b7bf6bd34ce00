package driver

import (
	"errors"
	"fmt"
	"unsafe"
)

// What an error of a driver means, for errors.Is.
var (
	ErrNoDevice    = errors.New("no device")
	ErrOutOfMemory = errors.New("out of memory")
	// ErrDeviceLost: a fault on the device ended its context. Every later call
	// fails; CUDA needs a new process.
	ErrDeviceLost = errors.New("device lost")
	// ErrWrongImage: the device cannot run this code.
	ErrWrongImage = errors.New("code is not for this device")
	// ErrStuck: work on the device did not end in time. Nothing more can be done with
	// the device in this process, not even closing it.
	ErrStuck = errors.New("the device does not answer")
	// ErrClosed: the object was closed before.
	ErrClosed = errors.New("closed")
)

// Codes that the bindings themselves look at. HIP took CUDA's numbers.
const (
	codeOutOfMemory   = 2
	codeNoDevice      = 100
	codeInvalidDevice = 101
)

// meaning is what is known about an error code.
type meaning struct {
	is    error     // or nil
	check [2]string // what to check next, by Kind
}

// meanings of error codes, equal numbers in both interfaces (hip_runtime_api.h,
// hipError_t; cuda.h, CUresult).
var meanings = map[int]meaning{
	1: {nil, [...]string{
		"an argument is out of range: grid, block and LDS of the launch, offsets of the copy; AMD_LOG_LEVEL=4 logs the arguments",
		"an argument is out of range: grid, block and shared memory of the launch, offsets of the copy"}},
	codeOutOfMemory: {ErrOutOfMemory, [...]string{
		"rocm-smi --showmeminfo vram shows who holds memory; take a smaller batch or context",
		"nvidia-smi shows who holds memory; take a smaller batch or context"}},
	codeNoDevice: {ErrNoDevice, noDeviceRemedy},
	98: {nil, [...]string{
		"the kernel is not in the module, or the module was unloaded",
		"the kernel is not in the module, or the module was unloaded"}},
	codeInvalidDevice: {nil, [...]string{
		"rocminfo lists the devices; ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES hide some",
		"nvidia-smi -L lists the devices; CUDA_VISIBLE_DEVICES hides some"}},
	200: {ErrWrongImage, [...]string{
		"kiln inspect reads the code object and says what is damaged",
		"the file is neither PTX text nor a cubin"}},
	209: {ErrWrongImage, [...]string{
		"rocminfo prints the device's target ID, kiln inspect the code object's; AMD_LOG_LEVEL=5 has the loader's reasons",
		"compile for this compute capability, nvidia-smi --query-gpu=compute_cap --format=csv"}},
	214: {ErrDeviceLost, [...]string{
		"an uncorrectable memory error: rocm-smi --showrasinfo, and the kernel log (dmesg)",
		"an uncorrectable memory error: nvidia-smi -q -d ECC"}},
	218: {ErrWrongImage, [...]string{
		"the log above is the PTX assembler's; ptxas of the CUDA toolkit says the same",
		"the log above is the PTX assembler's; ptxas of the CUDA toolkit says the same"}},
	222: {ErrWrongImage, [...]string{
		"the driver is older than the PTX version",
		"the driver is older than the PTX version: update the driver, or compile with an older .version"}},
	500: {nil, [...]string{
		"kiln inspect lists the symbols of the code object",
		"the module has no symbol of this name"}},
	700: {ErrDeviceLost, [...]string{
		"a kernel used an address that is not mapped: AMD_SERIALIZE_KERNEL=3 makes the next call name the kernel",
		"a kernel used an address that is not mapped: compute-sanitizer names it"}},
	702: {ErrDeviceLost, [...]string{
		"a kernel ran for too long: the kernel log (dmesg) names the queue",
		"a kernel ran for too long on a GPU that also drives a display"}},
	710: {ErrDeviceLost, [...]string{"a kernel's assertion failed", "a kernel's assertion failed"}},
	715: {ErrDeviceLost, [...]string{
		"a kernel holds an instruction that the chip does not have: check the target of the code object",
		"a kernel holds an instruction that the chip does not have"}},
	716: {ErrDeviceLost, [...]string{"a kernel used a misaligned address", "a kernel used a misaligned address: compute-sanitizer names it"}},
	718: {ErrDeviceLost, [...]string{"a kernel jumped to an invalid address", "a kernel jumped to an invalid address"}},
	719: {ErrDeviceLost, [...]string{
		"a kernel died: the kernel log (dmesg) has the fault; AMD_SERIALIZE_KERNEL=3 makes the next call name the kernel",
		"a kernel died: compute-sanitizer names it"}},
	801: {nil, [...]string{"this version of the library does not do that", "this driver does not do that"}},
	900: {nil, captureRemedy},
	901: {nil, captureRemedy},
}

var noDeviceRemedy = [2]string{
	"check that /dev/kfd exists and that this user may open it and /dev/dri/renderD* (groups render and video), then rocminfo",
	"check nvidia-smi; in a container, that it was started with the GPUs",
}

var captureRemedy = [2]string{
	"a call that is not allowed while a stream captures was made, perhaps by another thread: build the graph explicitly instead",
	"a call that is not allowed while a stream captures was made, perhaps by another thread: build the graph explicitly instead",
}

// Error is a C function's result.
type Error struct {
	Kind  Kind
	Call  string // the function: hipModuleLoadData
	Code  int
	Name  string // of the code: hipErrorNoBinaryForGpu
	Text  string // the driver's, often the name again
	Check string // what to check next, "" if nothing is known
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: error %d %s", e.Call, e.Code, e.Name)
	if e.Text != "" && e.Text != e.Name {
		s += " (" + e.Text + ")"
	}
	if e.Check != "" {
		s += "; " + e.Check
	}
	return s
}

// Is tells whether the code means target: ErrOutOfMemory and the like.
func (e *Error) Is(target error) bool {
	is := meanings[e.Code].is
	return is != nil && is == target
}

// failure describes the result of a function.
func (l *Library) failure(f *function, code int) *Error {
	e := &Error{Kind: l.Kind, Call: f.name, Code: code, Check: meanings[code].check[l.Kind]}
	e.Name, e.Text = l.describe(&l.fn.ErrorName, code), l.describe(&l.fn.ErrorString, code)
	if e.Name == "" {
		e.Name = "without a name"
	}
	return e
}

func (l *Library) describe(f *function, code int) string {
	if l.Kind == HIP {
		return text(f.pointer(uintptr(code)))
	}
	var p uintptr
	if f.call(uintptr(code), uintptr(unsafe.Pointer(&p))) != 0 {
		return ""
	}
	return text(p)
}
