package emu

// Buffer instructions (MI300 ISA, "Memory Buffer Instructions"): addresses are offsets
// in a buffer that four scalar registers describe. What is beyond its end loads zeros
// and is not stored; each word of a wide access counts by itself.
//
// Raw buffers only: an index, a stride, swizzled addresses and formats are refused.

func init() {
	rows := map[string]compile{
		// Write-back and invalidation of caches that are not modelled.
		"buffer_wbl2": func(c *compiler) step { c.cachePolicy(); return func(w *wave) {} },
		"buffer_inv":  func(c *compiler) step { c.cachePolicy(); return func(w *wave) {} },
	}
	for name, t := range loadTypes {
		rows["buffer_load_"+name] = bufferLoad(t)
	}
	for name, t := range storeTypes {
		rows["buffer_store_"+name] = bufferStore(t)
	}
	atomics := map[string]compile{}
	for _, name := range memoryAtomics {
		atomics["buffer_atomic_"+name] = bufferAtomic(atomicOps[name])
	}
	define(map[string]compile{"buffer_atomic_pk_add_bf16": atomics["buffer_atomic_pk_add_bf16"]}, "gfx950")
	delete(atomics, "buffer_atomic_pk_add_bf16")
	define(atomics)
	define(rows)
}

// buffer is what a buffer instruction addresses.
type buffer struct {
	in         *Inst
	descriptor int    // scalar register
	voffset    int    // vector register, or negative
	soffset    scalar // outside of the range check's offset, but taken off the size
	offset     uint64
}

// buffer compiles the operands from i: vector offset or off, descriptor, scalar offset.
func (c *compiler) buffer(i int) *buffer {
	b := &buffer{in: c.in, offset: uint64(c.number("offset", 0)), voffset: -1}
	switch offen, off := c.flag("offen"), c.isOff(i); {
	case offen && !off:
		b.voffset = c.addressRegister(i, 1)
	case offen || !off:
		c.fail("operand %s does not go with the modifiers", c.arg(i).Text)
	}
	b.descriptor = c.scalarRegisters(i+1, 4)
	b.soffset = c.scalarSource(i+2, 32)
	return b
}

// begin sets w.addr to the lanes' addresses and returns the lanes of mask of which
// size bytes lie in the buffer.
func (b *buffer) begin(w *wave, mask, size uint64) (inRange uint64) {
	d := (*[4]uint32)(w.s[b.descriptor:])
	if stride, swizzle, tid := d[1]>>16&0x3fff, d[1]>>30, d[3]>>23&1; stride != 0 || swizzle != 0 || tid != 0 {
		w.fail(b.in, "%s: the buffer's descriptor %#08x has a stride, swizzled addresses or the lane's number in them, which are not supported", w.who(-1), d[:])
		return 0
	}
	s := uint64(b.soffset.get(w))
	base, total := (uint64(d[0])|uint64(d[1]&0xffff)<<32)+s, uint64(d[2])
	// The sums do not wrap: offsets that are meant to be out of range are large.
	for i := range w.addr {
		x := b.offset
		if b.voffset >= 0 {
			x += uint64(w.v[b.voffset][i])
		}
		w.addr[i] = base + x
		if x+s+size <= total {
			inRange |= 1 << i
		}
	}
	return inRange & mask
}

// access is an access of the buffer, at addresses that are in w.addr.
func (b *buffer) access(size uint64, kind accessKind) *access {
	return &access{in: b.in, place: placeGlobal, size: size, kind: kind, address: func(*wave) {}}
}

// split is how an access that lies in the buffer in part is made: by words.
func (t datum) split() (step uint64, one datum) {
	if t.size > 4 {
		return 4, datum{size: 4}
	}
	return t.size, t
}

