package ir

import (
	"fmt"
	"math"
)

// Row sets and sparse attention. A step holds T token rows of B requests; the
// rows of one request are consecutive and in position order. pos is the
// position of each row, req its request; both are -1 for padding rows, which
// read nothing and write nothing.

func init() {
	mustRegister(
		&OpDef{
			Name: "history_rows", Group: "attention",
			Doc:      "Where the span positions that end at each given token row live: in this step's own rows, or in a ring pool of size rows per request (row = ring[req]*size + position mod size). Columns ascend in position; exactly one of the two results is set for a position >= 0, both are -1 below.",
			Operands: []OperandDef{{Name: "rows", Doc: "i32 [N], token rows; -1: none"}, {Name: "pos", Doc: "i32 [T]"}, {Name: "req", Doc: "i32 [T]"}, {Name: "ring", Doc: "i32 [B], ring number; -1: none"}},
			Results:  []string{"old", "own"},
			Attrs: []AttrDef{
				{Name: "span", Kind: AttrInt, Doc: "positions per row"},
				{Name: "size", Kind: AttrInt, Doc: "ring rows per request"},
			},
			Infer: func(o *Op) ([]Type, error) {
				if err := firstErr(o.want(0, 1, I32), o.want(1, 1, I32), o.want(2, 1, I32), o.want(3, 1, I32), o.wantDims(2, o.Args[1].Type.Dims...)); err != nil {
					return nil, err
				}
				if o.Int("span") < 1 || o.Int("size") < 1 {
					return nil, fmt.Errorf("span %d and size %d must be at least 1", o.Int("span"), o.Int("size"))
				}
				t := T(I32, o.Args[0].Type.Dims[0], Int(o.Int("span")))
				return []Type{t, t}, nil
			},
			Decompose: decomposeHistory,
			Limit:     Limit{Kind: Exact},
		},
		&OpDef{
			Name: "entry_rows", Group: "attention",
			Doc:      "Pool rows of the compressed entries that each token row sees: entry e < floor((pos+1)/ratio) lives at pages[req, e/per_page]*per_page + e mod per_page; the other columns are -1.",
			Operands: []OperandDef{{Name: "pos", Doc: "i32 [T]"}, {Name: "req", Doc: "i32 [T]"}, {Name: "pages", Doc: "i32 [B,P], page numbers; -1: none"}},
			Results:  []string{"rows"},
			Attrs: []AttrDef{
				{Name: "ratio", Kind: AttrInt, Doc: "tokens per entry"},
				{Name: "per_page", Kind: AttrInt, Doc: "entries per page"},
			},
			Infer: func(o *Op) ([]Type, error) {
				if err := firstErr(o.want(0, 1, I32), o.want(1, 1, I32), o.want(2, 2, I32), o.wantDims(1, o.Args[0].Type.Dims...)); err != nil {
					return nil, err
				}
				if o.Int("ratio") < 1 || o.Int("per_page") < 1 {
					return nil, fmt.Errorf("ratio %d and per_page %d must be at least 1", o.Int("ratio"), o.Int("per_page"))
				}
				return []Type{T(I32, o.Args[0].Type.Dims[0], o.Args[2].Type.Dims[1].Mul(Int(o.Int("per_page"))))}, nil
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				pos, req, pages := o.Args[0], o.Args[1], o.Args[2]
				t, bd, p := pos.Type.Dims[0], pages.Type.Dims[0], pages.Type.Dims[1]
				n := Int(o.Int("per_page"))
				pg := b.Reshape(pages, bd, p, Int(1))
				row := b.Bin("add", b.Bin("mul", pg, b.I(o.Int("per_page"))), b.Iota(2, Int(1), Int(1), n))
				row = b.Select(b.Bin("ge", pg, b.I(0)), row, b.I(-1))
				mine := b.Op1("gather_rows", nil, b.Reshape(row, bd, p.Mul(n)), req)
				closed := b.Bin("div", b.Bin("add", pos, b.I(1)), b.I(o.Int("ratio")))
				seen := b.Bin("lt", b.Iota(1, Int(1), p.Mul(n)), b.Reshape(closed, t, Int(1)))
				live := b.Reshape(b.Bin("ge", req, b.I(0)), t, Int(1))
				return []*Value{b.Select(b.Bin("and", seen, live), mine, b.I(-1))}
			},
			Limit: Limit{Kind: Exact},
		},
		&OpDef{
			Name: "group_start", Group: "attention",
			Doc:      "Position of the first token of the group that each given row closes: pos[row] - (ratio-1); -1 for row -1.",
			Operands: []OperandDef{{Name: "close", Doc: "i32 [E], token rows; -1: none"}, {Name: "pos", Doc: "i32 [T]"}},
			Results:  []string{"start"},
			Attrs:    []AttrDef{{Name: "ratio", Kind: AttrInt, Doc: "tokens per group"}},
			Infer: func(o *Op) ([]Type, error) {
				if o.Int("ratio") < 1 {
					return nil, fmt.Errorf("ratio %d must be at least 1", o.Int("ratio"))
				}
				return []Type{o.Args[0].Type}, firstErr(o.want(0, 1, I32), o.want(1, 1, I32))
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				rows := o.Args[0]
				start := b.Bin("sub", b.Op1("gather_rows", nil, o.Args[1], rows), b.I(o.Int("ratio")-1))
				return []*Value{b.Select(b.Bin("ge", rows, b.I(0)), start, b.I(-1))}
			},
			Limit: Limit{Kind: Exact},
		},
		&OpDef{
			Name: "compress", Group: "attention",
			Doc: "Per channel: w = softmax over the group's members of g, v = b(sum w k). A member comes from this step's rows where own >= 0, else from the state pool. overlap: the first half of the members uses the first half of the columns, the second half the second. A row without members is zero.",
			Operands: []OperandDef{
				{Name: "k_pool", Doc: "f32 [R,W]"}, {Name: "g_pool", Doc: "f32 [R,W]"},
				{Name: "k", Doc: "f32 [T,W], this step's rows"}, {Name: "g", Doc: "f32 [T,W]"},
				{Name: "old", Doc: "i32 [E,S]"}, {Name: "own", Doc: "i32 [E,S]"},
			},
			Results: []string{"v"},
			Attrs:   []AttrDef{{Name: "overlap", Kind: AttrBool, Doc: "two groups share the members"}},
			Infer: func(o *Op) ([]Type, error) {
				for i := range 4 {
					if err := o.want(i, 2, F32); err != nil {
						return nil, err
					}
				}
				k, g := o.Args[0].Type, o.Args[2].Type
				if err := firstErr(o.want(4, 2, I32), o.want(5, 2, I32), o.wantDims(1, k.Dims...), o.wantDims(3, g.Dims...), o.wantDims(5, o.Args[4].Type.Dims...)); err != nil {
					return nil, err
				}
				w, ok1 := k.Dims[1].Const()
				s, ok2 := o.Args[4].Type.Dims[1].Const()
				if !k.Dims[1].Equal(g.Dims[1]) || !ok1 || !ok2 {
					return nil, fmt.Errorf("k_pool %s and k %s: want equal, constant widths", k, g)
				}
				if o.Bool("overlap") {
					if w%2 != 0 || s%2 != 0 {
						return nil, fmt.Errorf("overlap needs even widths and members, have %d and %d", w, s)
					}
					w /= 2
				}
				return []Type{T(BF16, o.Args[4].Type.Dims[0], Int(w))}, nil
			},
			Decompose: decomposeCompress,
			Limit:     Limit{Kind: BF16ULP, Bound: 0.995},
		},
		&OpDef{
			Name: "indexer_scores", Group: "attention",
			Doc:      "b(sum_h b(max(b(q_h . key), 0) * w_h)) for the key at each row; -inf where the row is -1. b rounds to bf16.",
			Operands: []OperandDef{{Name: "q", Doc: "bf16 [T,H,D]"}, {Name: "w", Doc: "bf16 [T,H]"}, {Name: "keys", Doc: "bf16 [R,D], or packed: u8 [R,bytes]"}, {Name: "rows", Doc: "i32 [T,N]"}},
			Results:  []string{"scores"},
			Attrs:    rowAttrs,
			Infer: func(o *Op) ([]Type, error) {
				q, r := o.Args[0].Type, o.Args[3].Type
				if err := firstErr(o.want(0, 3, BF16), o.want(1, 2, BF16), o.want(2, 2, BF16, U8), o.want(3, 2, I32)); err != nil {
					return nil, err
				}
				return []Type{T(BF16, r.Dims...)}, firstErr(o.wantDims(1, q.Dims[0], q.Dims[1]), o.wantRowsOf(2, q.Dims[2]), o.wantDims(3, q.Dims[0], r.Dims[1]))
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				q, w, rows := o.Args[0], o.Args[1], o.Args[3]
				t, h, n := q.Type.Dims[0], q.Type.Dims[1], rows.Type.Dims[1]
				s := b.Dot(q, b.gatherPacked(o, 2), BF16) // [T,H,N]
				s = b.Bin("mul", b.Bin("max", s, b.Scalar(BF16, 0)), b.Reshape(w, t, h, Int(1)))
				sum := b.Reshape(b.Sum(s, 1, BF16), t, n)
				return []*Value{b.Select(b.Bin("ge", rows, b.I(0)), sum, b.Scalar(BF16, math.Inf(-1)))}
			},
			Limit: Limit{Kind: BF16ULP, Bound: 0.995},
		},
		&OpDef{
			Name: "sparse_attention", Group: "attention",
			Doc: "o_h = b(sum_i p_i kv_i), p_i = exp(s_i - M) / (sum_i exp(s_i - M) + exp(sink_h - M)), s_i = (q_h . kv_i) * scale, M = max s_i, over the rows of all sets in order; row -1 is skipped and a query without rows gives zeros. Each row is key and value. Probabilities are f32.",
			Operands: []OperandDef{
				{Name: "q", Doc: "bf16 [T,H,D]"}, {Name: "sink", Doc: "f32 [H]"},
				{Name: "kv", Doc: "bf16 [R,D], or packed: u8 [R,bytes]", Repeat: true}, {Name: "rows", Doc: "i32 [T,L]", Repeat: true},
			},
			Results: []string{"o"},
			Attrs:   append([]AttrDef{{Name: "scale", Kind: AttrFloat, Doc: "D^-0.5"}}, rowAttrs...),
			Infer: func(o *Op) ([]Type, error) {
				q := o.Args[0].Type
				if err := firstErr(o.want(0, 3, BF16), o.want(1, 1, F32)); err != nil {
					return nil, err
				}
				if err := o.wantDims(1, q.Dims[1]); err != nil {
					return nil, err
				}
				for i := 2; i < len(o.Args); i += 2 {
					rows := o.Args[i+1].Type
					if err := firstErr(o.want(i, 2, BF16, U8), o.want(i+1, 2, I32)); err != nil {
						return nil, err
					}
					if err := firstErr(o.wantRowsOf(i, q.Dims[2]), o.wantDims(i+1, q.Dims[0], rows.Dims[1])); err != nil {
						return nil, err
					}
				}
				return []Type{q}, nil
			},
			Decompose: decomposeAttention,
			Limit:     Limit{Kind: BF16ULP, Bound: 0.995},
			Liberties: []Liberty{{Name: "bf16-probabilities", Doc: "exp(s_i - M) is rounded to bf16 for the sum over kv, not for the denominator, by which the sum is divided at the end", Limits: []Limit{{Kind: OneMinCos, Bound: 5e-4}}}},
		},
	)
}

