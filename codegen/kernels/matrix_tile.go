package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Products on matrix units. A group of waves multiplies a tile: cols times 16
// rows of w, the instruction's A, with rows times the unit's columns of B, which are
// rows of x. K is cut into pieces of matrixChunk; of n waves, wave i sums pieces i,
// i+n, ..., and the waves' sums are added in wave order. So a result's order of
// summation follows from K and the target alone: tiles of all sizes give the same bits.

const (
	matrixChunk = 128 // k that a wave multiplies at a time
	matrixWaves = 4   // waves of a group on AMD GPUs
	matrixRun   = 8   // k of bf16 that a lane loads at a time, 16 bytes
	lanesPerRow = target.MatrixLanes / target.MatrixTile
)

// matrixProduct says what the code of a product depends on.
type matrixProduct struct {
	t          *target.Target
	n, depth   int       // rows of w, and elements of a row: K
	w          ir.DType  // bf16, the target's 8-bit float, or f4e2m1
	block      [2]int    // of w's scales; zero for none
	codes      bool      // x is 8-bit codes with a scale for each matrixChunk, not bf16
	rows, cols int       // of a tile, in units of the matrix unit's columns and of target.MatrixTile
	products   int       // weights that are multiplied at once
	apart      bool      // each of them with rows of x of its own
	few        int       // rows of x that count, a tile's first; 0 for all
	alike      bool      // the rows of x that a tile reads are one
	gemm       *gemmTile // of many rows, or nil
	matrixStream
}

// matrixRefuses reports why no matrix product takes a weight whose last axes are
// [n,k], or "".
func matrixRefuses(t *target.Target, w ir.Type) string {
	k := extent(w.Dims[w.Rank()-1])
	if w.Quant == nil {
		switch {
		case w.DType != ir.BF16:
			return fmt.Sprintf("weight is %s, matrix units take bf16", w.DType)
		case k%matrixRun != 0:
			return fmt.Sprintf("rows of %d elements are no multiple of 16 bytes", k)
		}
		return ""
	}
	b := w.Quant.Block
	switch {
	case w.DType != ir.F4E2M1 && w.DType != ownCodes(t):
		return fmt.Sprintf("weight is %s, the 8-bit floats of %s are %s", w.DType, t.Name, ownCodes(t))
	case k%matrixChunk != 0:
		return fmt.Sprintf("K %d is no multiple of %d", k, matrixChunk)
	case w.DType == ir.F4E2M1 && b != [2]int{1, target.ScaleBlock}:
		return fmt.Sprintf("block %v of %s is not [1 %d]", b, w.DType, target.ScaleBlock)
	case w.DType != ir.F4E2M1 && (b[0]%target.MatrixTile != 0 || b[1]%matrixChunk != 0):
		return fmt.Sprintf("block %v of %s does not hold whole tiles of [%d %d]", b, w.DType, target.MatrixTile, matrixChunk)
	}
	return ""
}

// ownCodes is the 8-bit float that the target's instructions take.
func ownCodes(t *target.Target) ir.DType {
	if t.FNUZ {
		return ir.F8E4M3FNUZ
	}
	return ir.F8E4M3
}

// maxSkinny is the largest number of rows of x that one tile of 16 takes.
const maxSkinny = target.MatrixTile

// shape chooses the tile for m rows of x, of as many products side by side as groups.
// Few rows are bound by reading w: small
// tiles give more groups, as few as the chip needs. For more than the rows of a step
// the operands' way to the registers counts, which large tiles need less often.
func (p *matrixProduct) shape(m, groups int) {
	switch u := unitOf(p.t); {
	case u.mma != nil && m <= maxSkinny:
		p.tune(m, groups, powerOf2(m))
		return
	case m <= maxSkinny:
		p.rows, p.cols = ceilDiv(min(m, maxSkinny), u.cols), max(1, min(4, p.n/4096))
	case u.mma != nil && m <= 32:
		p.rows, p.cols = 4, max(1, min(4, p.n/2048))
	case u.mma != nil:
		p.rows, p.cols = 8, max(1, min(2, p.n/2048))
	case m <= 128:
		p.rows, p.cols = 4, max(1, min(4, p.n/2048))
	default:
		p.rows, p.cols = 4, 4
	}
	if p.products > 1 { // as many accumulators, and rows of w that are read
		p.cols = max(1, p.cols/p.products)
	}
	if p.rows == 8 && unitOf(p.t).mma != nil {
		p.shapeMany(m, groups)
	}
}

