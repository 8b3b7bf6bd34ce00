package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Products of many rows on NVIDIA's warps. A group's operands come to shared memory by
// copies that are several stages ahead; its warps share the tile, so that each operand is
// read from memory once for the group, and hold the sums of their parts of it.
//
// The bits are those of few rows, where the warps share K (matrix_tile.go): pieces of
// matrixChunk are taken in the order that wave 0 has them, then wave 1, and so on; a
// wave's sum begins at zero, and the sums are added in wave order. Within a piece lanes
// have the k that they have there, too: 16 bytes of a row each, so loads of whole vectors
// from shared memory do, and no others would.

// gemmTile says how a group multiplies its tile. No result depends on it.
type gemmTile struct {
	across   [2]int // warps along rows of w and of x; {1, 1}: each has all of the tile, and pieces of K of its own
	units    [2]int // of a warp: 16 rows of w, and the unit's columns, rows of x
	stages   int    // of shared memory that the copies go round in, 3 at least
	deep     int    // vectors of 16 bytes of each lane of a row of w in a stage
	totals   bool   // the sums of waves are added up in shared memory, not in registers
	late     bool   // a stage is given back when it was read, not in the middle of the next one
	ahead    int    // units of x that a warp has read before it multiplies them
	resident int
}

func (g *gemmTile) spec() string {
	return fmt.Sprintf("%d gemm%v%v stages%d deep%d totals%v late%v ahead%d res%d", forceGemm, g.across, g.units, g.stages, g.deep, g.totals, g.late, g.ahead, g.resident)
}

// splits reports whether the warps share K.
func (g *gemmTile) splits() bool { return g.across == [2]int{1, 1} }

// rowsOf are the rows of w, of all products, and of x of the group's tile.
func (g *gemmTile) rowsOf() (w, x int) {
	return g.across[0] * g.units[0] * target.MatrixTile, g.across[1] * g.units[1] * target.MMACols
}

const (
	vectorBytes = 16
	gemmGap     = 4 // f32 behind a row of sums, so that lanes use different banks
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

	parts        int // of a stage, each with tiles of its own: warps, if those share K
	rowsW, rowsX int
	vectors      int // of a row of x for one of w
	wRow, xRow   int // bytes of a row in a stage
	part, stage  int // bytes
	per          int // stages of a piece of matrixChunk
	chunks       int
	steps        int

	// Where this lane copies from, by vector, and where to in a stage.
	fromW, fromX []kernel.V
	toW, toX     kernel.V
	// Where this lane's operands are in a stage, by which of the vectors of x.
	atW, atX []kernel.V
	n0, wave kernel.V
	acc      [][]*kernel.VecVar // by unit along w, and along x
	total    [][]*kernel.VecVar // in registers
	// Of the pieces that are multiplied now and then, by product that the warp has.
	scale, nextScale []*kernel.Var
}

// gemmTakes reports whether tiles of many rows take p.
func (p *matrixProduct) gemmTakes() bool {
	return forceGemm >= 0 && unitOf(p.t).mma != nil && p.depth%matrixChunk == 0 && (p.w == ir.BF16 || p.w == ir.F8E4M3)
}

// useGemm has p multiplied by tiles of many rows.
func (p *matrixProduct) useGemm(g gemmTile) {
	w, x := g.rowsOf()
	if g.ahead == 0 {
		g.ahead = 2
	}
	p.gemm, p.rows, p.cols = &g, x/target.MMACols, w/target.MatrixTile/p.products
}

