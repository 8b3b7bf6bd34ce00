package driver

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/ebitengine/purego"
)

// Kind is a vendor's programming interface.
type Kind uint8

// The interfaces.
const (
	HIP  Kind = iota // AMD: the module and graph part of the HIP runtime
	CUDA             // NVIDIA: the CUDA driver API
)

func (k Kind) String() string { return [...]string{"HIP", "CUDA"}[k&1] }

// function is a C function of a loaded library. All of them return an int32 that
// is 0 for success, unless said otherwise.
type function struct {
	name    string
	address uintptr // 0: the library has none
}

// call returns the C function's result. A pointer to Go memory is written as
// uintptr(unsafe.Pointer(&x)) in the call itself, which keeps it alive and in
// place until call returns, and no longer.
//
//go:uintptrescapes
func (f *function) call(args ...uintptr) int {
	r, _, _ := purego.SyscallN(f.address, args...)
	return int(int32(r))
}

// functions is the table of C functions: the tag of a field has the symbol in each
// library that has one. "since" is the first version of the interface with the symbol;
// such a function may be absent, and its user looks at address first. Every other one
// is required.
type functions struct {
	Init             function `hip:"hipInit" cuda:"cuInit"`
	DriverVersion    function `hip:"hipDriverGetVersion" cuda:"cuDriverGetVersion"`
	RuntimeVersion   function `hip:"hipRuntimeGetVersion"`
	ErrorName        function `hip:"hipGetErrorName" cuda:"cuGetErrorName"`     // HIP: const char *(code)
	ErrorString      function `hip:"hipGetErrorString" cuda:"cuGetErrorString"` // CUDA: (code, const char **)
	DeviceCount      function `hip:"hipGetDeviceCount" cuda:"cuDeviceGetCount"`
	DeviceGet        function `hip:"hipDeviceGet" cuda:"cuDeviceGet"`
	DeviceName       function `hip:"hipDeviceGetName" cuda:"cuDeviceGetName"`
	DeviceAttribute  function `hip:"hipDeviceGetAttribute" cuda:"cuDeviceGetAttribute"`
	DeviceMemory     function `hip:"hipDeviceTotalMem" cuda:"cuDeviceTotalMem_v2"`
	PropertiesR0600  function `hip:"hipGetDevicePropertiesR0600" since:"6.0"`
	PropertiesR0000  function `hip:"hipGetDeviceProperties"` // of the old layout in every version
	SetDevice        function `hip:"hipSetDevice"`
	ContextRetain    function `cuda:"cuDevicePrimaryCtxRetain"`
	ContextRelease   function `cuda:"cuDevicePrimaryCtxRelease_v2"`
	ContextSet       function `cuda:"cuCtxSetCurrent"`
	MemoryInfo       function `hip:"hipMemGetInfo" cuda:"cuMemGetInfo_v2"`
	Malloc           function `hip:"hipMalloc" cuda:"cuMemAlloc_v2"`
	Free             function `hip:"hipFree" cuda:"cuMemFree_v2"`
	HostMalloc       function `hip:"hipHostMalloc" cuda:"cuMemHostAlloc"`
	HostFree         function `hip:"hipHostFree" cuda:"cuMemFreeHost"`
	HostAddress      function `hip:"hipHostGetDevicePointer" cuda:"cuMemHostGetDevicePointer_v2"`
	CopyToDevice     function `hip:"hipMemcpyHtoD" cuda:"cuMemcpyHtoD_v2"`
	CopyToHost       function `hip:"hipMemcpyDtoH" cuda:"cuMemcpyDtoH_v2"`
	EnqueueToDevice  function `hip:"hipMemcpyHtoDAsync" cuda:"cuMemcpyHtoDAsync_v2"`
	EnqueueToHost    function `hip:"hipMemcpyDtoHAsync" cuda:"cuMemcpyDtoHAsync_v2"`
	EnqueueCopy      function `hip:"hipMemcpyDtoDAsync" cuda:"cuMemcpyDtoDAsync_v2"`
	EnqueueFill8     function `hip:"hipMemsetD8Async" cuda:"cuMemsetD8Async"`
	EnqueueFill32    function `hip:"hipMemsetD32Async" cuda:"cuMemsetD32Async"`
	ModuleLoad       function `hip:"hipModuleLoadData"`
	ModuleCompile    function `cuda:"cuModuleLoadDataEx"`
	LinkCreate       function `cuda:"cuLinkCreate_v2"`
	LinkAdd          function `cuda:"cuLinkAddData_v2"`
	LinkComplete     function `cuda:"cuLinkComplete"`
	LinkDestroy      function `cuda:"cuLinkDestroy"`
	ModuleUnload     function `hip:"hipModuleUnload" cuda:"cuModuleUnload"`
	ModuleFunction   function `hip:"hipModuleGetFunction" cuda:"cuModuleGetFunction"`
	ModuleGlobal     function `hip:"hipModuleGetGlobal" cuda:"cuModuleGetGlobal_v2"`
	FunctionGet      function `hip:"hipFuncGetAttribute" cuda:"cuFuncGetAttribute"`
	FunctionSet      function `cuda:"cuFuncSetAttribute"`
	LaunchKernel     function `hip:"hipModuleLaunchKernel" cuda:"cuLaunchKernel"`
	LaunchKernelEx   function `cuda:"cuLaunchKernelEx" since:"11.8"`
	StreamCreate     function `hip:"hipStreamCreateWithFlags" cuda:"cuStreamCreate"`
	StreamDestroy    function `hip:"hipStreamDestroy" cuda:"cuStreamDestroy_v2"`
	StreamSync       function `hip:"hipStreamSynchronize" cuda:"cuStreamSynchronize"`
	StreamWait       function `hip:"hipStreamWaitEvent" cuda:"cuStreamWaitEvent"`
	EventCreate      function `hip:"hipEventCreateWithFlags" cuda:"cuEventCreate"`
	EventDestroy     function `hip:"hipEventDestroy" cuda:"cuEventDestroy_v2"`
	EventRecord      function `hip:"hipEventRecord" cuda:"cuEventRecord"`
	EventSync        function `hip:"hipEventSynchronize" cuda:"cuEventSynchronize"`
	EventElapsed     function `hip:"hipEventElapsedTime" cuda:"cuEventElapsedTime"`
	CaptureBegin     function `hip:"hipStreamBeginCapture" cuda:"cuStreamBeginCapture_v2"`
	CaptureEnd       function `hip:"hipStreamEndCapture" cuda:"cuStreamEndCapture"`
	CaptureStatus    function `hip:"hipStreamIsCapturing" cuda:"cuStreamIsCapturing"`
	GraphCreate      function `hip:"hipGraphCreate" cuda:"cuGraphCreate"`
	GraphDestroy     function `hip:"hipGraphDestroy" cuda:"cuGraphDestroy"`
	GraphAddKernel   function `hip:"hipGraphAddKernelNode" cuda:"cuGraphAddKernelNode_v2"`
	GraphDependAfter function `cuda:"cuGraphAddDependencies_v2" since:"12.3"`
	GraphNodes       function `hip:"hipGraphGetNodes" cuda:"cuGraphGetNodes"`
	GraphInstantiate function `hip:"hipGraphInstantiateWithFlags" cuda:"cuGraphInstantiateWithFlags"`
	GraphLaunch      function `hip:"hipGraphLaunch" cuda:"cuGraphLaunch"`
	ExecDestroy      function `hip:"hipGraphExecDestroy" cuda:"cuGraphExecDestroy"`
}