// tileRows and tileCols are the rows of x and of w of a tile.
func (p *matrixProduct) tileRows() int { return p.rows * unitOf(p.t).cols }
func (p *matrixProduct) tileCols() int { return p.cols * target.MatrixTile }

// colTiles is the number of groups for all rows of w.
func (p *matrixProduct) colTiles() int { return ceilDiv(p.n, p.tileCols()*max(1, p.strip)) }

func (p *matrixProduct) spec() string {
	s := fmt.Sprintf("n%d k%d %s block%v codes%v tile%dx%d products%d%s", p.n, p.depth, p.w, p.block, p.codes, p.rows, p.cols, p.products, p.matrixStream.spec())
	if p.gemm != nil {
		s += p.gemm.spec()
	}
	return s
}

// rowsOfX is how many times the unit's columns of rows of x a tile reads.
func (p *matrixProduct) rowsOfX() int {
	if p.apart {
		return p.products * p.rows
	}
	return p.rows
}

// rowOfX is which of them a product's rows are.
func (p *matrixProduct) rowOfX(product, row int) int {
	if p.apart {
		return product*p.rows + row
	}
	return row
}

// scaleCols is the number of scales of a row of w.
func (p *matrixProduct) scaleCols() int { return ceilDiv(p.depth, max(1, p.block[1])) }

// scaledMFMA is the instruction that takes codes with their scales, if p has such.
func (p *matrixProduct) scaledMFMA() *target.MFMA {
	if !p.codes {
		return nil
	}
	return p.t.MFMA(p.w, ownCodes(p.t), true)
}

// matrixWeight is a weight matrix of a stack of them, in a kernel.
type matrixWeight struct {
	rows, scales *kernel.Buf
	index        kernel.V // of the matrix
}

// matrixRows is x in a kernel.
type matrixRows struct {
	x, scales *kernel.Buf
	count     kernel.V   // the rows of all of x, where it has scales: [K/matrixChunk, count]
	at        []kernel.V // for each row of the tile's units, and product if those are apart, which row of x this lane reads
	// Of rows that the group rounds: which, and which of them a lane reads, as in at.
	stage, staged []kernel.V
	there         []kernel.V                // which of stage there are; nil if all
	loaded        [][]xPair                 // what stream has to stage, if that has been loaded
	behind        func()                    // what to do once w is under way, or nil
	row           func(i kernel.V) kernel.V // of row i of a tile
}

// run is how many consecutive k of a row of w a lane loads at once, 16 bytes.
func (p *matrixProduct) run() int {
	switch p.w {
	case ir.BF16:
		return matrixRun
	case ir.F4E2M1:
		return 4 * matrixRun
	}
	return 2 * matrixRun
}

// perLane is how many k of a row a lane has in a chunk.
const perLane = matrixChunk / lanesPerRow

// skinny reports whether a tile is bound by reading w: waves are few then, and each
// has as much of it under way as its registers hold.
func (p *matrixProduct) skinny() bool { return p.tileRows() <= maxSkinny }

// atOnce is how many chunks are loaded before the first is multiplied, of whole in
// all: what some registers hold, and whole is a multiple of.
func (p *matrixProduct) atOnce(whole int) int {
	registers := 64
	if p.skinny() {
		registers = 128
	}
	x := perLane / 2
	if p.codes {
		x = perLane / 4
	}
	products, cols := p.ownParts()
	rowsOfX := p.rows
	if p.apart {
		rowsOfX *= products
	}
	words := p.chunksAtOnce() * (products*cols*unitOf(p.t).rows*perLane/p.run()*4 + rowsOfX*x)
	n := max(1, min(registers/words, whole))
	for whole%n != 0 {
		n--
	}
	return n
}

// multiplyTiles is multiply of group number i of those for all rows of w. Of few rows on
// NVIDIA's warps a group has as many tiles as strip says.
func (p *matrixProduct) multiplyTiles(k *kernel.K, x matrixRows, ws []matrixWeight, i, strip kernel.V, done func(row, col kernel.V, sums []kernel.Vec)) {
	n0 := k.Mul(i, k.Int(p.tileCols()))
	if p.streams() {
		p.stream(k, x, ws, k.Mul(n0, strip), strip, done)
		return
	}
	p.multiply(k, x, ws, n0, done)
}

