package kernel

import (
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
	i32 := func(n int64) value.Value { return constant.NewInt(types.I32, n) }
	const everyRow, everyBank = 0xF, 0xF
	return k.intrinsic("llvm.amdgcn.update.dpp.i32", types.I32, &rawConst{types.I32, "poison"}, v, i32(int64(control)), i32(everyRow), i32(everyBank), constant.True)
}
