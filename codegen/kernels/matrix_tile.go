package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Products on matrix units. A group of four waves multiplies a tile: cols times 16
// rows of w, the instruction's A, with rows times 16 rows of x, its B. K is cut into
// pieces of matrixChunk; wave i sums pieces i, i+4, ..., and the waves' sums are
// added in wave order. So a result's order of summation follows from K and the
// target alone: tiles of all sizes give the same bits.

const (
	matrixChunk = 128 // k that a wave multiplies at a time
	matrixWaves = 4   // waves that share K
	matrixRun   = 8   // k of bf16 that a lane loads at a time, 16 bytes
	lanesPerRow = target.MatrixLanes / target.MatrixTile
)

// matrixProduct says what the code of a product depends on.
type matrixProduct struct {
	t          *target.Target
	n, depth   int      // rows of w, and elements of a row: K
	w          ir.DType // bf16, the target's 8-bit float, or f4e2m1
	block      [2]int   // of w's scales; zero for none
	codes      bool     // x is 8-bit codes with a scale for each matrixChunk, not bf16
	rows, cols int      // of a tile, in units of target.MatrixTile
	products   int      // weights that are multiplied at once
	apart      bool     // each of them with rows of x of its own
}

// matrixRefuses reports why no matrix product takes a weight whose last axes are
// [n,k], or "".
func matrixRefuses(t *target.Target, w ir.Type) string {
	if t.MFMA(ir.BF16, ir.BF16, false) == nil {
		return "no matrix instructions on " + t.Name
	}
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

// shape chooses the tile for m rows of x. Few rows are bound by reading w: small
// tiles give more groups, as few as the chip needs. For more than the rows of a step
// the operands' way to the registers counts, which large tiles need less often.
func (p *matrixProduct) shape(m int) {
	switch {
	case m <= maxSkinny:
		p.rows, p.cols = 1, max(1, min(4, p.n/4096))
	case m <= 128:
		p.rows, p.cols = 4, max(1, min(4, p.n/2048))
	default:
		p.rows, p.cols = 4, 4
	}
	if p.products > 1 { // as many accumulators, and rows of w that are read
		p.cols = max(1, p.cols/p.products)
	}
}

// tileRows and tileCols are the rows of x and of w of a tile.
func (p *matrixProduct) tileRows() int { return p.rows * target.MatrixTile }
func (p *matrixProduct) tileCols() int { return p.cols * target.MatrixTile }

// colTiles is the number of tiles for all rows of w.
func (p *matrixProduct) colTiles() int { return ceilDiv(p.n, p.tileCols()) }

func (p *matrixProduct) spec() string {
	return fmt.Sprintf("n%d k%d %s block%v codes%v tile%dx%d products%d", p.n, p.depth, p.w, p.block, p.codes, p.rows, p.cols, p.products)
}

// rowsOfX is how many times 16 rows of x a tile reads.
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
	at        []kernel.V // for each 16 rows of the tile, and product if those are apart, which row of x this lane reads
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
func (p *matrixProduct) skinny() bool { return p.rows == 1 }

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
	words := p.rowsOfX()*x + p.products*p.cols*perLane/p.run()*4
	n := max(1, min(registers/words, whole))
	for whole%n != 0 {
		n--
	}
	return n
}

// multiply emits the product of a tile from row n0 of the weights on. done gets, in
// the waves that have them, the sums of 16 rows of x and 16 of each weight: those of
// this lane are of row row of x, counted from the tile's first, and of rows col to
// col+3 of the weights.
func (p *matrixProduct) multiply(k *kernel.K, x matrixRows, ws []matrixWeight, n0 kernel.V, done func(row, col kernel.V, sums []kernel.Vec)) {
	lane, wave := k.WaveLane(), k.Wave()
	sub, group := k.And(lane, k.Int(target.MatrixTile-1)), k.LShr(lane, k.Int(4))
	e := &matrixEmitter{matrixProduct: p, K: k, x: x, ws: ws}
	e.address(n0, sub, group)
	for range p.products * p.rows * p.cols {
		e.acc = append(e.acc, k.VecVar(k.ZeroVec(kernel.F32, target.ResultRun)))
	}
	chunks := ceilDiv(p.depth, matrixChunk)
	whole, rest := chunks/matrixWaves, chunks%matrixWaves
	chunk := func(i kernel.V) kernel.V { return k.Add(k.Mul(i, k.Int(matrixWaves)), wave) }
	if whole > 0 {
		step := p.atOnce(whole)
		k.For(k.Int(0), k.Int(whole), step, func(i kernel.V) {
			var list []kernel.V
			for j := range step {
				list = append(list, chunk(k.Add(i, k.Int(j))))
			}
			e.chunks(list)
		})
	}
	if rest > 0 {
		k.If(k.Cmp(kernel.LT, wave, k.Int(rest)), func() { e.chunks([]kernel.V{chunk(k.Int(whole))}) })
	}
	e.combine(wave, lane, func(tile kernel.V, sums []kernel.Vec) {
		row, col := k.UDiv(tile, k.Int(p.cols)), k.URem(tile, k.Int(p.cols))
		row = k.Add(k.Mul(row, k.Int(target.MatrixTile)), sub)
		col = k.Add(k.Mul(col, k.Int(target.MatrixTile)), k.Mul(group, k.Int(target.ResultRun)))
		done(row, k.Add(n0, col), sums)
	})
}