// multiply emits the product of a tile from row n0 of the weights on. done gets, in
// the waves that have them, the sums of 16 rows of x and 16 of each weight: those of
// this lane are of row row of x, counted from the tile's first, and of rows col to
// col+3 of the weights.
func (p *matrixProduct) multiply(k *kernel.K, x matrixRows, ws []matrixWeight, n0 kernel.V, done func(row, col kernel.V, sums []kernel.Vec)) {
	if p.gemm != nil {
		p.multiplyMany(k, x, ws, n0, done)
		return
	}
	lane, wave := k.WaveLane(), k.Wave()
	u := unitOf(p.t)
	sub, group := u.place(k, lane)
	e := &matrixEmitter{matrixProduct: p, K: k, unit: u, x: x, ws: ws, lane: lane, wave: wave, sub: sub, group: group}
	e.address(e.takeHalf(n0), sub, group)
	products, cols := p.ownParts()
	for range p.chunksAtOnce() * products * p.rows * cols {
		e.acc = append(e.acc, k.VecVar(k.ZeroVec(kernel.F32, target.ResultRun)))
	}
	chunks := ceilDiv(p.depth, matrixChunk)
	whole, rest := chunks/u.waves, chunks%u.waves
	if p.paired() {
		e.scalesIn = k.Shared(ir.I32, p.products*p.tileCols()*p.scaleWords())
	}
	if whole > 0 {
		step := p.atOnce(whole)
		k.For(k.Int(0), k.Int(whole), step, func(i kernel.V) {
			var list []kernel.V
			for j := range step {
				list = append(list, e.firstChunk(k.Add(i, k.Int(j))))
			}
			e.chunks(list, func() {
				if p.paired() { // behind the loads of w, which take longer
					k.If(k.Cmp(kernel.EQ, i, k.Int(0)), func() { e.stageScales(ws, n0) })
				}
			})
		})
	}
	if rest > 0 {
		k.If(k.Cmp(kernel.LT, wave, k.Int(rest)), func() { e.chunks([]kernel.V{e.firstChunk(k.Int(whole))}, func() {}) })
	}
	e.combine(wave, lane, func(tile, lane kernel.V, sums []kernel.Vec) {
		sub, group := sub, group
		if p.byLines() {
			sub, group = u.place(k, lane)
		}
		row, col := k.UDiv(tile, k.Int(p.cols)), k.URem(tile, k.Int(p.cols))
		row = k.Add(k.Mul(row, k.Int(u.cols)), sub)
		col = k.Add(k.Mul(col, k.Int(target.MatrixTile)), k.Mul(group, k.Int(target.ResultRun)))
		done(row, k.Add(n0, col), sums)
	})
}

// maxSumWords bounds the shared memory, in f32, of the sums that NVIDIA's warps, which
// are twice as many, have in it at once; up to maxChoicesAtOnce products need it all.
const maxSumWords = 40 << 10 / 4

// matrixEmitter is the state of multiply.
type matrixEmitter struct {
	*matrixProduct
	*kernel.K
	unit *matrixUnit
	x    matrixRows
	ws   []matrixWeight
	acc  []*kernel.VecVar // by chunk of those that the wave takes, product, row and column of its parts

	lane, wave, sub, group kernel.V
	scalesIn               *kernel.Buf // those of e2m1 where waves share chunks, words

	// Where this lane's elements of the first chunk and its scales are: those of x by
	// row of the tile, those of w by product, column and which of the lane's rows.
	xAt    []lineReads
	xScale []kernel.V
	wAt    [][][]lineReads
	wScale [][][]kernel.V
}

// sum is the accumulator of a tile of one unit.
func (e *matrixEmitter) sum(chunk, product, row, col int) *kernel.VecVar {
	products, cols := e.ownParts()
	return e.acc[((chunk*products+product)*e.rows+row)*cols+col]
}

