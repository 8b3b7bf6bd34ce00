package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Products of many rows on NVIDIA's warps. A group's operands come to shared memory by
// copies that are some stages ahead; its warps share the tile, so that each operand is
// read from memory once for the group, and have the sums of their parts of it.
//
// The bits are those of few rows, where the warps share K (matrix_tile.go): pieces of
// matrixChunk are taken in the order that wave 0 has them, then wave 1, and so on; a
// wave's sum begins at zero, and the sums are added in wave order. Within a piece lanes
// have the k that they have there, too, 16 bytes of a row each, which plain loads from
// shared memory give them.

// gemmTile says how a group multiplies its tile. No result depends on it.
type gemmTile struct {
	across [2]int // warps along rows of w and of x
	units  [2]int // of a warp: of 16 rows of w, and of the unit's columns, rows of x
	stages int    // of shared memory that the copies go round in
	deep   int    // vectors of 16 bytes of each lane of a row of w in a stage
	totals bool   // the sums of waves are added up in shared memory, not in registers
	late   bool   // the next stage is waited for when this one was read, not before
	// Four warps multiply together, each 16 rows of w with all rows of x.
	together bool
	twoWaves bool // K is gone through by two waves at a time (mma_gemm_waves.go)
	resident int  // groups that run on a processor at a time, if not one
	// What a tile takes, by format of w; with none it is not for that format.
	bf16, fp8 gemmTime
}

// gemmTime is microseconds for a tile and K of 4096 on an H200
// (docs/measurements/h200-gemm.md), where the last tiles leave processors idle and where
// all have one.
type gemmTime struct{ last, all float64 }

// gemmTiles are the tiles, from large to small.
var gemmTiles = []gemmTile{
	{across: [2]int{2, 4}, units: [2]int{4, 8}, stages: 4, deep: 1, totals: true, bf16: gemmTime{93, 96}},
	{across: [2]int{4, 2}, units: [2]int{2, 8}, stages: 3, deep: 2, late: true, bf16: gemmTime{53, 53}},
	{across: [2]int{4, 2}, units: [2]int{2, 8}, stages: 3, deep: 2, totals: true, late: true, fp8: gemmTime{70, 70}},
	{across: [2]int{8, 1}, units: [2]int{1, 16}, stages: 6, deep: 2, together: true, bf16: gemmTime{31, 32.5}},
	{across: [2]int{8, 1}, units: [2]int{1, 16}, stages: 6, deep: 1, together: true, fp8: gemmTime{41, 39}},
}

// matrixTileTime is what matrixTile's tiles of 64 rows of x and 32 of w take, by whether w
// is bf16; those of 16 rows of w are taken to need half of it.
var matrixTileTime = map[bool]gemmTime{true: {16, 14}, false: {12, 13}}

// orderTime is microseconds that orderX takes, and those for a row and K of 4096; x that is
// rounded is in order then.
var orderTime = struct{ launch, row float64 }{2, 15.0 / 4096}

// gemmProcessors is how many an H200 has. A group has one for itself.
const gemmProcessors = h200Processors

// of is the time for so many tiles.
func (t gemmTime) of(tiles int) float64 {
	us := t.all * float64(tiles/gemmProcessors)
	if tiles%gemmProcessors > 0 {
		us += t.last
	}
	return us
}

// timeOf is the time for a format of w; zero if the tile is not for it.
func (g *gemmTile) timeOf(w ir.DType) gemmTime {
	if w == ir.BF16 {
		return g.bf16
	}
	return g.fp8
}

// shapeMany chooses the tile for m rows of x that takes least, if one of these takes less
// than the tile that p has.
func (p *matrixProduct) shapeMany(m, groups int) {
	tiles := func(p *matrixProduct) int { return ceilDiv(m, p.tileRows()) * p.colTiles() * groups }
	least := matrixTileTime[p.w == ir.BF16].of(tiles(p)) * float64(p.cols*p.products) / 2
	plain := *p
	for i := range gemmTiles {
		q, ok := plain.withGemm(&gemmTiles[i])
		if !ok {
			continue
		}
		us := q.gemm.timeOf(p.w).of(tiles(&q))
		if q.gemm.together && p.w == ir.BF16 {
			us += orderTime.launch + orderTime.row*float64(m*groups)
		}
		if us < least {
			*p, least = q, us
		}
	}
}

func (g *gemmTile) spec() string {
	return fmt.Sprintf(" gemm%v%v stages%d deep%d totals%v late%v together%v twoWaves%v resident%d", g.across, g.units, g.stages, g.deep, g.totals, g.late, g.together, g.twoWaves, g.resident)
}

// rowsOf are the rows of w, of all products, and of x of the group's tile.
func (g *gemmTile) rowsOf() (w, x int) {
	return g.across[0] * g.units[0] * target.MatrixTile, g.across[1] * g.units[1] * target.MMACols
}