// matrixEmitter is the state of multiply.
type matrixEmitter struct {
	*matrixProduct
	*kernel.K
	x   matrixRows
	ws  []matrixWeight
	acc []*kernel.VecVar // by product, row and column of the tile

	// Where this lane's elements of the first chunk and its scales are: those of x by
	// row of the tile, those of w by product and column.
	xAt, xScale []kernel.V
	wAt, wScale [][]kernel.V
	firstK      kernel.V // the first k in a chunk
}

// sum is the accumulator of a tile of 16 by 16.
func (e *matrixEmitter) sum(product, row, col int) *kernel.VecVar {
	return e.acc[(product*e.rows+row)*e.cols+col]
}

func (e *matrixEmitter) address(n0, sub, group kernel.V) {
	last := func(i kernel.V) kernel.V {
		return e.Select(e.Cmp(kernel.LT, i, e.Int(e.n)), i, e.Int(e.n-1))
	}
	e.firstK = e.Mul(group, e.Int(e.run()))
	for _, at := range e.x.at {
		e.xAt = append(e.xAt, e.Add(e.Mul(at, e.Int(e.depth)), e.firstK))
		e.xScale = append(e.xScale, e.Mul(at, e.Int(e.depth/matrixChunk)))
	}
	for p, w := range e.ws {
		e.wAt, e.wScale = append(e.wAt, nil), append(e.wScale, nil)
		// Per lane, so that many weights do not need many scalar registers.
		rows, scaleRows := e.Mul(w.index, e.Int(e.n)), e.Mul(w.index, e.Int(ceilDiv(e.n, max(1, e.block[0]))))
		for c := range e.cols {
			from := e.Add(n0, e.Int(c*target.MatrixTile))
			row := last(e.Add(from, sub))
			e.wAt[p] = append(e.wAt[p], e.Add(e.Mul(e.Add(rows, row), e.Int(e.depth)), e.firstK))
			switch e.w {
			case ir.BF16:
			case ir.F4E2M1: // a lane's elements of a chunk are one block
				e.wScale[p] = append(e.wScale[p], e.Add(e.Mul(e.Add(scaleRows, row), e.Int(e.scaleCols())), group))
			default:
				block := e.UDiv(last(from), e.Int(e.block[0]))
				e.wScale[p] = append(e.wScale[p], e.Mul(e.Add(scaleRows, block), e.Int(e.scaleCols())))
			}
		}
	}
}

// matrixLoads is what a lane reads of a chunk.
type matrixLoads struct {
	x      [][]kernel.Vec   // by row of the tile: vectors of 16 bytes
	xScale []kernel.V       // by row
	w      [][][]kernel.Vec // by product and column
	wScale [][]kernel.V
}

// chunks adds the products of some chunks, which are all read first.
func (e *matrixEmitter) chunks(list []kernel.V) {
	loads := make([]matrixLoads, len(list))
	for i, c := range list {
		loads[i] = e.load(c)
	}
	if e.skinny() {
		e.InOrder()
	}
	for i := range loads {
		e.add(&loads[i])
	}
}

func (e *matrixEmitter) load(chunk kernel.V) matrixLoads {
	var out matrixLoads
	k0 := e.Mul(chunk, e.Int(matrixChunk))
	read := func(b *kernel.Buf, at kernel.V, k, n int) kernel.Vec {
		offset := e.Add(k0, e.Int(k))
		if e.depth%matrixChunk == 0 {
			return b.LoadVec(e.Add(at, offset), n)
		}
		in := e.Cmp(kernel.LT, e.Add(e.firstK, offset), e.Int(e.depth))
		return b.LoadVecIf(in, e.Add(at, offset), n)
	}
	run := e.run()
	for p, w := range e.ws {
		out.w, out.wScale = append(out.w, nil), append(out.wScale, nil)
		for c, at := range e.wAt[p] {
			var row []kernel.Vec
			for i := range perLane / run {
				row = append(row, read(w.rows, at, i*run*lanesPerRow, run))
			}
			out.w[p] = append(out.w[p], row)
			if e.w == ir.BF16 {
				continue
			}
			s := e.Add(e.wScale[p][c], e.UDiv(k0, e.Int(e.block[1])))
			if e.scaledMFMA() != nil {
				out.wScale[p] = append(out.wScale[p], w.scales.Bytes().Load(s))
			} else {
				out.wScale[p] = append(out.wScale[p], w.scales.Load(s))
			}
		}
	}
	n := matrixRun
	if e.codes {
		n = run
	}
	for r, at := range e.xAt {
		var row []kernel.Vec
		for i := 0; i < perLane; i += n {
			row = append(row, read(e.x.x, at, i/run*run*lanesPerRow+i%run, n))
		}
		out.x = append(out.x, row)
		if !e.codes {
			continue
		}
		s := e.Add(e.xScale[r], chunk)
		if e.scaledMFMA() != nil {
			out.xScale = append(out.xScale, e.x.scales.Bytes().Load(s))
		} else {
			out.xScale = append(out.xScale, e.x.scales.Load(s))
		}
	}
	return out
}

