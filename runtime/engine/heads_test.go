package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
)

// headModels are the tiny checkpoint with heads that choose.
var headModels = map[dsv4.Head]func(m *tinyModel) (*tinyModel, error){
	dsv4.HeadSample: headModel(dsv4.HeadSample), dsv4.HeadGreedy: headModel(dsv4.HeadGreedy),
}

func headModel(head dsv4.Head) func(m *tinyModel) (*tinyModel, error) {
	var once sync.Once
	var h *tinyModel
	var err error
	return func(m *tinyModel) (*tinyModel, error) {
		once.Do(func() {
			o := tinyOptions(dsv4.Production)
			o.Head = head
			h, err = buildModel(m.cfg, o, CheckpointSource{m.file}, dsv4.Prefill, dsv4.Decode)
		})
		return h, err
	}
}

// withHead is the tiny checkpoint with such heads.
func withHead(t testing.TB, head dsv4.Head) *tinyModel {
	t.Helper()
	m := tiny(t, dsv4.Production)
	if head == dsv4.HeadLogits {
		return m
	}
	h, err := headModels[head](m)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Heads that choose give what the logits give, token for token, over prefill and
// decode.
func TestGenerateByHeads(t *testing.T) {
	var layouts []Head
	r := Request{Prompt: goldenIDs(t, "short")[:5], MaxNew: 10}
	hot := r
	hot.Sampling = Sampling{Temperature: 0.9, TopK: 50, TopP: 0.95, Seed: 3}
	want := generate(t, tiny(t, dsv4.Production), r)
	drawn := generate(t, tiny(t, dsv4.Production), hot)
	if slices.Equal(want, drawn) {
		t.Errorf("sampling gives the greedy tokens %v", want)
	}
	for _, head := range heads {
		m := withHead(t, head)
		layouts = append(layouts, m.layout.Head)
		if got := generate(t, m, r); !slices.Equal(got, want) {
			t.Errorf("head %v: generated %v, want %v", head, got, want)
		}
		if head == dsv4.HeadGreedy {
			wantError(t, "sampling", func() error { return m.layout.Check(hot) }, "sampling at temperature 0.9: "+errOnlyGreedy.Error())
			feeds := []Feed{{Seq: &Seq{Pages: []int{0}}, IDs: []int32{1}, Out: []int{0}, Sampling: hot.Sampling}}
			wantError(t, "a step", func() error { _, err := Metadata(m.layout, feeds, ShapeOf(feeds)); return err }, "request 0: sampling at temperature 0.9: "+errOnlyGreedy.Error())
			continue
		}
		if got := generate(t, m, hot); !slices.Equal(got, drawn) {
			t.Errorf("head %v: drawn %v, want %v", head, got, drawn)
		}
	}
	if want := []Head{HeadLogits, HeadSample, HeadGreedy}; !slices.Equal(layouts, want) {
		t.Errorf("layouts say %v, want %v", layouts, want)
	}
}

// batchOf makes an engine for so many requests, and their sequences.
func batchOf(t testing.TB, m *tinyModel, n int) (*Engine, []*Seq) {
	t.Helper()
	const pages = 1
	e, err := New(m.ref, m.layout, n, n*pages)
	if err != nil {
		t.Fatal(err)
	}
	var seqs []*Seq
	for i := range n {
		s, err := e.NewSeq(i, pages)
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, s)
	}
	return e, seqs
}

// mixedRequests are greedy ones and sampled ones of other lengths.
func mixedRequests(t testing.TB) []Request {
	t.Helper()
	ids := goldenIDs(t, "long")
	var list []Request
	for i, s := range []Sampling{{}, {Temperature: 1, Seed: 1}, {Temperature: 0.7, TopK: 5, Seed: 2}, {}, {Temperature: 1.3, TopP: 0.9, Seed: 3}} {
		list = append(list, Request{Prompt: ids[i : i+5+3*(i%2)], MaxNew: 4 - i%2, Sampling: s})
	}
	return list
}

