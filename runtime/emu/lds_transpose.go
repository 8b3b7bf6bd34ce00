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
		"ds_read_b64_tr_b16": transposedLoad(8, transpose16),
		"ds_read_b64_tr_b8":  transposedLoad(8, transpose8),
		"ds_read_b64_tr_b4":  transposedLoad(8, transposer(4)),
		"ds_read_b96_tr_b6":  transposedLoad(12, transposer(6)),
	}, "gfx950")
}

// transposedLoad loads size bytes a lane.
func transposedLoad(size uint64, transpose func(out, raw []Vec)) compile {
	return func(c *compiler) step {
		move := movers[size]
		d := c.vectorDest(0, move.words)
		a := c.ldsAccess(1, size, uint64(c.number("offset", 0)), accessRead)
		a.align = size & -size // of 12 bytes: 4
		in := c.in
		return func(w *wave) {
			if w.exec() != fullMask {
				w.fail(in, "%s: EXEC is %#x, where the instruction needs all lanes", w.who(-1), w.exec())
				return
			}
			raw, out := w.result[:move.words], w.result[move.words:2*move.words]
			if p := a.whole(w); p != nil {
				move.unpack(raw, p)
			} else if a.begin(w, fullMask) == 0 || !gather(w, a, raw, move, fullMask) {
				return
			}
			transpose(out, raw)
			copy(w.v[d:], out)
		}
	}
}

// transpose16 has the columns of a row in four lanes, four each.
func transpose16(out, raw []Vec) {
	d, s := (*[2]Vec)(out), (*[2]Vec)(raw)
	const high = 0xffff0000
	for i := range Lanes / 4 {
		// Lane from+4*row has these columns of a row: columns 4*i, ... of the 16 lanes.
		from, to := i&^3*4+i%4, 4*i
		for word := range 2 {
			x := &s[word]
			x0, x1, x2, x3 := x[from%Lanes], x[(from+4)%Lanes], x[(from+8)%Lanes], x[(from+12)%Lanes]
			d[0][(to+2*word)%Lanes], d[1][(to+2*word)%Lanes] = x0&^high|x1<<16, x2&^high|x3<<16
			d[0][(to+2*word+1)%Lanes], d[1][(to+2*word+1)%Lanes] = x0>>16|x1&high, x2>>16|x3&high
		}
	}
}

// transpose8 has the columns of a row in two lanes, eight each.
func transpose8(out, raw []Vec) {
	d, s := (*[2]Vec)(out), (*[2]Vec)(raw)
	for lane := range Lanes {
		from, word, shift := lane&^15+lane%16/8, lane%8/4, lane%4*8
		x := &s[word]
		for j := range 2 {
			y := uint32(0)
			for row := range 4 {
				y |= x[(from+2*(4*j+row))%Lanes] >> shift & 0xff << (8 * row)
			}
			d[j][lane] = y
		}
	}
}

// transposer has all columns of a row in one lane, of so many bits.
func transposer(bits uint64) func(out, raw []Vec) {
	return func(out, raw []Vec) {
		clear(out)
		for lane := range Lanes {
			first, column := lane&^15, uint64(lane%16)
			for row := range 16 {
				setBits(out, lane, uint64(row)*bits, bitsAt(raw, first+row, column*bits, bits))
			}
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
