package emu

// Loads of LDS that transpose (CDNA4 ISA, "LDS transpose loads"): each 16 lanes load a
// matrix of 16 columns, lane after lane row by row, and lane l of them gets column l.
// A lane's bytes may lie anywhere, so that rows need not follow one another.
//
// An element of 16 bits thus has 4 lanes for a row and 4 rows; of 8 bits, 2 and 8; of
// 6 and 4 bits, one lane for each of 16 rows. The first two are what published kernels
// rely on; the others are the same rule.

func init() {
	define(map[string]compile{
		"ds_read_b64_tr_b16": transposedLoad(8, 16),
		"ds_read_b64_tr_b8":  transposedLoad(8, 8),
		"ds_read_b64_tr_b4":  transposedLoad(8, 4),
		"ds_read_b96_tr_b6":  transposedLoad(12, 6),
	}, "gfx950")
}

// transposedLoad loads size bytes a lane, of elements of so many bits.
func transposedLoad(size, bits uint64) compile {
	const columns = 16
	return func(c *compiler) step {
		move := movers[size]
		d := c.vectorDest(0, move.words)
		a := c.ldsAccess(1, size, uint64(c.number("offset", 0)), accessRead)
		a.align = size & -size // of 12 bytes: 4
		in := c.in
		perLane := int(8 * size / bits)
		return func(w *wave) {
			if w.exec() != fullMask {
				w.fail(in, "%s: EXEC is %#x, where the instruction needs all lanes", w.who(-1), w.exec())
				return
			}
			raw, out := w.result[:move.words], w.result[move.words:2*move.words]
			mask := a.begin(w, fullMask)
			if mask == 0 || !gather(w, a, raw, move, mask) {
				return
			}
			clear(out)
			for lane := range Lanes {
				first, column := lane&^(columns-1), lane%columns
				for row := range perLane {
					// A row's columns are in so many lanes as it takes.
					from := first + row*columns/perLane + column/perLane
					setBits(out, lane, uint64(row)*bits, bitsAt(raw, from, uint64(column%perLane)*bits, bits))
				}
			}
			copy(w.v[d:], out)
		}
	}
}

// bitsAt returns n bits, at a bit of a lane's words.
func bitsAt(v []Vec, lane int, at, n uint64) uint32 {
	x := uint64(v[at/32][lane])
	if at%32+n > 32 {
		x |= uint64(v[at/32+1][lane]) << 32
	}
	return uint32(x>>(at%32)) & (1<<n - 1)
}

// setBits puts x at a bit of a lane's words, where there are zeros.
func setBits(v []Vec, lane int, at uint64, x uint32) {
	y := uint64(x) << (at % 32)
	v[at/32][lane] |= uint32(y)
	if y>>32 != 0 {
		v[at/32+1][lane] |= uint32(y >> 32)
	}
}
