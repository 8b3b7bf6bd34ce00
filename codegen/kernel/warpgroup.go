package kernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen/target"
	"github.com/llir/llvm/ir"
	"github.com/llir/llvm/ir/types"
	"github.com/llir/llvm/ir/value"
)

// Matrix products of four warps together (PTX ISA, "Asynchronous Warpgroup Level Matrix
// Instructions"), which read the second operand from shared memory, and the first one from
// there or from registers. LLVM has no intrinsic for them, so they are assembler.

// warpgroup reports misuse on targets without such products.
func (k *K) warpgroup(what string) bool {
	if !k.T.Warpgroups() {
		k.fail("%s: not on %s", what, k.T.Name)
		return false
	}
	return true
}

// assembler calls inline assembler that has effects on memory.
func (k *K) assembler(ret types.Type, text, constraints string, args ...value.Value) value.Value {
	params := make([]types.Type, len(args))
	for i, a := range args {
		params[i] = a.Type()
	}
	asm := ir.NewInlineAsm(types.NewPointer(types.NewFunc(ret, params...)), text, constraints)
	asm.SideEffect = true
	return k.b.NewCall(asm, args...)
}

// FenceForMatrices has products of warpgroups see what this lane wrote to shared memory,
// behind the next barrier.
func (k *K) FenceForMatrices() {
	if k.warpgroup("fence for matrices") {
		k.assembler(types.Void, "fence.proxy.async.shared::cta;", "~{memory}")
	}
}

// SharedMatrix tells products of warpgroups of a matrix that begins at element i of shared
// memory, in blocks of 8 rows of 128 bytes at a multiple of 1024 bytes, of which 16 bytes
// number c of row r are at number c ^ r. stride is the bytes from 8 rows to the next.
func (b *Buf) SharedMatrix(i V, stride int) V {
	k := b.k
	if b.as != k.T.Shared || stride%16 != 0 || stride>>4 >= 1<<14 {
		k.fail("matrix of address space %d, %d bytes from 8 rows to the next", b.as, stride)
		return k.Int(0)
	}
	const swizzle128, strideAt = 1 << 62, 32
	at := k.b.NewPtrToInt(b.vecAddress(i, types.I8), types.I64)
	address := k.LShr(k.And(V{t: I64, v: at}, k.Int(0x3FFFF)), k.Int(4))
	return k.Or(address, k.Int(swizzle128|stride>>4<<strideAt))
}

// GroupChain is a product that steps through memory: A[64,16] B[16,n] of each step, added
// in their order. A's rows are rows in memory, and B's columns are, or, if Across, B's
// rows.
type GroupChain struct {
	A, B   V // SharedMatrix
	Across bool
	Steps  [][2]int // how many bytes further A and B of a step begin
}

// GroupSums are the sums of chains that a warpgroup has started to multiply.
type GroupSums struct {
	chains  int
	sums    []value.Value // f32, of all chains
	held    []value.Value // what the products read from registers until they are done
	earlier []value.Value // what those before them do
}

// StartGroupMMA starts to multiply chains of bf16, n columns each. All lanes of the four
// warps must get here.
func (k *K) StartGroupMMA(n int, chains ...GroupChain) GroupSums {
	if !k.warpgroup("product of a warpgroup") {
		return GroupSums{}
	}
	perChain := n / 2
	outs := perChain * len(chains)
	var text strings.Builder
	text.WriteString("{ .reg .pred add, set; .reg .b32 zero; .reg .b64 a, b; mov.b32 zero, 0; setp.ne.b32 set, zero, 0; setp.eq.b32 add, zero, 0; wgmma.fence.sync.aligned; ")
	var args []value.Value
	for c, chain := range chains {
		sums := make([]string, perChain)
		for i := range sums {
			sums[i] = fmt.Sprintf("$%d", c*perChain+i)
		}
		across := 0
		if chain.Across {
			across = 1
		}
		for i, s := range chain.Steps {
			how := "add"
			if i == 0 {
				how = "set"
			}
			fmt.Fprintf(&text, "add.s64 a, $%d, %d; add.s64 b, $%d, %d; ", outs+2*c, s[0]>>4, outs+2*c+1, s[1]>>4)
			fmt.Fprintf(&text, "wgmma.mma_async.sync.aligned.m64n%dk16.f32.bf16.bf16 {%s}, a, b, %s, 1, 1, 0, %d; ", n, strings.Join(sums, ", "), how, across)
		}
		args = append(args, k.raw(chain.A), k.raw(chain.B))
	}
	text.WriteString("wgmma.commit_group.sync.aligned; }")
	constraints := strings.Repeat("=f,", outs) + strings.Repeat("l,", len(args)) + "~{memory}"
	return GroupSums{chains: len(chains), sums: k.floats(outs, text.String(), constraints, args)}
}

// AddGroupMMA starts to add to sums, of vectors of four for each eight columns as
// WaitGroupMMA returns them, the products A[64,16] B[16,n] of as many steps as a has, in
// their order. A lane has A of a step in registers, four words as WarpMMA takes them of
// its warp's 16 rows; B is a SharedMatrix, whose columns are rows in memory, and of a step
// begins so many bytes further. All lanes of the four warps must get here.
func (k *K) AddGroupMMA(sums, a []Vec, b V, steps []int) GroupSums {
	var list []value.Value
	for _, v := range sums {
		for i := range target.ResultRun {
			list = append(list, k.raw(k.At(v, i)))
		}
	}
	return k.AddMoreMMA(GroupSums{chains: 1, sums: list}, a, b, steps)
}

