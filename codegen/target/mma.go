package target

// MMA is a matrix instruction of NVIDIA's: one warp of 32 lanes computes D = A B + C
// with A[16,K] and B[K,8] of bf16 and f32 C and D [16,8]. A lane holds pairs of
// consecutive k, two to a word.
type MMA struct {
	Name      string // mnemonic
	Intrinsic string // LLVM's
	K         int
}

// MMACols is the number of columns of B and D.
const MMACols = 8

// warpMatrix is the instruction of every chip that has it: the one row of the table.
// Its lane map is that of the PTX ISA, "Matrix Fragments for mma.m16n8k16 with
// floating point type".
var warpMatrix = MMA{Name: "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", Intrinsic: "llvm.nvvm.mma.m16n8k16.row.col.bf16", K: 16}

// MMA returns the target's matrix instruction of that kind, or nil.
func (t *Target) MMA() *MMA {
	if t.Kind != NVPTX {
		return nil
	}
	return &warpMatrix
}

// Warpgroups reports that the target's matrix instructions include those of four warps
// together: no chip has them but those of sm_90a.
func (t *Target) Warpgroups() bool { return t.CPU == "sm_90a" }

// ElementA is the place in A[row, k] of element e, of 8, of a lane.
func (m *MMA) ElementA(lane, e int) (row, k int) {
	return lane/4 + e/2%2*8, lane%4*2 + e%2 + e/4*8
}

// ElementB is the place in B[k, col] of element e, of 4, of a lane.
func (m *MMA) ElementB(lane, e int) (k, col int) {
	return lane%4*2 + e%2 + e/2*8, lane / 4
}

// ElementD is the place in C and D [row, col] of element e, of 4, of a lane.
func (m *MMA) ElementD(lane, e int) (row, col int) {
	return lane/4 + e/2*8, lane%4*2 + e%2
}
