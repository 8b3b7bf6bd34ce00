package emu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen/object"
)

// Chips are those whose code runs.
var Chips = []string{"gfx942", "gfx950"}

// Target is a chip as it is emulated: with SRAM ECC, which it always has, and without
// XNACK, as drivers leave it.
func Target(chip string) (object.TargetID, error) {
	if !slices.Contains(Chips, chip) {
		return object.TargetID{}, fmt.Errorf("unknown chip %s, only %v can be emulated", chip, Chips)
	}
	return object.TargetID{Chip: chip, SRAMECC: object.SettingOn, XNACK: object.SettingOff}, nil
}

// Program is a loaded code object.
type Program struct {
	object  *object.CodeObject
	chip    string
	image   []byte // the segments, where the kernels' addresses point to
	regions []region
	// functions are the listings of what kernels may call.
	functions []listing
	listing   map[string][]object.Line
	kernels   map[string]*Kernel
}

// Kernel is a kernel whose instructions are compiled.
type Kernel struct {
	Meta *object.Kernel

	chip    string
	address uint64 // of the first instruction
	insts   []*Inst
	steps   []step
	uses    []uses         // of the instructions
	at      map[uint64]int // index of the instruction at an offset
	vgprs   int
	agprs   bool
	image   []region
}

// listing is the instructions of a function. Their offsets count from the kernel.
type listing struct {
	name  string
	start uint64 // of the function
	lines []object.Line
}

// Load prepares a code object. Its kernels are compiled when they are asked for.
// objdump is LLVM's llvm-objdump.
func Load(ctx context.Context, objdump string, code []byte) (*Program, error) {
	return Loader{ObjDump: objdump}.Load(ctx, code)
}

// Load prepares a code object.
func (l Loader) Load(ctx context.Context, code []byte) (*Program, error) {
	f, err := object.Read(code)
	if err != nil {
		return nil, err
	}
	o := f.Object
	if f.Kind != object.KindAMDGPU || o.Relocatable {
		return nil, fmt.Errorf("emu: the file is no linked AMDGPU code object")
	}
	if len(f.Problems) > 0 {
		return nil, fmt.Errorf("emu: the code object is not consistent: %s", f.Problems[0])
	}
	if !slices.Contains(Chips, o.Target.Chip) {
		return nil, fmt.Errorf("emu: the code object is for %s: only %v can be executed", o.Target, Chips)
	}
	if o.Target.SRAMECC == object.SettingOff {
		return nil, fmt.Errorf("emu: the code object is for %s: the memory of these chips always has SRAM ECC", o.Target)
	}
	p := &Program{object: o, chip: o.Target.Chip, kernels: map[string]*Kernel{}}
	if err := p.load(); err != nil {
		return nil, fmt.Errorf("emu: %w", err)
	}
	kept, err := l.disassemble(ctx, code, len(o.Functions))
	if err != nil {
		return nil, err
	}
	p.listing = kept.Kernels
	for i, lines := range kept.Functions {
		f := &o.Functions[i]
		p.functions = append(p.functions, listing{f.Name, f.Address, lines})
	}
	return p, nil
}

// Chip is the processor that the code is for.
func (p *Program) Chip() string { return p.chip }

// Kernel compiles a kernel of the program. The error of one that cannot run names
// every instruction that is not understood.
func (p *Program) Kernel(name string) (*Kernel, error) {
	if k, ok := p.kernels[name]; ok {
		return k, nil
	}
	meta, err := p.object.Kernel(name)
	if err != nil {
		return nil, err
	}
	k := &Kernel{Meta: meta, chip: p.chip, address: Address(p.image) + meta.Address, at: map[uint64]int{}, image: p.regions}
	if err := k.check(); err != nil {
		return nil, fmt.Errorf("kernel %s: %w", name, err)
	}
	lists := []listing{{lines: p.listing[name]}}
	if slices.ContainsFunc(lists[0].lines, jumps) {
		// Where to is known when it runs: it may be any function.
		for _, f := range p.functions {
			f.start -= meta.Address
			lists = append(lists, f)
		}
	}
	if err := k.compile(lists...); err != nil {
		return nil, fmt.Errorf("kernel %s: %w", name, err)
	}
	p.kernels[name] = k
	return k, nil
}

// The float mode that the vector ALU has: LLVM's default for kernels.
const (
	floatMode = 0xf0          // round to nearest even; denormals of all sizes kept
	modeBits  = 1<<21 | 1<<23 // compute_pgm_rsrc1: DX10_CLAMP, IEEE_MODE
)

