package kernel

import (
	"slices"

	"github.com/kiln-project/kiln/codegen/target"
	"github.com/llir/llvm/ir/constant"
	"github.com/llir/llvm/ir/types"
	"github.com/llir/llvm/ir/value"
)

// Exchanges between lanes of AMD's waves in fixed patterns. DPP reads another lane's
// register as an operand, and ds_swizzle goes through LDS without an address, where
// ds_bpermute, which takes every pattern, needs one.

const (
	dppRow    = 16    // lanes that DPP exchanges among
	dppRowRor = 0x120 // control: turns rows to the right by so many lanes
)

// dppXor are the controls that give a lane the one whose number differs in these bits:
// quad_perm, or half a turn of a row.
var dppXor = map[int]int{1: 0xB1, 2: 0x4E, 3: 0x1B, dppRow / 2: dppRowRor + dppRow/2}

// laneXor is x of the lane whose index in the wave differs in the bits of mask.
func (k *K) laneXor(x V, mask int) V {
	if k.T.Kind == target.AMDGPU && mask < 2*dppRow {
		return k.words(x, func(v value.Value) value.Value {
			if control, ok := dppXor[mask]; ok {
				return k.dpp(v, control)
			}
			const all = 0x1F // of the lane's number within 32, before the exclusive or
			return k.intrinsic("llvm.amdgcn.ds.swizzle", types.I32, v, constant.NewInt(types.I32, int64(mask<<10|all)))
		})
	}
	return k.exchange(x, k.b.NewXor(k.waveLane(), constant.NewInt(types.I32, int64(mask))))
}

// dpp is a word of the lane that a control of DPP says. Its lane is on, and every lane
// is written.
func (k *K) dpp(v value.Value, control int) value.Value {
	const everyBank = 0xF
	return k.dppInto(&rawConst{types.I32, "poison"}, v, control, everyBank, true)
}

// dppInto is dpp in the lanes of some banks, which are four lanes each, of every row of
// 16, and old in the others. bound says that lanes without a source get 0.
func (k *K) dppInto(old, v value.Value, control, banks int, bound bool) value.Value {
	i32 := func(n int) value.Value { return constant.NewInt(types.I32, int64(n)) }
	const everyRow = 0xF
	return k.intrinsic("llvm.amdgcn.update.dpp.i32", types.I32, old, v, i32(control), i32(everyRow), i32(banks), constant.NewBool(bound))
}

// TransposeLanes exchanges vectors of words among the blocks that n vectors divide each 16
// lanes into, 2 or 4 of them: what a lane of block b has as vector v, the same lane of
// block v gets as vector b. AMD GPUs only; all lanes of the wave must get here.
func (k *K) TransposeLanes(xs []Vec) []Vec {
	n := len(xs)
	if k.T.Kind != target.AMDGPU || n != 2 && n != 4 {
		k.fail("transposition of %d vectors among lanes on %s", n, k.T.Name)
		return xs
	}
	xs = slices.Clone(xs)
	for bit := n / 2; bit >= 1; bit /= 2 {
		for v := range n {
			if v&bit == 0 {
				xs[v], xs[v|bit] = k.exchangeLanes(xs[v], xs[v|bit], bit*dppRow/n)
			}
		}
	}
	return xs
}

// exchangeLanes gives the lanes without a bit of their number, 4 or 8, a of the lanes that
// have it as b, and those b of these as a.
func (k *K) exchangeLanes(a, b Vec, bit int) (Vec, Vec) {
	with := map[int]int{4: 0b1010, 8: 0b1100}[bit] // banks
	var as, bs []V
	for i := range a.n {
		x, y := k.raw(k.At(a, i)), k.raw(k.At(b, i))
		as = append(as, V{t: a.t, v: k.dppInto(x, y, dppRowRor+bit, with, false)})
		bs = append(bs, V{t: a.t, v: k.dppInto(y, x, dppRowRor+dppRow-bit, 0xF&^with, false)})
	}
	return k.MakeVec(as...), k.MakeVec(bs...)
}
