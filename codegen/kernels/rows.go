package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(
		&Form{Name: "history_rows", Op: "history_rows", Match: always, Lower: lowerHistoryRows, Joins: true},
		&Form{Name: "entry_rows", Op: "entry_rows", Match: always, Lower: lowerEntryRows, Joins: true},
	)
}

// lowerHistoryRows: one group per given row, lanes over the positions.
func lowerHistoryRows(l Lowering, o *ir.Op) error {
	n, span, size := dims(o.Args[0])[0], o.Int("span"), o.Int("size")
	l.Launch(Launch{
		Name: "history_rows", Spec: fmt.Sprintf("span%d size%d", span, size), Grid: n, Work: int64(n * span * 8),
		In:  []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1]), l.Buf(o.Args[2]), l.Buf(o.Args[3])},
		Out: []Ref{l.Buf(o.Results[0]), l.Buf(o.Results[1])},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			rows, pos, req, ring := b[0], b[1], b[2], b[3]
			old, own := b[4].At(k.Mul(k.Group(), k.Int(span))), b[5].At(k.Mul(k.Group(), k.Int(span)))
			none, zero := k.Int32(-1), k.Int32(0)
			row := rows.Load(k.Group())
			live := k.Cmp(kernel.GE, row, zero)
			safe := k.Select(live, row, zero) // some row that can be read
			p, r := pos.Load(safe), req.Load(safe)
			live = k.And(live, k.Cmp(kernel.GE, r, zero))
			base := ring.Load(k.Select(live, r, zero))
			hasRing := k.Cmp(kernel.GE, base, zero)
			k.Lanes(k.Int(span), func(i kernel.V) {
				back := k.Sub(k.Int32(span-1), k.Convert(i, kernel.I32))
				q, t := k.Sub(p, back), k.Sub(row, back)
				use := k.And(live, k.Cmp(kernel.GE, q, zero))
				inside := k.Cmp(kernel.GE, t, zero)
				same := k.Cmp(kernel.EQ, req.Load(k.Select(inside, t, zero)), r)
				isOwn := k.And(use, k.And(inside, same))
				isOld := k.And(use, k.And(k.Not(isOwn), hasRing))
				at := k.Add(k.Mul(base, k.Int32(size)), k.URem(q, k.Int32(size)))
				old.Store(i, k.Select(isOld, at, none))
				own.Store(i, k.Select(isOwn, t, none))
			})
		},
	})
	return nil
}

// entryChunk is how many entries of a token row one group of entry_rows has.
const entryChunk = 1024

// lowerEntryRows: one group per token row and chunk of entries, lanes over those.
func lowerEntryRows(l Lowering, o *ir.Op) error {
	t, pages := dims(o.Args[0])[0], dims(o.Args[2])[1]
	ratio, per := o.Int("ratio"), o.Int("per_page")
	n := pages * per
	l.Launch(Launch{
		Name: "entry_rows", Spec: fmt.Sprintf("ratio%d per%d", ratio, per), Grid: t * ceilDiv(n, entryChunk), Work: int64(t * n * 4),
		In: []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1]), l.Buf(o.Args[2])}, Out: []Ref{l.Buf(o.Results[0])}, Ints: []int{pages, ceilDiv(n, entryChunk)},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			zero, none := k.Int32(0), k.Int32(-1)
			token, chunk := k.UDiv(k.Group(), ints[1]), k.URem(k.Group(), ints[1])
			p, r := b[0].Load(token), b[1].Load(token)
			live := k.Cmp(kernel.GE, r, zero)
			table := b[2].At(k.Mul(k.Convert(k.Select(live, r, zero), kernel.I64), ints[0]))
			n := k.Mul(ints[0], k.Int(per))
			out := b[3].At(k.Mul(token, n))
			closed := k.FloorDiv(k.Add(p, k.Int32(1)), k.Int32(ratio))
			from := k.Mul(chunk, k.Int(entryChunk))
			k.Lanes(k.Min(k.Sub(n, from), k.Int(entryChunk)), func(e kernel.V) {
				e = k.Add(e, from)
				page := table.Load(k.UDiv(e, k.Int(per)))
				row := k.Add(k.Mul(page, k.Int32(per)), k.Convert(k.URem(e, k.Int(per)), kernel.I32))
				seen := k.And(live, k.Cmp(kernel.LT, k.Convert(e, kernel.I32), closed))
				seen = k.And(seen, k.Cmp(kernel.GE, page, zero))
				out.Store(e, k.Select(seen, row, none))
			})
		},
	})
	return nil
}
