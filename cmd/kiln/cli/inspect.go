package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/object"
)

const inspectHelp = `Says what a compiler made of each kernel: registers, spills, LDS, scratch,
occupancy, size of the code, matrix instructions; and where the places of the
file that state the same fact disagree. FILE is an AMDGPU code object (.hsaco,
.o), a clang offload bundle, PTX text, an x86-64 shared object, or a bundle that
compile wrote: then also its plans, and which ops and layers use each kernel.

With --profile, what an emulated run of the bundle counted stands beside the floor
times: kiln run --bundle B --device emu:gfx950 --counters C.json writes the file.

A value that the file does not state, or that needs a missing llvm-objdump, is
"-", and null in --json. Occupancy is in waves per SIMD, without dynamic LDS.`

// inspection is the result for one file.
type inspection struct {
	File              string          `json:"file"`
	Kind              object.Kind     `json:"kind"`
	Target            *string         `json:"target"`              // null if code objects differ
	CodeObjectVersion *int            `json:"code_object_version"` // null if code objects differ
	MadeBy            []string        `json:"made_by"`
	Entries           []entryRow      `json:"entries,omitempty"` // of a bundle
	Kernels           []kernelRow     `json:"kernels"`
	Relocations       []relocationRow `json:"relocations"`
	Undefined         []string        `json:"undefined"`
	Problems          []string        `json:"problems"`
	Notes             []string        `json:"notes"` // why something is not known
}

// entryRow is an entry of a bundle.
type entryRow struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"`
	Triple string `json:"triple"`
	Target string `json:"target"`
	Offset uint64 `json:"offset"`
	Size   uint64 `json:"size"`
	Read   bool   `json:"read"` // false: not for an AMDGPU, skipped
}

// kernelRow is a kernel, or an exported function of a host object. What is not
// known is nil.
type kernelRow struct {
	Name              string        `json:"name"`
	Target            string        `json:"target"`
	VGPR              *int          `json:"vgpr"` // AGPRs included where registers are unified
	AGPR              *int          `json:"agpr"`
	SGPR              *int          `json:"sgpr"`
	VGPRSpills        *int          `json:"vgpr_spills"`
	SGPRSpills        *int          `json:"sgpr_spills"`
	LDSBytes          *int          `json:"lds_bytes"`
	ScratchBytes      *int          `json:"scratch_bytes"`
	Occupancy         *int          `json:"occupancy"`
	CodeBytes         *int          `json:"code_bytes"`
	MFMA              *int          `json:"mfma"`
	KernargBytes      *int          `json:"kernarg_bytes"`
	PreloadBytes      *int          `json:"kernarg_preload_bytes"`
	MaxWorkgroup      *int          `json:"max_workgroup"`
	RequiredWorkgroup []int         `json:"required_workgroup"`
	Wavefront         *int          `json:"wavefront"`
	DynamicStack      *bool         `json:"dynamic_stack"`
	Args              []argRow      `json:"args"`
	Asm               []instruction `json:"asm,omitempty"`

	of           *object.CodeObject // nil for a host function
	bundleTarget string             // of a bundle: the folder that it is in
}

type argRow struct {
	Name         *string `json:"name"`
	Offset       int     `json:"offset"`
	Size         int     `json:"size"`
	ValueKind    string  `json:"value_kind"`
	AddressSpace *string `json:"address_space"`
	ActualAccess *string `json:"actual_access"`
	Hidden       bool    `json:"hidden"`
}

type relocationRow struct {
	Section string `json:"section"`
	Offset  uint64 `json:"offset"`
	Type    string `json:"type"`
	Symbol  string `json:"symbol"`
	Addend  int64  `json:"addend"`
}

type instruction struct {
	Offset uint64 `json:"offset"` // from the kernel's first byte
	Text   string `json:"text"`
}

