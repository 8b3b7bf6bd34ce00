package kernels

import (
	"fmt"
	"os"
	"strings"

	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
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
	whole, rest := p.steps()
	tiles := ceilDiv(p.n, target.MatrixTile)
	p.resident = max(1, min(3, ceilDiv(tiles*groups, processors)))
	if p.rows > 1 || p.w == ir.BF16 {
		p.resident = min(p.resident, 2)
	}
	widest := 1 // tiles of 16 side by side
	if whole == 1 {
		widest = 4 / p.rows
	}
	under := 0 // bytes that a group has under way, if not what there is room for
	p.keeps = rest == 0 && whole*p.rowsOfX()*xVectors*4 <= keptWords
	canStage := read <= maxSkinny && p.depth%matrixChunk == 0 && (p.apart || p.fewBlocks(read))
	p.split = 1
	if p.apart {
		p.split = max(1, p.products/2)
		for p.products%p.split != 0 {
			p.split--
		}
	}
	p.knobs(&under, &widest)
	if !p.keeps && p.stage == 0 && canStage {
		p.stage = read
	}
	if p.copiesX() {
		p.resident, widest = 1, max(1, 4/p.rows/p.products)
	}
	best, was := -1.0, p.matrixStream
	chosen, chosenCols := was, 1
	for resident := was.resident; resident > 0; resident-- {
		for cols := widest; cols > 0; cols /= 2 {
			for strip := maxStrip; strip > 0; strip-- {
				p.cols, p.matrixStream = cols, was
				p.strip, p.resident = strip, resident
				if p.ring = p.longestRing(under); p.ring < 0 {
					continue
				}
				slots := processors * p.resident
				all := ceilDiv(ceilDiv(tiles, cols), strip) * groups
				share := float64(tiles*groups) / float64(ceilDiv(all, slots)*slots*strip*cols)
				if ring, _, _ := p.shared(); ring*resident < 64<<10 {
					share /= 2
				}
				if resident < was.resident {
					share -= 0.05
				}
				if share > best+0.02 {
					best, chosen, chosenCols = share, p.matrixStream, cols
				}
			}
		}
	}
	if best < 0 {
		panic(fmt.Sprintf("no tile: %+v", *p))
	}
	p.cols, p.matrixStream = chosenCols, chosen
	if os.Getenv("KILN_LIN_SAY") != "" {
		ring, x, sums := p.shared()
		fmt.Printf("n%d k%d %v m%d groups%d read%d: tile%dx%d %+v ring %d KB x %d KB sums %d KB\n", p.n, p.depth, p.w, m, groups, read, p.rows, p.cols, p.matrixStream, ring>>10, x>>10, sums>>10)
	}
}

// longestRing is how many places a group may have, of so many bytes, if that is not 0,
// or -1 if there is no room.
func (p *matrixProduct) longestRing(under int) int {
	whole, rest := p.steps()
	if p.strip > 1 && rest > 0 { // the chunks left are not copied ahead
		return -1
	}
	most := max(2, min(8, whole*p.strip*p.split))
	for p.ring = most; p.ring >= 2; p.ring-- {
		ring, x, sums := p.shared()
		if (under == 0 || ring <= under || p.ring == 2) && ring+x+sums <= processorShared/p.resident-groupShared {
			return p.ring
		}
	}
	return -1
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
		whole, rest := p.steps()
		switch name {
		case "maxstrip":
			maxStrip = n
		case "proc":
			processors = n
		case "kb":
			*under = n << 10
		case "widest":
			*widest = n
		case "split":
			if p.apart {
				p.split = n
			}
		case "res":
			if p.resident > 1 {
				p.resident = n
			}
		case "keeps":
			p.keeps = rest == 0 && whole*p.rowsOfX()*xVectors*4 <= n
		}
	}
}
