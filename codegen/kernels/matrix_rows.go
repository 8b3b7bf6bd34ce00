package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Rows of keys and values as matrix instructions take them: bf16 numbers, two to a
// word. Packed rows are decoded on the way from memory, so that the instructions see
// the bits that they see of rows of bf16.

// codeRun is how many elements of a row the four lanes that share it take at a time:
// matrixRun each.
const codeRun = lanesPerRow * matrixRun

// matchMatrixRows says why rows cannot be read so, or "". Packed ones are of codes of
// the given format.
func matchMatrixRows(f ir.RowFormat, to ir.DType) string {
	switch size := scaleBytes(f); {
	case !f.Packed():
		return ""
	case f.To != to:
		return fmt.Sprintf("rows of %s, want %s", f.To, to)
	case f.Dims%codeRun != 0 || f.Block%codeRun != 0:
		return fmt.Sprintf("%d codes in blocks of %d, want multiples of %d", f.Dims, f.Block, codeRun)
	case size == 0 || f.Scales()%size != 0 || f.Scales()+size > f.Bytes():
		return fmt.Sprintf("%d scales at byte %d: no vector has them all", f.Dims/f.Block, f.Scales())
	}
	return ""
}

// scaleBytes is the length of the vector that has all scales of a row, 0 if none does.
func scaleBytes(f ir.RowFormat) int {
	for _, n := range []int{4, 8, 16} {
		if f.Packed() && f.Dims/f.Block <= n {
			return n
		}
	}
	return 0
}

// matrixRow is a row in memory, which each lane may have another one of.
type matrixRow struct {
	k      *kernel.K
	format ir.RowFormat
	b      *kernel.Buf // of bytes, if it is packed
	at     kernel.V    // its first element
	there  *kernel.V   // if not nil: lanes without it read nothing of it
}

func matrixRowAt(k *kernel.K, f ir.RowFormat, b *kernel.Buf) matrixRow {
	return matrixRow{k: k, format: f, b: b, at: k.Int(0)}
}

// load reads n elements from element i on.
func (r matrixRow) load(i kernel.V, n int) kernel.Vec {
	i = r.k.Add(r.at, i)
	if r.there != nil {
		return r.b.LoadVecIf(*r.there, i, n)
	}
	return r.b.LoadVec(i, n)
}

// runElement is the first element of run number i that the lanes of a group, the
// quarter of a wave, have of each row.
func runElement(k *kernel.K, group kernel.V, i int) kernel.V {
	return k.Add(k.Mul(group, k.Int(matrixRun)), k.Int(i*codeRun))
}

// scales are all scales of the row, if it is packed.
func (r matrixRow) scales() kernel.Vec {
	if !r.format.Packed() {
		return kernel.Vec{}
	}
	return r.load(r.k.Int(r.format.Scales()), scaleBytes(r.format))
}

// words are those of run number i of the lane's, as they lie in memory.
func (r matrixRow) words(group kernel.V, i int) kernel.Vec {
	return r.elements(runElement(r.k, group, i), i < r.codeRuns())
}

// codeRuns is how many runs of the lanes' are of codes.
func (r matrixRow) codeRuns() int { return r.format.Dims / codeRun }

// elements are matrixRun elements of the row as they lie in memory, codes or not.
func (r matrixRow) elements(at kernel.V, codes bool) kernel.Vec {
	k, f := r.k, r.format
	if !codes {
		if f.Packed() {
			at = k.Add(k.Mul(k.Sub(at, k.Int(f.Dims)), k.Int(2)), k.Int(f.Rest()))
		}
		return r.load(at, int(ir.BF16.Bytes(matrixRun)/f.Elements().Bytes(1)))
	}
	bytes := int(f.To.Bytes(matrixRun))
	return r.load(k.UDiv(at, k.Int(matrixRun/bytes)), bytes)
}

// scaleOf is the scale of run number i, which is of codes, as a byte.
func (r matrixRow) scaleOf(i int, scales kernel.Vec) kernel.V {
	block := i * codeRun / r.format.Block
	return r.k.And(r.k.LShr(r.k.At(scales, block/4), r.k.Int32(8*(block%4))), r.k.Int32(0xFF))
}

// tileRuns are the lane's runs of row number sub of 16 that row tells, on AMD's waves.
// They are read by as long parts of rows as matrixEmitter.reads has them, of 8 rows at a
// time, or of codes, of which a run is shorter, of 4.
func tileRuns(k *kernel.K, sub, group kernel.V, row func(i kernel.V) matrixRow) []kernel.Vec {
	own := row(sub)
	total, codes, scales := own.format.D/codeRun, own.codeRuns(), own.scales()
	rows := map[int][]matrixRow{}
	var out []kernel.Vec
	for i := 0; i < total; {
		size, end := 2, total
		if i < codes {
			size, end = 4, codes
		}
		for i+size > end {
			size /= 2
		}
		of := target.MatrixTile / size
		if rows[size] == nil {
			for j := range size {
				rows[size] = append(rows[size], row(k.Add(k.URem(sub, k.Int(of)), k.Int(j*of))))
			}
		}
		at := k.Add(runElement(k, group, i), k.Mul(k.UDiv(sub, k.Int(of)), k.Int(codeRun)))
		var loads []kernel.Vec
		for _, r := range rows[size] {
			loads = append(loads, r.elements(at, i < codes))
		}
		if size > 1 {
			loads = k.TransposeLanes(loads)
		}
		for _, x := range loads {
			if i < codes {
				x = own.decode(x, own.scaleOf(i, scales))
			}
			out = append(out, x)
			i++
		}
	}
	return out
}

func (r matrixRow) decode(codes kernel.Vec, scale kernel.V) kernel.Vec {
	s := r.k.DecodeE8M0(scale)
	if r.format.To == ir.F4E2M1 {
		return r.k.E2M1ToBF16(codes, s)
	}
	return r.k.E4M3ToBF16(codes, s)
}

// part is n elements of the row, 2, 4 or 8, from element at, a multiple of n, on.
// Codes of one byte are half as long as numbers: a lane reads what aligned bytes they
// lie in, as many as of numbers, so that one load does for either.
func (r matrixRow) part(at kernel.V, n int) kernel.Vec {
	k, f := r.k, r.format
	if !f.Packed() {
		return r.load(at, n)
	}
	coded := k.Cmp(kernel.LT, at, k.Int(f.Dims))
	from := k.Add(k.Mul(k.Sub(at, k.Int(f.Dims)), k.Int(2)), k.Int(f.Rest()))
	words := r.load(k.Select(coded, k.And(at, k.Int(-2*n)), from), 2*n)
	block := k.UDiv(k.Select(coded, at, k.Int(0)), k.Int(f.Block))
	scale := r.b.Load(k.Add(r.at, k.Add(block, k.Int(f.Scales()))))
	upper := k.Cmp(kernel.NE, k.And(at, k.Int(n)), k.Int(0))
	var codes []kernel.V
	if half := words.Len() / 2; half > 0 {
		for i := range half {
			codes = append(codes, k.Select(upper, k.At(words, half+i), k.At(words, i)))
		}
	} else {
		codes = append(codes, k.LShr(k.At(words, 0), k.Select(upper, k.Int32(16), k.Int32(0))))
	}
	numbers := r.decode(k.MakeVec(codes...), scale)
	return k.MapVec(func(x ...kernel.V) kernel.V { return k.Select(coded, x[0], x[1]) }, k.Part(numbers, 0, words.Len()), words)
}