func bufferLoad(t datum) compile {
	return func(c *compiler) step {
		if c.flag("lds") {
			return c.bufferLoadLDS(t)
		}
		d, b := c.vectorDest(0, t.words()), c.buffer(1)
		coherent := c.cachePolicy()
		a, move := b.access(t.size, accessRead), t.mover(coherent)
		size, one := t.split()
		part, partMove := b.access(size, accessRead), one.mover(coherent)
		return func(w *wave) {
			mask := w.exec()
			if mask == 0 {
				return
			}
			// The data may overwrite the offsets: what is out of range becomes 0 last.
			in := b.begin(w, mask, t.size)
			if in == mask {
				if a.begin(w, mask) != 0 {
					t.read(w, a, d, move, mask)
				}
				return
			}
			var ranges [4]uint64
			for j := range t.size / size {
				ranges[j] = b.begin(w, mask, (j+1)*size)
			}
			for j := range t.size / size {
				if rest := part.begin(w, ranges[j]); rest != 0 {
					one.read(w, part, d+int(j), partMove, rest)
				}
				write(&w.v[d+int(j)], &zeros, mask&^ranges[j])
				for i := range w.addr {
					w.addr[i] += size
				}
			}
		}
	}
}

var zeros Vec

func bufferStore(t datum) compile {
	return func(c *compiler) step {
		s, b := c.vectorData(0, t.words()), c.buffer(1)
		coherent := c.cachePolicy()
		a, move := b.access(t.size, accessWrite), t.mover(coherent)
		size, one := t.split()
		part, partMove := b.access(size, accessWrite), one.mover(coherent)
		return func(w *wave) {
			mask := w.exec()
			if mask == 0 {
				return
			}
			if b.begin(w, mask, t.size) == mask {
				if a.begin(w, mask) != 0 {
					t.write(w, a, s, move, mask)
				}
				return
			}
			for j := range t.size / size {
				in := b.begin(w, mask, (j+1)*size)
				for i := range w.addr {
					w.addr[i] += j * size
				}
				if rest := part.begin(w, in); rest != 0 {
					one.write(w, part, s+int(j), partMove, rest)
				}
			}
		}
	}
}

// bufferAtomic is all or nothing: an operation that lies in the buffer in part is none.
// What is out of range returns 0.
func bufferAtomic(op atomicOp) compile {
	return func(c *compiler) step {
		returns := c.flag("sc0")
		c.flag("sc1")
		c.flag("nt")
		words := int(op.size / 4)
		s, b := c.vectorData(0, words*op.data), c.buffer(1)
		second, d := s, -1
		if op.data == 2 {
			second = s + words
		}
		if returns {
			d = s
			c.writesVector(0, d, words, 0)
		}
		a := b.access(op.size, accessAtomic)
		a.align = op.size
		return func(w *wave) {
			mask := w.exec()
			in := b.begin(w, mask, op.size)
			if rest := a.begin(w, in); rest != 0 {
				op.run(w, a, d, s, second, rest)
			}
			for j := range words {
				if returns {
					write(&w.v[d+j], &zeros, mask&^in)
				}
			}
		}
	}
}

// bufferLoadLDS is a load that writes LDS instead of registers. What is out of range
// writes zeros.
func (c *compiler) bufferLoadLDS(t datum) step {
	if t.size < 4 || t.convert != nil || t.size > 4 && c.chip != "gfx950" || t.size == 8 {
		c.fail("a load of this type to LDS is not supported for %s", c.chip)
	}
	b := c.buffer(0)
	c.cachePolicy()
	to, move := c.lanesOfLDS(t.size), movers[t.size]
	part := b.access(4, accessRead)
	return func(w *wave) {
		mask := w.exec()
		v := w.result[:move.words]
		clear(v)
		for j := range t.size / 4 {
			in := b.begin(w, mask, 4*(j+1))
			for i := range w.addr {
				w.addr[i] += 4 * j
			}
			if !gather(w, part, v[j:j+1], movers[4], part.begin(w, in)) {
				return
			}
		}
		if w.status == running {
			scatter(w, to, v, move, to.begin(w, mask))
		}
	}
}
