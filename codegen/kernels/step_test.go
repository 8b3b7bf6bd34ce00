package kernels_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"regexp"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/emu"
)

// The kernels around a step reach past the caches of the device, in the order that the
// numbers of steps rely on.
func TestStepOrder(t *testing.T) {
	_, c := compiler(t)
	for _, tc := range []struct {
		target, kernel string
		want           string // in the instructions
	}{
		{"gfx942", kernels.StepPrologue, `(?s)global_load_dwordx2 [^\n]* sc0 sc1.*buffer_inv sc0 sc1.*global_load_dwordx2 [^\n]* sc0 sc1.*global_store_dwordx2`},
		{"gfx942", kernels.StepEpilogue, `(?s)global_store_dwordx2 [^\n]* sc0 sc1.*buffer_wbl2 sc0 sc1\s+s_waitcnt vmcnt\(0\).*s_barrier.*buffer_wbl2 sc0 sc1.*global_store_dwordx2 [^\n]* sc0 sc1`},
		{"gfx950", kernels.StepPrologue, `(?s)global_load_dwordx2 [^\n]* sc0 sc1.*buffer_inv sc0 sc1.*global_load_dwordx2 [^\n]* sc0 sc1`},
		{"gfx950", kernels.StepEpilogue, `(?s)buffer_wbl2 sc0 sc1\s+s_waitcnt vmcnt\(0\).*s_barrier.*global_store_dwordx2 [^\n]* sc0 sc1`},
		{"sm_90", kernels.StepPrologue, `(?s)ld\.relaxed\.sys\.global\.b64.*fence\.acq_rel\.sys.*ld\.relaxed\.sys\.global\.b64.*st\.global\.b64`},
		{"sm_90", kernels.StepEpilogue, `(?s)st\.relaxed\.sys\.global\.b64.*fence\.acq_rel\.sys.*bar\.sync.*fence\.acq_rel\.sys.*st\.relaxed\.sys\.global\.b64`},
	} {
		tg := mustTarget(t, tc.target)
		for _, s := range kernels.Steps() {
			if s.Form != tc.kernel {
				continue
			}
			m := kernel.NewModule(tg)
			if err := m.Build(s.Form, s.Params, s.Body); err != nil {
				t.Fatal(err)
			}
			r, err := c.Compile(t.Context(), llvm.Job{Name: s.Form, IR: []byte(m.Text()), Triple: tg.Triple, CPU: tg.CPU, Features: tg.Features, OptPasses: "default<O3>", Output: llvm.Asm})
			if err != nil {
				t.Fatal(err)
			}
			if !regexp.MustCompile(tc.want).Match(r.Output) {
				t.Errorf("%s on %s: want %s in\n%s", s.Form, tc.target, tc.want, r.Output)
			}
		}
	}
}

// The host has no kernels around a step.
func TestStepNeedsGPU(t *testing.T) {
	for _, s := range kernels.Steps() {
		if err := kernel.NewModule(mustTarget(t, "x86-64-v3")).Build(s.Form, s.Params, s.Body); err == nil {
			t.Errorf("%s was built for the host", s.Form)
		}
	}
}