// gemmTiles are the tiles, from large to small.
var gemmTiles = map[int]gemmTile{
	1:  {across: [2]int{4, 2}, units: [2]int{4, 8}, stages: 3, deep: 1, totals: true},
	2:  {across: [2]int{2, 4}, units: [2]int{4, 4}, stages: 4, deep: 1},
	8:  {across: [2]int{1, 1}, units: [2]int{4, 4}, stages: 3, deep: 1},
	40: {across: [2]int{2, 4}, units: [2]int{4, 8}, stages: 4, deep: 1, totals: true},
	41: {across: [2]int{2, 4}, units: [2]int{4, 8}, stages: 4, deep: 1, totals: true, late: true},
	44: {across: [2]int{2, 4}, units: [2]int{4, 8}, stages: 4, deep: 1, totals: true, late: true, ahead: 3},
	46: {across: [2]int{4, 2}, units: [2]int{2, 8}, stages: 3, deep: 2, late: true},
	47: {across: [2]int{4, 2}, units: [2]int{2, 8}, stages: 4, deep: 2, late: true},
	49: {across: [2]int{4, 2}, units: [2]int{4, 8}, stages: 3, deep: 1, totals: true, late: true},
	50: {across: [2]int{4, 2}, units: [2]int{4, 8}, stages: 3, deep: 1, totals: true},
	51: {across: [2]int{4, 2}, units: [2]int{2, 8}, stages: 5, deep: 1},
	52: {across: [2]int{1, 1}, units: [2]int{4, 8}, stages: 3, deep: 1, late: true},
	53: {across: [2]int{4, 2}, units: [2]int{2, 8}, stages: 5, deep: 1, late: true},
	54: {across: [2]int{4, 2}, units: [2]int{1, 4}, stages: 6, deep: 2, resident: 2},
	55: {across: [2]int{1, 1}, units: [2]int{4, 4}, stages: 3, deep: 1, late: true},
	57: {across: [2]int{4, 2}, units: [2]int{1, 4}, stages: 6, deep: 1, resident: 2},
	58: {across: [2]int{1, 1}, units: [2]int{8, 4}, stages: 2, deep: 1, late: true},
	60: {across: [2]int{4, 2}, units: [2]int{2, 4}, stages: 4, deep: 2, resident: 2},
	61: {across: [2]int{4, 2}, units: [2]int{2, 4}, stages: 6, deep: 1, resident: 2},
}

// shapeMany chooses the tile for m rows of x.
func (p *matrixProduct) shapeMany(m int) {
	try := []int{forceGemm % 100, 1, 2, 8}
	for _, i := range try {
		g := gemmTiles[i]
		if g.deep*lanesPerRow*p.run() > matrixChunk {
			continue
		}
		p.useGemm(g)
		if p.newGemm(nil).poolBytes() <= 227<<10 {
			return
		}
	}
}

var forceGemm int

// newGemm has the sizes of all that is in shared memory.
func (p *matrixProduct) newGemm(k *kernel.K) *gemm {
	e := &gemm{matrixProduct: p, K: k, gemmTile: p.gemm, unit: unitOf(p.t), parts: 1}
	e.rowsW, e.rowsX = p.gemm.rowsOf()
	if e.splits() {
		e.parts = e.unit.waves
	}
	e.vectors = p.run() / matrixRun
	e.wRow, e.xRow = e.deep*lanesPerRow*vectorBytes, e.deep*e.vectors*lanesPerRow*vectorBytes
	e.part = e.rowsW*e.wRow + e.rowsX*e.xRow
	e.stage = e.parts * e.part
	e.chunks = p.depth / matrixChunk
	e.per = matrixChunk / (e.deep * lanesPerRow * p.run())
	e.steps = e.per * e.chunks
	if e.splits() {
		e.steps = e.per * ceilDiv(e.chunks, e.unit.waves)
	}
	return e
}

// poolBytes is the shared memory that the stages take, with the totals behind them, or
// at the end the sums.
func (e *gemm) poolBytes() int {
	n := e.stages * e.stage
	if e.totals {
		n += 4 * e.rowsW * e.rowsX
	}
	return max(n, 4*e.parts*e.rowsX*(e.rowsW+gemmGap))
}

// multiplyMany is multiply for many rows.
func (p *matrixProduct) multiplyMany(k *kernel.K, x matrixRows, ws []matrixWeight, n0 kernel.V, done func(row, col kernel.V, sums []kernel.Vec)) {
	e := p.newGemm(k)
	e.x, e.ws, e.n0, e.wave = x, ws, n0, k.Wave()
	e.pool = k.SharedPool(e.poolBytes())
	if e.resident > 0 {
		e.Resident(e.resident)
	}
	e.addresses()
	for m := range e.units[0] {
		e.acc = append(e.acc, nil)
		for range e.units[1] {
			e.acc[m] = append(e.acc[m], k.VecVar(k.ZeroVec(kernel.F32, 4)))
		}
	}
	e.run_()
	e.finish(done)
}

