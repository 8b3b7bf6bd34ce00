//go:build (linux || darwin) && (amd64 || arm64)

package llvm

import (
	"fmt"
	"reflect"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// ref is an opaque pointer of the C API; 0 is null.
type ref uintptr

// library is a loaded libLLVM. Only a worker has one: LLVM ends the process on
// some inputs.
type library struct {
	api      capi
	callback uintptr // of the diagnostics
	diags    []Diag  // of the running job
}

// capi is the part of LLVM's C API that a compile needs. Each field is the C
// function of the name LLVM + field; llvm-c/Core.h, TargetMachine.h, Analysis.h
// and Transforms/PassBuilder.h document them.
type capi struct {
	GetVersion              func(major, minor, patch *uint32)
	ParseCommandLineOptions func(argc int32, argv unsafe.Pointer, overview string)

	ContextCreate                         func() ref
	ContextDispose                        func(ctx ref)
	ContextSetDiagnosticHandler           func(ctx ref, handler, data uintptr)
	GetDiagInfoDescription                func(info ref) ref // to DisposeMessage
	GetDiagInfoSeverity                   func(info ref) int32
	DisposeMessage                        func(message ref)
	CreateMemoryBufferWithMemoryRangeCopy func(data unsafe.Pointer, size uintptr, name string) ref
	GetBufferStart                        func(buf ref) ref
	GetBufferSize                         func(buf ref) uintptr
	DisposeMemoryBuffer                   func(buf ref)
	ParseIRInContext                      func(ctx, buf ref, module, message *ref) int32 // takes buf over
	VerifyModule                          func(module ref, action int32, message *ref) int32
	SetTarget                             func(module ref, triple string)
	DisposeModule                         func(module ref)
	Int32TypeInContext                    func(ctx ref) ref
	ConstInt                              func(typ ref, value uint64, signed int32) ref
	ValueAsMetadata                       func(value ref) ref
	AddModuleFlag                         func(module ref, behavior int32, key string, size uintptr, value ref)
	NormalizeTargetTriple                 func(triple string) ref // to DisposeMessage
	GetTargetFromTriple                   func(triple string, target, message *ref) int32
	CreateTargetMachine                   func(target ref, triple, cpu, features string, level, reloc, codeModel int32) ref
	DisposeTargetMachine                  func(machine ref)
	CreateTargetDataLayout                func(machine ref) ref
	CopyStringRepOfTargetData             func(layout ref) ref // to DisposeMessage
	DisposeTargetData                     func(layout ref)
	CreatePassBuilderOptions              func() ref
	DisposePassBuilderOptions             func(options ref)
	RunPasses                             func(module ref, passes string, machine, options ref) ref // an error, or 0
	GetErrorMessage                       func(err ref) ref                                         // takes err over; to DisposeErrorMessage
	DisposeErrorMessage                   func(message ref)
	TargetMachineEmitToMemoryBuffer       func(machine, module ref, fileType int32, message, buf *ref) int32
}

// Values of the C API's enumerations.
const (
	codeGenAggressive   = 3 // LLVMCodeGenLevelAggressive, as -O3
	relocDefault        = 0
	relocPIC            = 2
	codeModelDefault    = 0
	fileAssembly        = 0
	fileObject          = 1
	verifyReturnStatus  = 2
	moduleFlagError     = 0 // a different value elsewhere is an error
	diagnosticError     = 0
	diagnosticWarning   = 1
	diagnosticRemark    = 2
	diagnosticNote      = 3
	codeObjectFlag      = "amdhsa_code_object_version"
	commandLineOverview = ""
)

var severities = map[int32]Severity{
	diagnosticError: SevError, diagnosticWarning: SevWarning, diagnosticRemark: SevRemark, diagnosticNote: SevNote,
}

// llvmTargets are the code generators to use, as far as the library has them:
// the GPUs, and what a host may be.
var llvmTargets = []string{"AMDGPU", "NVPTX", "X86", "AArch64"}

// openLibrary loads libLLVM and prepares it. It may be called once per process.
func openLibrary(path string) (*library, error) {
	// Why it does not load is kept by thread, and purego asks in a second call.
	runtime.LockOSThread()
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	runtime.UnlockOSThread()
	if err != nil {
		return nil, err
	}
	l := &library{}
	api := reflect.ValueOf(&l.api).Elem()
	for i := range api.NumField() {
		name := "LLVM" + api.Type().Field(i).Name
		fn, err := purego.Dlsym(h, name)
		if err != nil {
			return nil, fmt.Errorf("%s has no function %s", path, name)
		}
		purego.RegisterFunc(api.Field(i).Addr().Interface(), fn)
	}
	for _, target := range llvmTargets {
		for _, part := range []string{"TargetInfo", "Target", "TargetMC", "AsmParser", "AsmPrinter"} {
			fn, err := purego.Dlsym(h, "LLVMInitialize"+target+part)
			if err != nil {
				continue // not in this build, or a target without this part
			}
			purego.SyscallN(fn)
		}
	}
	// Options are global to the process, and set once.
	argv := [3]*byte{cstring("kiln"), cstring(resourceRemarks)}
	l.api.ParseCommandLineOptions(2, unsafe.Pointer(&argv), commandLineOverview)
	runtime.KeepAlive(argv)
	l.callback = l.handler()
	return l, nil
}

func cstring(s string) *byte {
	b := append([]byte(s), 0)
	return &b[0]
}

// address turns a pointer that C returned into one of Go's. The memory is C's,
// so the collector has no part in it.
//
//go:noinline
func address(p ref) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// text copies a C string, which may be null.
func text(p ref) string {
	if p == 0 {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(address(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(address(p)), n))
}

// take copies a C string and frees it.
func (l *library) take(p ref) string {
	s := text(p)
	if p != 0 {
		l.api.DisposeMessage(p)
	}
	return s
}

func (l *library) version() string {
	var major, minor, patch uint32
	l.api.GetVersion(&major, &minor, &patch)
	return fmt.Sprintf("%d.%d.%d", major, minor, patch)
}

// handler makes a callback for LLVM's diagnostics. Without one LLVM prints them
// and exits on an error; with one it goes on, so that an error among the
// diagnostics means that the output is worthless.
func (l *library) handler() uintptr {
	return purego.NewCallback(func(info ref, _ uintptr) uintptr {
		sev, known := severities[l.api.GetDiagInfoSeverity(info)]
		if !known {
			sev = SevError
		}
		raw := l.take(l.api.GetDiagInfoDescription(info))
		// The filter of resourceRemarks does not hold for a handler.
		if sev != SevRemark || resourceRemark.MatchString(raw) {
			_, what := classify(raw)
			l.diags = append(l.diags, Diag{sev, what})
		}
		return 0
	})
}
