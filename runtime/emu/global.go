package emu

// Loads and stores of global memory, of the flat address space and of scratch memory
// (MI300 ISA, "Flat Memory Instructions"). They may lie at any address: the runtime
// of the device sets the unaligned access mode.

func init() {
	rows := map[string]compile{}
	for name, t := range loadTypes {
		for prefix, form := range flatForms {
			rows[prefix+"load_"+name] = flatLoad(t, form)
		}
	}
	for name, t := range storeTypes {
		for prefix, form := range flatForms {
			rows[prefix+"store_"+name] = flatStore(t, form)
		}
	}
	rows["global_load_lds_dword"] = loadLDS(4)
	define(rows)
	define(map[string]compile{"global_load_lds_dwordx3": loadLDS(12), "global_load_lds_dwordx4": loadLDS(16)}, "gfx950")
}

// flatForm is one of the three forms of the encoding.
type flatForm struct {
	place place
	// address compiles the vector address at operand v and what follows the data, at
	// operand s, for an access.
	address func(c *compiler, a *access, v, s int)
}

var flatForms = map[string]flatForm{
	"global_":  {placeGlobal, (*compiler).globalAddress},
	"flat_":    {placeFlat, (*compiler).flatAddress},
	"scratch_": {placeScratch, (*compiler).scratchAddress},
}

func flatLoad(t datum, form flatForm) compile {
	return func(c *compiler) step {
		d := c.vectorDest(0, t.words())
		a := &access{in: c.in, place: form.place, size: t.size, kind: accessRead}
		form.address(c, a, 1, 2)
		return t.load(a, d, t.mover(c.cachePolicy()))
	}
}

func flatStore(t datum, form flatForm) compile {
	return func(c *compiler) step {
		s := c.vectorData(1, t.words())
		a := &access{in: c.in, place: form.place, size: t.size, kind: accessWrite}
		form.address(c, a, 0, 2)
		return t.store(a, s, t.mover(c.cachePolicy()))
	}
}

// isOff tells whether an address operand is absent.
func (c *compiler) isOff(i int) bool {
	o := c.arg(i)
	return o.Kind == Name && o.Text == "off"
}

// addressRegister compiles an address in n vector registers.
func (c *compiler) addressRegister(i, n int) int {
	if o := c.arg(i); o.Kind == AGPR {
		c.fail("operand %s: an address is no accumulation register", o.Text)
	}
	return c.vectorData(i, n)
}

// vectorData compiles data in n registers that an instruction only reads.
func (c *compiler) vectorData(i, n int) int {
	o := c.plain(c.arg(i))
	if o.Kind != VGPR && o.Kind != AGPR {
		c.fail("operand %s is no vector register", o.Text)
		return 0
	}
	r := c.vectorRegister(o, n)
	c.readsVector(i, r, n, 0)
	return r
}

// globalAddress is v[64 bits] + offset, or s[64 bits] + v[32 bits] + offset.
func (c *compiler) globalAddress(a *access, v, s int) {
	if c.isOff(s) {
		c.flatAddress(a, v, s)
		return
	}
	offset := uint64(c.number("offset", 0))
	base, r := c.scalarSource(s, 64), c.addressRegister(v, 1)
	a.address = func(w *wave) {
		b := base.get64(w) + offset
		for i, x := range &w.v[r] {
			w.addr[i] = b + uint64(x)
		}
	}
	a.run = func(w *wave, size uint64) (uint64, bool) {
		return base.get64(w) + offset + uint64(w.v[r][0]), run32(&w.v[r], size)
	}
}

// flatAddress is v[64 bits] + offset.
func (c *compiler) flatAddress(a *access, v, _ int) {
	offset := uint64(c.number("offset", 0))
	r := c.addressRegister(v, 2)
	a.address = func(w *wave) {
		p := (*[2]Vec)(w.v[r:])
		for i := range w.addr {
			w.addr[i] = (uint64(p[0][i]) | uint64(p[1][i])<<32) + offset
		}
	}
	a.run = func(w *wave, size uint64) (uint64, bool) {
		p := (*[2]Vec)(w.v[r:])
		first := uint64(p[0][0]) | uint64(p[1][0])<<32
		x := first
		for i := range &p[0] {
			if p[0][i] != uint32(x) || p[1][i] != uint32(x>>32) {
				return 0, false
			}
			x += size
		}
		return first + offset, true
	}
}

// scratchAddress is s + v + offset, each of them optional. The sum has 32 bits.
func (c *compiler) scratchAddress(a *access, v, s int) {
	offset := uint32(c.number("offset", 0))
	base := scalar{reg: -1}
	if !c.isOff(s) {
		base = c.scalarSource(s, 32)
	}
	if c.isOff(v) {
		a.address = func(w *wave) {
			x := uint64(base.get(w) + offset)
			for i := range w.addr {
				w.addr[i] = x
			}
		}
		return
	}
	r := c.addressRegister(v, 1)
	a.address = func(w *wave) {
		b := base.get(w) + offset
		for i, x := range &w.v[r] {
			w.addr[i] = uint64(b + x)
		}
	}
}

// loadLDS is a load that writes LDS instead of registers, at M0 + offset and then lane
// after lane. The offset counts for both addresses.
func loadLDS(size uint64) compile {
	return func(c *compiler) step {
		from := &access{in: c.in, place: placeGlobal, size: size, kind: accessRead}
		c.globalAddress(from, 0, 1)
		c.cachePolicy()
		to := c.lanesOfLDS(size)
		move := movers[size]
		return func(w *wave) {
			mask := from.begin(w, w.exec())
			if v := w.result[:move.words]; gather(w, from, v, move, mask) {
				scatter(w, to, v, move, to.begin(w, mask))
			}
		}
	}
}

// lanesOfLDS is the LDS that loads to LDS write.
func (c *compiler) lanesOfLDS(size uint64) *access {
	offset := uint64(c.number("offset", 0))
	c.reads(regM0)
	return &access{in: c.in, place: placeLDS, size: size, kind: accessWrite, align: 4, address: func(w *wave) {
		x := uint64(w.s[regM0]) + offset
		for i := range w.addr {
			w.addr[i] = x
			x += size
		}
	}}
}
