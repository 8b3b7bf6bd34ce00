package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/runtime/emu"
	"github.com/kiln-project/kiln/runtime/weights"
)

const launchHelp = `Runs one kernel of an AMDGPU code object on an emulated GPU, and writes what its
pointer arguments then point to.

  kiln launch --device emu:gfx950 --hsaco add.hsaco --kernel add --grid 5,1,1 \
    --block 256,1,1 --arg x=in.safetensors:x --arg y=in.safetensors:y \
    --arg o=zeros:F32[5000] --arg n=i32:5000 --out out.safetensors

--arg is repeated, once for each argument, in the order of the kernel:
  NAME=F.safetensors:TENSOR  pointer to a copy of the tensor
  NAME=zeros:F32[70,80]      pointer to zeros; types and shapes as in safetensors
  NAME=TYPE:NUMBER           value: i8 to i64, u8 to u64, f16, bf16, f32, f64
Pointers that the kernel has behind these are null, which is said on standard
error. Hidden arguments are filled in. NAME is the tensor's name in --out.

The grid counts work-groups. The code must be for the chip, as target IDs say:
emu:gfx942 is a chip with sramecc+ and xnack-; emu:gfx942:xnack+ is one with it.
A kernel with instructions that the emulator does not know is refused.

--sanitize checks memory (accesses outside of the tensors), race (of a work-group,
in LDS; of work-groups, in memory), uninit (addresses, branches and results that
follow from what was never written) and waitcnt (use of what a wait is missing
for), or all: each report is a line, and the exit code 4.`

// extent3 reads a flag of three numbers.
func extent3(f *flags, name string) (x [3]int, err error) {
	parts := strings.Split(f.text(name), ",")
	if len(parts) != 3 {
		return x, usagef("--"+name+" 1,1,1", "%s is %q, want three numbers X,Y,Z", f.origins(name), f.text(name))
	}
	for i, p := range parts {
		n, err := strconv.ParseInt(p, 10, 32)
		if err != nil || n < 1 {
			return x, usagef("--"+name+" 1,1,1", "%s is %q: %q is no number from 1", f.origins(name), f.text(name), p)
		}
		x[i] = int(n)
	}
	return x, nil
}

// emulated reads --device: a chip with the settings of its features.
func emulated(f *flags) (object.TargetID, error) {
	text, ok := strings.CutPrefix(f.text("device"), "emu:")
	if f.text("device") == "emu" {
		text, ok = defaultChip, true
	}
	if !ok {
		return object.TargetID{}, refuse(fmt.Errorf("%s %s: kernels are launched on emulated devices only", f.origins("device"), f.text("device")), "--device emu:gfx942")
	}
	t, err := object.ParseTargetID(text)
	if err != nil {
		return t, usagef("--device emu:gfx942", "%s: %v", f.origins("device"), err)
	}
	chip, err := emu.Target(t.Chip)
	if err != nil {
		return t, refuse(fmt.Errorf("%s: %w", f.origins("device"), err), "--device emu:"+emu.Chips[0])
	}
	if t, err = t.On(chip); err != nil {
		return t, usagef("--device emu:"+chip.Chip, "%s: %v", f.origins("device"), err)
	}
	if t.SRAMECC != chip.SRAMECC {
		return t, refuse(fmt.Errorf("%s: the memory of %s always has SRAM ECC", f.origins("device"), t.Chip), "--device emu:"+chip.Chip)
	}
	return t, nil
}

