package warpsim

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/target"
)

// everyLane is the mask of a whole warp.
const everyLane = 1<<Warp - 1

// all reports an operation of a whole warp that some lanes do not reach.
func all(name string, active uint32) error {
	if active != everyLane {
		return fmt.Errorf("%s: lanes %#x of the warp are there, want all", name, active)
	}
	return nil
}

// warpCall is an intrinsic in which lanes have to do with each other, or nil.
func warpCall(name string, to operand, args []operand) inst {
	switch name {
	case "llvm.nvvm.read.ptx.sreg.ctaid.x":
		return each(to, func(w *warp, _, _ int) uint64 { return uint64(w.id) })
	case "llvm.nvvm.read.ptx.sreg.tid.x":
		return each(to, func(w *warp, lane, _ int) uint64 { return uint64(w.first + lane) })
	case "llvm.nvvm.ff2bf16x2.rn.relu":
		return each(to, func(w *warp, lane, i int) uint64 {
			x := args[1-i] // the first operand is the upper half
			return fromFloat(to.t.scalar(), max(0, toFloat(x.t, x.get(w, lane, 0))))
		})
	case "llvm.nvvm.barrier.cta.sync.aligned.all":
		return func(w *warp, active uint32) error {
			if err := all("barrier", active); err != nil {
				return err
			}
			return errBarrier
		}
	case "llvm.nvvm.shfl.sync.idx.i32":
		return func(w *warp, active uint32) error {
			if err := all("shuffle", active); err != nil {
				return err
			}
			var x [Warp]uint64
			for lane := range x {
				x[lane] = args[1].get(w, int(args[2].get(w, lane, 0))%Warp, 0)
			}
			for lane := range x {
				to.set(w, lane, 0, x[lane])
			}
			return nil
		}
	case "llvm.nvvm.vote.ballot.sync":
		return func(w *warp, active uint32) error {
			if err := all("vote", active); err != nil {
				return err
			}
			var votes uint64
			for lane := range Warp {
				votes |= args[1].get(w, lane, 0) << lane
			}
			for lane := range Warp {
				to.set(w, lane, 0, votes)
			}
			return nil
		}
	case "llvm.nvvm.redux.sync.umax":
		return func(w *warp, active uint32) error {
			if err := all("maximum", active); err != nil {
				return err
			}
			var most uint64
			for lane := range Warp {
				most = max(most, args[0].get(w, lane, 0))
			}
			for lane := range Warp {
				to.set(w, lane, 0, most)
			}
			return nil
		}
	case "llvm.nvvm.redux.sync.add":
		return func(w *warp, active uint32) error {
			if err := all("sum", active); err != nil {
				return err
			}
			var sum uint32
			for lane := range Warp {
				sum += uint32(args[0].get(w, lane, 0))
			}
			for lane := range Warp {
				to.set(w, lane, 0, uint64(sum))
			}
			return nil
		}
	case "llvm.nvvm.cp.async.cg.shared.global.16":
		return func(w *warp, active uint32) error {
			for lane := range lanesOf(active) {
				if err := w.copy(lane, args[0].get(w, lane, 0), args[1].get(w, lane, 0)); err != nil {
					return err
				}
			}
			return nil
		}
	case "llvm.nvvm.cp.async.commit.group":
		return func(w *warp, active uint32) error {
			for lane := range lanesOf(active) {
				w.commit(lane)
			}
			return nil
		}
	case "llvm.nvvm.cp.async.wait.group":
		return func(w *warp, active uint32) error {
			for lane := range lanesOf(active) {
				if err := w.wait(lane, int(args[0].get(w, lane, 0))); err != nil {
					return err
				}
			}
			return nil
		}
	case "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3":
		return func(w *warp, active uint32) error { return w.loadMatrices(to, args[0], active, false) }
	case "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3":
		return func(w *warp, active uint32) error { return w.loadMatrices(to, args[0], active, true) }
	case matrix.Intrinsic:
		return func(w *warp, active uint32) error {
			if err := all("matrix product", active); err != nil {
				return err
			}
			multiply(w, to, args)
			return nil
		}
	}
	return nil
}

var matrix = func() *target.MMA {
	t := target.Target{Kind: target.NVPTX}
	return t.MMA()
}()

// multiply is D = A B + C, where lanes hold what target.MMA's maps say. Products are
// exact; how the hardware rounds their sum is not documented: here it is once.
func multiply(w *warp, to operand, args []operand) {
	const rows, cols, depth = 16, target.MMACols, 16
	bf16, f32 := &typ{kind: float, bits: 16}, &typ{kind: float, bits: 32}
	half := func(first, lane, e int) float64 {
		word := args[first+e/2].get(w, lane, 0)
		return toFloat(bf16, mask(word>>(16*(e%2)), 16))
	}
	var a [rows][depth]float64
	var b [depth][cols]float64
	for lane := range Warp {
		for e := range 8 {
			r, k := matrix.ElementA(lane, e)
			a[r][k] = half(0, lane, e)
		}
		for e := range 4 {
			k, c := matrix.ElementB(lane, e)
			b[k][c] = half(4, lane, e)
		}
	}
	for lane := range Warp {
		for e := range 4 {
			r, c := matrix.ElementD(lane, e)
			sum := toFloat(f32, args[6+e].get(w, lane, 0))
			for k := range depth {
				sum += a[r][k] * b[k][c]
			}
			to.set(w, lane, e, fromFloat(f32, sum))
		}
	}
}