// addresses computes where this lane copies and reads.
func (e *gemm) addresses() {
	threads, id := e.t.Lanes/e.parts, e.Lane()
	if e.splits() {
		id = e.WaveLane()
	}
	// Copies: lanes that follow each other have vectors of a row that do.
	copies := func(vectors, rows, row int, swizzle func(row, c kernel.V) kernel.V, from func(pass int, row, c kernel.V)) kernel.V {
		at, c := e.UDiv(id, e.Int(vectors)), e.URem(id, e.Int(vectors))
		for i := range rows * vectors / threads {
			from(i*threads/vectors, e.Add(at, e.Int(i*threads/vectors)), c)
		}
		return e.Add(e.Mul(at, e.Int(row)), e.Mul(swizzle(at, c), e.Int(vectorBytes)))
	}
	perProduct := e.rowsW / e.products
	e.toW = copies(lanesPerRow*e.deep, e.rowsW, e.wRow, e.swizzleW, func(first int, row, c kernel.V) {
		n := e.Add(e.n0, e.Sub(row, e.Int(first/perProduct*perProduct)))
		if e.n%e.tileCols() != 0 {
			n = e.Select(e.Cmp(kernel.LT, n, e.Int(e.n)), n, e.Int(e.n-1))
		}
		n = e.Add(e.Mul(e.ws[first/perProduct].index, e.Int(e.n)), n)
		e.fromW = append(e.fromW, e.Add(e.Mul(n, e.Int(e.depth)), e.Mul(c, e.Int(e.run()))))
	})
	e.toX = copies(lanesPerRow*e.deep*e.vectors, e.rowsX, e.xRow, e.swizzleX, func(_ int, row, c kernel.V) {
		e.fromX = append(e.fromX, e.Add(e.Mul(e.x.of(row), e.Int(e.depth)), e.Mul(c, e.Int(matrixRun))))
	})
	e.toX = e.Add(e.toX, e.Int(e.rowsW*e.wRow))

	sub, group := e.unit.place(e.K, e.WaveLane())
	rowW, rowX := sub, sub
	first := e.Int(0) // of the warp's part
	if e.splits() {
		first = e.Mul(e.wave, e.Int(e.part))
		e.toW, e.toX = e.Add(e.toW, first), e.Add(e.toX, first)
	} else {
		rowW = e.Add(sub, e.Mul(e.URem(e.wave, e.Int(e.across[0])), e.Int(e.units[0]*target.MatrixTile)))
		rowX = e.Add(sub, e.Mul(e.UDiv(e.wave, e.Int(e.across[0])), e.Int(e.units[1]*target.MMACols)))
	}
	for i := range e.deep * e.vectors {
		c := e.Add(group, e.Int(i/e.vectors*lanesPerRow))
		at := e.Add(e.Mul(rowW, e.Int(e.wRow)), e.Mul(e.swizzleW(sub, c), e.Int(vectorBytes)))
		at = e.Add(at, e.Int(i%e.vectors*vectorBytes/e.vectors))
		e.atW = append(e.atW, e.Add(first, at))
		c = e.Add(e.Mul(c, e.Int(e.vectors)), e.Int(i%e.vectors))
		at = e.Add(e.Mul(rowX, e.Int(e.xRow)), e.Mul(e.swizzleX(sub, c), e.Int(vectorBytes)))
		e.atX = append(e.atX, e.Add(e.Add(first, e.Int(e.rowsW*e.wRow)), at))
	}
}

// swizzleW is the place in a row of vector c, such that eight lanes, four in each of two
// rows, read from all banks.
func (e *gemm) swizzleW(row, c kernel.V) kernel.V {
	if e.deep == 1 {
		return c
	}
	return e.Xor(c, e.Mul(e.And(row, e.Int(1)), e.Int(lanesPerRow)))
}

// swizzleX is swizzleW for x, of which the lanes' vectors are e.vectors apart.
func (e *gemm) swizzleX(row, c kernel.V) kernel.V {
	if e.vectors == 1 {
		return e.swizzleW(row, c)
	}
	return e.Xor(c, e.And(row, e.Int(1)))
}