func decomposeHistory(b *Builder, o *Op) []*Value {
	rows, pos, req, ring := o.Args[0], o.Args[1], o.Args[2], o.Args[3]
	n, one := rows.Type.Dims[0], Int(1)
	span, size := o.Int("span"), o.Int("size")
	column := func(v *Value) *Value { return b.Reshape(v, n, one) }
	zero, none := b.I(0), b.I(-1)

	p := column(b.Op1("gather_rows", nil, pos, rows))
	r := column(b.Op1("gather_rows", nil, req, rows))
	live := b.Bin("and", column(b.Bin("ge", rows, zero)), b.Bin("ge", r, zero))
	back := b.Bin("sub", b.I(span-1), b.Iota(1, one, Int(span)))
	q := b.Bin("sub", p, back)
	live = b.Bin("and", live, b.Bin("ge", q, zero))

	row := b.Bin("sub", column(rows), back)
	inside := b.Bin("ge", row, zero)
	sameReq := b.Bin("eq", b.Op1("gather_rows", nil, req, b.Select(inside, row, none)), r)
	own := b.Bin("and", live, b.Bin("and", inside, sameReq))

	base := column(b.Op1("gather_rows", nil, ring, b.Reshape(b.Select(b.Bin("ge", r, zero), r, none), n)))
	old := b.Bin("and", live, b.Bin("and", b.Un("not", own), b.Bin("ge", base, zero)))
	oldRow := b.Bin("add", b.Bin("mul", base, b.I(size)), b.Bin("mod", q, b.I(size)))
	return []*Value{b.Select(old, oldRow, none), b.Select(own, row, none)}
}

