package kernels

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
)

// How the generic emitter spreads elements over groups and lanes, and finds each
// buffer's element. Extents and strides are integer arguments, so that one kernel
// serves every shape of a kind.

// chunk is about the number of elements that one group works on.
const chunk = 4096

// spread cuts rows x inner elements into groups.
type spread struct {
	mode        spreadMode
	rows, inner int
	size        int // of a group, in elements
}

type spreadMode string

const (
	// flat: lanes run over rows and columns alike, for rows shorter than the lanes.
	flat spreadMode = "flat"
	// single: flat over rows of one element.
	single spreadMode = "single"
	// whole: a group takes whole rows, one after the other.
	whole spreadMode = "rows"
	// pieces: a group takes a piece of one row.
	pieces spreadMode = "pieces"
	// run: pieces of the only row.
	run spreadMode = "run"
)

// spreadOver plans rows x inner elements of about work operations each.
func spreadOver(t *target.Target, rows, inner, work int) spread {
	s := spread{rows: rows, inner: inner}
	s.size = (chunk/max(work, 1) + t.Lanes - 1) / t.Lanes * t.Lanes
	s.size = max(s.size, t.Lanes)
	switch {
	case rows == 1:
		s.mode = run
	case inner == 1:
		s.mode = single
	case inner < t.Lanes:
		s.mode = flat
	case inner <= s.size:
		s.mode = whole
	default:
		s.mode = pieces
	}
	return s
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// perGroup is the number of rows of a group.
func (s spread) perGroup() int { return max(1, s.size/s.inner) }

func (s spread) grid() int {
	switch s.mode {
	case whole:
		return ceilDiv(s.rows, s.perGroup())
	case pieces, run:
		return s.rows * ceilDiv(s.inner, s.size)
	}
	return ceilDiv(s.rows*s.inner, s.size)
}

// spreadInts is the number of integer arguments of a spread.
const spreadInts = 3

// ints are the arguments that each needs.
func (s spread) ints() []int {
	switch s.mode {
	case whole:
		return []int{s.rows, s.inner, s.perGroup()}
	case pieces, run:
		return []int{ceilDiv(s.inner, s.size), s.inner, s.size}
	}
	return []int{s.rows * s.inner, s.inner, s.size}
}

// each calls row for the rows of this group, and what that returns for their
// elements: col within the row, at within all rows. Both may be uniform or
// varying. No barrier or reduction inside.
func (s spread) each(k *kernel.K, ints []kernel.V, row func(row kernel.V) func(col, at kernel.V)) {
	n, inner, size := ints[0], ints[1], ints[2]
	least := func(a, b kernel.V) kernel.V { return k.Select(k.Cmp(kernel.LT, a, b), a, b) }
	switch s.mode {
	case whole:
		from := k.Mul(k.Group(), size)
		k.For(from, least(k.Add(from, size), n), 1, func(r kernel.V) {
			f, base := row(r), k.Mul(r, inner)
			k.Lanes(inner, func(i kernel.V) { f(i, k.Add(i, base)) })
		})
	case pieces, run:
		r, from := k.Int(0), k.Mul(k.Group(), size)
		if s.mode == pieces {
			r = k.UDiv(k.Group(), n)
			from = k.Mul(k.URem(k.Group(), n), size)
		}
		f, base := row(r), k.Add(k.Mul(r, inner), from)
		k.Lanes(least(size, k.Sub(inner, from)), func(i kernel.V) { f(k.Add(i, from), k.Add(i, base)) })
	default:
		from := k.Mul(k.Group(), size)
		k.Lanes(least(size, k.Sub(n, from)), func(i kernel.V) {
			at := k.Add(i, from)
			if s.mode == single {
				row(at)(k.Int(0), at)
				return
			}
			r := k.UDiv(at, inner)
			row(r)(k.Sub(at, k.Mul(r, inner)), at)
		})
	}
}

// axes are extents that several buffers are walked along together, each with a
// stride in elements per axis, 0 where it repeats.
type axes struct {
	ext    []int
	stride [][]int // by buffer, then axis
}

// mergeAxes drops extents of 1 and joins neighbours that every buffer runs
// through alike.
func mergeAxes(ext []int, stride ...[]int) axes {
	a := axes{stride: make([][]int, len(stride))}
	for i, d := range ext {
		if d == 1 {
			continue
		}
		last := len(a.ext) - 1
		join := last >= 0
		for b := range stride {
			join = join && a.stride[b][last] == stride[b][i]*d
		}
		if join {
			a.ext[last] *= d
			for b := range stride {
				a.stride[b][last] = stride[b][i]
			}
			continue
		}
		a.ext = append(a.ext, d)
		for b := range stride {
			a.stride[b] = append(a.stride[b], stride[b][i])
		}
	}
	return a
}

// split takes the last axis off: its extent and each buffer's stride.
func (a axes) split() (outer axes, inner int, step []int) {
	last := len(a.ext) - 1
	step = make([]int, len(a.stride))
	if last < 0 {
		return a, 1, step
	}
	outer = axes{ext: a.ext[:last], stride: make([][]int, len(a.stride))}
	for b, s := range a.stride {
		step[b] = s[last]
		outer.stride[b] = s[:last]
	}
	return outer, a.ext[last], step
}

// spec says which strides are there.
func (a axes) spec() string {
	var s strings.Builder
	fmt.Fprintf(&s, "axes%d", len(a.ext))
	for _, stride := range a.stride {
		s.WriteByte(' ')
		for _, n := range stride {
			s.WriteByte("0s"[min(n, 1)])
		}
		s.WriteByte('.')
	}
	return s.String()
}

// ints are the arguments of offsets.
func (a axes) ints() []int {
	var out []int
	if len(a.ext) > 0 {
		out = append(out, a.ext[1:]...)
	}
	for _, stride := range a.stride {
		for _, n := range stride {
			if n != 0 {
				out = append(out, n)
			}
		}
	}
	return out
}

// offsets are the buffers' elements at point i of the extents in row-major
// order. It takes its arguments off ints.
func (a axes) offsets(k *kernel.K, ints []kernel.V, i kernel.V) []kernel.V {
	idx := make([]kernel.V, len(a.ext))
	for d := len(a.ext) - 1; d > 0; d-- {
		q := k.UDiv(i, ints[d-1])
		idx[d] = k.Sub(i, k.Mul(q, ints[d-1]))
		i = q
	}
	if len(idx) > 0 {
		idx[0] = i
		ints = ints[len(a.ext)-1:]
	}
	out := make([]kernel.V, len(a.stride))
	for b, stride := range a.stride {
		out[b] = k.Int(0)
		for d, n := range stride {
			if n != 0 {
				out[b] = k.Add(out[b], k.Mul(idx[d], ints[0]))
				ints = ints[1:]
			}
		}
	}
	return out
}

// rowMajor are the strides of a dense buffer of these extents, 0 along extents of
// 1.
func rowMajor(shape []int) []int {
	stride := make([]int, len(shape))
	step := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 {
			stride[i] = step
		}
		step *= shape[i]
	}
	return stride
}

