package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// How the rows of a part come to lie in shared memory. Matrices are blocks of 64
// elements of all their rows; in a block a row has 128 bytes, of which the 16 number c
// are at number c ^ row%8, so that 8 rows' are in different banks.

// listStep is how many columns a lane looks at together.
const listStep = 5

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
	g.For(g.Int(0), columns, listStep*g.T.Lanes, func(first kernel.V) {
		rows, there := make([]kernel.V, listStep), make([]kernel.V, listStep)
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

// copyQueries starts to copy the queries of the group's heads.
func (g *warpGroup) copyQueries(q *kernel.Buf) {
	pieces := g.d / 8
	g.For(g.Int(0), g.Int(g.heads()*pieces), g.T.Lanes, func(from kernel.V) {
		i := g.Add(from, g.Lane())
		row, c := g.UDiv(i, g.Int(pieces)), g.URem(i, g.Int(pieces))
		head, own := g.headOf(row)
		head = g.Select(own, head, g.Int(g.h-1))
		at := g.Add(g.Mul(g.UDiv(c, g.Int(8)), g.Int(g.heads()*blockBytes)), g.swizzled(row, g.URem(c, g.Int(8))))
		g.pool.CopyAsync(g.Add(at, g.Int(g.at.q)), q, g.Add(g.Mul(g.Add(g.Mul(g.token, g.Int(g.h)), head), g.Int(g.d)), g.Mul(c, g.Int(8))))
	})
}

// copyRows starts to copy a part: the listed rows from number from on, of which left are
// there. A part that is not full is filled up with the last row, whose scores nobody
// heeds: memory that no row names is never read.
func (g *warpGroup) copyRows(from, end, buffer kernel.V) {
	list := g.lds(g.at.list, ir.I32)
	pieces := int(rowBytes(g.rowsAre) / 16)
	last := g.Sub(end, g.Int(1))
	bases := make([]kernel.V, g.sets)
	for s := range bases {
		bases[s] = g.rowSets[2*s].Address(g.Int(0))
	}
	total := attentionPart * pieces
	step := func(first int) {
		i := g.Add(g.Lane(), g.Int(first))
		copyPiece := func() {
			row, c := g.UDiv(i, g.Int(pieces)), g.URem(i, g.Int(pieces))
			at := g.Add(from, row)
			listed := list.LoadBits(g.Select(g.Cmp(kernel.LT, at, end), at, last))
			base := bases[0]
			for s := 1; s < len(bases); s++ {
				base = g.Select(g.Cmp(kernel.GE, listed, g.Int32(s<<rowBits)), bases[s], base)
			}
			number := g.Convert(g.And(listed, g.Int32(1<<rowBits-1)), kernel.I64)
			src := g.ReadAt(g.Add(base, g.Add(g.Mul(number, g.Int(16*pieces)), g.Mul(c, g.Int(16)))), ir.U8)
			to := g.Add(g.Int(g.at.packed), g.Mul(i, g.Int(16)))
			if !g.rowsAre.Packed() {
				block := g.Mul(g.UDiv(c, g.Int(8)), g.Int(attentionPart*blockBytes))
				to = g.Add(g.Add(g.Int(g.at.rows[0]), buffer), g.Add(block, g.swizzled(row, g.URem(c, g.Int(8)))))
			}
			g.pool.CopyAsync(to, src, g.Int(0))
		}
		if first+g.T.Lanes <= total {
			copyPiece()
			return
		}
		g.If(g.Cmp(kernel.LT, i, g.Int(total)), copyPiece)
	}
	for first := 0; first < total; first += g.T.Lanes {
		step(first)
	}
}

// decodeRows makes numbers of bf16 of a part that is packed.
func (g *warpGroup) decodeRows() {
	f := g.rowsAre
	if !f.Packed() || attnKnob("wcut", 0)&16 != 0 {
		return
	}
	raw, scales := g.lds(g.at.packed, ir.U8), g.lds(g.at.packed+f.Scales(), ir.U8)
	store := func(row, eight kernel.V, words kernel.Vec) {
		block := g.Mul(g.UDiv(eight, g.Int(8)), g.Int(attentionPart*blockBytes))
		at := g.Add(block, g.swizzled(row, g.URem(eight, g.Int(8))))
		g.lds(g.at.rows[0], ir.U8).StoreVec(at, words)
	}
	g.spread(attentionPart*f.Dims/16, f.Dims/16, func(row, piece kernel.V) {
		at := g.Mul(row, g.Int(f.Bytes()))
		codes := raw.LoadVec(g.Add(at, g.Mul(piece, g.Int(16))), 16)
		scale := g.DecodeE8M0(scales.LoadBits(g.Add(at, g.UDiv(piece, g.Int(f.Block/16)))))
		numbers := g.E4M3ToBF16(codes, scale)
		for half := range 2 {
			store(row, g.Add(g.Mul(piece, g.Int(2)), g.Int(half)), g.Part(numbers, 4*half, 4))
		}
	})
	if rest := (f.D - f.Dims) / 8; rest > 0 {
		g.spread(attentionPart*rest, rest, func(row, piece kernel.V) {
			at := g.Add(g.Mul(row, g.Int(f.Bytes())), g.Add(g.Int(f.Rest()), g.Mul(piece, g.Int(16))))
			store(row, g.Add(piece, g.Int(f.Dims/8)), raw.LoadVec(at, 16))
		})
	}
	g.written()
}

// spread calls f for n pieces, so many to a row, spread over the lanes.
func (g *warpGroup) spread(n, perRow int, f func(row, piece kernel.V)) {
	for first := 0; first < n; first += g.T.Lanes {
		i := g.Add(g.Lane(), g.Int(first))
		do := func() { f(g.UDiv(i, g.Int(perRow)), g.URem(i, g.Int(perRow))) }
		if first+g.T.Lanes <= n {
			do()
			continue
		}
		g.If(g.Cmp(kernel.LT, i, g.Int(n)), do)
	}
}
