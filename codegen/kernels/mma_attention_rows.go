package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// How the rows of a part come to lie in shared memory. Matrices are blocks of 64
// elements of all their rows; in a block a row has 128 bytes, of which the 16 number c
// are at number c ^ row%8, so that 8 rows' are in different banks.

// listStep is how many columns a lane looks at together.
func (g *warpGroup) listStep() int { return min(5, ceilDiv(g.columns, g.T.Lanes)) }

// listRows numbers the rows that the token sees, of all sets, and lists those from number
// from on as far as there is room. It returns how many it sees in all, uniform.
func (g *warpGroup) listRows(from kernel.V) kernel.V {
	list := g.lds(g.at.list, ir.I32)
	columns := g.Int(0)
	ends := make([]kernel.V, g.sets)
	for s := range ends {
		columns = g.Add(columns, g.widths[s])
		ends[s] = columns
	}
	count := g.UniformVar(g.Int(0))
	g.For(g.Int(0), columns, g.listStep()*g.T.Lanes, func(first kernel.V) {
		rows, there := make([]kernel.V, g.listStep()), make([]kernel.V, g.listStep())
		for i := range rows {
			rows[i] = g.rowAt(g.Add(first, g.Add(g.Lane(), g.Int(i*g.T.Lanes))), ends)
			there[i] = g.Cmp(kernel.GE, rows[i], g.Int32(0))
		}
		before, total := g.Ranks(there...)
		for i, row := range rows {
			at := g.Sub(g.Add(count.Get(), g.Convert(before[i], kernel.I64)), from)
			fits := g.And(g.Cmp(kernel.GE, at, g.Int(0)), g.Cmp(kernel.LT, at, g.Int(g.listed())))
			g.If(g.And(there[i], fits), func() { list.StoreBits(at, row) })
		}
		count.Set(g.Add(count.Get(), g.Convert(total, kernel.I64)))
	})
	g.Barrier()
	return count.Get()
}

// address is where a row begins that has the number of its set above it.
func (g *warpGroup) address(row kernel.V) kernel.V {
	base := g.rowSets[0].Address(g.Int(0))
	for s := 1; s < g.sets; s++ {
		base = g.Select(g.Cmp(kernel.GE, row, g.Int32(s<<rowBits)), g.rowSets[2*s].Address(g.Int(0)), base)
	}
	number := g.Convert(g.And(row, g.Int32(1<<rowBits-1)), kernel.I64)
	return g.Add(base, g.Mul(number, g.Int(int(rowBytes(g.rowsAre)))))
}

// rowAt is the row of a column, with the number of its set above it, or negative.
func (g *warpGroup) rowAt(column kernel.V, ends []kernel.V) kernel.V {
	in := g.Cmp(kernel.LT, column, ends[len(ends)-1])
	address := func(s int) kernel.V {
		at := column
		if s > 0 {
			at = g.Sub(column, ends[s-1])
		}
		return g.rowSets[2*s+1].Address(g.Add(g.Mul(g.token, g.widths[s]), g.Select(in, at, g.Int(0))))
	}
	set, from := g.Int32(0), address(0)
	for s := 1; s < len(ends); s++ {
		later := g.And(in, g.Cmp(kernel.GE, column, ends[s-1]))
		set, from = g.Select(later, g.Int32(s<<rowBits), set), g.Select(later, address(s), from)
	}
	row := g.ReadAt(from, ir.I32).Load(g.Int(0))
	return g.Select(g.And(in, g.Cmp(kernel.GE, row, g.Int32(0))), g.Or(row, set), g.Int32(-1))
}

// swizzled is the offset of 16 bytes of a row in a block.
func (g *warpGroup) swizzled(row, c kernel.V) kernel.V {
	return g.Add(g.Mul(row, g.Int(blockBytes)), g.Shl(g.Xor(c, g.And(row, g.Int(7))), g.Int(4)))
}

// headPlace is the offset of 16 bytes of a head's row.
func (g *warpGroup) headPlace(row, c kernel.V) kernel.V {
	return g.Add(g.Mul(g.UDiv(c, g.Int(8)), g.Int(g.heads()*blockBytes)), g.swizzled(row, g.URem(c, g.Int(8))))
}

// copyQueries starts to copy the queries of the group's heads.
func (g *warpGroup) copyQueries(q *kernel.Buf) {
	pieces := g.d / 8
	g.For(g.Int(0), g.Int(g.heads()*pieces), g.T.Lanes, func(from kernel.V) {
		i := g.Add(from, g.Lane())
		row, c := g.UDiv(i, g.Int(pieces)), g.URem(i, g.Int(pieces))
		head, own := g.headOf(row)
		head = g.Select(own, head, g.Int(g.h-1))
		g.pool.CopyAsync(g.Add(g.headPlace(row, c), g.Int(g.at.q)), q, g.Add(g.Mul(g.Add(g.Mul(g.token, g.Int(g.h)), head), g.Int(g.d)), g.Mul(c, g.Int(8))))
	})
}

// warpRows is how many rows of a part a warp copies.
func (g *warpGroup) warpRows() int { return attentionPart / g.warps }