func (e *matrixEmitter) address(n0, sub, group kernel.V) {
	last := func(i kernel.V) kernel.V {
		if e.byLines() && e.n%e.tileCols() == 0 {
			return i
		}
		return e.Select(e.Cmp(kernel.LT, i, e.Int(e.n)), i, e.Int(e.n-1))
	}
	own := e.Mul(group, e.Int(e.run()))
	size, step := e.xReads()
	for r, at := range e.x.at {
		if size == 1 {
			e.xAt = append(e.xAt, lineReads{1, []kernel.V{e.Add(e.Mul(at, e.Int(e.depth)), own)}, own})
		} else {
			e.xAt = append(e.xAt, e.reads(size, step, own, func(i kernel.V) kernel.V { return e.x.row(e.Add(i, e.Int(r*e.unit.cols))) }))
		}
		if e.codes {
			e.xScale = append(e.xScale, at)
		}
	}
	size, step = e.wReads()
	_, cols := e.ownParts()
	for p, w := range e.ws {
		e.wAt, e.wScale = append(e.wAt, nil), append(e.wScale, nil)
		// Per lane, so that many weights do not need many scalar registers.
		rows, scaleRows := e.Mul(w.index, e.Int(e.n)), e.Mul(w.index, e.Int(ceilDiv(e.n, max(1, e.block[0]))))
		for c := range cols {
			from := e.Add(n0, e.Int(c*target.MatrixTile))
			var at []lineReads
			var scale []kernel.V
			for i := range e.unit.rows {
				if size > 1 {
					at = append(at, e.reads(size, step, own, func(i kernel.V) kernel.V { return e.Add(rows, last(e.Add(from, i))) }))
					continue
				}
				row := e.Add(from, sub)
				if i > 0 {
					row = e.Add(row, e.Int(i*target.MatrixTile/e.unit.rows))
				}
				row = last(row)
				at = append(at, lineReads{1, []kernel.V{e.Add(e.Mul(e.Add(rows, row), e.Int(e.depth)), own)}, own})
				if e.w == ir.F4E2M1 { // a lane's elements of a chunk are one block
					scale = append(scale, e.Add(e.Mul(e.Add(scaleRows, row), e.Int(e.scaleCols())), group))
				}
			}
			if e.w != ir.BF16 && e.w != ir.F4E2M1 { // one for all rows
				block := e.UDiv(last(from), e.Int(e.block[0]))
				scale = append(scale, e.Mul(e.Add(scaleRows, block), e.Int(e.scaleCols())))
			}
			e.wAt[p], e.wScale[p] = append(e.wAt[p], at), append(e.wScale[p], scale)
		}
	}
}

// matrixLoads is what a lane reads of the chunks that the wave takes at once.
type matrixLoads struct {
	chunk  kernel.V           // the first
	x      [][][]kernel.Vec   // by chunk and row of the tile: vectors of 16 bytes
	xScale []kernel.V         // by row
	w      [][][][]kernel.Vec // by product, column and which of the lane's rows
	wScale [][][]kernel.V
}

// chunks adds the products of some chunks, which are all read first; then, when that is
// under way, comes what behind emits.
func (e *matrixEmitter) chunks(list []kernel.V, behind func()) {
	loads := make([]matrixLoads, len(list))
	for i, c := range list {
		loads[i].chunk = c
		e.loadW(c, &loads[i])
		for chunk := range e.chunksAtOnce() {
			if chunk == 0 || e.skinny() {
				e.loadX(c, chunk, &loads[i])
			}
		}
	}
	behind()
	if e.skinny() {
		e.InOrder()
	}
	for i := range loads {
		for chunk := range e.chunksAtOnce() {
			if chunk == len(loads[i].x) {
				e.loadX(loads[i].chunk, chunk, &loads[i])
			}
			e.add(&loads[i], chunk)
			if !e.skinny() && e.byLines() { // what comes next is not loaded before: registers are too few for both
				e.InOrder()
			}
		}
	}
}

// read is n elements of a row from k of a chunk on, which begins at k0.
func (e *matrixEmitter) read(b *kernel.Buf, from lineReads, at, k0 kernel.V, k, n int) kernel.Vec {
	offset := e.Add(k0, e.Int(k))
	if e.depth%matrixChunk == 0 {
		return b.LoadVec(e.Add(at, offset), n)
	}
	in := e.Cmp(kernel.LT, e.Add(from.first, offset), e.Int(e.depth))
	return b.LoadVecIf(in, e.Add(at, offset), n)
}

func (e *matrixEmitter) loadW(chunk kernel.V, out *matrixLoads) {
	k0, run := e.Mul(chunk, e.Int(matrixChunk)), e.run()
	for p, w := range e.ws {
		out.w, out.wScale = append(out.w, nil), append(out.wScale, nil)
		for c := range e.wAt[p] {
			var rows [][]kernel.Vec
			var scales []kernel.V
			for _, from := range e.wAt[p][c] {
				var row []kernel.Vec
				for i := 0; i < e.chunksAtOnce()*perLane/run; i += from.size {
					for _, at := range from.at {
						row = append(row, e.read(w.rows, from, at, k0, i*run*lanesPerRow, run))
					}
				}
				rows = append(rows, row)
			}
			for _, at := range e.wScale[p][c] {
				s := e.Add(at, e.UDiv(k0, e.Int(e.block[1])))
				if e.scaledMFMA() != nil {
					scales = append(scales, w.scales.Bytes().Load(s))
				} else {
					scales = append(scales, w.scales.Load(s))
				}
			}
			out.w[p], out.wScale[p] = append(out.w[p], rows), append(out.wScale[p], scales)
		}
	}
}