func decomposeCompress(b *Builder, o *Op) []*Value {
	old, own := o.Args[4], o.Args[5]
	e, s := old.Type.Dims[0], old.Type.Dims[1]
	width, _ := o.Args[0].Type.Dims[1].Const()
	members, _ := s.Const()
	column := func(v *Value) *Value { return b.Reshape(v, e, s, Int(1)) }
	isOwn := column(b.Bin("ge", own, b.I(0)))
	valid := b.Bin("or", isOwn, column(b.Bin("ge", old, b.I(0))))

	// pick takes each member's row from the step or the pool, then its columns.
	pick := func(pool, step *Value) *Value {
		x := b.Select(isOwn, b.Op1("gather_rows", nil, step, own), b.Op1("gather_rows", nil, pool, old))
		if !o.Bool("overlap") {
			return x
		}
		half, d := members/2, width/2
		return b.Concat(1,
			b.Slice(b.Slice(x, 1, 0, half), 2, 0, d),
			b.Slice(b.Slice(x, 1, half, half), 2, d, d))
	}
	k, g := pick(o.Args[0], o.Args[2]), pick(o.Args[1], o.Args[3])

	top := b.Op1("reduce_max", Attrs{{"axis", 1}}, b.Select(valid, g, b.F(math.Inf(-1))))
	w := b.Select(valid, b.Un("exp", b.Bin("sub", g, top)), b.F(0))
	den := b.Sum(w, 1, F32)
	v := b.Bin("div", b.Sum(b.Bin("mul", w, k), 1, F32), den)
	v = b.Select(b.Bin("eq", den, b.F(0)), b.F(0), v) // no members; NaN stays NaN
	return []*Value{b.Reshape(b.Cast(v, BF16), e, k.Type.Dims[2])}
}

