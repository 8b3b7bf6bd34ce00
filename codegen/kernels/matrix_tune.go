package kernels

import (
	"fmt"
	"os"
	"strings"

	"github.com/kiln-project/kiln/codegen/target"
)

// How products of few rows are cut up on NVIDIA's GPUs, found by measuring on an H200:
// docs/measurements/h200-linear.md.

const (
	processorShared = 227 << 10 // bytes of shared memory that groups of a processor have
	groupShared     = 1 << 10   // what each of them has besides its own
	keptWords       = 32        // registers of a lane for x
)

var (
	processors = 132 // of an H100 or H200
	maxStrip   = 8   // tiles of a group: with more, groups that wait for others to end are long
)

// tune chooses the tile and the stream of a product of m rows, of which there are groups
// side by side; each of its groups reads so many rows of x.
func (p *matrixProduct) tune(m, groups, read int) {
	u := unitOf(p.t)
	p.rows, p.cols, p.strip = ceilDiv(m, u.cols), 1, 1
	whole, rest := p.chunksOf()
	tiles := ceilDiv(p.n, target.MatrixTile)
	p.resident = 3
	under, widest := 48<<10, 1 // bytes that a group has under way, tiles of 16 side by side
	switch {
	case tiles*groups <= processors: // a group has its processor for itself
		p.resident, under = 1, 160<<10
	case whole == 1:
		widest = 4
	}
	if p.rows > 1 && p.resident > 2 {
		p.resident, under = 2, 64<<10
	}
	p.keeps = rest == 0 && whole*p.rowsOfX()*xVectors*4 <= keptWords
	canStage := read <= maxSkinny && p.depth%matrixChunk == 0 && p.fewBlocks(read)
	p.knobs(&under, &widest)
	if !p.keeps && p.stage == 0 && canStage {
		p.stage = read
	}
	best, was := -1.0, p.matrixStream
	chosen, chosenCols := was, 1
	for cols := widest; cols > 0; cols /= 2 {
		for strip := maxStrip; strip > 0; strip-- {
			p.cols, p.matrixStream = cols, was
			p.strip, p.ring = strip, p.ringOf(strip, cols, under)
			slots := processors * p.resident
			all := ceilDiv(ceilDiv(tiles, cols), strip) * groups
			share := float64(tiles*groups) / float64(ceilDiv(all, slots)*slots*strip*cols)
			if share > best+0.02 && p.fits() {
				best, chosen, chosenCols = share, p.matrixStream, cols
			}
		}
	}
	if best < 0 {
		panic(fmt.Sprintf("no tile: %+v", *p))
	}
	p.cols, p.matrixStream = chosenCols, chosen
}

// fits reports whether as many groups as are to run at a time have room.
func (p *matrixProduct) fits() bool {
	ring, x, sums := p.shared()
	if p.strip > 1 && (p.ring == 0 || !p.strips()) {
		return false
	}
	return ring+x+sums <= processorShared/p.resident-groupShared
}

func (p *matrixProduct) strips() bool {
	_, rest := p.chunksOf()
	return rest == 0
}

// ringOf is how many parts of w a warp has under way.
func (p *matrixProduct) ringOf(strip, cols, under int) int {
	p.cols = cols
	whole, _ := p.chunksOf()
	parts, n := whole*p.perChunk(), max(1, under/(unitOf(p.t).waves*p.placeBytes()))
	n = min(n, parts)
	step := 1
	if p.copiesX() {
		step = p.perChunk()
		n = max(n, min(parts, step))
	}
	for n > 0 && (n%step != 0 || strip > 1 && parts%n != 0) {
		n--
	}
	return n
}

func (p *matrixProduct) knobs(under, widest *int) {
	e := os.Getenv("KILN_LIN")
	if e == "" {
		return
	}
	for _, kv := range strings.Split(e, ",") {
		var n int
		name, val, _ := strings.Cut(kv, "=")
		if _, err := fmt.Sscan(val, &n); err != nil {
			panic(err)
		}
		whole, rest := p.chunksOf()
		switch name {
		case "maxstrip":
			maxStrip = n
		case "proc":
			processors = n
		case "kb":
			if p.resident > 1 {
				*under = n << 10
			}
		case "widest":
			*widest = n
		case "res":
			if p.resident > 1 {
				p.resident = n
			}
		case "keeps":
			p.keeps = rest == 0 && whole*p.rowsOfX()*xVectors*4 <= n
		}
	}
}