// places are what moves along K: pieces, and stages of one.
type gemmPlace struct {
	piece, sub *kernel.Var // of the chunks, and of per
}

// next moves a place on by a stage.
func (e *gemm) next(p gemmPlace) {
	sub := e.Add(p.sub.Get(), e.Int(1))
	piece := e.nextPiece(p.piece.Get())
	if e.per == 1 {
		p.piece.Set(piece)
		return
	}
	end := e.Cmp(kernel.EQ, sub, e.Int(e.per))
	p.piece.Set(e.Select(end, piece, p.piece.Get()))
	p.sub.Set(e.Select(end, e.Int(0), sub))
}

// round moves an offset to the next stage.
func (e *gemm) round(x *kernel.Var) {
	at := e.Add(x.Get(), e.Int(e.stage))
	x.Set(e.Select(e.Cmp(kernel.EQ, at, e.Int(e.stages*e.stage)), e.Int(0), at))
}

// copies are the lane's copies of a stage.
func (e *gemm) copies(p gemmPlace, stage kernel.V) []func() {
	// What is behind the last piece comes too, and is not multiplied: a condition would
	// keep the copies from what they are between.
	piece := e.there(p.piece.Get())
	k0 := e.Add(e.Mul(piece, e.Int(matrixChunk)), e.Mul(p.sub.Get(), e.Int(matrixChunk/e.per)))
	var list []func()
	add := func(from []kernel.V, of func(row int) *kernel.Buf, to kernel.V, rows, rowBytes int) {
		rows /= len(from)
		for i, at := range from {
			list = append(list, func() {
				e.pool.CopyAsync(e.Add(e.Add(stage, to), e.Int(i*rows*rowBytes)), of(i*rows), e.Add(at, k0))
			})
		}
	}
	add(e.fromW, func(row int) *kernel.Buf { return e.ws[row/(e.rowsW/e.products)].rows }, e.toW, e.rowsW, e.wRow)
	add(e.fromX, func(int) *kernel.Buf { return e.x.x }, e.toX, e.rowsX, e.xRow)
	return list
}

// start begins the copies of a stage.
func (e *gemm) start(p gemmPlace, stage *kernel.Var) {
	for _, do := range e.copies(p, stage.Get()) {
		do()
	}
	e.CommitCopies()
	e.next(p)
	e.round(stage)
}

// place is a place that a warp begins at.
func (e *gemm) place() gemmPlace {
	piece := e.Int(0)
	if e.splits() {
		piece = e.wave
	}
	return gemmPlace{e.Var(piece), e.Var(e.Int(0))}
}