func runLaunch(e *env, f *flags, _ []string) error {
	device, err := emulated(f)
	if err != nil {
		return err
	}
	l := emu.Launch{LDS: f.number("shared"), Memory: &emu.Space{}}
	if l.Grid, err = extent3(f, "grid"); err != nil {
		return err
	}
	if l.Block, err = extent3(f, "block"); err != nil {
		return err
	}
	if l.LDS < 0 {
		return usagef("--shared 0", "%s is %d, want bytes", f.origins("shared"), l.LDS)
	}
	checks, err := sanitizers(f)
	if err != nil {
		return err
	}
	if f.given("trace") && f.number("trace") < 1 {
		return usagef("--trace 100", "%s is %d, want a number from 1", f.origins("trace"), f.number("trace"))
	}
	args, err := parseLaunchArgs(f.repeated("arg"))
	if err != nil {
		return err
	}
	k, err := loadKernel(e, f, device)
	if err != nil {
		return err
	}
	if err := args.bind(k, &l); err != nil {
		return err
	}
	for _, n := range args.nulls {
		e.notef("note: argument %d of %s is not given: a null pointer", n+1, printable(k.Meta.Name))
	}
	if checks != 0 {
		l.Sanitize = &emu.Sanitize{Checks: checks, Buffers: args.buffers(), Shadow: &emu.Shadow{}}
	}
	if f.boolean("counters") {
		l.Counters = &emu.Counters{}
	}
	if f.given("trace") {
		l.Trace = &emu.Trace{Limit: f.number("trace")}
	}
	stats, err := k.Run(e.ctx, l)
	if l.Trace != nil { // of a kernel that failed too
		fmt.Fprint(e.stdout, l.Trace)
	}
	if checks&emu.CheckUninit != 0 {
		err = args.undefined(l.Sanitize.Shadow, err)
	}
	if err != nil {
		return launchFailed(e, f, k, err)
	}
	out := args.tensors()
	if err := weights.Write(f.text("out"), out, nil); err != nil {
		return err
	}
	groups := int64(l.Grid[0]) * int64(l.Grid[1]) * int64(l.Grid[2])
	fmt.Fprintf(e.stdout, "%s: %s of %d work-items, %d wave instructions; %s to %s\n",
		printable(k.Meta.Name), count(groups, "work-group"), l.Block[0]*l.Block[1]*l.Block[2], stats.Instructions, count(int64(len(out)), "tensor"), f.text("out"))
	if l.Counters != nil {
		return l.Counters.Table(e.stdout)
	}
	return nil
}

// sanitizers reads --sanitize.
func sanitizers(f *flags) (emu.Checks, error) {
	if !f.given("sanitize") {
		return 0, nil
	}
	checks, err := emu.ParseChecks(f.text("sanitize"))
	if err != nil {
		return 0, usagef("--sanitize all", "%s: %v", f.origins("sanitize"), err)
	}
	return checks, nil
}

// launchFailed tells what became of a launch: what sanitizers found is the result.
func launchFailed(e *env, f *flags, k *emu.Kernel, err error) error {
	if misfit := (*emu.LaunchError)(nil); errors.As(err, &misfit) {
		return usagef("kiln inspect "+f.text("hsaco")+" --kernel "+f.text("kernel"), "%v", err)
	}
	found := (*emu.SanitizerError)(nil)
	if !errors.As(err, &found) {
		return err
	}
	for _, r := range found.Reports {
		fmt.Fprintln(e.stdout, r)
	}
	return &codedError{exitCheck, fmt.Errorf("kernel %s: %s of sanitizers", k.Meta.Name, count(int64(len(found.Reports)+found.Omitted), "report")), ""}
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// loadKernel reads the code object and compiles the kernel for the emulator.
func loadKernel(e *env, f *flags, device object.TargetID) (*emu.Kernel, error) {
	path := f.text("hsaco")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	file, err := object.Read(data)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
		if errors.Is(err, object.ErrUnsupported) {
			return nil, refuse(err, "")
		}
		return nil, err
	}
	if file.Kind != object.KindAMDGPU {
		return nil, refuse(fmt.Errorf("%s: a file of kind %s, want an AMDGPU code object", path, file.Kind), "kiln inspect "+path)
	}
	if _, err := file.ForDevice(device); err != nil {
		return nil, refuse(fmt.Errorf("%s: %w", path, err), "--device emu:"+file.Object.Target.String())
	}
	if _, err := file.Object.Kernel(f.text("kernel")); err != nil {
		return nil, usagef("kiln inspect "+path, "%s: %s: %v", f.origins("kernel"), path, err)
	}
	l, err := emuLoader(e, f)
	if err != nil {
		return nil, err
	}
	p, err := l.Load(e.ctx, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	k, err := p.Kernel(f.text("kernel"))
	if err != nil {
		return nil, refuse(fmt.Errorf("%s: %w", path, err), "kiln inspect "+path+" --asm --kernel "+f.text("kernel"))
	}
	return k, nil
}