// A batch of greedy and sampled requests gives each what it gets alone: greedy rows
// that of the greedy head, sampled ones whatever is beside them.
func TestMixedBatch(t *testing.T) {
	m, greedy := withHead(t, dsv4.HeadSample), withHead(t, dsv4.HeadGreedy)
	reqs := mixedRequests(t)
	for _, m := range []*tinyModel{m, tiny(t, dsv4.Production)} {
		e, seqs := batchOf(t, m, len(reqs))
		var heard [5][]int32
		got, err := e.GenerateBatch(t.Context(), seqs, reqs, func(i int, id int32) error { heard[i] = append(heard[i], id); return nil })
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range reqs {
			alone := m
			if r.Sampling.Temperature == 0 {
				alone = greedy
			}
			if want := generate(t, alone, r); got[i].Err != nil || !slices.Equal(got[i].IDs, want) || !slices.Equal(heard[i], want) {
				t.Errorf("request %d, %v: %v, heard %v, error %v; alone %v", i, r.Sampling, got[i].IDs, heard[i], got[i].Err, want)
			}
		}
	}
	// The batch in another order, and without some.
	e, seqs := batchOf(t, m, 3)
	some := []Request{reqs[4], reqs[0], reqs[1]}
	got, err := e.GenerateBatch(t.Context(), seqs, some, func(int, int32) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range some {
		if want := generate(t, m, r); !slices.Equal(got[i].IDs, want) {
			t.Errorf("request %d of three: %v, alone %v", i, got[i].IDs, want)
		}
	}
}

// One request of a batch whose cache goes bad ends with an error at that position; the
// others get what they would get without it.
func TestFaultyRowEndsItsRequest(t *testing.T) {
	reqs := mixedRequests(t)[:3]
	for i := range reqs {
		reqs[i].MaxNew = 3
	}
	const bad = 1
	for _, head := range heads {
		m := withHead(t, head)
		list := slices.Clone(reqs)
		if head == dsv4.HeadGreedy {
			for i := range list {
				list[i].Sampling = Sampling{}
			}
		}
		e, seqs := batchOf(t, m, len(list))
		tokens := 0
		got, err := e.GenerateBatch(t.Context(), seqs, list, func(i int, _ int32) error {
			if i != bad {
				return nil
			}
			if tokens++; tokens == 2 { // the next step reads it
				window := e.state.(Tensors)["layers.0.window"]
				ring := m.layout.Window * window.Shape[1]
				spoil(window, seqs[bad].Ring*ring, (seqs[bad].Ring+1)*ring)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range list {
			want := generate(t, m, r)
			if i != bad {
				if got[i].Err != nil || !slices.Equal(got[i].IDs, want) {
					t.Errorf("head %v: request %d: %v, error %v; want %v", head, i, got[i].IDs, got[i].Err, want)
				}
				continue
			}
			at := fmt.Sprintf("position %d: ", len(r.Prompt)+1)
			if !slices.Equal(got[i].IDs, want[:2]) || got[i].Err == nil || !strings.HasPrefix(got[i].Err.Error(), at) || !strings.Contains(got[i].Err.Error(), "is NaN: the model's output is not usable") {
				t.Errorf("head %v: request %d: %v, error %v; want %v and one about NaN at %q", head, i, got[i].IDs, got[i].Err, want[:2], at)
			}
			var fault *RowFault
			if head != dsv4.HeadLogits && (!errors.As(got[i].Err, &fault) || fault.Flags&ir.ArgmaxNaN == 0) {
				t.Errorf("head %v: error %#v", head, got[i].Err)
			}
		}
	}
}

func TestGenerateBatchErrors(t *testing.T) {
	m := tiny(t, dsv4.Production)
	e, seqs := batchOf(t, m, 2)
	r := Request{Prompt: []int32{1, 2}, MaxNew: 3}
	quiet := func(int, int32) error { return nil }
	run := func(seqs []*Seq, reqs []Request) func() error {
		return func() error { _, err := e.GenerateBatch(t.Context(), seqs, reqs, quiet); return err }
	}
	wantError(t, "one sequence", run(seqs[:1], []Request{r, r}), "2 requests on 1 sequences")
	wantError(t, "no prompt", run(seqs, []Request{r, {MaxNew: 1}}), "request 1: the prompt has no tokens")
	wantError(t, "long", run(seqs, []Request{{Prompt: r.Prompt, MaxNew: 200}, r}), "request 0: 201 positions do not fit the sequence's 1 pages of 128 tokens")
	wantError(t, "one ring", run([]*Seq{seqs[0], {Ring: 0, Pages: seqs[1].Pages}}, []Request{r, r}), "request 1: ring 0 is used by two requests of the step")
	stop := errors.New("enough")
	for _, s := range seqs {
		s.Len = 0
	}
	got, err := e.GenerateBatch(t.Context(), seqs, []Request{r, r}, func(i int, _ int32) error {
		if i == 0 {
			return stop
		}
		return nil
	})
	if err != nil || !errors.Is(got[0].Err, stop) || len(got[0].IDs) != 1 || got[1].Err != nil || len(got[1].IDs) != 3 {
		t.Errorf("outcomes %v, error %v", got, err)
	}
}