func runInspect(e *env, f *flags, args []string) error {
	if isBundle(args[0]) || strings.HasSuffix(args[0], ".kiln") { // one that is not there too
		return inspectBundle(e, f, args[0])
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	file, err := object.Read(data)
	if err != nil {
		err = fmt.Errorf("%s: %w", args[0], err)
		if errors.Is(err, object.ErrUnsupported) {
			return refuse(err, "")
		}
		return err
	}
	if f.boolean("ll") {
		return refuse(fmt.Errorf("--ll: %s has no LLVM IR, only a bundle can", args[0]), "kiln compile --emit ll")
	}
	if f.text("profile") != "" {
		return refuse(fmt.Errorf("%s: %s has no floor times, only a bundle has", f.origins("profile"), args[0]), "kiln inspect BUNDLE --profile "+f.text("profile"))
	}
	in := newInspection(args[0], file)
	if name := f.text("kernel"); f.given("kernel") {
		if err := in.only(name); err != nil {
			return err
		}
	}
	if f.boolean("asm") && len(file.Objects()) == 0 {
		return refuse(fmt.Errorf("%s: --asm disassembles AMDGPU code only", args[0]), asmHint(file.Kind, args[0]))
	}
	if len(file.Objects()) > 0 {
		if err := in.disassemble(e, f, file); err != nil {
			return err
		}
	}
	if f.boolean("json") {
		return printJSON(e.stdout, in)
	}
	return in.print(e, f.given("kernel"))
}

func newInspection(path string, file *object.File) *inspection {
	in := &inspection{
		File: path, Kind: file.Kind, MadeBy: []string{}, Kernels: []kernelRow{}, Relocations: []relocationRow{},
		Undefined: []string{}, Problems: append([]string{}, file.Problems...), Notes: []string{},
	}
	for _, b := range file.Entries {
		in.Entries = append(in.Entries, entryRow{b.ID, b.Kind, b.Triple, b.Target, b.Offset, b.Size, b.Object != nil})
	}
	for i, o := range file.Objects() {
		target, version := o.Target.String(), o.Version
		if i == 0 {
			in.Target, in.CodeObjectVersion = &target, &version
		}
		if in.Target != nil && *in.Target != target {
			in.Target = nil
		}
		if in.CodeObjectVersion != nil && *in.CodeObjectVersion != version {
			in.CodeObjectVersion = nil
		}
		for k := range o.Kernels {
			in.Kernels = append(in.Kernels, rowOf(&o.Kernels[k], o))
		}
		for _, r := range o.Relocations {
			in.Relocations = append(in.Relocations, relocationRow(r))
		}
		in.Undefined = append(in.Undefined, o.Undefined...)
		in.madeBy(o.Comments)
	}
	if file.PTX != nil {
		in.addPTX(file.PTX)
	}
	if h := file.Host; h != nil {
		target := "x86-64"
		in.Target = &target
		for _, fn := range h.Functions {
			in.Kernels = append(in.Kernels, kernelRow{Name: fn.Name, Target: target, CodeBytes: fn.Bytes})
		}
		in.Undefined = append(in.Undefined, h.Undefined...)
		in.madeBy(h.Comments)
	}
	return in
}

// asmHint is how to see instructions that --asm does not show.
func asmHint(k object.Kind, path string) string {
	if k == object.KindPTX {
		return "cat " + path
	}
	return "objdump -d " + path
}

// addPTX adds what PTX text says. Registers are up to the driver's compiler.
func (in *inspection) addPTX(p *object.PTX) {
	in.Target = &p.Target
	in.MadeBy = append(in.MadeBy, "PTX "+p.Version)
	in.Undefined = append(in.Undefined, p.Undefined...)
	for _, e := range p.Entries {
		r := kernelRow{Name: e.Name, Target: p.Target, LDSBytes: &e.Shared, ScratchBytes: &e.Local, Args: []argRow{}}
		if e.Block > 0 {
			r.RequiredWorkgroup = []int{e.Block, 1, 1}
		}
		end := 0
		for _, a := range e.Params {
			kind, space := "by_value", (*string)(nil)
			if a.Pointer {
				kind, space = "global_buffer", ptrTo("global")
			}
			at := (end + a.Bytes - 1) / a.Bytes * a.Bytes
			r.Args = append(r.Args, argRow{Offset: at, Size: a.Bytes, ValueKind: kind, AddressSpace: space})
			end = at + a.Bytes
		}
		r.KernargBytes = &end
		in.Kernels = append(in.Kernels, r)
	}
	in.Notes = append(in.Notes, "PTX is text: the driver's compiler allocates registers, so that registers, spills and occupancy are not known")
}

func (in *inspection) madeBy(comments []string) {
	for _, c := range comments {
		if !slices.Contains(in.MadeBy, c) {
			in.MadeBy = append(in.MadeBy, c)
		}
	}
}

func rowOf(k *object.Kernel, of *object.CodeObject) kernelRow {
	r := kernelRow{
		Name: k.Name, Target: of.Target.String(), of: of, VGPR: &k.VGPRs, AGPR: k.AGPRs, SGPR: &k.SGPRs, VGPRSpills: k.VGPRSpills, SGPRSpills: k.SGPRSpills,
		LDSBytes: &k.LDSBytes, ScratchBytes: &k.ScratchBytes, Occupancy: k.Occupancy, KernargBytes: &k.KernargBytes,
		MaxWorkgroup: &k.MaxWorkgroup, RequiredWorkgroup: k.RequiredWorkgroup, Wavefront: &k.Wavefront, DynamicStack: k.DynamicStack,
		Args: []argRow{},
	}
	if k.Code != nil {
		r.CodeBytes = ptrTo(len(k.Code))
	}
	if k.Descriptor != nil {
		r.PreloadBytes = ptrTo(4 * k.Descriptor.PreloadLength())
	}
	known := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	for _, a := range k.Args {
		r.Args = append(r.Args, argRow{known(a.Name), a.Offset, a.Size, a.ValueKind, known(a.AddressSpace), known(a.ActualAccess), a.Hidden()})
	}
	return r
}

func ptrTo[T any](v T) *T { return &v }

// only keeps the kernels of a name: in a bundle each target has its own.
func (in *inspection) only(name string) error {
	var names []string
	for _, k := range in.Kernels {
		if !slices.Contains(names, k.Name) {
			names = append(names, k.Name)
		}
	}
	if !slices.Contains(names, name) {
		return usagef("kiln inspect "+in.File, "--kernel: %s has no kernel %q: want one of %s", in.File, name, shortList(names))
	}
	in.Kernels = slices.DeleteFunc(in.Kernels, func(k kernelRow) bool { return k.Name != name })
	return nil
}

// shortList joins names, but not thousands of them.
func shortList(names []string) string {
	const most = 40
	var list []string
	for _, n := range names[:min(most, len(names))] {
		list = append(list, printable(n))
	}
	if more := len(names) - most; more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}

// disassemble fills in what only the instructions tell. Without --asm a missing
// or unfit llvm-objdump is a note.
func (in *inspection) disassemble(e *env, f *flags, file *object.File) error {
	unable := func(err error) error {
		switch {
		case e.ctx.Err() != nil:
			return e.ctx.Err()
		case f.boolean("asm"):
			return &codedError{exitFailed, fmt.Errorf("--asm: %w", err), "make toolchain"}
		}
		in.Notes = append(in.Notes, fmt.Sprintf("mfma is not known: %v", err))
		return nil
	}
	tools, err := llvm.Find(e.ctx, llvm.FindOptions{Dir: f.text("llvm")})
	if err != nil {
		return unable(err)
	}
	if tools.ObjDump == "" {
		return unable(fmt.Errorf("the LLVM of %s has no llvm-objdump", tools.Source))
	}
	for _, o := range file.Objects() {
		found, err := object.Disassemble(e.ctx, tools.ObjDump, o.Data, "")
		if err != nil {
			if err := unable(err); err != nil {
				return err
			}
			continue
		}
		for i := range in.Kernels {
			k := &in.Kernels[i]
			lines, ok := found[k.Name]
			if !ok || k.of != o {
				continue
			}
			k.MFMA = ptrTo(object.CountMFMA(lines))
			if f.boolean("asm") {
				for _, l := range lines {
					k.Asm = append(k.Asm, instruction{l.Offset, l.Text})
				}
			}
		}
		prefix := ""
		for _, b := range file.Entries {
			if b.Object == o {
				prefix = b.ID + ": "
			}
		}
		for _, k := range o.Kernels {
			for _, p := range object.Undecodable(k.Name, found[k.Name]) {
				in.Problems = append(in.Problems, prefix+p)
			}
		}
	}
	return nil
}

// print writes the text form.
func (in *inspection) print(e *env, withArgs bool) error {
	tw := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "file\t%s\n", in.File)
	fmt.Fprintf(tw, "kind\t%s\n", in.Kind)
	fmt.Fprintf(tw, "target\t%s\n", cell(in.Target))
	fmt.Fprintf(tw, "code object version\t%s\n", cell(in.CodeObjectVersion))
	for _, c := range in.MadeBy {
		fmt.Fprintf(tw, "made by\t%s\n", printable(c))
	}
	for _, b := range in.Entries {
		what := "skipped: not for an AMDGPU"
		if b.Read {
			what = "read"
		}
		fmt.Fprintf(tw, "entry\t%s, %d bytes at 0x%x, %s\n", b.ID, b.Size, b.Offset, what)
	}
	if len(in.Relocations) > 0 {
		fmt.Fprintf(tw, "relocations\t%d\n", len(in.Relocations))
	}
	if len(in.Undefined) > 0 {
		fmt.Fprintf(tw, "undefined\t%s\n", shortList(in.Undefined))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(e.stdout)
	fmt.Fprintln(tw, "kernel\ttarget\tvgpr\tagpr\tsgpr\tvgpr spills\tsgpr spills\tlds\tscratch\toccupancy\tcode\tmfma")
	for _, k := range in.Kernels {
		fmt.Fprint(tw, printable(k.Name), "\t", k.Target)
		for _, v := range []*int{k.VGPR, k.AGPR, k.SGPR, k.VGPRSpills, k.SGPRSpills, k.LDSBytes, k.ScratchBytes, k.Occupancy, k.CodeBytes, k.MFMA} {
			fmt.Fprint(tw, "\t", cell(v))
		}
		fmt.Fprintln(tw)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, k := range in.Kernels {
		if withArgs && k.Args != nil {
			if err := k.printArgs(e.stdout, tw); err != nil {
				return err
			}
		}
		k.printAsm(e.stdout)
	}
	if len(in.Problems) > 0 {
		fmt.Fprintln(e.stdout, "\nproblems:")
	}
	for _, p := range in.Problems {
		fmt.Fprintf(e.stdout, "  %s\n", printable(p))
	}
	for _, n := range in.Notes {
		e.notef("note: %s", n)
	}
	return nil
}

func (k *kernelRow) printAsm(w io.Writer) {
	if k.Asm == nil {
		return
	}
	fmt.Fprintf(w, "\n%s (%s):\n", k.Name, k.Target)
	for _, i := range k.Asm {
		fmt.Fprintf(w, "  +0x%04x  %s\n", i.Offset, i.Text)
	}
}

// printArgs writes what a caller must know to launch a kernel.
func (k *kernelRow) printArgs(w io.Writer, tw *tabwriter.Writer) error {
	workgroup := "at most " + cell(k.MaxWorkgroup)
	if k.RequiredWorkgroup != nil {
		workgroup = fmt.Sprint(k.RequiredWorkgroup)
	}
	fmt.Fprintf(w, "\n%s (%s): %s kernarg bytes, %s of them preloaded; workgroup %s, wave %s\n",
		k.Name, k.Target, cell(k.KernargBytes), cell(k.PreloadBytes), workgroup, cell(k.Wavefront))
	if len(k.Args) == 0 {
		return nil
	}
	fmt.Fprintln(tw, "  offset\tsize\tkind\taddress space\tactual access\tname")
	for _, a := range k.Args {
		fmt.Fprintf(tw, "  %d\t%d\t%s\t%s\t%s\t%s\n", a.Offset, a.Size, a.ValueKind, cell(a.AddressSpace), cell(a.ActualAccess), cell(a.Name))
	}
	return tw.Flush()
}

// cell is the text of a value that may be unknown.
func cell[T any](v *T) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}