// loadX loads x of one of the chunks from chunk first on.
func (e *matrixEmitter) loadX(first kernel.V, chunk int, out *matrixLoads) {
	k0, run, n := e.Mul(first, e.Int(matrixChunk)), e.run(), e.xVector()
	var rows [][]kernel.Vec
	for r, from := range e.xAt {
		var row []kernel.Vec
		for i := 0; i < perLane; i += n * from.size {
			for _, at := range from.at {
				row = append(row, e.read(e.x.x, from, at, k0, chunk*matrixChunk+i/run*run*lanesPerRow+i%run, n))
			}
		}
		rows = append(rows, row)
		if !e.codes {
			continue
		}
		s := e.Add(e.Mul(first, e.x.count), e.xScale[r])
		if e.scaledMFMA() != nil {
			out.xScale = append(out.xScale, e.x.scales.Bytes().Load(s))
		} else {
			out.xScale = append(out.xScale, e.x.scales.Load(s))
		}
	}
	out.x = append(out.x, rows)
}

// add adds the products of one of the chunks that were read to the sums.
func (e *matrixEmitter) add(l *matrixLoads, chunk int) {
	for r, row := range l.x[chunk] {
		l.x[chunk][r] = e.xAt[r].own(e.K, row)
	}
	if e.apartByHalves() {
		for _, row := range l.x[chunk] {
			for i, x := range row {
				row[i] = e.BF16Apart(x)
			}
		}
	}
	for p := range e.ws {
		for c, from := range e.wAt[p] {
			for i, row := range l.w[p][c] {
				if chunk == 0 {
					l.w[p][c][i] = from[i].own(e.K, row)
				}
			}
			e.addPart(l, p, c, chunk)
		}
	}
}

// addPart adds the products of one of the chunks of a part.
func (e *matrixEmitter) addPart(l *matrixLoads, p, c, chunk int) {
	w, scales := make([][]kernel.Vec, len(l.w[p][c])), l.wScale[p][c]
	for i, row := range l.w[p][c] {
		n := len(row) / e.chunksAtOnce()
		w[i] = row[chunk*n : (chunk+1)*n]
	}
	if e.paired() {
		scales = []kernel.V{e.stagedScale(p, c, e.Add(l.chunk, e.Int(chunk)))}
	}
	if !e.codes {
		w = e.asBF16(w, scales)
	}
	for r := range e.rows {
		x := e.rowOfX(p, r)
		var scale kernel.V
		if e.codes {
			scale = l.xScale[x]
		}
		e.addTile(e.sum(chunk, p, r, c), w, scales, l.x[chunk][x], scale)
	}
}

// apartByHalves reports whether e2m1 codes become bf16 in another order than they have,
// which is then that of x too: each eight of them as kernel.K.BF16Apart has them.
func (e *matrixEmitter) apartByHalves() bool { return e.unit.mma != nil && e.w == ir.F4E2M1 }

// asBF16 is what a lane read of its rows of w as bf16, in vectors of matrixRun; e2m1
// with its scales.
func (e *matrixEmitter) asBF16(w [][]kernel.Vec, scales []kernel.V) [][]kernel.Vec {
	var out [][]kernel.Vec
	for r, row := range w {
		out = append(out, nil)
		for _, x := range row {
			switch {
			case e.w == ir.BF16:
				out[r] = append(out[r], x)
				continue
			case e.apartByHalves():
				x = e.E2M1Apart(x, scales[r])
			case e.w == ir.F4E2M1:
				x = e.E2M1ToBF16(x, scales[r])
			default:
				x = e.CodesToBF16(x, e.w)
			}
			for i := 0; i < x.Len(); i += matrixRun / 2 {
				out[r] = append(out[r], e.Part(x, i, matrixRun/2))
			}
		}
	}
	return out
}

