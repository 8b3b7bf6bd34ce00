package kernels

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/codegen/target"
)

// tile is the size of a product's tile, as matrixProduct has it.
type tile struct{ rows, cols int }

func (t tile) String() string { return fmt.Sprintf("tile%dx%d", t.rows, t.cols) }

// choose lets the target's table have a say in the tile that shape has chosen. On AMD's
// chips shape alone decides: there nothing was measured.
func (p *matrixLaunch) choose(l Lowering) {
	if unitOf(p.t).mma == nil {
		return
	}
	tiles := p.tilesFor(p.m)
	names := make([]string, len(tiles))
	for i, t := range tiles {
		names[i] = t.String()
	}
	taken := l.Choose(p.key(), p.m, names, tile{p.rows, p.cols}.String())
	if i := slices.Index(names, taken); i >= 0 {
		p.rows, p.cols = tiles[i].rows, tiles[i].cols
	}
}

// key is what a tile's time depends on, but for the rows.
func (p *matrixLaunch) key() string {
	key := fmt.Sprintf("n%d k%d %s", p.n, p.depth, p.w)
	if p.products > 1 {
		key += fmt.Sprintf(" products%d", p.products)
	}
	if p.groups > 1 {
		key += fmt.Sprintf(" groups%d", p.groups)
	}
	return key
}

// tilesFor are those that may be worth it for m rows of x, smallest first, and that which
// shape has chosen.
func (p *matrixProduct) tilesFor(m int) []tile {
	rows := []int{4, 8}
	if u := unitOf(p.t); m <= maxSkinny {
		rows = []int{ceilDiv(m, u.cols)}
	}
	list := []tile{{p.rows, p.cols}}
	for _, r := range rows {
		for cols := 1; cols <= 4; cols *= 2 {
			t := tile{r, cols}
			fits := r*cols*p.products <= maxTile && cols*target.MatrixTile <= p.n
			if fits && !slices.Contains(list, t) {
				list = append(list, t)
			}
		}
	}
	slices.SortFunc(list, func(a, b tile) int {
		if a.rows != b.rows {
			return a.rows - b.rows
		}
		return a.cols - b.cols
	})
	return list
}

// maxTile is how many tiles of the unit a warp has the sums of: each takes four
// registers of a lane.
const maxTile = 16
