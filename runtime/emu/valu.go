package emu

//go:generate go run ./internal/genvalu

// Vector ALU instructions of one result word. The loops over the lanes are generated
// (valu_loops.go, from the table in internal/genvalu); these functions tie them to
// operands.

type (
	loop1 func(d, a *Vec)
	loop2 func(d, a, b *Vec)
	loop3 func(d, a, b, c *Vec)
)

func init() {
	rows := map[string]compile{}
	for op, f := range loops1 {
		rows[op] = valu1(f)
	}
	for op, f := range loops2 {
		rows[op] = valu2(f)
	}
	for op, f := range loops3 {
		rows[op] = valu3(f)
	}
	define(rows)
}

// typed is a generated loop and the type of its operands.
type typed[F any] struct {
	of elem
	do F
}

func valu1(f typed[loop1]) compile {
	return func(c *compiler) step {
		c.encodings(EncE32, EncE64)
		d, a := c.vectorDest(0, 1), c.vectorSource(1, 0, f.of)
		return func(w *wave) {
			x := a.word(w, 0, 0)
			if e := w.exec(); e == ^uint64(0) {
				f.do(&w.v[d], x)
			} else {
				f.do(&w.result[0], x)
				write(&w.v[d], &w.result[0], e)
			}
		}
	}
}

func valu2(f typed[loop2]) compile {
	return func(c *compiler) step {
		c.encodings(EncE32, EncE64)
		d, a, b := c.vectorDest(0, 1), c.vectorSource(1, 0, f.of), c.vectorSource(2, 1, f.of)
		return func(w *wave) {
			x, y := a.word(w, 0, 0), b.word(w, 0, 1)
			if e := w.exec(); e == ^uint64(0) {
				f.do(&w.v[d], x, y)
			} else {
				f.do(&w.result[0], x, y)
				write(&w.v[d], &w.result[0], e)
			}
		}
	}
}

func valu3(f typed[loop3]) compile {
	return func(c *compiler) step {
		c.encodings(EncDefault, EncE64)
		d, a, b, e3 := c.vectorDest(0, 1), c.vectorSource(1, 0, f.of), c.vectorSource(2, 1, f.of), c.vectorSource(3, 2, f.of)
		return func(w *wave) {
			x, y, z := a.word(w, 0, 0), b.word(w, 0, 1), e3.word(w, 0, 2)
			if e := w.exec(); e == ^uint64(0) {
				f.do(&w.v[d], x, y, z)
			} else {
				f.do(&w.result[0], x, y, z)
				write(&w.v[d], &w.result[0], e)
			}
		}
	}
}