// repeated are the strides of an operand that broadcasts to rank axes.
func repeated(operand []int, rank int) []int {
	if len(operand) == 0 {
		return make([]int, rank)
	}
	return rowMajor(operand)
}

// walk visits every element of a dense result with the elements of operands that
// belong to it.
type walk struct {
	spread
	outer axes   // of the operands
	step  []int  // of the operands along the rows
	same  []bool // the operand's element has the result's own index
}

// walkOver plans a walk; each operand has strides along the result's axes.
func walkOver(t *target.Target, result []int, work int, operands ...[]int) walk {
	dense := rowMajor(result)
	all := mergeAxes(result, append([][]int{dense}, operands...)...)
	outer, inner, step := all.split()
	outer.stride = outer.stride[1:] // the result's own index is known
	w := walk{spread: spreadOver(t, product(outer.ext), inner, work), outer: outer, step: step[1:], same: make([]bool, len(operands))}
	for b := range operands {
		if w.same[b] = slices.Equal(operands[b], dense); w.same[b] {
			w.outer.stride[b], w.step[b] = make([]int, len(outer.ext)), 0
		}
	}
	return w
}

func (w walk) spec() string {
	s := fmt.Sprintf("%s %s", w.mode, w.outer.spec())
	for b, n := range w.step {
		s += []string{"0", "1", "s"}[min(n, 2)]
		if w.same[b] {
			s += "same"
		}
	}
	return s
}

// fixed reports that operand b has one element for a whole row.
func (w walk) fixed(b int) bool { return w.step[b] == 0 && !w.same[b] }

func (w walk) ints() []int {
	out := append(w.spread.ints(), w.outer.ints()...)
	for _, n := range w.step {
		if n > 1 {
			out = append(out, n)
		}
	}
	return out
}

// each calls row for every row with the operands' first elements; what that
// returns is called for the row's elements.
func (w walk) each(k *kernel.K, ints []kernel.V, row func(first []kernel.V) func(col, at kernel.V)) {
	w.spread.each(k, ints, func(r kernel.V) func(col, at kernel.V) {
		return row(w.outer.offsets(k, ints[spreadInts:], r))
	})
}

// index is operand b's element for column col, of index at, of the row that starts
// at first.
func (w walk) index(k *kernel.K, ints []kernel.V, b int, first, col, at kernel.V) kernel.V {
	switch {
	case w.same[b]:
		return at
	case w.step[b] == 0:
		return first
	case w.step[b] == 1:
		return k.Add(col, first)
	}
	arg := spreadInts + len(w.outer.ints())
	for _, n := range w.step[:b] {
		if n > 1 {
			arg++
		}
	}
	return k.Add(k.Mul(col, ints[arg]), first)
}