// run_ sums all pieces.
func (e *gemm) run_() {
	in, at := e.place(), e.place()
	to, from := e.Var(e.Int(0)), e.Var(e.Int(0))
	for range e.stages - 1 {
		e.start(in, to)
	}
	e.WaitCopies(e.stages - 2)
	e.Barrier()
	ahead := e.ahead
	var ws [][2]*kernel.VecVar
	var xs []*kernel.VecVar
	for m := range e.units[0] {
		w := e.loadW(e.Int(0), 0, m)
		ws = append(ws, [2]*kernel.VecVar{e.VecVar(w[0]), e.VecVar(w[1])})
	}
	for n := range ahead {
		xs = append(xs, e.VecVar(e.loadX(e.Int(0), 0, n)))
	}
	e.scalesOf(at.piece.Get())
	e.startTotals()
	one := func(step kernel.V, flush bool) {
		stage := from.Get()
		w := make([][2]kernel.Vec, len(ws))
		for m := range ws {
			w[m] = [2]kernel.Vec{ws[m][0].Get(), ws[m][1].Get()}
		}
		x := make([]kernel.Vec, ahead, e.units[1]+ahead)
		for n := range x {
			x[n] = xs[n].Get()
		}
		acts := e.Cmp(kernel.LT, at.piece.Get(), e.Int(e.chunks))
		last := e.deep*e.vectors - 1
		columns := (last + 1) * e.units[1] // of the stage
		release := columns - ahead         // where the next stage is waited for
		spread := release
		more := e.Cmp(kernel.LT, e.Add(step, e.Int(1)), e.Int(e.steps))
		var nextStage kernel.V
		if !e.late {
			e.WaitCopies(e.stages - 3)
			e.Barrier()
			spread = columns
			e.round(from)
			nextStage = e.Select(more, from.Get(), stage)
		}
		copies, copied := e.copies(in, to.Get()), 0
		e.next(in)
		e.round(to)
		for i := range last + 1 {
			nextI := i + 1
			var nextW [][2]kernel.Vec
			half := e.units[1] / 2
			if e.late && i == last {
				half = e.units[1] - ahead
			}
			of := func() kernel.V {
				if i == last {
					return nextStage
				}
				return stage
			}
			if i == last {
				nextI = 0
			}
			var a [][]kernel.Vec
			for m := range w {
				a = append(a, e.asOperand(w[m], m))
			}
			for n := range e.units[1] {
				column := i*e.units[1] + n
				if e.late && column == release {
					e.CommitCopies()
					e.WaitCopies(e.stages - 2)
					e.Barrier()
					e.round(from)
					nextStage = e.Select(more, from.Get(), stage)
				}
				for column < spread && copied < len(copies)*(column+1)/spread {
					copies[copied]()
					copied++
				}
				if n >= half { // the next rows of w come in between
					count := e.units[1] - half
					for m := (n - half) * e.units[0] / count; m < (n-half+1)*e.units[0]/count; m++ {
						nextW = append(nextW, e.loadW(of(), nextI, m))
					}
				}
				if n+ahead < e.units[1] {
					x = append(x, e.loadX(stage, i, n+ahead))
				} else {
					x = append(x, e.loadX(of(), nextI, n+ahead-e.units[1]))
				}
				if flush && i == 0 {
					e.addColumn(n)
				}
				multiply := func() { e.multiplyColumn(a, x[n], n) }
				if e.splits() && e.chunks%e.unit.waves != 0 {
					e.If(acts, multiply)
				} else {
					multiply()
				}
			}
			w, x = nextW, x[e.units[1]:]
		}
		if !e.late {
			e.CommitCopies()
		}
		for m := range w {
			ws[m][0].Set(w[m][0])
			ws[m][1].Set(w[m][1])
		}
		for n := range ahead {
			xs[n].Set(x[n])
		}
		e.endOfStage(at)
	}
	e.For(e.Int(0), e.Int(e.steps), 1, func(step kernel.V) {
		if e.splits() || forceGemm/100 == 1 {
			one(step, false)
			return
		}
		piece := at.piece.Get()
		// The first stage of a wave, but the first wave's.
		begins := e.And(e.Cmp(kernel.EQ, at.sub.Get(), e.Int(0)), e.And(e.Cmp(kernel.LT, piece, e.Int(e.unit.waves)), e.Cmp(kernel.GT, piece, e.Int(0))))
		e.If(begins, func() { one(step, true) })
		e.If(e.Not(begins), func() { one(step, false) })
	})
}

// inProduct is how many of a warp's units along w are of one product.
func (e *gemm) inProduct() int {
	return min(e.units[0], e.across[0]*e.units[0]/e.products)
}

// asOperand is what a lane has of its rows of unit m along w as bf16.
func (e *gemm) asOperand(w [2]kernel.Vec, m int) []kernel.Vec {
	if e.w == ir.BF16 {
		return w[:]
	}
	s := e.scale[m/e.inProduct()].Get()
	return []kernel.Vec{e.E4M3ToBF16(w[0], s), e.E4M3ToBF16(w[1], s)}
}

// scaleAt is the scale of a piece of unit m's rows.
func (e *gemm) scaleAt(piece kernel.V, m int) kernel.V {
	perProduct := e.across[0] * e.units[0] / e.products
	unit := e.Int(m)
	if e.across[0] > 1 {
		unit = e.Add(e.Mul(e.URem(e.wave, e.Int(e.across[0])), e.Int(e.units[0])), unit)
	}
	row := e.Add(e.n0, e.Mul(e.URem(unit, e.Int(perProduct)), e.Int(target.MatrixTile)))
	block := e.UDiv(e.Select(e.Cmp(kernel.LT, row, e.Int(e.n)), row, e.Int(e.n-1)), e.Int(e.block[0]))
	col := e.UDiv(e.Mul(piece, e.Int(matrixChunk)), e.Int(e.block[1]))
	var s kernel.V
	for p, w := range e.ws {
		at := e.Add(e.Mul(w.index, e.Int(ceilDiv(e.n, e.block[0]))), block)
		v := w.scales.Load(e.Add(e.Mul(at, e.Int(e.scaleCols())), col))
		if p > 0 {
			v = e.Select(e.Cmp(kernel.EQ, e.UDiv(unit, e.Int(perProduct)), e.Int(p)), v, s)
		}
		s = v
	}
	return s
}

