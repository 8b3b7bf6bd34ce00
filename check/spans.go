package check

import (
	"math/rand/v2"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// span is what integers may be: from low, below end, and -1 where they are indices of which
// one may be missing. The zero span says nothing.
type span struct {
	low, end int
	index    bool // -1 is allowed
	distinct bool // along the last axis
}

// small is the end of integers that index nothing.
const small = 8

// meet is what fits both.
func (s span) meet(t span) span {
	switch {
	case s == span{}:
		return t
	case t == span{}:
		return s
	}
	return span{max(s.low, t.low), min(s.end, t.end), s.index && t.index, s.distinct || t.distinct}
}

// fill chooses integers; every fourth index is missing, and those that distinct
// ones are too many for.
func (s span) fill(x *eval.Tensor, r *rand.Rand) {
	end := s.end
	switch {
	case x.DType == ir.Bool:
		end = 2
	case s == span{}:
		end = small
	case end <= s.low: // nothing fits
		end = s.low + 1
	}
	row := max(1, len(x.I))
	if n := len(x.Shape); n > 0 {
		row = x.Shape[n-1]
	}
	var order []int
	for i := range x.I {
		j := i % row
		if s.distinct && j == 0 {
			order = r.Perm(end - s.low)
		}
		switch {
		case s.index && (r.IntN(4) == 0 || s.distinct && j >= len(order)):
			x.I[i] = -1
		case s.distinct:
			x.I[i] = int64(s.low + order[j%len(order)])
		default:
			x.I[i] = int64(s.low + r.IntN(end-s.low))
		}
	}
}

// indexed lists the operands by which ops read and write rows: what the operand
// is an index into. result is the span of the op's own result, for ops whose
// results are indices made of others.
var indexed = map[string]func(op *ir.Op, result span) map[int]span{
	"gather_rows":  func(op *ir.Op, _ span) map[int]span { return map[int]span{1: into(op, 0, 0)} },
	"unpack_rows":  func(op *ir.Op, _ span) map[int]span { return map[int]span{1: into(op, 0, 0)} },
	"scatter_rows": func(op *ir.Op, _ span) map[int]span { return map[int]span{1: {0, extent(op, 0, 0), true, true}} },
	"take_along": func(op *ir.Op, _ span) map[int]span {
		return map[int]span{1: into(op, 0, op.Args[0].Type.Rank()-1)}
	},
	"compress":       func(op *ir.Op, _ span) map[int]span { return map[int]span{4: into(op, 0, 0), 5: into(op, 2, 0)} },
	"compress_row":   func(op *ir.Op, _ span) map[int]span { return map[int]span{7: into(op, 0, 0), 8: into(op, 5, 0)} },
	"indexer_scores": func(op *ir.Op, _ span) map[int]span { return map[int]span{3: into(op, 2, 0)} },
	"sparse_attention": func(op *ir.Op, _ span) map[int]span {
		out := map[int]span{}
		for i := 2; i < len(op.Args); i += 2 {
			out[i+1] = into(op, i, 0)
		}
		return out
	},
	"moe_experts": func(op *ir.Op, _ span) map[int]span { return map[int]span{4: into(op, 1, 0)} },
	"hash_gate": func(op *ir.Op, _ span) map[int]span {
		return map[int]span{2: {end: extent(op, 1, 0), distinct: true}, 3: into(op, 2, 0)}
	},
	"history_rows": func(op *ir.Op, rows span) map[int]span {
		return map[int]span{0: into(op, 1, 0), 1: {0, 4 * op.Int("span"), true, false}, 2: into(op, 3, 0), 3: {0, rows.end / op.Int("size"), true, false}}
	},
	"entry_rows": func(op *ir.Op, rows span) map[int]span {
		per := op.Int("per_page")
		return map[int]span{0: {0, extent(op, 2, 1) * per * op.Int("ratio"), true, false}, 1: into(op, 2, 0), 2: {0, rows.end / per, true, false}}
	},
	"group_start": func(op *ir.Op, pos span) map[int]span {
		ratio := op.Int("ratio") // a group closes at its last position
		return map[int]span{0: into(op, 1, 0), 1: {ratio - 1, max(pos.end, 4*ratio), false, false}}
	},
}

// moved are ops whose result holds elements of these operands, and no others.
var moved = map[string][]int{
	"reshape": {0}, "broadcast": {0}, "transpose": {0}, "slice": {0}, "cast": {0}, "gather_rows": {0}, "take_along": {0},
	"select": {1, 2}, "min": {0, 1}, "max": {0, 1},
}

func extent(op *ir.Op, arg, axis int) int {
	n, _ := op.Args[arg].Type.Dims[axis].Const()
	return n
}

func into(op *ir.Op, arg, axis int) span { return span{0, extent(op, arg, axis), true, false} }

// spansOf says what the integer values of a bound graph may be, from their uses.
func spansOf(g *ir.Graph) map[*ir.Value]span {
	spans := map[*ir.Value]span{}
	limit := func(v *ir.Value, s span) {
		if v.Type.DType.IsInt() && s != (span{}) {
			spans[v] = spans[v].meet(s)
		}
	}
	for i := len(g.Ops) - 1; i >= 0; i-- {
		op := g.Ops[i]
		result := spans[op.Results[0]]
		if f := indexed[op.Def.Name]; f != nil {
			for arg, s := range f(op, result) {
				limit(op.Args[arg], s)
			}
		}
		args := moved[op.Def.Name]
		if op.Def.Name == "concat" {
			for i := range op.Args {
				limit(op.Args[i], result)
			}
		}
		for _, arg := range args {
			limit(op.Args[arg], result)
		}
	}
	return spans
}