// check refuses what a launch could not set up.
func (k *Kernel) check() error {
	d := k.Meta.Descriptor
	switch {
	case d == nil || k.Meta.Code == nil:
		return errors.New("it has no descriptor or no code")
	case d.Has(object.Wavefront32):
		return errors.New("wavefronts of 32 lanes are not supported")
	case d.Has(object.UsesDynamicStack):
		return errors.New("a dynamic stack is not supported")
	case d.FloatMode() != floatMode || d.Rsrc1&modeBits != modeBits:
		return fmt.Errorf("its float mode is %#x and compute_pgm_rsrc1 %#x: only %#x (round to nearest even, denormals kept: an assembler wants .amdhsa_float_denorm_mode_32 3) with DX10_CLAMP and IEEE_MODE is supported",
			d.FloatMode(), d.Rsrc1, floatMode)
	}
	for _, p := range []struct {
		bit       object.Property
		name, how string
	}{
		{object.PrivateSegmentBuffer, "private segment buffer", "gfx942 and gfx950 do without"},
		{object.QueuePtr, "queue pointer", `LLVM leaves it out of a function with the attribute "amdgpu-no-queue-ptr"`},
		{object.DispatchID, "dispatch id", `LLVM leaves it out of a function with the attribute "amdgpu-no-dispatch-id"`},
	} {
		if d.Has(p.bit) {
			return fmt.Errorf("it wants the %s in its registers, which is not supported: %s", p.name, p.how)
		}
	}
	return nil
}

// maxErrors is how many instructions an error names.
const maxErrors = 20

// jumps tells whether an instruction goes to an address in registers.
func jumps(l object.Line) bool {
	op, _, _ := strings.Cut(l.Text, " ")
	return op == "s_swappc_b64" || op == "s_setpc_b64"
}

// refused is an instruction that cannot be executed, for a reason that is known.
func refused(reason error) step {
	return func(w *wave) {
		w.fault = fmt.Errorf("%s: %w", w.who(-1), reason)
		w.status = faulted
	}
}

// endOfCode is a pseudo instruction after the last of a function: whatever runs past
// that is caught, not undefined.
const endOfCode = "end of the code"

// compile compiles the kernel and the functions that it may call. An instruction of a
// function that is not understood is an error when it is reached, not now: others may
// call the function, and with more registers than this kernel has.
func (k *Kernel) compile(lists ...listing) error {
	var errs []error
	for _, f := range lists {
		end := &Inst{Offset: f.start, Func: f.name, Start: f.start, Op: endOfCode, Text: endOfCode}
		for _, l := range f.lines {
			l.Offset += f.start
			in, err := parseInst(l)
			if err != nil && f.name != "" {
				in, err = &Inst{Offset: l.Offset, Size: 4 * uint64(len(l.Words)), Text: l.Text, Op: l.Text}, nil
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			in.Func, in.Start = f.name, f.start
			k.at[in.Offset] = len(k.insts)
			k.insts = append(k.insts, in)
			end.Offset = in.Offset + in.Size
		}
		k.insts = append(k.insts, end)
	}
	if len(errs) > 0 {
		return errors.Join(errs[:min(maxErrors, len(errs))]...)
	}
	k.registers()
	indexed := slices.ContainsFunc(k.insts, func(in *Inst) bool { return in.Op == "s_set_gpr_idx_on" })
	for _, in := range k.insts {
		s, u, err := compileInst(k, in, indexed)
		if err != nil && in.Func != "" {
			s, u, err = refused(err), uses{class: classOther}, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
		k.steps = append(k.steps, s)
		k.uses = append(k.uses, u)
	}
	if n := len(errs); n > maxErrors {
		errs = append(errs[:maxErrors], fmt.Errorf("%d more instructions are not understood", n-maxErrors))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return nil
}

// registers finds out how many vector registers the code names. More than the
// descriptor allocates is an error that compile of the operand reports.
func (k *Kernel) registers() {
	d := k.Meta.Descriptor
	k.vgprs = min(256, 8*d.VGPRGranules())
	for _, in := range k.insts {
		for _, o := range in.Args {
			k.agprs = k.agprs || o.Kind == AGPR
		}
	}
	if k.agprs {
		k.vgprs = min(k.vgprs, d.AccumOffset())
	}
}

// aperture is the address of the LDS or scratch window in the flat address space:
// constants that a kernel reads as src_shared_base and the like.
func (k *Kernel) aperture(name string) (uint64, bool) {
	switch name {
	case "src_shared_base":
		return sharedBase, true
	case "src_shared_limit":
		return sharedBase | 0xffffffff, true
	case "src_private_base":
		return privateBase, true
	case "src_private_limit":
		return privateBase | 0xffffffff, true
	}
	return 0, false
}

// The windows lie where no user-space address of x86-64 is.
const (
	sharedBase  = 0x1_0000_0000_0000
	privateBase = 0x2_0000_0000_0000
)
