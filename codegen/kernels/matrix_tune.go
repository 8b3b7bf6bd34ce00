package kernels

import (
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// How products of few rows are cut up on NVIDIA's GPUs. What was tried on an H200 is in
// docs/measurements/h200-linear.md. No choice here changes a bit of a result.

const (
	processorShared = 227 << 10 // bytes of shared memory that the groups of a processor have
	groupShared     = 1 << 10   // what each of them has of it besides its own
	keptWords       = 32        // registers of a lane for x
	leastUnderWay   = 64 << 10  // bytes of w that a processor should have under way
	longestStrip    = 8         // tiles of a group: with more, groups that start late end late
	longestRing     = 8
)

// h200Processors is how many an H100 or H200 has.
const h200Processors = 132

// processors is how many there are; tests have fewer.
var processors = h200Processors

// tune chooses the tile and the stream of a product of m rows, of which there are groups
// side by side; each of its groups reads so many rows of x.
func (p *matrixProduct) tune(m, groups, read int) {
	whole, rest := p.steps()
	tiles := ceilDiv(p.n, target.MatrixTile)
	p.rows, p.cols, p.strip, p.ring, p.split = ceilDiv(m, unitOf(p.t).cols), 1, 1, 2, p.splitOf()
	p.keeps = rest == 0 && whole*p.rowsOfX()*xVectors*4 <= keptWords
	if !p.keeps && p.stage == 0 && p.canStage(read) {
		p.stage = read
	}
	most, widest := max(1, min(3, ceilDiv(tiles*groups, processors))), 1
	switch {
	case p.copiesX(): // wide tiles, for x is more than w
		most, widest = 1, max(1, 4/p.rows/p.products)
	case p.rows > 1 || p.w == ir.BF16 || p.apart: // x of the products leaves a third group two places
		most = min(most, 2)
	}
	if whole == 1 && !p.copiesX() {
		widest = 4 / p.rows
	}
	longest := longestStrip
	if p.few > 1 && tiles*groups > longest*most*processors { // pairs that share tiles leave fewer groups than are counted here
		longest /= 2
	}
	// Groups should be as many as run at a time, or several times that.
	best, found := -1.0, p.matrixStream
	cols := 1
	found.resident = 1
	try := p.matrixStream
	for try.resident = most; try.resident > 0; try.resident-- {
		for c := widest; c > 0; c /= 2 {
			for try.strip = longest; try.strip > 0; try.strip-- {
				p.matrixStream, p.cols = try, c
				if p.ring = p.ringOf(); p.ring == 0 {
					continue
				}
				slots := processors * p.resident
				all := ceilDiv(ceilDiv(tiles, c), p.strip) * groups
				share := float64(tiles*groups) / float64(ceilDiv(all, slots)*slots*p.strip*c)
				if p.ring*p.placeBytes()*p.resident < leastUnderWay {
					share /= 2
				}
				if p.resident < most {
					share -= 0.05
				}
				if share > best+0.02 {
					best, found, cols = share, p.matrixStream, c
				}
			}
		}
	}
	p.matrixStream, p.cols = found, cols
}

// splitOf is how many places the parts of a step are spread over: where weights have rows
// of x of their own they are many, and two are at a time in one.
func (p *matrixProduct) splitOf() int {
	if p.apart && p.products%2 == 0 {
		return p.products / 2
	}
	return 1
}

// canStage reports whether a group that reads so many rows of x has them in shared memory.
func (p *matrixProduct) canStage(read int) bool {
	return read <= maxSkinny && p.depth%matrixChunk == 0 && (p.apart || p.fewBlocks(read))
}

// ringOf is how many places a group has room for, or 0 if that is not two.
func (p *matrixProduct) ringOf() int {
	whole, rest := p.steps()
	if p.strip > 1 && rest > 0 { // the chunks left are not copied ahead
		return 0
	}
	for p.ring = max(2, min(longestRing, whole*p.strip*p.split)); p.ring >= 2; p.ring-- {
		if ring, x, sums := p.shared(); ring+x+sums <= processorShared/p.resident-groupShared {
			return p.ring
		}
	}
	return 0
}