// nextPiece is the piece behind one, of those that the warp multiplies.
func (e *gemm) nextPiece(piece kernel.V) kernel.V {
	if forceGemm >= 100 && forceGemm < 200 {
		return e.Add(piece, e.Int(1))
	}
	next := e.Add(piece, e.Int(e.unit.waves))
	if e.splits() {
		return next
	}
	over := e.Cmp(kernel.GE, next, e.Int(e.chunks))
	return e.Select(over, e.Add(e.And(piece, e.Int(e.unit.waves-1)), e.Int(1)), next)
}

// scalesOf loads the scales of the first pieces.
func (e *gemm) scalesOf(piece kernel.V) {
	if e.w == ir.BF16 {
		return
	}
	for m := 0; m < e.units[0]; m += e.inProduct() {
		e.scale = append(e.scale, e.Var(e.scaleAt(e.there(piece), m)))
		e.nextScale = append(e.nextScale, e.Var(e.scaleAt(e.there(e.nextPiece(piece)), m)))
	}
}

// there is a piece, or the last if there is no such.
func (e *gemm) there(piece kernel.V) kernel.V {
	return e.Select(e.Cmp(kernel.LT, piece, e.Int(e.chunks)), piece, e.Int(e.chunks-1))
}

// multiplyColumn adds the products of all rows of w that the warp has and of unit n along
// x, for the k of a vector.
func (e *gemm) multiplyColumn(w [][]kernel.Vec, x kernel.Vec, n int) {
	for i := 0; i < x.Len(); i += 2 {
		for m, rows := range w {
			a := e.MakeVec(e.At(rows[0], i), e.At(rows[1], i), e.At(rows[0], i+1), e.At(rows[1], i+1))
			e.acc[m][n].Set(e.WarpMMA(e.unit.mma, a, e.Part(x, i, 2), e.acc[m][n].Get()))
		}
	}
}

// loadW is what a lane has of its two rows of unit m along w, of vector i of x.
func (e *gemm) loadW(stage kernel.V, i, m int) [2]kernel.Vec {
	var out [2]kernel.Vec
	for r := range out {
		at := e.Add(e.Add(stage, e.atW[i]), e.Int((m*target.MatrixTile+r*target.MMACols)*e.wRow))
		out[r] = e.pool.LoadVec(at, vectorBytes/e.vectors)
	}
	return out
}

// loadX is vector i of a lane's row of unit n along x.
func (e *gemm) loadX(stage kernel.V, i, n int) kernel.Vec {
	return e.pool.LoadVec(e.Add(e.Add(stage, e.atX[i]), e.Int(n*target.MMACols*e.xRow)), vectorBytes)
}

// endOfStage moves on.
func (e *gemm) endOfStage(at gemmPlace) {
	if e.scale != nil {
		e.If(e.Cmp(kernel.EQ, at.sub.Get(), e.Int(e.per-1)), func() {
			then := e.nextPiece(e.nextPiece(at.piece.Get()))
			for i := range e.scale {
				e.scale[i].Set(e.nextScale[i].Get())
				e.nextScale[i].Set(e.scaleAt(e.there(then), i*e.inProduct()))
			}
		})
	}
	e.next(at)
}

// totalAt is where this lane's total of a unit is.
func (e *gemm) totalAt(m, n int) kernel.V {
	return e.Add(e.Mul(e.Lane(), e.Int(vectorBytes)), e.Int(e.stages*e.stage+(m*e.units[1]+n)*e.t.Lanes*vectorBytes))
}

