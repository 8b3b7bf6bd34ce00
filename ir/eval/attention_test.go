package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

// drawStep draws a step: chunks of consecutive positions of distinct requests,
// one after the other, then padding rows.
func drawStep(t *rapid.T, maxPos int) (pos, req []int32, requests int) {
	requests = rapid.IntRange(1, 3).Draw(t, "B")
	order := []int{0, 1, 2}[:requests]
	if requests > 1 {
		order = rapid.Permutation(order).Draw(t, "order")
	}
	for _, r := range order {
		start, n := rapid.IntRange(0, maxPos).Draw(t, "start"), rapid.IntRange(0, 5).Draw(t, "chunk")
		for i := range n {
			pos, req = append(pos, int32(start+i)), append(req, int32(r))
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "padding") {
		pos, req = append(pos, -1), append(req, -1)
	}
	if len(pos) == 0 {
		pos, req = []int32{4}, []int32{int32(order[0])}
	}
	return pos, req, requests
}

// drawTokenRows draws row numbers of a step of n rows, -1 among them.
func drawTokenRows(t *rapid.T, n int) *Tensor {
	r := drawRand(t)
	rows := zeroTensor(ir.I32, rapid.IntRange(1, 6).Draw(t, "rows"))
	for i := range rows.I {
		rows.I[i] = int64(r.IntN(n+1)) - 1
	}
	return rows
}

func vec(v []int32) *Tensor { return i32s(v, len(v)) }

// historyProp looks every position up among all rows of the step.
func historyProp(t *rapid.T) {
	pos, req, b := drawStep(t, 12)
	span, ringSize := rapid.IntRange(1, 6).Draw(t, "span"), rapid.IntRange(1, 8).Draw(t, "size")
	ring := make([]int32, b)
	for i, r := range rapid.Permutation([]int32{0, 1, 2, -1}).Draw(t, "ring")[:b] {
		ring[i] = r
	}
	rows := drawTokenRows(t, len(pos))
	got, err := apply(t, "history_rows", ir.A("span", span, "size", ringSize), rows, vec(pos), vec(req), vec(ring))
	if err != nil {
		t.Fatal(err)
	}
	var old, own []int64
	for _, row := range rows.I {
		for back := span - 1; back >= 0; back-- {
			o, w := int64(-1), int64(-1)
			if row >= 0 && req[row] >= 0 && int(pos[row]) >= back {
				q := pos[row] - int32(back)
				for i := range pos {
					if req[i] == req[row] && pos[i] == q {
						w = int64(i)
					}
				}
				if rg := ring[req[row]]; w < 0 && rg >= 0 {
					o = int64(rg)*int64(ringSize) + int64(q)%int64(ringSize)
				}
			}
			old, own = append(old, o), append(own, w)
		}
	}
	wantShape(t, "history_rows", got[0], ir.I32, len(rows.I), span)
	what := fmt.Sprintf("history_rows of rows %v, pos %v, req %v, ring %v", rows.I, pos, req, ring)
	wantInts(t, what+": old", got[0], old)
	wantInts(t, what+": own", got[1], own)
}

// entryProp: entry e of a request is seen from position (e+1)*ratio - 1 on.
func entryProp(t *rapid.T) {
	pos, req, b := drawStep(t, 20)
	ratio, perPage, pages := rapid.IntRange(1, 4).Draw(t, "ratio"), rapid.IntRange(1, 3).Draw(t, "per_page"), rapid.IntRange(1, 4).Draw(t, "P")
	table := zeroTensor(ir.I32, b, pages)
	r := drawRand(t)
	for i := range table.I {
		table.I[i] = int64(r.IntN(7)) - 1
	}
	var want []int64
	for i := range pos {
		for e := range pages * perPage {
			row := int64(-1)
			if req[i] >= 0 && (e+1)*ratio-1 <= int(pos[i]) {
				if page := table.I[flat(table.Shape, int(req[i]), e/perPage)]; page >= 0 {
					row = page*int64(perPage) + int64(e%perPage)
				}
			}
			want = append(want, row)
		}
	}
	got := apply1(t, "entry_rows", ir.A("ratio", ratio, "per_page", perPage), vec(pos), vec(req), table)
	wantShape(t, "entry_rows", got, ir.I32, len(pos), pages*perPage)
	wantInts(t, fmt.Sprintf("entry_rows of pos %v, req %v", pos, req), got, want)
}

func groupStartProp(t *rapid.T) {
	pos, _, _ := drawStep(t, 20)
	ratio := rapid.IntRange(1, 5).Draw(t, "ratio")
	rows := drawTokenRows(t, len(pos))
	var want []int64
	for _, row := range rows.I {
		start := int64(-1)
		if row >= 0 {
			start = int64(pos[row]) - int64(ratio) + 1
		}
		want = append(want, start)
	}
	got := apply1(t, "group_start", ir.A("ratio", ratio), rows, vec(pos))
	wantInts(t, "group_start", got, want)
}

// member is one k, g pair of a compressed group, its columns already chosen.
type member struct{ k, g []float64 }

// pooled is v = b(sum softmax(g) k) per channel; zeros without members. The
// division comes last, as in the op's formula sum(w k) / sum(w).
func pooled(members []member, d int) []float64 {
	v := make([]float64, d)
	for c := range d {
		top := math.Inf(-1)
		for _, m := range members {
			top = math.Max(top, m.g[c])
		}
		num, den := 0.0, 0.0
		for _, m := range members {
			w := r32(math.Exp(r32(m.g[c] - top)))
			num, den = num+r32(w*m.k[c]), den+w
		}
		if len(members) > 0 {
			v[c] = r16(r32(r32(num) / r32(den)))
		}
	}
	return v
}

func compressProp(t *rapid.T) {
	overlap := rapid.Bool().Draw(t, "overlap")
	d, s := rapid.IntRange(1, 4).Draw(t, "d"), rapid.IntRange(1, 4).Draw(t, "members")
	w := d
	if overlap {
		w, s = 2*d, 2*s
	}
	r, n, e := rapid.IntRange(1, 5).Draw(t, "R"), rapid.IntRange(1, 5).Draw(t, "T"), rapid.IntRange(1, 4).Draw(t, "E")
	kPool, gPool := drawNormal(t, ir.F32, r, w), drawNormal(t, ir.F32, r, w)
	k, g := drawNormal(t, ir.F32, n, w), drawNormal(t, ir.F32, n, w)
	old, own := zeroTensor(ir.I32, e, s), zeroTensor(ir.I32, e, s)
	rnd := drawRand(t)
	for i := range old.I {
		old.I[i], own.I[i] = -1, -1
		switch rnd.IntN(4) {
		case 0:
			old.I[i] = int64(rnd.IntN(r))
		case 1:
			own.I[i] = int64(rnd.IntN(n))
		case 2: // the step's row is the one that counts
			old.I[i], own.I[i] = int64(rnd.IntN(r)), int64(rnd.IntN(n))
		}
	}
	if rapid.Bool().Draw(t, "empty") {
		for i := range s {
			old.I[i], own.I[i] = -1, -1
		}
	}
	var want []float64
	for row := range e {
		var members []member
		for i := range s {
			col := 0
			if overlap && i >= s/2 {
				col = d
			}
			kt, gt, at := k, g, own.I[row*s+i]
			if at < 0 {
				kt, gt, at = kPool, gPool, old.I[row*s+i]
			}
			if at < 0 {
				continue
			}
			from := int(at)*w + col
			members = append(members, member{floats(kt)[from : from+d], floats(gt)[from : from+d]})
		}
		want = append(want, pooled(members, d)...)
	}
	got := apply1(t, "compress", ir.A("overlap", overlap), kPool, gPool, k, g, old, own)
	wantShape(t, "compress", got, ir.BF16, e, d)
	wantFloats(t, "compress", got, want)
}

// A sequence fed in chunks through ring pools gives the entries that section
// 4.6 defines over the whole sequence: with overlap the members are group e-1,
// absent for e = 0, with the first half of the columns, and group e with the
// second half.
func TestCompressFollowsTheSequence(t *testing.T) {
	const tokens, d, ratio = 23, 3, 4
	for _, overlap := range []bool{false, true} {
		width, span := d, ratio
		if overlap {
			width, span = 2*d, 2*ratio
		}
		const ringSize = 2*ratio + 6 - 1 // chunks of up to 6 tokens
		r := rand.New(rand.NewPCG(11, 12))
		k, g := randTensor(r, normal, ir.F32, tokens, width), randTensor(r, normal, ir.F32, tokens, width)
		columns := func(tok, from int) member {
			at := tok*width + from
			return member{floats(k)[at : at+d], floats(g)[at : at+d]}
		}
		entry := func(e int) []float64 {
			var m []member
			if overlap {
				for tok := (e - 1) * ratio; tok < e*ratio && e > 0; tok++ {
					m = append(m, columns(tok, 0))
				}
			}
			for tok := e * ratio; tok < (e+1)*ratio; tok++ {
				from := 0
				if overlap {
					from = d
				}
				m = append(m, columns(tok, from))
			}
			return pooled(m, d)
		}

		state := map[string]*Tensor{"k": zeroTensor(ir.F32, 2*ringSize, width), "g": zeroTensor(ir.F32, 2*ringSize, width)}
		for i := range state["k"].F { // what an earlier request left behind
			state["k"].F[i], state["g"].F[i] = 1e9, float32(math.NaN())
		}
		made := 0
		start := 0
		for _, chunk := range []int{1, 2, 1, 6, 3, 1, 1, 1, 5, 2} {
			b := ir.NewBuilder("step")
			in := func(name string, t ir.Type) *ir.Value { return b.Input(name, t) }
			i32 := func(n int) ir.Type { return ir.T(ir.I32, ir.Int(n)) }
			stateType := state["k"].Type()
			kv, gv := in("k", ir.T(ir.F32, dims(chunk, width)...)), in("g", ir.T(ir.F32, dims(chunk, width)...))
			pos, req, ring, closing, slots := in("pos", i32(chunk)), in("req", i32(chunk)), in("ring", i32(1)), in("closing", i32(2)), in("slots", i32(chunk))
			ks, gs := b.State("k", stateType), b.State("g", stateType)
			rows := b.Op("history_rows", ir.A("span", span, "size", ringSize), closing, pos, req, ring)
			b.Output("v", b.Op1("compress", ir.A("overlap", overlap), ks, gs, kv, gv, rows[0], rows[1]))
			b.Update(ks, b.Op1("scatter_rows", nil, ks, slots, kv))
			b.Update(gs, b.Op1("scatter_rows", nil, gs, slots, gv))
			graph, err := b.Finish()
			if err != nil {
				t.Fatal(err)
			}
			inputs := map[string]*Tensor{
				"k": f32s(k.F[start*width:(start+chunk)*width], chunk, width), "g": f32s(g.F[start*width:(start+chunk)*width], chunk, width),
				"pos": zeroTensor(ir.I32, chunk), "req": zeroTensor(ir.I32, chunk), "ring": i32s([]int32{1}, 1),
				"closing": i32s([]int32{-1, -1}, 2), "slots": zeroTensor(ir.I32, chunk),
			}
			var closes []int
			for i := range chunk {
				p := start + i
				inputs["pos"].I[i], inputs["slots"].I[i] = int64(p), int64(ringSize+p%ringSize)
				if (p+1)%ratio == 0 {
					inputs["closing"].I[len(closes)] = int64(i)
					closes = append(closes, p/ratio)
				}
			}
			program, err := Compile(graph, NewConsts(nil))
			if err != nil {
				t.Fatal(err)
			}
			out, err := program.Run(inputs, state)
			if err != nil {
				t.Fatal(err)
			}
			want := make([]float64, 2*d)
			for i, e := range closes {
				copy(want[i*d:], entry(e))
				made++
			}
			wantFloats(t, fmt.Sprintf("overlap %v: entries of tokens %d..%d", overlap, start, start+chunk-1), out["v"], want)
			start += chunk
		}
		if start != tokens || made != tokens/ratio {
			t.Fatalf("fed %d tokens and made %d entries", start, made)
		}
	}
}

// drawRows draws rows of a table of n rows for each token, -1 among them.
func drawRows(t *rapid.T, tokens, columns, n int) *Tensor {
	rows := zeroTensor(ir.I32, tokens, columns)
	r := drawRand(t)
	empty := rapid.IntRange(-1, tokens-1).Draw(t, "empty token")
	for i := range rows.I {
		if rows.I[i] = int64(r.IntN(n+2)) - 2; rows.I[i] < 0 || i/columns == empty {
			rows.I[i] = -1
		}
	}
	return rows
}

// indexerProp: S_e = b(sum_h b(max(b(iq_h . ik_e), 0) * iw_h)).
func indexerProp(t *rapid.T) {
	n, h, d, r := rapid.IntRange(1, 4).Draw(t, "T"), rapid.IntRange(1, 5).Draw(t, "H"), rapid.SampledFrom([]int{1, 8, 33}).Draw(t, "D"), rapid.IntRange(1, 6).Draw(t, "R")
	q, w, keys := drawNormal(t, ir.BF16, n, h, d), drawNormal(t, ir.BF16, n, h), drawNormal(t, ir.BF16, r, d)
	rows := drawRows(t, n, rapid.IntRange(1, 7).Draw(t, "N"), r)
	var attrs ir.Attrs
	table := keys
	if d%4 == 0 && rapid.Bool().Draw(t, "packed") {
		var packed []*Tensor
		attrs, packed = drawPacked(t, d, keys)
		table = packed[0]
	}
	qv, wv, kv := floats(q), floats(w), floats(keys)
	var want []float64
	each(rows.Shape, func(ix []int) {
		row := int(rows.I[flat(rows.Shape, ix...)])
		if row < 0 {
			want = append(want, math.Inf(-1))
			return
		}
		s := 0.0
		for head := range h {
			at := (ix[0]*h + head)
			score := r16(dotOf(qv[at*d:(at+1)*d], kv[row*d:(row+1)*d]))
			s += r16(math.Max(score, 0) * wv[at])
		}
		want = append(want, r16(s))
	})
	got := apply1(t, "indexer_scores", attrs, q, w, table, rows)
	wantShape(t, "indexer_scores", got, ir.BF16, rows.Shape...)
	wantFloats(t, "indexer_scores", got, want)
}

// attentionRef is section 4.8 for one query head over its rows.
func attentionRef(q []float64, kv [][]float64, sink, scale float64) []float64 {
	o := make([]float64, len(q))
	if len(kv) == 0 {
		return o
	}
	s := make([]float64, len(kv))
	top := math.Inf(-1)
	for i, row := range kv {
		s[i] = r32(r32(dotOf(q, row)) * r32(scale))
		top = math.Max(top, s[i])
	}
	sum := 0.0
	for i := range s {
		s[i] = r32(math.Exp(r32(s[i] - top)))
		sum += s[i]
	}
	den := r32(r32(sum) + r32(math.Exp(r32(sink-top))))
	for j := range o {
		acc := 0.0
		for i, row := range kv {
			acc += r32(s[i]/den) * row[j]
		}
		o[j] = r16(acc)
	}
	return o
}

// attentionCase is a drawn query with row sets.
type attentionCase struct {
	q, sink  *Tensor
	kv, rows []*Tensor
	scale    float64
}

func drawAttention(t *rapid.T) attentionCase {
	n, h, d := rapid.IntRange(1, 4).Draw(t, "T"), rapid.IntRange(1, 4).Draw(t, "H"), rapid.SampledFrom([]int{1, 8, 33}).Draw(t, "D")
	c := attentionCase{q: drawNormal(t, ir.BF16, n, h, d), sink: drawNormal(t, ir.F32, h), scale: 1 / math.Sqrt(float64(d))}
	if rapid.IntRange(0, 3).Draw(t, "far scores") == 0 {
		c.scale = 100
	}
	for range rapid.IntRange(1, 3).Draw(t, "sets") {
		r := rapid.IntRange(1, 6).Draw(t, "R")
		c.kv = append(c.kv, drawNormal(t, ir.BF16, r, d))
		c.rows = append(c.rows, drawRows(t, n, rapid.IntRange(1, 6).Draw(t, "L"), r))
	}
	return c
}

func (c attentionCase) run(t rapid.TB) *Tensor { return c.over(t, nil, c.kv) }

// over runs over tables of rows as attrs say.
func (c attentionCase) over(t rapid.TB, attrs ir.Attrs, kv []*Tensor) *Tensor {
	t.Helper()
	args := []*Tensor{c.q, c.sink}
	for i := range kv {
		args = append(args, kv[i], c.rows[i])
	}
	return apply1(t, "sparse_attention", append(ir.A("scale", c.scale), attrs...), args...)
}

func attentionProp(t *rapid.T) {
	c := drawAttention(t)
	n, h, d := c.q.Shape[0], c.q.Shape[1], c.q.Shape[2]
	var attrs ir.Attrs
	kv := c.kv
	if d%4 == 0 && rapid.Bool().Draw(t, "packed") {
		attrs, kv = drawPacked(t, d, c.kv...)
	}
	qv := floats(c.q)
	var want []float64
	for tok := range n {
		var kv [][]float64
		for set, rows := range c.rows {
			l := rows.Shape[1]
			for _, row := range rows.I[tok*l : (tok+1)*l] {
				if row >= 0 {
					kv = append(kv, floats(c.kv[set])[int(row)*d:(int(row)+1)*d])
				}
			}
		}
		for head := range h {
			at := (tok*h + head) * d
			want = append(want, attentionRef(qv[at:at+d], kv, floats(c.sink)[head], c.scale)...)
		}
	}
	got := c.over(t, attrs, kv)
	wantShape(t, "sparse_attention", got, ir.BF16, n, h, d)
	wantFloats(t, "sparse_attention", got, want)
}

// Leading runs of 16 places without a row change nothing, nor do places without
// a row elsewhere.
func TestAttentionSkipsMissingRows(t *testing.T) {
	check(t, "leading", func(t *rapid.T) {
		c := drawAttention(t)
		want := c.run(t)
		for i, rows := range c.rows {
			n, l := rows.Shape[0], rows.Shape[1]
			pad := 16 * rapid.IntRange(0, 2).Draw(t, "runs")
			wide := zeroTensor(ir.I32, n, pad+l)
			for j := range wide.I {
				wide.I[j] = -1
			}
			for tok := range n {
				copy(wide.I[tok*(pad+l)+pad:], rows.I[tok*l:(tok+1)*l])
			}
			c.rows[i] = wide
		}
		if d := difference(c.run(t), want); d != "" {
			t.Fatalf("with and without padding: %s", d)
		}
	})
}

// Row sets in several operands equal one set over the tables joined.
func TestAttentionSetsEqualOneTable(t *testing.T) {
	check(t, "joined", func(t *rapid.T) {
		c := drawAttention(t)
		want := c.run(t)
		n := c.q.Shape[0]
		table := apply1(t, "concat", ir.A("axis", 0), c.kv...)
		var all []int32
		for tok := range n {
			offset := 0
			for i, rows := range c.rows {
				l := rows.Shape[1]
				for _, row := range rows.I[tok*l : (tok+1)*l] {
					if row >= 0 {
						row += int64(offset)
					}
					all = append(all, int32(row))
				}
				offset += c.kv[i].Shape[0]
			}
		}
		c.kv, c.rows = []*Tensor{table}, []*Tensor{i32s(all, n, len(all)/n)}
		if d := difference(c.run(t), want); d != "" {
			t.Fatalf("several sets and one: %s", d)
		}
	})
}

func TestAttentionByHand(t *testing.T) {
	ln3 := float32(math.Log(3))
	inf := float32(math.Inf(1))
	kv := bf16s([]float32{4, 0, 8, 0}, 2, 2)
	for _, c := range []struct {
		what string
		q    float32 // times the first column
		sink float32
		rows []int32
		want []float64
	}{
		// Two equal scores 0 and a sink of e^0: weights 1/3 each.
		{"sink", 0, 0, []int32{0, 1}, []float64{4, 0}},
		// A sink of 3 beside one row: weight 1/4.
		{"large sink", 0, ln3, []int32{1, -1}, []float64{2, 0}},
		{"no sink", 0, -inf, []int32{0, 1}, []float64{6, 0}},
		{"no rows", 0, 0, []int32{-1, -1}, []float64{0, 0}},
		{"no rows, large sink", 0, 80, []int32{-1, -1}, []float64{0, 0}},
		{"a row twice", 0, -inf, []int32{1, 1}, []float64{8, 0}},
		// Scores -1000 and -2000: their maximum counts, not that of a missing row.
		{"low scores", -250, -inf, []int32{0, -1}, []float64{4, 0}},
		{"one low score less low", -250, -inf, []int32{0, 1}, []float64{4, 0}},
		{"high scores", 250, 0, []int32{0, 1}, []float64{8, 0}},
		// A sink beyond all scores takes everything.
		{"low scores, sink", -250, 0, []int32{0, 1}, []float64{0, 0}},
	} {
		q := bf16s([]float32{c.q, 0}, 1, 1, 2)
		got := apply1(t, "sparse_attention", ir.A("scale", 1.0), q, f32s([]float32{c.sink}, 1), kv, i32s(c.rows, 1, 2))
		wantFloats(t, c.what, got, c.want)
	}
}