// Symbol is a C symbol that the bindings look up.
type Symbol struct {
	Function string // of the table: equal for both interfaces
	Name     string
	Required bool
	Since    string // the first version that has it, of one that is not required
}

// symbolOf reads the tag of a field; Name is "" if the interface has no such
// function.
func symbolOf(k Kind, f reflect.StructField) Symbol {
	since := f.Tag.Get("since")
	return Symbol{Function: f.Name, Name: f.Tag.Get(strings.ToLower(k.String())), Required: since == "", Since: since}
}

// Symbols lists what is looked up in a library of this kind, in the order of the
// table.
func Symbols(k Kind) []Symbol {
	var list []Symbol
	for f := range reflect.TypeFor[functions]().Fields() {
		if s := symbolOf(k, f); s.Name != "" {
			list = append(list, s)
		}
	}
	return list
}

// resolve fills the table by lookup, which returns 0 for a symbol that is not
// there. It returns the symbols that are missing and optional; those that are
// required and missing are an error that names them all.
func (t *functions) resolve(k Kind, lookup func(name string) uintptr) (absent []string, err error) {
	var missing []string
	v := reflect.ValueOf(t).Elem()
	for i := range v.NumField() {
		s := symbolOf(k, v.Type().Field(i))
		if s.Name == "" {
			continue
		}
		f := function{s.Name, lookup(s.Name)}
		switch {
		case f.address != 0:
		case s.Required:
			missing = append(missing, s.Name)
		default:
			absent = append(absent, s.Name)
		}
		*v.Field(i).Addr().Interface().(*function) = f
	}
	if missing != nil {
		return absent, fmt.Errorf("lacks the symbols %s", strings.Join(missing, ", "))
	}
	return absent, nil
}
