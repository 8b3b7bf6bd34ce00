package kernels

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// choose lets the target's table have a say in the tile that shape has chosen. On AMD's
// chips shape alone decides: there nothing was measured.
func (p *matrixLaunch) choose(l Lowering) {
	if unitOf(p.t).mma == nil {
		return
	}
	ways := p.ways(p.m, p.groups)
	names := make([]string, len(ways))
	for i := range ways {
		names[i] = ways[i].tileName()
	}
	taken := l.Choose(p.key(), p.m, names, p.tileName())
	if i := slices.Index(names, taken); i >= 0 {
		p.matrixProduct = ways[i]
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

// tileName names the tile among those of ways.
func (p *matrixProduct) tileName() string {
	switch {
	case p.gemm != nil && p.gemm.together:
		return fmt.Sprintf("group%dx%d-stages%d", p.rows, p.cols, p.gemm.stages)
	case p.gemm != nil:
		return fmt.Sprintf("gemm%dx%d-stages%d", p.rows, p.cols, p.gemm.stages)
	case p.streams():
		return fmt.Sprintf("tile%dx%d-strip%d-resident%d", p.rows, p.cols, p.strip, p.resident)
	}
	return fmt.Sprintf("tile%dx%d", p.rows, p.cols)
}

// maxTile is how many tiles of the unit a warp has the sums of: each takes four
// registers of a lane.
const maxTile = 16

// ways are the product with each tile that may be worth it for m rows of x, of as many
// products side by side as groups, that which shape has chosen among them.
func (p *matrixProduct) ways(m, groups int) []matrixProduct {
	if p.streams() {
		return p.streamWays(groups)
	}
	list := []matrixProduct{*p}
	for _, rows := range []int{4, 8} {
		for cols := 1; cols <= 4; cols *= 2 {
			if rows*cols*p.products <= maxTile && cols*target.MatrixTile <= p.n {
				q := *p
				q.rows, q.cols, q.gemm = rows, cols, nil
				list = append(list, q)
			}
		}
	}
	if m > 4*target.MMACols { // fewer are less than half of the smallest of these tiles
		for i := range gemmTiles {
			if q, ok := p.withGemm(&gemmTiles[i]); ok {
				list = append(list, q)
			}
		}
	}
	return distinct(list)
}

// streamWays are the ways to cut up a product of few rows: how many groups run on a
// processor, and how many tiles each has.
func (p *matrixProduct) streamWays(groups int) []matrixProduct {
	list := []matrixProduct{*p}
	most := 3
	if p.copiesX() { // what is copied leaves no room for another group
		most = 1
	}
	for resident := 1; resident <= most; resident++ {
		for strip := 1; strip <= longestStrip; strip *= 2 {
			q := *p
			q.resident, q.strip = resident, strip
			if q.ring = q.ringOf(); q.ring > 0 && (strip == 1 || q.colTiles()*groups >= processors/2) {
				list = append(list, q)
			}
		}
	}
	return distinct(list)
}

// distinct leaves out what has a name that was there before.
func distinct(list []matrixProduct) []matrixProduct {
	var out []matrixProduct
	seen := map[string]bool{}
	for _, q := range list {
		if name := q.tileName(); !seen[name] {
			seen[name], out = true, append(out, q)
		}
	}
	return out
}

// withGemm is the product with a tile of many rows, unless that does not take it.
func (p *matrixProduct) withGemm(g *gemmTile) (q matrixProduct, ok bool) {
	if p.depth%matrixChunk != 0 || p.w == ir.F4E2M1 {
		return q, false
	}
	q = *p
	q.gemm = g
	w, x := g.rowsOf()
	q.rows, q.cols = x/target.MMACols, w/target.MatrixTile/p.products
	return q, g.timeOf(p.w) != (gemmTime{}) && !q.newGemm(nil).refuses()
}
