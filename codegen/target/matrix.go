package target

import (
	"slices"

	"github.com/kiln-project/kiln/ir"
)

// MFMA is a matrix instruction: one wave of 64 lanes computes D = A B + C with
// A[16,K], B[K,16] and f32 C and D [16,16]. Each lane holds PerLane elements of one
// row of A, as many of one column of B, and four of a column of D.
type MFMA struct {
	Name      string // mnemonic, without v_mfma_
	Intrinsic string // LLVM's, without llvm.amdgcn.mfma. and without the types of operands
	K         int
	A, B      ir.DType
	// RunA and RunB are how many consecutive k follow each other in a lane, before the
	// other lanes' runs come in between. A lane of one run holds consecutive k only.
	RunA, RunB int
	// Scaled: both operands have an e8m0 scale for every 32 k.
	Scaled bool
}

// MatrixTile is the number of rows of A and of columns of B.
const MatrixTile = 16

// MatrixLanes is the number of lanes that an instruction spreads its operands over.
const MatrixLanes = 64

// matrix lists the instructions that kernels use, by chip, for two formats the one
// without scales first.
//
// Lane maps: those of CDNA3 as AMD's matrix instruction calculator prints them;
// those of CDNA4 with runs of 8 as code of other compilers assumes, with runs of 16
// and 32 and the scales as in AMD's article "Matrix Core Programming on AMD CDNA3
// and CDNA4 architecture". None was compared with a chip. For a product without
// scales, or with one scale for all of a row's k, only that A and B agree matters.
var matrix = map[string][]MFMA{
	"gfx942": {
		{Name: "f32_16x16x16_bf16", Intrinsic: "f32.16x16x16bf16.1k", K: 16, A: ir.BF16, B: ir.BF16, RunA: 4, RunB: 4},
		{Name: "f32_16x16x32_fp8_fp8", Intrinsic: "f32.16x16x32.fp8.fp8", K: 32, A: ir.F8E4M3FNUZ, B: ir.F8E4M3FNUZ, RunA: 8, RunB: 8},
	},
	"gfx950": {
		{Name: "f32_16x16x32_bf16", Intrinsic: "f32.16x16x32.bf16", K: 32, A: ir.BF16, B: ir.BF16, RunA: 8, RunB: 8},
		{Name: "f32_16x16x32_fp8_fp8", Intrinsic: "f32.16x16x32.fp8.fp8", K: 32, A: ir.F8E4M3, B: ir.F8E4M3, RunA: 8, RunB: 8},
		{Name: "scale_f32_16x16x128_f8f6f4", Intrinsic: "scale.f32.16x16x128.f8f6f4", K: 128, A: ir.F8E4M3, B: ir.F8E4M3, RunA: 16, RunB: 16, Scaled: true},
		{Name: "scale_f32_16x16x128_f8f6f4", Intrinsic: "scale.f32.16x16x128.f8f6f4", K: 128, A: ir.F4E2M1, B: ir.F8E4M3, RunA: 32, RunB: 16, Scaled: true},
		{Name: "scale_f32_16x16x128_f8f6f4", Intrinsic: "scale.f32.16x16x128.f8f6f4", K: 128, A: ir.F4E2M1, B: ir.F4E2M1, RunA: 32, RunB: 32, Scaled: true},
	},
}

// MFMA returns the instruction for operands of two formats, with block scales or
// without, or nil.
func (t *Target) MFMA(a, b ir.DType, scaled bool) *MFMA {
	list := matrix[t.CPU]
	i := slices.IndexFunc(list, func(m MFMA) bool { return m.A == a && m.B == b && m.Scaled == scaled })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// PerLane is the number of elements of each operand that a lane holds.
func (m *MFMA) PerLane() int { return m.K * MatrixTile / MatrixLanes }

// ElementA is the place in A[row, k] of element e of a lane.
func (m *MFMA) ElementA(lane, e int) (row, k int) {
	return lane % MatrixTile, elementK(lane, e, m.RunA)
}

// ElementB is the place in B[k, col] of element e of a lane.
func (m *MFMA) ElementB(lane, e int) (k, col int) {
	return elementK(lane, e, m.RunB), lane % MatrixTile
}

// ElementD is the place in C and D [row, col] of element e of a lane.
func (m *MFMA) ElementD(lane, e int) (row, col int) {
	return lane/MatrixTile*ResultRun + e, lane % MatrixTile
}

// ScaledK is the first of the 32 k that a lane's scale is for, in the row or column
// of the lane's elements.
func (m *MFMA) ScaledK(lane int) int { return lane / MatrixTile * ScaleBlock }

// ResultRun is the number of rows of D, consecutive ones, that a lane holds of its
// column.
const ResultRun = 4

// ScaleBlock is the number of k that share a scale.
const ScaleBlock = 32

func elementK(lane, e, run int) int {
	const groups = MatrixLanes / MatrixTile
	return run*(lane/MatrixTile) + e%run + groups*run*(e/run)
}
