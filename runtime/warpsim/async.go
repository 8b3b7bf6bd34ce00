package warpsim

import "fmt"

// Copies to shared memory that go on while lanes work. What they bring is there when
// the lane has waited for it; until then nobody may touch where it goes.

const copyBytes = 16

// copied is a copy under way.
type copied struct {
	to   uint64
	data [copyBytes]byte
}

// copy starts one.
func (w *warp) copy(lane int, to, from uint64) error {
	src, err := w.memory(globalSpace, from, copyBytes, lane, false)
	if err != nil {
		return err
	}
	if _, err := w.memory(sharedSpace, to, copyBytes, lane, true); err != nil {
		return err
	}
	_, touched, err := w.local(to, copyBytes, lane)
	if err != nil {
		return err
	}
	for i := range touched {
		touched[i].copying = true
	}
	if w.copies[lane] == nil {
		w.copies[lane] = [][]copied{nil}
	}
	last := &w.copies[lane][len(w.copies[lane])-1]
	*last = append(*last, copied{to, [copyBytes]byte(src)})
	return nil
}

// commit makes a group of the copies that are in none.
func (w *warp) commit(lane int) {
	if w.copies[lane] == nil {
		w.copies[lane] = [][]copied{nil}
	}
	w.copies[lane] = append(w.copies[lane], nil)
}

// wait ends all groups but the last n: the lane writes what they bring.
func (w *warp) wait(lane, n int) error {
	for len(w.copies[lane])-1 > n {
		for _, c := range w.copies[lane][0] {
			b, touched, err := w.local(c.to, len(c.data), lane)
			if err != nil {
				return err
			}
			copy(b, c.data[:])
			for i := range touched {
				w.writes++
				touched[i].copying, touched[i].wrote, touched[i].order = false, w.phase, w.writes
			}
		}
		w.copies[lane] = w.copies[lane][1:]
	}
	return nil
}

// loadMatrices is ldmatrix.x4 (PTX ISA, "Warp-level matrix load instruction"): lane
// 8 i + r says where row r of matrix i is.
func (w *warp) loadMatrices(to, at operand, active uint32, transposed bool) error {
	if err := all("load of matrices", active); err != nil {
		return err
	}
	const rows, rowBytes = 8, 16
	var src [Warp][]byte
	for lane := range src {
		var err error
		if src[lane], err = w.memory(sharedSpace, at.get(w, lane, 0), rowBytes, lane, false); err != nil {
			return fmt.Errorf("row %d of matrix %d: %w", lane%rows, lane/rows, err)
		}
	}
	for lane := range Warp {
		for i := range 4 {
			element := func(e int) uint64 {
				row, col := lane/4, lane%4*2+e
				if transposed {
					row, col = col, row
				}
				return get(src[rows*i+row][2*col : 2*col+2])
			}
			to.set(w, lane, i, element(0)|element(1)<<16)
		}
	}
	return nil
}