// startTotals has the totals be -0, to which adding a number gives that number.
func (e *gemm) startTotals() {
	if e.splits() {
		return
	}
	none := make([]kernel.V, 4)
	for i := range none {
		none[i] = e.Float(math.Copysign(0, -1))
	}
	for m := range e.acc {
		e.total = append(e.total, nil)
		for n := range e.acc[m] {
			if e.totals {
				e.pool.StoreVec(e.totalAt(m, n), e.MakeVec(none...))
			} else {
				e.total[m] = append(e.total[m], e.VecVar(e.MakeVec(none...)))
			}
		}
	}
}

// withTotal is the total of a unit and the sums of the wave.
func (e *gemm) withTotal(m, n int) kernel.Vec {
	var total kernel.Vec
	if e.totals {
		total = e.AsF32(e.pool.LoadVec(e.totalAt(m, n), vectorBytes))
	} else {
		total = e.total[m][n].Get()
	}
	return e.MapVec(func(v ...kernel.V) kernel.V { return e.Add(v[0], v[1]) }, total, e.acc[m][n].Get())
}

// addColumn adds the sums of a wave to the totals of unit n along x.
func (e *gemm) addColumn(n int) {
	for m := range e.acc {
		sum := e.withTotal(m, n)
		if e.totals {
			e.pool.StoreVec(e.totalAt(m, n), sum)
		} else {
			e.total[m][n].Set(sum)
		}
		e.acc[m][n].Set(e.ZeroVec(kernel.F32, 4))
	}
}

// finish lays the sums out by rows of x and has done finish four of a row at a time.
func (e *gemm) finish(done func(row, col kernel.V, sums []kernel.Vec)) {
	e.WaitCopies(0)
	add := func(v ...kernel.V) kernel.V { return e.Add(v[0], v[1]) }
	sums := make([][]kernel.Vec, len(e.acc))
	for m, row := range e.acc {
		for n, acc := range row {
			sum := acc.Get()
			if !e.splits() && forceGemm/100 != 1 {
				sum = e.withTotal(m, n)
			}
			if !e.splits() && e.chunks < e.unit.waves { // waves without a piece add zero, which has -0 be 0
				sum = e.MapVec(add, sum, e.ZeroVec(kernel.F32, 4))
			}
			sums[m] = append(sums[m], sum)
		}
	}
	e.Barrier() // nobody reads the stages and totals any more
	sub, group := e.unit.place(e.K, e.WaveLane())
	stride := e.rowsW + gemmGap
	var at kernel.V
	if e.splits() {
		at = e.Mul(e.wave, e.Int(e.rowsX*stride))
	} else {
		x := e.Mul(e.UDiv(e.wave, e.Int(e.across[0])), e.Int(e.units[1]*target.MMACols*stride))
		at = e.Add(x, e.Mul(e.URem(e.wave, e.Int(e.across[0])), e.Int(e.units[0]*target.MatrixTile)))
	}
	at = e.Add(at, e.Add(e.Mul(group, e.Int(2*stride)), sub))
	area := e.pool.As(ir.F32)
	for m, row := range sums {
		for n, sum := range row {
			for i := range sum.Len() {
				area.Store(e.Add(at, e.Int((n*target.MMACols+i%2)*stride+m*target.MatrixTile+i/2*target.MMACols)), e.At(sum, i))
			}
		}
	}
	e.Barrier()
	perProduct := e.rowsW / e.products
	inRow := perProduct / target.ResultRun
	e.For(e.Int(0), e.Int(e.rowsX*inRow), e.t.Lanes, func(i kernel.V) {
		i = e.Add(i, e.Lane())
		row, col := e.UDiv(i, e.Int(inRow)), e.Mul(e.URem(i, e.Int(inRow)), e.Int(target.ResultRun))
		var out []kernel.Vec
		for p := range e.products {
			var sum kernel.Vec
			for w := range e.parts {
				v := e.AsF32(area.LoadVec(e.Add(e.Add(e.Mul(row, e.Int(stride)), col), e.Int(w*e.rowsX*stride+p*perProduct)), target.ResultRun))
				if w > 0 {
					v = e.MapVec(add, sum, v)
				}
				sum = v
			}
			out = append(out, sum)
		}
		done(row, e.Add(e.n0, col), out)
	})
}