// copyRows are the steps to start to copy a part to a buffer: the listed rows from number
// from on, up to end. A part that is not full is filled up with the last row, whose
// scores nobody heeds: memory that no row names is never read.
func (g *warpGroup) copyRows(from, end, buffer kernel.V) []func() {
	list := g.lds(g.at.list, ir.I32)
	rows, pieces := g.warpRows(), int(rowBytes(g.rowsAre)/16)
	first := g.Mul(g.warp, g.Int(rows))
	at := g.Add(from, g.Add(first, g.And(g.lane, g.Int(rows-1))))
	mine := g.address(list.LoadBits(g.Select(g.Cmp(kernel.LT, at, end), at, g.Sub(end, g.Int(1)))))
	place := func(row, c kernel.V) kernel.V {
		if g.rowsAre.Packed() {
			return g.Add(g.Int(g.at.packed), g.Add(g.Mul(row, g.Int(16*pieces)), g.Mul(c, g.Int(16))))
		}
		block := g.Mul(g.UDiv(c, g.Int(8)), g.Int(attentionPart*blockBytes))
		return g.Add(g.Add(g.Int(g.at.rows[0]), buffer), g.Add(block, g.swizzled(row, g.URem(c, g.Int(8)))))
	}
	var steps []func()
	if pieces >= g.T.Wave {
		for row := range rows {
			steps = append(steps, func() {
				src := g.ReadAt(g.Add(g.FromLane(mine, g.Int(row)), g.Mul(g.lane, g.Int(16))), ir.U8)
				for c := 0; c+g.T.Wave <= pieces; c += g.T.Wave {
					g.pool.CopyAsync(place(g.Add(first, g.Int(row)), g.Add(g.lane, g.Int(c))), src, g.Int(16*c))
				}
			})
		}
	}
	// What is left of rows of which no whole warp has pieces.
	left := pieces % g.T.Wave
	for i := 0; i < rows*left; i += g.T.Wave {
		steps = append(steps, func() {
			row, c := g.divide(g.Add(g.lane, g.Int(i)), left)
			c = g.Add(c, g.Int(pieces-left))
			there := g.Cmp(kernel.LT, row, g.Int(rows))
			if i+g.T.Wave > rows*left {
				row = g.Select(there, row, g.Int(0))
			}
			// All lanes take part in the exchange.
			src, to := g.ReadAt(g.FromLane(mine, row), ir.U8), place(g.Add(first, row), c)
			copyPiece := func() { g.pool.CopyAsync(to, src, g.Mul(c, g.Int(16))) }
			if i+g.T.Wave > rows*left {
				g.If(there, copyPiece)
				return
			}
			copyPiece()
		})
	}
	return steps
}

// divide is i, below 2^31, by n, and the rest.
func (g *warpGroup) divide(i kernel.V, n int) (quotient, rest kernel.V) {
	if n&(n-1) == 0 {
		return g.UDiv(i, g.Int(n)), g.URem(i, g.Int(n))
	}
	i = g.Convert(i, kernel.I32)
	return g.Convert(g.UDiv(i, g.Int32(n)), kernel.I64), g.Convert(g.URem(i, g.Int32(n)), kernel.I64)
}

// decodeRows makes numbers of bf16 of a part that is packed.
func (g *warpGroup) decodeRows() {
	f := g.rowsAre
	if !f.Packed() {
		return
	}
	raw := g.lds(g.at.packed, ir.U8)
	// The lanes of a warp have rows that follow each other, which are in different banks,
	// and the same pieces of them.
	row, from := g.And(g.Lane(), g.Int(attentionPart-1)), g.UDiv(g.Lane(), g.Int(attentionPart))
	at := g.Mul(row, g.Int(f.Bytes()))
	scales := raw.LoadVec(g.Add(at, g.Int(f.Scales())), scaleBytes(f))
	store := func(eight kernel.V, words kernel.Vec) {
		block := g.Mul(g.UDiv(eight, g.Int(8)), g.Int(attentionPart*blockBytes))
		to := g.Add(block, g.swizzled(row, g.URem(eight, g.Int(8))))
		g.lds(g.at.rows[0], ir.U8).StoreVec(to, words)
	}
	perRow := g.T.Lanes / attentionPart
	codes, rest := f.Dims/16, (f.D-f.Dims)/8
	pieces := codes + rest
	load := func(i int) kernel.Vec {
		piece := g.Add(from, g.Int(i))
		if i+perRow > pieces {
			piece = g.Select(g.Cmp(kernel.LT, piece, g.Int(pieces)), piece, g.Int(0))
		}
		return raw.LoadVec(g.Add(at, g.Mul(piece, g.Int(16))), 16) // codes, and what follows them
	}
	decode := func(i int, words kernel.Vec) {
		piece := g.Add(from, g.Int(i))
		asCodes := func() {
			block := i * 16 / f.Block
			scale := g.LShr(g.At(scales, block/4), g.Int32(8*(block%4)))
			if f.Block%(16*perRow) != 0 { // not of one block
				scale = raw.LoadBits(g.Add(g.Add(at, g.Int(f.Scales())), g.UDiv(piece, g.Int(f.Block/16))))
			}
			numbers := g.E4M3ToBF16(words, g.DecodeE8M0(g.And(scale, g.Int32(0xFF))))
			for half := range 2 {
				store(g.Add(g.Mul(piece, g.Int(2)), g.Int(half)), g.Part(numbers, 4*half, 4))
			}
		}
		asRest := func() { store(g.Add(piece, g.Int(f.Dims/8-codes)), words) }
		switch {
		case i+perRow <= codes:
			asCodes()
		case i >= codes && i+perRow <= pieces:
			asRest()
		default:
			coded := g.Cmp(kernel.LT, piece, g.Int(codes))
			g.If(coded, asCodes)
			g.If(g.And(g.Not(coded), g.Cmp(kernel.LT, piece, g.Int(pieces))), asRest)
		}
	}
	// All loads come before all stores, which the compiler keeps in order.
	var words []kernel.Vec
	for i := 0; i < pieces; i += perRow {
		words = append(words, load(i))
	}
	for n, w := range words {
		decode(n*perRow, w)
	}
	g.written()
}
