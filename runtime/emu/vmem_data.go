package emu

// Loads and stores of all kinds of memory: which data there is, and how it lies in
// registers.

// datum is a data type of loads or stores.
type datum struct {
	size uint64 // bytes in memory
	// convert changes a loaded value into what the register gets, or a register into
	// what is stored; nil if these are the same.
	convert func(d, a *Vec)
}

// loadTypes are the types of loads, by the ending of global_load_ and the like.
//
// The d16 forms write half a register. What becomes of the other half depends on
// SRAM ECC, which the memory of these chips always has: it is then zeroed (LLVM, which
// does not rely on either, calls it d16PreservesUnusedBits).
var loadTypes = map[string]datum{
	"ubyte":        {1, nil},
	"sbyte":        {1, signExtend8},
	"ushort":       {2, nil},
	"sshort":       {2, signExtend16},
	"dword":        {4, nil},
	"dwordx2":      {8, nil},
	"dwordx3":      {12, nil},
	"dwordx4":      {16, nil},
	"ubyte_d16":    {1, nil},
	"ubyte_d16_hi": {1, highHalf},
	"sbyte_d16":    {1, signExtend8Low},
	"sbyte_d16_hi": {1, signExtend8High},
	"short_d16":    {2, nil},
	"short_d16_hi": {2, highHalf},
}

// storeTypes are the types of stores, by the ending of global_store_ and the like.
var storeTypes = map[string]datum{
	"byte":         {1, nil},
	"short":        {2, nil},
	"dword":        {4, nil},
	"dwordx2":      {8, nil},
	"dwordx3":      {12, nil},
	"dwordx4":      {16, nil},
	"byte_d16_hi":  {1, fromHighHalf},
	"short_d16_hi": {2, fromHighHalf},
}

func signExtend8(d, a *Vec) {
	for i, x := range a {
		d[i] = uint32(int8(x))
	}
}

func signExtend16(d, a *Vec) {
	for i, x := range a {
		d[i] = uint32(int16(x))
	}
}

func signExtend8Low(d, a *Vec) {
	for i, x := range a {
		d[i] = uint32(uint16(int8(x)))
	}
}

func signExtend8High(d, a *Vec) {
	for i, x := range a {
		d[i] = uint32(int8(x)) << 16
	}
}

func highHalf(d, a *Vec) {
	for i, x := range a {
		d[i] = x << 16
	}
}

func fromHighHalf(d, a *Vec) {
	for i, x := range a {
		d[i] = x >> 16
	}
}

// words is the number of registers that the datum takes.
func (t datum) words() int { return int(t.size+3) / 4 }

// cachePolicy reads the flags that say which caches an access goes through and how
// long its data stays there. Nothing of it changes values, but one: the goroutines
// that run work-groups need to know which accesses are to be ordered.
func (c *compiler) cachePolicy() (coherent bool) {
	sc0, sc1 := c.flag("sc0"), c.flag("sc1")
	c.flag("nt")
	return sc0 || sc1
}

// mover returns the loops for a width.
func (t datum) mover(coherent bool) mover {
	if m, ok := coherentMovers[t.size]; ok && coherent {
		return m
	}
	return movers[t.size]
}

// load makes the step of a load into register d.
func (t datum) load(a *access, d int, move mover) step {
	return func(w *wave) {
		if move.unpack != nil {
			if p := a.whole(w); p != nil {
				move.unpack(w.v[d:d+move.words], p)
				if t.convert != nil {
					t.convert(&w.v[d], &w.v[d])
				}
				return
			}
		}
		if mask := a.begin(w, w.exec()); mask != 0 {
			t.read(w, a, d, move, mask)
		}
	}
}

// read loads into register d the lanes of mask, whose addresses are in w.addr.
func (t datum) read(w *wave, a *access, d int, move mover, mask uint64) {
	v := w.v[d : d+move.words]
	if t.convert != nil {
		v = w.result[:1]
	}
	if !gather(w, a, v, move, mask) {
		return
	}
	if t.convert != nil {
		t.convert(&v[0], &v[0])
		write(&w.v[d], &v[0], mask)
	}
}

// gather loads raw data into registers, and tells whether it could.
func gather(w *wave, a *access, v []Vec, move mover, mask uint64) bool {
	if move.unpack != nil && a.run == nil {
		if p := a.contiguous(w, mask); p != nil {
			move.unpack(v, p)
			return true
		}
	}
	for mask != 0 {
		base, some := a.locate(w, mask)
		if base == nil {
			return false
		}
		move.gather(v, base, &w.offset, some)
		mask &^= some
	}
	return true
}

// store makes the step of a store of register s.
func (t datum) store(a *access, s int, move mover) step {
	return func(w *wave) {
		if move.pack != nil {
			if p := a.whole(w); p != nil {
				move.pack(t.stored(w, s, move), p)
				return
			}
		}
		if mask := a.begin(w, w.exec()); mask != 0 {
			t.write(w, a, s, move, mask)
		}
	}
}

// write stores register s in the lanes of mask, whose addresses are in w.addr.
func (t datum) write(w *wave, a *access, s int, move mover, mask uint64) {
	scatter(w, a, t.stored(w, s, move), move, mask)
}

// stored is what a store of register s writes, as words.
func (t datum) stored(w *wave, s int, move mover) []Vec {
	if t.convert == nil {
		return w.v[s : s+move.words]
	}
	t.convert(&w.result[0], &w.v[s])
	return w.result[:1]
}

// scatter stores registers as they are, and tells whether it could.
func scatter(w *wave, a *access, v []Vec, move mover, mask uint64) bool {
	if move.pack != nil && a.run == nil {
		if p := a.contiguous(w, mask); p != nil {
			move.pack(v, p)
			return true
		}
	}
	for mask != 0 {
		base, some := a.locate(w, mask)
		if base == nil {
			return false
		}
		move.scatter(v, base, &w.offset, some)
		mask &^= some
	}
	return true
}
