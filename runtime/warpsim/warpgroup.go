package warpsim

import "fmt"

// groupProduct is a warp's part of wgmma: 16 rows of D[64,n] += A[64,16] B[16,n]. It is
// made where it starts; what it reads must be there until it was waited for. Nothing
// finds kernels that touch its sums before.
type groupProduct struct {
	n         int
	across    bool
	to        operand
	sums      []int
	a, b, add func(w *warp, lane int) uint64
	words     []func(w *warp, lane int) uint64 // instead of a: the lane's of A
}

// asyncReader is who reads for a matrix product: no lane.
const asyncReader = -2

// fence has matrix products see what a lane wrote.
func (w *warp) fence(lane int) {
	w.writes++
	w.fences[w.first+lane] = w.writes
}

// asyncRead is a word that a product under way reads, and its last write then.
type asyncRead struct {
	of    *touch
	order int32
}

// waitProducts ends all groups of products but the last n.
func (w *warp) waitProducts(n int) error {
	for len(w.products)-1 > n {
		for _, r := range w.products[0] {
			if r.of.order != r.order {
				return fmt.Errorf("lane %d wrote what a matrix product under way reads", r.of.writer)
			}
		}
		w.products = w.products[1:]
	}
	return nil
}

// descriptor is a matrix in shared memory (PTX ISA, "Matrix Descriptor Format").
type descriptor struct{ start, stride uint64 }

func readDescriptor(x uint64) (descriptor, error) {
	const swizzle128 = 1
	if x>>62 != swizzle128 || x>>49&7 != 0 {
		return descriptor{}, fmt.Errorf("descriptor %#x: no matrix in blocks of 128 bytes from a multiple of 1024 on", x)
	}
	return descriptor{x & 0x3FFF << 4, x >> 32 & 0x3FFF << 4}, nil
}

// row is 16 bytes, piece number c, of a row.
func (w *warp) matrixRow(d descriptor, row, c int) ([]byte, error) {
	at := d.start + uint64(row/8)*d.stride + uint64(row%8*128+16*c)
	at ^= at >> 7 & 7 << 4
	// Descriptors have 18 bits of an address, and the pool begins at a multiple of them.
	at += poolBase
	_, touched, err := w.local(at, 16, 0)
	if err != nil {
		return nil, err
	}
	for _, t := range touched {
		if t.written && w.fences[t.writer] < t.order {
			return nil, fmt.Errorf("a matrix product reads what lane %d wrote and has not fenced", t.writer)
		}
	}
	if len(w.products) == 0 {
		w.products = append(w.products, nil)
	}
	last := &w.products[len(w.products)-1]
	for i := range touched {
		*last = append(*last, asyncRead{&touched[i], touched[i].order})
		if err := w.touch(&touched[i], asyncReader, false); err != nil {
			return nil, fmt.Errorf("matrix in shared memory at %d: %w", at-poolBase, err)
		}
	}
	b, _, err := w.local(at, 16, 0)
	return b, err
}

func (p groupProduct) run(w *warp, active uint32) error {
	if err := all("product of a warpgroup", active); err != nil {
		return err
	}
	var d [2]descriptor
	for i, x := range []func(w *warp, lane int) uint64{p.a, p.b} {
		if x == nil {
			continue
		}
		bits := x(w, 0)
		for lane := range Warp {
			if x(w, lane) != bits {
				return fmt.Errorf("lanes have different descriptors")
			}
		}
		var err error
		if d[i], err = readDescriptor(bits); err != nil {
			return err
		}
	}
	const rows, depth = 16, 16
	bf16, f32 := &typ{kind: float, bits: 16}, &typ{kind: float, bits: 32}
	// matrix reads count rows of so many pieces of 8.
	matrix := func(d descriptor, first, count, pieces int) ([][]float64, error) {
		out := make([][]float64, count)
		for r := range out {
			for c := range pieces {
				b, err := w.matrixRow(d, first+r, c)
				if err != nil {
					return nil, err
				}
				for i := range 8 {
					out[r] = append(out[r], toFloat(bf16, get(b[2*i:2*i+2])))
				}
			}
		}
		return out, nil
	}
	var a [][]float64
	var err error
	if p.words == nil {
		a, err = matrix(d[0], w.first/Warp%4*rows, rows, 2)
	} else {
		a = p.rows(w)
	}
	if err != nil {
		return err
	}
	var b [][]float64
	if p.across {
		if p.n > 64 {
			return fmt.Errorf("%d columns across rows of 64", p.n)
		}
		b, err = matrix(d[1], 0, depth, p.n/8)
	} else {
		b, err = matrix(d[1], 0, p.n, 2)
	}
	if err != nil {
		return err
	}
	for lane := range Warp {
		for i, at := range p.sums {
			r, c := lane/4+i/2%2*8, i/4*8+lane%4*2+i%2
			var sum float64
			if p.add(w, lane) != 0 {
				sum = toFloat(f32, p.to.get(w, lane, at))
			}
			for k := range depth {
				if p.across {
					sum += a[r][k] * b[k][c]
				} else {
					sum += a[r][k] * b[c][k]
				}
			}
			p.to.set(w, lane, at, fromFloat(f32, sum))
		}
	}
	return nil
}

// rows is A of 16 rows that lanes have in registers.
func (p groupProduct) rows(w *warp) [][]float64 {
	bf16 := &typ{kind: float, bits: 16}
	a := make([][]float64, 16)
	for r := range a {
		a[r] = make([]float64, 16)
	}
	for lane := range Warp {
		for i, word := range p.words {
			x := word(w, lane)
			for half := range 2 {
				a[lane/4+i%2*8][lane%4*2+half+i/2*8] = toFloat(bf16, x>>(16*half)&0xFFFF)
			}
		}
	}
	return a
}