func decomposeAttention(b *Builder, o *Op) []*Value {
	q, sink := o.Args[0], o.Args[1]
	t, h := q.Type.Dims[0], q.Type.Dims[1]
	var kvs, sets []*Value
	for i := 2; i < len(o.Args); i += 2 {
		kvs = append(kvs, b.gatherPacked(o, i))
		sets = append(sets, o.Args[i+1])
	}
	kv, rows := b.Concat(1, kvs...), b.Concat(1, sets...)
	l := rows.Type.Dims[1]
	valid := b.Reshape(b.Bin("ge", rows, b.I(0)), t, Int(1), l)

	s := b.Bin("mul", b.Dot(q, kv, F32), b.F(o.Float("scale"))) // [T,H,L]
	top := b.Op1("reduce_max", Attrs{{"axis", 2}}, b.Select(valid, s, b.F(math.Inf(-1))))
	e := b.Select(valid, b.Un("exp", b.Bin("sub", s, top)), b.F(0))
	// Without rows top is -inf and den +inf or NaN: the select gives zeros.
	den := b.Bin("add", b.Sum(e, 2, F32), b.Un("exp", b.Bin("sub", b.Reshape(sink, Int(1), h, Int(1)), top)))
	p := b.Select(valid, b.Bin("div", e, den), b.F(0))
	return []*Value{b.Dot(p, b.Transpose(kv, 0, 2, 1), BF16)}
}

// powHalf is n^-0.5 as the reference computes it: in float64, then f32.
func powHalf(n int) float64 { return float64(float32(math.Pow(float64(n), -0.5))) }