const (
	vectorBytes = 16
	gemmAhead   = 2         // units of x that a warp has read before it multiplies them
	gemmGap     = 4         // f32 behind a row of sums, so that lanes use different banks
	gemmShared  = 227 << 10 // shared memory that a group can have
)

// gemm is the state of multiplyMany.
type gemm struct {
	*matrixProduct
	*kernel.K
	*gemmTile
	unit *matrixUnit
	x    matrixRows
	ws   []matrixWeight
	pool *kernel.Buf

	rowsW, rowsX      int // of the tile
	vectors           int // of a row of x for one of w
	wRow, xRow, stage int // bytes: of a row in a stage, and of that
	per               int // stages of a piece
	chunks, steps     int // pieces, and stages of all of them

	// Where this lane copies from, by vector, and where to in a stage.
	fromW, fromX []kernel.V
	toW, toX     kernel.V
	// Where this lane's operands are in a stage, by which of the vectors of x.
	atW, atX []kernel.V
	n0       kernel.V
	// The warp's first units along w and x.
	firstW, firstX kernel.V
	// By unit along w, and along x: sums of a wave, and, if it is in registers, of all waves.
	// Of 8-bit weights a piece is summed first, then scaled. With two waves at a time part
	// is their sums, and acc those of all waves.
	part, acc, total [][]*kernel.VecVar
	scale, nextScale *kernel.Var // of the warp's rows, in the piece that is multiplied and the next
}

// newGemm has the sizes of all that is in shared memory; k may be nil.
func (p *matrixProduct) newGemm(k *kernel.K) *gemm {
	e := &gemm{matrixProduct: p, K: k, gemmTile: p.gemm, unit: unitOf(p.t)}
	e.rowsW, e.rowsX = p.gemm.rowsOf()
	e.vectors = p.run() / matrixRun
	e.wRow, e.xRow = e.deep*lanesPerRow*vectorBytes, e.deep*e.vectors*lanesPerRow*vectorBytes
	e.stage = e.rowsW*e.wRow + e.rowsX*e.xRow
	e.chunks = p.depth / matrixChunk
	e.per = matrixChunk / (e.deep * lanesPerRow * p.run())
	e.steps = e.per * e.chunks
	return e
}

// poolBytes is the shared memory that the stages take, with the totals behind them, or
// at the end the sums.
func (e *gemm) poolBytes() int {
	n := e.stages * e.stage
	if e.totals {
		n += 4 * e.rowsW * e.rowsX
	}
	if e.twoWaves {
		n += e.rowsW * e.scaleRow()
	}
	return max(n, 4*e.rowsX*(e.rowsW+gemmGap))
}

// refuses reports that the tile is not for the product: the target has not the
// instructions, or its rows of x in a stage are not as those read them; it takes more
// shared memory than there is, or what lanes copy at once or a warp multiplies is of several products, or of
// blocks with scales of their own.
func (e *gemm) refuses() bool {
	if e.together && (!e.t.Warpgroups() || e.xRow != blockBytes && !e.twoWaves) {
		return true
	}
	perProduct, rowsAtOnce := e.rowsW/e.products, e.t.Lanes/(lanesPerRow*e.deep)
	return e.poolBytes() > gemmShared || e.per == 0 || perProduct%rowsAtOnce != 0 || perProduct%(e.units[0]*target.MatrixTile) != 0 ||
		e.w != ir.BF16 && !e.twoWaves && e.block[0]%(e.units[0]*target.MatrixTile) != 0
}

// multiplyMany is multiply for many rows.
func (p *matrixProduct) multiplyMany(k *kernel.K, x matrixRows, ws []matrixWeight, n0 kernel.V, done func(row, col kernel.V, sums []kernel.Vec)) {
	e := p.newGemm(k)
	e.x, e.ws, e.n0 = x, ws, n0
	e.pool = k.SharedPool(e.poolBytes())
	e.firstW = k.Mul(k.URem(k.Wave(), k.Int(e.across[0])), k.Int(e.units[0]))
	e.firstX = k.Mul(k.UDiv(k.Wave(), k.Int(e.across[0])), k.Int(e.units[1]))
	e.addresses()
	e.acc = e.zeros()
	switch {
	case e.twoWaves:
		e.part = append(e.zeros(), e.zeros()...)
	case e.w != ir.BF16:
		e.part = e.zeros()
	default:
		e.part = e.acc
	}
	if !e.totals && !e.twoWaves {
		e.total = e.zeros()
	}
	if e.resident > 0 {
		k.Resident(e.resident)
	}
	if e.twoWaves {
		e.sumWaves()
	} else {
		e.sumPieces()
	}
	e.finish(done)
}

// zeros are sums of the warp's units.
func (e *gemm) zeros() [][]*kernel.VecVar {
	out := make([][]*kernel.VecVar, e.units[0])
	for m := range out {
		for range e.units[1] {
			out[m] = append(out[m], e.VecVar(e.ZeroVec(kernel.F32, target.ResultRun)))
		}
	}
	return out
}
