package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
)

// Reads of rows by lines of 128 bytes on AMD's waves. Four lanes multiply 16 bytes each of
// a row, next to each other, and so do those of 15 other rows: a load of what the lanes
// multiply takes half of each of 16 lines. So two loads take the lines of 8 rows each, and
// the lanes exchange what others multiply. Which k a lane multiplies is as it was.

// lineReads is how the lanes of a tile read its 16 rows: by so many loads, size, that
// together bring each lane that many of its vectors.
type lineReads struct {
	size  int
	at    []kernel.V // by load: the element that the lane reads first
	first kernel.V   // which k of its row's that is
}

// reads has the loads of a tile's rows, which begin where row says. The vectors of a lane
// that are read together are step elements apart, and its own begin at own.
func (e *matrixEmitter) reads(size, step int, own kernel.V, row func(i kernel.V) kernel.V) lineReads {
	sub := e.unit.sub(e.K, e.WaveLane())
	rows := target.MatrixTile / size
	vector, of := e.UDiv(sub, e.Int(rows)), e.URem(sub, e.Int(rows))
	r := lineReads{size: size, first: e.Add(own, e.Mul(vector, e.Int(step)))}
	for i := range size {
		r.at = append(r.at, e.Add(e.Mul(row(e.Add(of, e.Int(i*rows))), e.Int(e.depth)), r.first))
	}
	return r
}

// byLines reports whether reads of rows are such.
func (p *matrixProduct) byLines() bool { return unitOf(p.t).mma == nil }

// wReads are size and step of reads of w.
func (p *matrixProduct) wReads() (size, step int) {
	if p.byLines() && p.chunksAtOnce()*perLane/p.run() > 1 {
		return 2, lanesPerRow * p.run()
	}
	return 1, 0
}

// xReads are size and step of reads of x. Where a lane's run of k is several vectors of x,
// those are next to each other.
func (p *matrixProduct) xReads() (size, step int) {
	switch n := p.xVector(); {
	case !p.byLines() || p.alike:
		return 1, 0
	case p.run() > n:
		return p.run() / n, n
	default:
		return 2, lanesPerRow * p.run()
	}
}

// xVector is how many k of a row of x a lane loads at once.
func (p *matrixProduct) xVector() int {
	if p.codes {
		return p.run()
	}
	return matrixRun
}

// own are the vectors that a lane multiplies, of those it read.
func (r lineReads) own(k *kernel.K, loads []kernel.Vec) []kernel.Vec {
	if r.size == 1 {
		return loads
	}
	var out []kernel.Vec
	for i := 0; i < len(loads); i += r.size {
		out = append(out, k.TransposeLanes(loads[i:i+r.size])...)
	}
	return out
}

// alongRows is which of as many slots as waves, and which lane's place in it, a lane
// finishes, so that the lanes of a wave finish runs of rows as long as they can be: a wave
// has a part of the rows, of all columns.
func (e *matrixEmitter) alongRows(wave, lane kernel.V) (slot, of kernel.V) {
	runs := e.Int(e.cols * lanesPerRow) // of a row, of target.ResultRun columns
	row := e.Add(e.Mul(wave, e.UDiv(e.Int(target.MatrixLanes), runs)), e.UDiv(lane, runs))
	run := e.URem(lane, runs)
	slot = e.Add(e.Mul(e.UDiv(row, e.Int(target.MatrixTile)), e.Int(e.cols)), e.UDiv(run, e.Int(lanesPerRow)))
	of = e.Add(e.Mul(e.URem(run, e.Int(lanesPerRow)), e.Int(target.MatrixTile)), e.URem(row, e.Int(target.MatrixTile)))
	return slot, of
}
