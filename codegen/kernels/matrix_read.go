package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// What the lanes of a product of few rows read of their step.

// partAt is what the lane has of part j in the place at at, whose first is of that
// number, by row, and its scales as bytes.
func (s *streamer) partAt(at kernel.V, first, j, step int, n0 kernel.V) (w [][]kernel.Vec, scales []kernel.V) {
	units := s.stepBytes() / unit
	n := perLane / s.run() // vectors
	for r := range s.unit.rows {
		row := s.Add(s.sub, s.Int(r*target.MatrixTile/s.unit.rows))
		var vectors []kernel.Vec
		for v := range n {
			i := s.Add(s.Mul(s.wave, s.Int(units/s.unit.waves)), s.Add(s.group, s.Int(v*lanesPerRow)))
			in := s.Add(s.Mul(row, s.Int(units)), wUnit(s.K, i, row))
			vectors = append(vectors, s.pool.LoadVec(s.Add(s.Add(at, s.Int(j*s.partBytes())), s.Mul(in, s.Int(unit))), unit))
		}
		w = append(w, vectors)
		switch {
		case s.copiesScales():
			in := s.Add(s.Mul(row, s.Int(s.scaleBytes())), s.Add(s.Mul(s.wave, s.Int(matrixChunk/target.ScaleBlock)), s.group))
			scales = append(scales, s.pool.Load(s.Add(s.Add(at, s.Int(s.partsAtOnce()*s.partBytes()+j*target.MatrixTile*s.scaleBytes())), in)))
		case s.w == ir.F4E2M1:
			scales = append(scales, s.scaleOf4(first+j, s.chunk(step), n0, r))
		}
	}
	if len(s.scales) > 0 {
		scales = append(scales, s.scales[step*s.parts()+first+j].Get())
	}
	return w, scales
}

// scaleOf4 is the scale, as a byte, of what the lane has of one of its rows of a part of
// e2m1 in a chunk.
func (s *streamer) scaleOf4(part int, chunk, n0 kernel.V, r int) kernel.V {
	product, _ := s.part(part)
	row := s.rowOfW(part, n0, s.Add(s.sub, s.Int(r*target.MatrixTile/s.unit.rows)))
	at := s.Add(s.Mul(chunk, s.Int(matrixChunk/target.ScaleBlock)), s.group)
	return s.ws[product].scales.Bytes().Load(s.Add(s.Mul(row, s.Int(s.scaleCols())), at))
}

// partInMemory is partAt of a part of the chunks left, which are not copied.
func (s *streamer) partInMemory(part int, n0 kernel.V) (w [][]kernel.Vec, scales []kernel.V) {
	product, _ := s.part(part)
	chunk := s.chunk(s.whole)
	for r := range s.unit.rows {
		row := s.rowOfW(part, n0, s.Add(s.sub, s.Int(r*target.MatrixTile/s.unit.rows)))
		var vectors []kernel.Vec
		for v := range perLane / s.run() {
			first := s.Add(s.Mul(chunk, s.Int(matrixChunk)), s.Mul(s.Add(s.group, s.Int(v*lanesPerRow)), s.Int(s.run())))
			at := s.Add(s.Mul(row, s.Int(s.depth)), first)
			if s.depth%matrixChunk == 0 {
				vectors = append(vectors, s.ws[product].rows.LoadVec(at, s.run()))
			} else {
				vectors = append(vectors, s.ws[product].rows.LoadVecIf(s.Cmp(kernel.LT, first, s.Int(s.depth)), at, s.run()))
			}
		}
		w = append(w, vectors)
		if s.w == ir.F4E2M1 {
			scales = append(scales, s.scaleOf4(part, chunk, n0, r))
		}
	}
	if s.w != ir.BF16 && s.w != ir.F4E2M1 {
		scales = append(scales, s.scaleOf8(part, chunk, n0))
	}
	return w, scales
}

// xOf is x of a step, whose place is at at, by row; where products have rows of their
// own, of one product.
func (s *streamer) xOf(at kernel.V, step, product int) [][]kernel.Vec {
	out := make([][]kernel.Vec, s.rowsOfX())
	for r := range out {
		if s.apart && r/s.rows != product {
			continue
		}
		for v := range xVectors {
			if s.keeps && step < s.whole {
				out[r] = append(out[r], s.kept[step*s.rowsOfX()+r][v].Get())
			} else {
				out[r] = append(out[r], s.xVector(at, step, r, v))
			}
		}
	}
	return out
}

// keepX has registers take row r of x in a step.
func (s *streamer) keepX(row []*kernel.VecVar, step, r int) {
	for v, x := range row {
		x.Set(s.xVector(s.Int(0), step, r, v))
	}
}

// xVector is vector v that the lane has of row r of x in a step: of the k that it has of
// w there.
func (s *streamer) xVector(place kernel.V, step, r, v int) kernel.Vec {
	i, run := v*matrixRun, s.run()
	k := s.Add(s.Mul(s.group, s.Int(run)), s.Int(i/run*run*lanesPerRow+i%run)) // in the chunk
	first := s.Add(s.Mul(s.chunk(step), s.Int(matrixChunk)), k)
	at := s.Add(s.Mul(s.x.at[r], s.Int(s.depth)), first)
	var x kernel.Vec
	switch {
	case s.stage > 0:
		at := s.Add(s.Mul(s.chunk(step), s.Int(s.stage)), s.x.staged[r])
		at = s.Add(s.Mul(at, s.Int(s.stageStride())), s.Mul(s.group, s.Int(matrixRun)))
		return s.staged.LoadVec(s.Add(at, s.Int(v*lanesPerRow*matrixRun)), matrixRun)
	case s.copiesX() && step < s.whole:
		row := s.Add(s.sub, s.Int(r*s.unit.cols))
		i := s.Add(s.Mul(s.wave, s.Int(matrixChunk/matrixRun)), s.UDiv(k, s.Int(matrixRun)))
		in := s.Add(s.Mul(row, s.Int(s.xBytes()/unit)), s.xUnit(i, row))
		x = s.pool.LoadVec(s.Add(s.Add(place, s.Int(s.placeBytes()-s.rowsOfX()*s.unit.cols*s.xBytes())), s.Mul(in, s.Int(unit))), unit)
	case s.depth%matrixChunk == 0:
		x = s.x.x.LoadVec(at, matrixRun)
	default:
		x = s.x.x.LoadVecIf(s.Cmp(kernel.LT, first, s.Int(s.depth)), at, matrixRun)
	}
	if s.apartByHalves() {
		x = s.BF16Apart(x)
	}
	return x
}
