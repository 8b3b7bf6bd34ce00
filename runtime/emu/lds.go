package emu

// Loads and stores of LDS (MI300 ISA, "Local Data Share Operations"). The address is
// a vector register of 32 bits plus the offset; M0 has no part in it on these chips.
// Any alignment will do, as the runtime of the device sets the unaligned access mode.
// The device returns zeros from beyond the work-group's LDS and drops what is written
// there; here it is an error.

// ldsLoadTypes and ldsStoreTypes are the names of the types in the DS instructions.
var (
	ldsLoadTypes = map[string]string{
		"b32": "dword", "b64": "dwordx2", "b96": "dwordx3", "b128": "dwordx4", "u8": "ubyte", "i8": "sbyte", "u16": "ushort", "i16": "sshort",
		"u8_d16": "ubyte_d16", "u8_d16_hi": "ubyte_d16_hi", "i8_d16": "sbyte_d16", "i8_d16_hi": "sbyte_d16_hi",
		"u16_d16": "short_d16", "u16_d16_hi": "short_d16_hi",
	}
	ldsStoreTypes = map[string]string{
		"b32": "dword", "b64": "dwordx2", "b96": "dwordx3", "b128": "dwordx4", "b8": "byte", "b16": "short",
		"b8_d16_hi": "byte_d16_hi", "b16_d16_hi": "short_d16_hi",
	}
)

func init() {
	rows := map[string]compile{}
	for name, t := range ldsLoadTypes {
		rows["ds_read_"+name] = ldsLoad(loadTypes[t])
	}
	for name, t := range ldsStoreTypes {
		rows["ds_write_"+name] = ldsStore(storeTypes[t])
	}
	// The offsets of two accesses count elements, or 64 of them.
	for name, size := range map[string]uint64{"b32": 4, "b64": 8} {
		for stride, n := range map[string]uint64{"2_": 1, "2st64_": 64} {
			rows["ds_read"+stride+name] = ldsLoad2(size, n*size)
			rows["ds_write"+stride+name] = ldsStore2(size, n*size)
		}
	}
	define(rows)
}

// ldsAccess compiles the address at operand i.
func (c *compiler) ldsAccess(i int, size, offset uint64, kind accessKind) *access {
	r := c.addressRegister(i, 1)
	a := &access{in: c.in, place: placeLDS, size: size, kind: kind, address: func(w *wave) {
		for i, x := range &w.v[r] {
			w.addr[i] = uint64(x + uint32(offset))
		}
	}}
	a.run = func(w *wave, size uint64) (uint64, bool) {
		v := &w.v[r]
		x := uint64(v[0] + uint32(offset))
		return x, run32(v, size) && x >= uint64(uint32(offset)) // the sum does not wrap
	}
	return a
}

// then is a second access, delta bytes from the first. It does not read the address
// register, which the first may have overwritten.
func (a *access) then(delta uint64) *access {
	b := *a
	b.address = func(w *wave) {
		for i, x := range w.addr {
			w.addr[i] = uint64(uint32(x + delta))
		}
	}
	return &b
}

func ldsLoad(t datum) compile {
	return func(c *compiler) step {
		d := c.vectorDest(0, t.words())
		return t.load(c.ldsAccess(1, t.size, uint64(c.number("offset", 0)), accessRead), d, movers[t.size])
	}
}

func ldsStore(t datum) compile {
	return func(c *compiler) step {
		a := c.ldsAccess(0, t.size, uint64(c.number("offset", 0)), accessWrite)
		return t.store(a, c.vectorData(1, t.words()), movers[t.size])
	}
}

// offsets reads the two offsets of an instruction with two accesses.
func (c *compiler) offsets(scale uint64) (first, delta uint64) {
	first = uint64(c.number("offset0", 0)) * scale
	return first, uint64(c.number("offset1", 0))*scale - first
}

func ldsLoad2(size, scale uint64) compile {
	return func(c *compiler) step {
		first, delta := c.offsets(scale)
		move := movers[size]
		d := c.vectorDest(0, 2*move.words)
		a := c.ldsAccess(1, size, first, accessRead)
		a.run = nil // the second access needs the addresses
		b := a.then(delta)
		return func(w *wave) {
			mask := a.begin(w, w.exec())
			if gather(w, a, w.v[d:d+move.words], move, mask) {
				gather(w, b, w.v[d+move.words:], move, b.begin(w, mask))
			}
		}
	}
}

func ldsStore2(size, scale uint64) compile {
	return func(c *compiler) step {
		first, delta := c.offsets(scale)
		move := movers[size]
		a := c.ldsAccess(0, size, first, accessWrite)
		a.run = nil // the second access needs the addresses
		b := a.then(delta)
		s0, s1 := c.vectorData(1, move.words), c.vectorData(2, move.words)
		return func(w *wave) {
			mask := a.begin(w, w.exec())
			if scatter(w, a, w.v[s0:s0+move.words], move, mask) {
				scatter(w, b, w.v[s1:s1+move.words], move, b.begin(w, mask))
			}
		}
	}
}