// add adds the products of a chunk to the sums.
func (e *matrixEmitter) add(l *matrixLoads) {
	for p := range e.ws {
		for c := range e.cols {
			w := l.w[p][c]
			if !e.codes {
				w = e.asBF16(l, p, c)
			}
			for r := range e.rows {
				e.addTile(l, p, r, c, w)
			}
		}
	}
}

// asBF16 is what a lane read of a row of w as bf16, in vectors of matrixRun; e2m1
// with its scale.
func (e *matrixEmitter) asBF16(l *matrixLoads, product, col int) []kernel.Vec {
	var out []kernel.Vec
	for _, x := range l.w[product][col] {
		switch e.w {
		case ir.BF16:
			out = append(out, x)
			continue
		case ir.F4E2M1:
			x = e.E2M1ToBF16(x, l.wScale[product][col])
		default:
			x = e.CodesToBF16(x, e.w)
		}
		for i := 0; i < x.Len(); i += matrixRun / 2 {
			out = append(out, e.Part(x, i, matrixRun/2))
		}
	}
	return out
}

func (e *matrixEmitter) addTile(l *matrixLoads, product, row, col int, w []kernel.Vec) {
	sum, rowOfX := e.sum(product, row, col), e.rowOfX(product, row)
	x := l.x[rowOfX]
	if m := e.scaledMFMA(); m != nil {
		sum.Set(e.MMAScaled(m, e.Join(w[0], w[1]), e.Join(x[0], x[1]), sum.Get(), l.wScale[product][col], l.xScale[rowOfX]))
		return
	}
	format := ir.BF16
	if e.codes {
		format = e.w
	}
	m := e.t.MFMA(format, format, false)
	words := int(format.Bytes(m.PerLane())) / 4
	// 8-bit weights: a chunk is summed, then scaled.
	scaled := e.w != ir.BF16 && e.w != ir.F4E2M1
	part := sum.Get()
	if scaled {
		part = e.ZeroVec(kernel.F32, target.ResultRun)
	}
	for i := range w {
		for from := 0; from < w[i].Len(); from += words {
			part = e.MMA(m, e.Part(w[i], from, words), e.Part(x[i], from, words), part)
		}
	}
	if scaled {
		s := l.wScale[product][col]
		part = e.MapVec(func(v ...kernel.V) kernel.V {
			if e.codes { // two factors: their product may leave f32's range
				v[0] = e.Mul(v[0], l.xScale[rowOfX])
			}
			return e.FMA(v[0], s, v[1])
		}, part, sum.Get())
	}
	sum.Set(part)
}

// combine adds the waves' sums, in wave order, and has done finish the tiles, each
// in one wave.
func (e *matrixEmitter) combine(wave, lane kernel.V, done func(tile kernel.V, sums []kernel.Vec)) {
	tiles := e.rows * e.cols
	slots := min(tiles, matrixWaves)
	shared := e.Shared(ir.F32, matrixWaves*slots*e.products*target.MatrixLanes*target.ResultRun)
	// place is where a lane's sum of a wave is.
	place := func(wave, slot kernel.V, product int) kernel.V {
		at := e.Add(e.Mul(e.Add(e.Mul(wave, e.Int(slots)), slot), e.Int(e.products)), e.Int(product))
		return e.Mul(e.Add(e.Mul(at, e.Int(target.MatrixLanes)), lane), e.Int(target.ResultRun))
	}
	for first := 0; first < tiles; first += slots {
		if first > 0 {
			e.Barrier() // the last readers are done
		}
		for slot := range min(slots, tiles-first) {
			for p := range e.products {
				row, col := (first+slot)/e.cols, (first+slot)%e.cols
				shared.StoreVec(place(wave, e.Int(slot), p), e.sum(p, row, col).Get())
			}
		}
		e.Barrier()
		finish := func() {
			var sums []kernel.Vec
			for p := range e.products {
				var sum kernel.Vec
				for w := range matrixWaves {
					v := e.AsF32(shared.LoadVec(place(e.Int(w), wave, p), target.ResultRun))
					if w > 0 {
						v = e.MapVec(func(v ...kernel.V) kernel.V { return e.Add(v[0], v[1]) }, sum, v)
					}
					sum = v
				}
				sums = append(sums, sum)
			}
			done(e.Add(wave, e.Int(first)), sums)
		}
		if n := min(slots, tiles-first); n < matrixWaves {
			e.If(e.Cmp(kernel.LT, wave, e.Int(n)), finish)
		} else {
			finish()
		}
	}
}