// addTile adds a tile of one unit to sum: w is what the lane has of its rows of w, with
// their scales, and x what it has of its row of x, if that is codes with their scale.
func (e *matrixEmitter) addTile(sum *kernel.VecVar, w [][]kernel.Vec, scales []kernel.V, x []kernel.Vec, scale kernel.V) {
	if m := e.scaledMFMA(); m != nil {
		sum.Set(e.MMAScaled(m, e.Join(w[0][0], w[0][1]), e.Join(x[0], x[1]), sum.Get(), scales[0], scale))
		return
	}
	// 8-bit weights: a chunk is summed, then scaled.
	scaled := e.w != ir.BF16 && e.w != ir.F4E2M1
	part := sum.Get()
	if scaled {
		part = e.ZeroVec(kernel.F32, target.ResultRun)
	}
	for i := range w[0] {
		part = e.multiplyRun(w, x[i], i, part)
	}
	if scaled {
		part = e.MapVec(func(v ...kernel.V) kernel.V {
			if e.codes { // two factors: their product may leave f32's range
				v[0] = e.Mul(v[0], scale)
			}
			return e.FMA(v[0], scales[0], v[1])
		}, part, sum.Get())
	}
	sum.Set(part)
}

// multiplyRun adds the product of vector i of the lane's rows of w and what it has of x
// there.
func (e *matrixEmitter) multiplyRun(w [][]kernel.Vec, x kernel.Vec, i int, c kernel.Vec) kernel.Vec {
	if e.codes {
		m := e.t.MFMA(e.w, e.w, false)
		words := int(e.w.Bytes(m.PerLane())) / 4
		for from := 0; from < x.Len(); from += words {
			c = e.MMA(m, e.Part(w[0][i], from, words), e.Part(x, from, words), c)
		}
		return c
	}
	var a []kernel.Vec
	for _, row := range w {
		a = append(a, row[i])
	}
	return e.unit.multiply(e.K, a, x, c)
}

// combine adds the waves' sums, in wave order, and has done finish the tiles: each lane
// that is there those that lane would have of it.
func (e *matrixEmitter) combine(wave, lane kernel.V, done func(tile, lane kernel.V, sums []kernel.Vec)) {
	tiles := e.rows * e.cols
	waves := e.unit.waves
	slots := min(tiles, waves)
	if e.unit.mma != nil {
		slots = max(1, min(slots, maxSumWords/(waves*e.products*e.unit.sumWords())))
	}
	shared := e.Shared(ir.F32, waves*slots*e.products*e.unit.sumWords())
	// place is where the sums of a wave are.
	place := func(wave, slot kernel.V, product kernel.V) kernel.V {
		at := e.Add(e.Mul(e.Add(e.Mul(wave, e.Int(slots)), slot), e.Int(e.products)), product)
		return e.unit.sumPlace(e.K, at)
	}
	for first := 0; first < tiles; first += slots {
		if first > 0 {
			e.Barrier() // the last readers are done
		}
		n := min(slots, tiles-first)
		e.storeSums(first, n, func(wave, slot, product kernel.V, sum *kernel.VecVar) {
			e.unit.storeSum(e.K, shared, place(wave, slot, product), lane, sum.Get())
		})
		e.Barrier()
		slot, lane := wave, lane
		if e.byLines() && n == waves && waves%e.cols == 0 {
			slot, lane = e.alongRows(wave, lane)
		}
		finish := func() {
			var sums []kernel.Vec
			for p := range e.products {
				var sum kernel.Vec
				for w := range waves {
					v := e.unit.loadSum(e.K, shared, place(e.Int(w), slot, e.Int(p)), lane)
					if w > 0 {
						v = e.MapVec(func(v ...kernel.V) kernel.V { return e.Add(v[0], v[1]) }, sum, v)
					}
					sum = v
				}
				sums = append(sums, sum)
			}
			done(e.Add(slot, e.Int(first)), lane, sums)
		}
		if n < waves {
			e.If(e.Cmp(kernel.LT, wave, e.Int(n)), finish)
		} else {
			finish()
		}
	}
}

// storeSums stores what the wave has of n tiles from number first on: whose sum of which
// slot and product it is.
func (e *matrixEmitter) storeSums(first, n int, store func(wave, slot, product kernel.V, sum *kernel.VecVar)) {
	if e.paired() {
		e.storePaired(first, n, store)
		return
	}
	for slot := range n {
		for p := range e.products {
			store(e.wave, e.Int(slot), e.Int(p), e.sum(0, p, (first+slot)/e.cols, (first+slot)%e.cols))
		}
	}
}
