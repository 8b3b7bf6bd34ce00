package engine

import (
	"fmt"

	"github.com/kiln-project/kiln/ir/eval"
)

// speculateEntry is the entry that is a whole speculative step with k drafts.
func speculateEntry(k int) string { return fmt.Sprintf("speculate%d", k) }

// DraftsOf is the number of drafts of an entry that is a whole speculative step; 0 of
// another entry.
func DraftsOf(entry string) int {
	var k int
	if n, _ := fmt.Sscanf(entry, "speculate%d", &k); n != 1 || k < 1 || entry != speculateEntry(k) {
		return 0
	}
	return k
}

// What such an entry takes and gives beside what verify does.
const (
	inDraftSlots  = "draft_slots"
	outAcceptLen  = "accept_len"
	outDrafts     = "drafts"
	outDraftFlags = "draft_flags"
)

// wholeStep is step as one run of one entry: how far each request's drafts are right is
// found on the device, and here only to be compared.
func (s *speculation) wholeStep() error {
	entry, rows := speculateEntry(s.k), s.k+1
	feeds := s.feeds()
	for i := range feeds {
		feeds[i].Rows = rows
	}
	shape, err := s.e.exec.Fit(entry, ShapeOf(feeds))
	if err != nil {
		return err
	}
	in, err := SpeculateMetadata(s.e.layout, feeds, s.k, shape)
	if err != nil {
		return err
	}
	bind, err := s.e.bind(entry, shape)
	if err != nil {
		return err
	}
	out, err := s.e.exec.Run(entry, bind, in, s.e.state)
	if err != nil {
		return err
	}
	s.stats.Steps++
	accepted, drafts, flags := out[outAcceptLen], out[outDrafts], out[outDraftFlags]
	if accepted == nil || drafts == nil || flags == nil {
		return fmt.Errorf("entry %s gives no %s, %s or %s", entry, outAcceptLen, outDrafts, outDraftFlags)
	}
	var live []*drafting
	for i, d := range s.live {
		var chosen []Choice
		for n := range feeds[i].IDs {
			c, err := choose(out, i*rows+n, d.r.Sampling, d.seq.Len+n)
			if err != nil {
				return err
			}
			chosen = append(chosen, c)
		}
		a, on, err := s.accept(d, chosen)
		if err != nil {
			return err
		}
		if !on {
			continue
		}
		if n := accepted.I[i]; n != int64(len(a.ids)-1) {
			return s.failed(d.request, fmt.Errorf("entry %s, position %d: %s accepted %d drafts, of its own tokens %d are right", entry, a.at, s.e.exec.Device(), n, len(a.ids)-1))
		}
		if on, err = s.keep(d, drafts.I[i*s.k:], flags.I[i*s.k:]); err != nil {
			return err
		}
		if on {
			live = append(live, d)
		}
	}
	s.live = live
	return nil
}

// keep has the drafts of a request that it has room for be verified by its next step, and
// reports whether it goes on: a faulty one ends it.
func (s *speculation) keep(d *drafting, drafts, flags []int64) (on bool, err error) {
	for n := range s.room(d) {
		if f := flags[n]; f != 0 {
			return false, d.fault(&RowFault{f}, d.seq.Len-1+n)
		}
		d.drafts = append(d.drafts, int32(drafts[n]))
	}
	return true, nil
}

// SpeculateMetadata is Metadata of a whole speculative step with k drafts: each feed has
// k+1 rows, and the shape T = O = B*(k+1).
func SpeculateMetadata(l Layout, feeds []Feed, k int, s Shape) (Tensors, error) {
	in, err := Metadata(l, feeds, s)
	if err == nil && k > 1 {
		in[inDraftSlots], err = l.draftSlots(feeds, k, s.B)
	}
	return in, err
}

// draftSlots are the rows of the MTP block's window for drafts behind the first, for
// every number of accepted drafts: [2k-1,batch], row q for the position q+1 behind that
// of the last token. There is none beyond the model's positions.
func (l Layout) draftSlots(feeds []Feed, k, batch int) (*eval.Tensor, error) {
	slots := filled((2*k-1)*batch, noRow)
	for b, f := range feeds {
		for q := range 2*k - 1 {
			if p := f.Seq.Len + 1 + q; p < l.MaxPositions {
				slots[q*batch+b] = int32(f.Seq.Ring*l.Window + p%l.Window)
			}
		}
	}
	return eval.FromI32(slots, 2*k-1, batch)
}
