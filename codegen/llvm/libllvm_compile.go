//go:build (linux || darwin) && (amd64 || arm64)

package llvm

import (
	"unsafe"
)

// compile runs one job. Everything of it lives in a context of its own, so that
// jobs do not influence each other. The steps and settings are those of
// opt | llc, for equal results.
func (l *library) compile(q *request) *response {
	l.diags = nil
	out, stage, err := l.run(q)
	return &response{Output: out, Stage: stage, Err: err, Diags: l.diags}
}

// run returns the output, or the stage that failed and LLVM's text about it.
func (l *library) run(q *request) (out []byte, stage, failure string) {
	api := &l.api
	triple := l.take(api.NormalizeTargetTriple(q.Triple))
	var target, message ref
	if api.GetTargetFromTriple(triple, &target, &message) != 0 {
		return nil, "parse", l.take(message)
	}
	reloc := int32(relocDefault)
	if q.PIC {
		reloc = relocPIC
	}
	machine := api.CreateTargetMachine(target, triple, q.CPU, q.Features, codeGenAggressive, reloc, codeModelDefault)
	if machine == 0 {
		return nil, "parse", "LLVM makes no target machine for " + triple
	}
	defer api.DisposeTargetMachine(machine)
	// The parser needs the layout: it decides the alignment of accesses that
	// name none.
	layout := api.CreateTargetDataLayout(machine)
	job := Job{Name: q.Name, Triple: triple, IR: q.IR}
	ir := job.source(l.take(api.CopyStringRepOfTargetData(layout)))
	api.DisposeTargetData(layout)

	ctx := api.ContextCreate()
	defer api.ContextDispose(ctx)
	api.ContextSetDiagnosticHandler(ctx, l.callback, 0)
	var module ref
	buf := api.CreateMemoryBufferWithMemoryRangeCopy(unsafe.Pointer(&ir[0]), uintptr(len(ir)), "<stdin>")
	if api.ParseIRInContext(ctx, buf, &module, &message) != 0 {
		return nil, "parse", l.take(message)
	}
	defer api.DisposeModule(module)
	// The IR's own spelling of the triple may be another than LLVM's.
	api.SetTarget(module, triple)
	message = 0
	broken := api.VerifyModule(module, verifyReturnStatus, &message) != 0
	if what := l.take(message); broken {
		return nil, "verify", what
	}
	if q.CodeObjectVersion != 0 {
		v := api.ValueAsMetadata(api.ConstInt(api.Int32TypeInContext(ctx), uint64(q.CodeObjectVersion), 0))
		api.AddModuleFlag(module, moduleFlagError, codeObjectFlag, uintptr(len(codeObjectFlag)), v)
	}
	if q.Passes != "" {
		options := api.CreatePassBuilderOptions()
		err := api.RunPasses(module, q.Passes, machine, options)
		api.DisposePassBuilderOptions(options)
		if err != 0 {
			p := api.GetErrorMessage(err)
			what := text(p)
			api.DisposeErrorMessage(p)
			return nil, "passes", what
		}
	}
	kind := int32(fileObject)
	if q.Asm {
		kind = fileAssembly
	}
	var object ref
	message = 0
	if api.TargetMachineEmitToMemoryBuffer(machine, module, kind, &message, &object) != 0 {
		return nil, "emit", l.take(message)
	}
	defer api.DisposeMemoryBuffer(object)
	size := api.GetBufferSize(object)
	return append([]byte(nil), unsafe.Slice((*byte)(address(api.GetBufferStart(object))), size)...), "", ""
}
