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

const ringWords = 64 // registers of a lane for w under way, if two groups are on a processor

var maxStrip = 8 // tiles of a group: with more, groups that wait for others to end are long

// processors is how many an H100 or H200 has.
var processors = 132

// tune chooses the tile and the stream of a product of m rows, of which there are groups
// side by side.
func (p *matrixProduct) tune(m, groups int) {
	u := unitOf(p.t)
	p.rows, p.cols, p.strip = ceilDiv(m, u.cols), 1, 1
	whole := ceilDiv(p.depth, matrixChunk) / u.waves
	tiles := ceilDiv(p.n, target.MatrixTile)
	words := ringWords
	p.resident, p.ahead = 2, min(whole, 2)
	widest := 1
	switch {
	case tiles*groups <= processors: // a group has its processor for itself
		p.resident, p.ahead, words = 1, min(whole, 4), 2*ringWords
	case whole == 1: // x stays in registers
		widest = 4 / p.rows
	}
	if p.apart || p.stage > 0 && p.ahead < whole {
		p.ahead = 0
	}
	p.knobs(&words, &widest)
	best := 0.0
	for cols := widest; cols > 0; cols /= 2 {
		for strip := maxStrip; strip > 0; strip-- {
			all := ceilDiv(ceilDiv(tiles, cols), strip) * groups
			slots := processors * p.resident
			share := float64(tiles*groups) / float64(ceilDiv(all, slots)*slots*strip*cols)
			if share > best+0.02 && p.strips(strip, cols, words) {
				best, p.strip, p.cols = share, strip, cols
			}
		}
	}
	p.matrixStream.ring = p.ringOf(p.strip, p.cols, words)
	p.knobs(nil, nil)
}

func (p *matrixProduct) knobs(words, widest *int) {
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
		whole := ceilDiv(p.depth, matrixChunk) / unitOf(p.t).waves
		switch name {
		case "maxstrip":
			maxStrip = n
		case "proc":
			processors = n
		case "words":
			if words != nil {
				*words = n
			}
		case "widest":
			if widest != nil {
				*widest = n
			}
		case "ahead":
			if !p.apart {
				p.ahead = min(n, whole)
			}
		case "res":
			p.resident = n
		case "strip":
			if words == nil && p.strip > 1 {
				p.strip = n
			}
		}
	}
}

// ringOf is how many parts of w a lane has under way in so many registers: where a group
// has several tiles, each place of the ring must have the same parts of all of them.
func (p *matrixProduct) ringOf(strip, cols, words int) int {
	u := unitOf(p.t)
	parts := ceilDiv(p.depth, matrixChunk) / u.waves * p.products * cols
	n := max(1, min(parts, words*p.run()/(u.rows*perLane*4)))
	for strip > 1 && parts%n != 0 {
		n--
	}
	return n
}

// strips reports whether a group can have several tiles.
func (p *matrixProduct) strips(strip, cols, words int) bool {
	if strip == 1 {
		return true
	}
	u := unitOf(p.t)
	chunks := ceilDiv(p.depth, matrixChunk)
	if chunks%u.waves != 0 || p.ahead > 0 && chunks/u.waves%p.ahead != 0 {
		return false
	}
	return 2*p.ringOf(strip, cols, words) > p.ringOf(1, cols, words)
}

var _ = ir.BF16
