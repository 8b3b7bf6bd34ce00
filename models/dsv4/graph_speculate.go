package dsv4

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
)

// SpeculateEntry is the name of the entry that BuildSpeculate makes for k drafts.
func SpeculateEntry(k int) Entry { return Entry(fmt.Sprintf("speculate%d", k)) }

// BuildSpeculate makes the graph of a whole speculative step with k drafts of B
// requests: it verifies rows, accepts, runs the MTP block over the accepted rows, and
// makes k-1 further drafts from the block's own streams. Its inputs are those of entry
// verify, with T = O = B*(k+1) and request b at rows b*(k+1) and up: its last token, its
// drafts, and -1 for what it lacks; and
//
//	draft_slots [2k-1,B]  for k > 1, step-major: row q has the slots in the MTP
//	                      block's window of position pos+1+q, pos being that of the
//	                      last token; -1: no draft there
//
// What the i-th further draft reads is always rows i-1..i+k-1 of it, of which the
// accepted length picks one. Its outputs, all i32:
//
//	HEAD_ids, HEAD_flags [T]    what follows each row: sampled with HeadSample, else greedy
//	accept_len [B]              how many drafts were right, up to the first wrong one
//	drafts, draft_flags [B,k]   greedy drafts behind the accepted tokens
func BuildSpeculate(c *Config, k int, o Options) (*ir.Graph, error) {
	entry := SpeculateEntry(k)
	switch {
	case c.NextN == 0:
		return nil, fmt.Errorf("entry %s: the model has no MTP block (num_nextn_predict_layers is 0)", entry)
	case k < 1 || k > o.MaxDraft:
		return nil, fmt.Errorf("entry %s: %d drafts, want 1 to MaxDraft, which is %d", entry, k, o.MaxDraft)
	}
	m, err := newModel(c, string(entry), o)
	if err != nil {
		return nil, err
	}
	m.reqs = m.b.Sym("B")
	m.t = m.b.Let("T", m.reqs.Mul(ir.Int(k+1)))
	m.outs = m.t
	m.poolSymbols(m.ratiosOf(Verify))
	m.speculate(k)
	return m.finish()
}

// speculate is the whole step.
func (m *model) speculate(k int) {
	b, verify := m.b, m.t
	reqs, width := m.reqs, ir.Int(k+1)
	none := b.I(-1)
	h := m.layers()
	b.At("head")
	head := HeadGreedy
	if m.o.Head == HeadSample {
		head = HeadSample
	}
	ids, flags := m.choose(head, h, "hc_head", "norm")

	// A draft is right if it is what the row before it says; accepted is how many are
	// in a row.
	b.At("accept")
	column := func(v *ir.Value, from, n int) *ir.Value {
		return b.Slice(b.Reshape(v, reqs, width), 1, from, n)
	}
	right := b.Bin("and", b.Bin("eq", column(m.ids(), 1, k), column(ids, 0, k)), b.Bin("ge", column(m.pos(), 1, k), b.I(0)))
	all := b.Slice(right, 1, 0, 1)
	accepted := b.Cast(all, ir.I32)
	for i := 1; i < k; i++ {
		all = b.Bin("and", all, b.Slice(right, 1, i, 1))
		accepted = b.Bin("add", accepted, b.Cast(all, ir.I32))
	}
	kept := b.Reshape(b.Bin("le", b.Iota(1, reqs, width), accepted), verify)
	keep := func(v *ir.Value) *ir.Value { return b.Select(kept, v, none) }
	accepted = b.Reshape(accepted, reqs)
	first := b.Reshape(column(m.pos(), 0, 1), reqs)
	last := b.Bin("add", b.Bin("mul", b.Iota(0, reqs), b.I(k+1)), accepted)
	last = b.Select(b.Bin("ge", first, b.I(0)), last, none)

	// The MTP block over the accepted rows, with what truly follows each.
	own := rows{ids: ids, pos: keep(m.pos()), req: keep(m.req()), windowSlots: keep(m.windowSlots()), out: last}
	m.outs = reqs
	next := func() (x, draft, flag *ir.Value) {
		m.own = own
		x = m.mtp(h)
		b.At(mtpBlock + ".head")
		draft, flag = m.choose(HeadGreedy, x, mtpBlock+".hc_head", mtpBlock+".norm")
		return x, b.Reshape(draft, reqs, ir.Int(1)), b.Reshape(flag, reqs, ir.Int(1))
	}
	x, draft, flag := next()
	drafts, draftFlags := []*ir.Value{draft}, []*ir.Value{flag}

	// Chained drafts: the block over its own streams and its own draft.
	m.t = reqs
	for i := 1; i < k; i++ {
		b.At("draft")
		h = x
		if i == 1 {
			h = b.Op1("gather_rows", nil, x, last)
		}
		loc := b.Input("draft_slots", ir.T(ir.I32, ir.Int(2*k-1), reqs))
		at := func(n int) *ir.Value { return b.Reshape(b.Slice(loc, 0, i-1+n, 1), reqs) }
		slot := at(0)
		for n := 1; n <= k; n++ {
			slot = b.Select(b.Bin("eq", accepted, b.I(n)), at(n), slot)
		}
		live := b.Bin("ge", slot, b.I(0))
		only := func(v *ir.Value) *ir.Value { return b.Select(live, v, none) }
		request := only(b.Iota(0, reqs))
		own = rows{
			ids: b.Reshape(drafts[i-1], reqs), pos: only(b.Bin("add", b.Bin("add", first, accepted), b.I(i))), req: request,
			windowSlots: slot, out: request,
		}
		x, draft, flag = next()
		drafts, draftFlags = append(drafts, draft), append(draftFlags, flag)
	}
	join := func(list []*ir.Value) *ir.Value {
		if len(list) == 1 {
			return list[0]
		}
		return b.Concat(1, list...)
	}
	b.At("accept")
	b.Output(head.String()+"_ids", ids)
	b.Output(head.String()+"_flags", flags)
	b.Output("accept_len", accepted)
	b.Output("drafts", join(drafts))
	b.Output("draft_flags", join(draftFlags))
}