// TestStepsEmulated runs the prologue and the epilogue on emulated chips, with every
// sanitizer: what the host wrote comes back to it by way of the device.
func TestStepsEmulated(t *testing.T) {
	const size, rowsAt, stateAt, dataAt, backAt = 64 << 10, 16 << 10, 20 << 10, 24 << 10, 8 << 10
	lengths := []int{13, 4999} // less than a lane each, and more; both end within a word
	tools, _ := compiler(t)
	for _, chip := range emu.Chips {
		u := codegen.NewUnit(mustTarget(t, chip))
		c := newBatch(t) // some plan: without one there are no steps
		c.op("neg", nil, exact, blank(t, ir.T(ir.F32, ir.Int(4))))
		if _, err := u.Lower(c.graph()); err != nil {
			t.Fatal(err)
		}
		if err := u.AddAround(); err != nil {
			t.Fatal(err)
		}
		objs, _ := compileMerged(t, u.Kernels, u.Target, llvm.Object)
		code, err := tools.Link(t.Context(), "kernels", objs)
		if err != nil {
			t.Fatal(err)
		}
		if code, err = object.MergeNotes(code); err != nil {
			t.Fatal(err)
		}
		dev, err := emu.Open(t.Context(), chip, emu.Loader{ObjDump: tools.ObjDump, Version: tools.Version}, emu.Options{Sanitize: emu.CheckAll})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, k := range u.Module.Kernels {
			names = append(names, k.Symbol)
		}
		lib, err := dev.Load(code, names)
		if err != nil {
			t.Fatal(err)
		}
		m, err := dev.Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		// The device's count is 6, the step's number 7. Data lie at words 8 and 16 of the
		// host's block, and come back behind backAt.
		block := make([]byte, size)
		word := func(at int, x int64) { binary.LittleEndian.PutUint64(block[at:], uint64(x)) }
		for i := range rowsAt {
			block[i] = byte(i*7 + i>>8)
		}
		word(0, 7)
		word(stateAt, 0)
		word(stateAt+8, 6)
		base := int64(m.Address())
		places := []int{64, 128}
		for i, n := range lengths {
			for j, x := range []int64{base + dataAt + int64(i)*8192, int64(places[i] / 8), int64(n), int64(2 + i)} {
				word(rowsAt+32*i+8*j, x)
			}
			for j, x := range []int64{base + dataAt + int64(i)*8192, int64((backAt + places[i]) / 8), int64(n), int64(2 + i)} {
				word(rowsAt+256+32*i+8*j, x)
			}
		}
		if err := m.Write(0, block); err != nil {
			t.Fatal(err)
		}
		arg := func(at, n int64, mode plan.Mode) device.Arg {
			return device.Arg{Address: m.Address() + uint64(at), Bytes: n, Mode: mode, Label: "block"}
		}
		var list []device.Launch
		for i, k := range []int{u.Module.Step.Prologue, u.Module.Step.Epilogue} {
			list = append(list, device.Launch{
				Kernel: k, Symbol: names[k], Form: u.Module.Kernels[k].Form, Grid: len(lengths), Block: u.Target.Lanes,
				Args: []device.Arg{arg(0, rowsAt, []plan.Mode{plan.Read, plan.Update}[i]), arg(rowsAt+256*int64(i), 256, plan.Read), arg(stateAt, size-stateAt, plan.Update)},
			})
		}
		seq, err := lib.Prepare(list)
		if err != nil {
			t.Fatal(err)
		}
		if err := seq.Run(); err != nil {
			t.Fatalf("%s: %v", chip, err)
		}
		got := make([]byte, size)
		if err := m.Read(0, got); err != nil {
			t.Fatal(err)
		}
		at := func(at int) int64 { return int64(binary.LittleEndian.Uint64(got[at:])) }
		if at(stateAt) != 7 || at(stateAt+8) != 7 {
			t.Errorf("%s: the device has started step %d and finished %d, want 7", chip, at(stateAt), at(stateAt+8))
		}
		for i, n := range lengths {
			from := block[places[i]:][:n]
			if !bytes.Equal(from, got[dataAt+8192*i:][:n]) || !bytes.Equal(from, got[backAt+places[i]:][:n]) {
				t.Errorf("%s: group %d: %d bytes differ", chip, i, n)
			}
			if d, h := at(stateAt+16+8*i), at(16+8*i); d != 7 || h != 7 {
				t.Errorf("%s: group %d left the numbers %d and %d, want 7", chip, i, d, h)
			}
		}
		if err := errors.Join(seq.Close(), m.Free(), lib.Close(), dev.Close()); err != nil {
			t.Error(err)
		}
	}
}
