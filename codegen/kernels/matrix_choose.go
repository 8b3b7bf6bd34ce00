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
	ways := p.ways(p.m)
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
	if p.gemm != nil {
		return fmt.Sprintf("gemm%dx%ds%d", p.rows, p.cols, p.gemm.stages)
	}
	return fmt.Sprintf("tile%dx%d", p.rows, p.cols)
}

// maxTile is how many tiles of the unit a warp has the sums of: each takes four
// registers of a lane.
const maxTile = 16

// ways are the product with each tile that may be worth it for m rows of x, and with that
// which shape has chosen, by size.
func (p *matrixProduct) ways(m int) []matrixProduct {
	list := []matrixProduct{*p}
	add := func(q matrixProduct) {
		if !slices.ContainsFunc(list, func(o matrixProduct) bool { return o.tileName() == q.tileName() }) {
			list = append(list, q)
		}
	}
	rows := []int{4, 8}
	if u := unitOf(p.t); m <= maxSkinny {
		rows = []int{ceilDiv(m, u.cols)}
	}
	for _, r := range rows {
		for cols := 1; cols <= 4; cols *= 2 {
			if r*cols*p.products <= maxTile && cols*target.MatrixTile <= p.n {
				q := *p
				q.rows, q.cols, q.gemm = r, cols, nil
				add(q)
			}
		}
	}
	if m > 4*target.MMACols { // fewer are less than half of the smallest of these tiles
		for i := range gemmTiles {
			if q, ok := p.withGemm(&gemmTiles[i]); ok {
				add(q)
			}
		}
	}
	slices.SortFunc(list, func(a, b matrixProduct) int {
		switch {
		case (a.gemm == nil) != (b.gemm == nil):
			if a.gemm == nil {
				return -1
			}
			return 1
		case a.rows != b.rows:
			return a.rows - b.rows
		case a.cols != b.cols:
			return a.cols - b.cols
		case a.gemm != nil:
			return a.gemm.stages - b.gemm.stages
		}
		return 0
	})
	return list
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