// StartHeldMMA is AddGroupMMA to sums of n columns that are zero.
func (k *K) StartHeldMMA(n int, a []Vec, b V, steps []int) GroupSums {
	return k.heldMMA(GroupSums{chains: 1}, n/2, a, b, steps, false)
}

// StartAcrossMMA is StartHeldMMA where B's rows are rows in memory, at most 64 columns.
func (k *K) StartAcrossMMA(n int, a []Vec, b V, steps []int) GroupSums {
	return k.heldMMA(GroupSums{chains: 1}, n/2, a, b, steps, true)
}

// AddMoreMMA is AddGroupMMA to sums that are still under way.
func (k *K) AddMoreMMA(s GroupSums, a []Vec, b V, steps []int) GroupSums {
	return k.heldMMA(s, len(s.sums), a, b, steps, false)
}

// heldMMA starts products with A in registers, of so many sums: those of s, if it has any.
func (k *K) heldMMA(s GroupSums, outs int, a []Vec, b V, steps []int, across bool) GroupSums {
	if !k.warpgroup("product of a warpgroup") {
		return GroupSums{}
	}
	regs, tied := make([]string, outs), ""
	for i := range regs {
		regs[i] = fmt.Sprintf("$%d", i)
	}
	for i := range s.sums {
		tied += fmt.Sprintf("%d,", i)
	}
	var text strings.Builder
	text.WriteString("{ .reg .pred add, set; .reg .b32 zero; .reg .b64 b; mov.b32 zero, 0; setp.ne.b32 set, zero, 0; setp.eq.b32 add, zero, 0; wgmma.fence.sync.aligned; ")
	atA := outs + len(s.sums)
	atB := atA + 4*len(a)
	turned := 0
	if across {
		turned = 1
	}
	var held []value.Value
	for i, v := range a {
		words := make([]string, 4)
		for j := range words {
			words[j] = fmt.Sprintf("$%d", atA+len(held))
			held = append(held, k.raw(k.At(v, j)))
		}
		how := "add"
		if i == 0 && len(s.sums) == 0 {
			how = "set"
		}
		fmt.Fprintf(&text, "add.s64 b, $%d, %d; ", atB, steps[i]>>4)
		fmt.Fprintf(&text, "wgmma.mma_async.sync.aligned.m64n%dk16.f32.bf16.bf16 {%s}, {%s}, b, %s, 1, 1, %d; ", 2*outs, strings.Join(regs, ", "), strings.Join(words, ", "), how, turned)
	}
	text.WriteString("wgmma.commit_group.sync.aligned; }")
	constraints := strings.Repeat("=f,", outs) + tied + strings.Repeat("r,", len(held)) + "l,~{memory}"
	sums := k.floats(outs, text.String(), constraints, slices.Concat(s.sums, held, []value.Value{k.raw(b)}))
	return GroupSums{chains: 1, sums: sums, held: held, earlier: s.held}
}

// WaitEarlierMMA waits until all products are done but those of AddMoreMMA that were
// started last, to the sums of which it returns the way.
func (k *K) WaitEarlierMMA(s GroupSums) GroupSums {
	if !k.warpgroup("product of a warpgroup") {
		return GroupSums{}
	}
	s.sums, s.earlier = k.waitGroup(1, s.sums, s.earlier), nil
	return s
}

// waitGroup waits until all products but the last n are done. The sums go through the
// instruction, so that nothing reads them before it, and what the products read too, so
// that nothing takes its registers.
func (k *K) waitGroup(n int, sums, held []value.Value) []value.Value {
	constraints := strings.Repeat("=f,", len(sums))
	for i := range sums {
		constraints += fmt.Sprintf("%d,", i)
	}
	constraints += strings.Repeat("r,", len(held)) + "~{memory}"
	return k.floats(len(sums), fmt.Sprintf("wgmma.wait_group.sync.aligned %d;", n), constraints, slices.Concat(sums, held))
}

// WaitGroupMMA waits until all products but the last n that were started are done, and
// returns the sums of one of those that are. Of each chain a lane has, of rows lane/4 and
// 8 below it of its warp's 16, columns 2(lane%4) and the next of every eight: a vector of
// four for each eight, as WarpMMA has it. All lanes of the four warps must get here.
func (k *K) WaitGroupMMA(n int, s GroupSums) [][]Vec {
	if !k.warpgroup("product of a warpgroup") {
		return nil
	}
	outs := len(s.sums)
	x := k.waitGroup(n, s.sums, slices.Concat(s.earlier, s.held))
	perChain := outs / s.chains
	out := make([][]Vec, s.chains)
	for i := 0; i < outs; i += target.ResultRun {
		four := make([]V, target.ResultRun)
		for j := range four {
			four[j] = V{t: F32, v: x[i+j]}
		}
		c := i / perChain
		out[c] = append(out[c], k.MakeVec(four...))
	}
	return out
}

// floats is assembler with so many results.
func (k *K) floats(n int, text, constraints string, args []value.Value) []value.Value {
	fields, out := make([]types.Type, n), make([]value.Value, n)
	for i := range fields {
		fields[i] = types.Float
	}
	x := k.assembler(types.NewStruct(fields...), text, constraints, args...)
	for i := range out {
		out[i] = k.b.NewExtractValue(x, uint64(i))
	}
	return out
}
