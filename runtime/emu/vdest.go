package emu

// destination is a vector destination: registers, and what happens to a result on
// its way into them.
type destination struct {
	reg, words int
	clamp      func(low, high *Vec) // on the result; nil: none
	part       *part                // nil: the whole register
	dpp        *dpp                 // nil: all active lanes
	indexed    bool                 // the kernel uses s_set_gpr_idx_on
}

// destination compiles destination operand i of type e.
func (c *compiler) destination(i int, e elem) destination {
	d := destination{reg: c.vectorDest(i, e.words()), words: e.words(), indexed: c.indexed}
	if n := len(c.uses.writes); c.indexed && n > 0 {
		c.uses.writes[n-1].index = indexDst
	}
	return d
}

// simple tells that the result goes into the register as it is.
func (d *destination) simple() bool {
	return d.clamp == nil && d.part == nil && d.dpp == nil && !d.indexed
}

// store writes w.result, one or two words, to the destination.
func (d *destination) store(w *wave) {
	mask := w.exec()
	if d.dpp != nil {
		mask = d.dpp.written(mask)
	}
	if d.clamp != nil {
		d.clamp(&w.result[0], &w.result[1])
	}
	r := d.reg
	if d.indexed && w.indexing(indexDst) {
		var ok bool
		if r, ok = w.index(r, d.words); !ok {
			return // out of range: nothing is written
		}
	}
	if d.part != nil {
		d.part.insert(&w.result[0], &w.v[r])
	}
	for j := range d.words {
		write(&w.v[r+j], &w.result[j], mask)
	}
}

// outputModifiers compiles clamp of a floating point result.
func (c *compiler) outputModifiers(o *operation, e elem) {
	for _, key := range []string{"mul", "div"} {
		if _, ok := c.in.mod(key); ok {
			// The hardware would ignore it, so code that has it expects another mode.
			c.used[key] = true
			c.fail("output modifier %s is not supported: it has no effect with denormals or in IEEE mode", key)
		}
	}
	if c.flag("clamp") {
		o.dst.clamp = clamps[e]
	}
}

// clamps limit a result to [0, 1]. NaN becomes 0: DX10_CLAMP is set (Kernel.check).
var clamps = map[elem]func(low, high *Vec){f32: clamp32, f16: clamp16, f64: clamp64}

func clamp32(low, _ *Vec) {
	const one = 0x3f800000
	for i, x := range low {
		switch {
		case x > 0x7f800000: // negative, or NaN
			low[i] = 0
		case x > one:
			low[i] = one
		}
	}
}

func clamp16(low, _ *Vec) {
	const one = 0x3c00
	for i, x := range low {
		switch {
		case x > 0x7c00:
			low[i] = 0
		case x > one:
			low[i] = one
		}
	}
}

func clamp64(low, high *Vec) {
	const one = 0x3ff00000_00000000
	for i := range low {
		switch x := uint64(low[i]) | uint64(high[i])<<32; {
		case x > 0x7ff00000_00000000:
			low[i], high[i] = 0, 0
		case x > one:
			low[i], high[i] = 0, one>>32
		}
	}
}
