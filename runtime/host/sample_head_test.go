package host_test

import (
	"slices"
	"testing"

	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/engine"
)

// sampleTiny is the tiny checkpoint with heads that sample.
func sampleTiny(t *testing.T) *devicetest.Tiny {
	t.Helper()
	o := dsv4.DefaultOptions()
	o.Head = dsv4.HeadSample
	return openTinyAs(t, false, o)
}

// Generation is the same, token for token, whether the device draws or the engine,
// from the logits; at temperature 0 it is greedy.
func TestSampleHeadGenerates(t *testing.T) {
	const pages, maxNew = 1, 24
	prompt := devicetest.Prompt(9)
	models := []*devicetest.Tiny{openTiny(t), sampleTiny(t)}
	seen := map[int32]bool{}
	for _, by := range []engine.Sampling{
		{}, {Temperature: 1, Seed: 1}, {Temperature: 1, Seed: 2}, {Temperature: 0.7, TopK: 5, Seed: 1 << 40}, {Temperature: 1.2, TopP: 0.9}, {Temperature: 5, TopK: 40, TopP: 0.6, Seed: 9},
	} {
		var ids [2][]int32
		for i, m := range models {
			e, _ := m.Engine(t, 1, pages)
			s, err := e.NewSeq(0, pages)
			if err != nil {
				t.Fatal(err)
			}
			if ids[i], _, err = e.Generate(t.Context(), s, engine.Request{Prompt: prompt, MaxNew: maxNew, Sampling: by}, nil, func(int32) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if len(ids[0]) != maxNew || !slices.Equal(ids[0], ids[1]) {
			t.Errorf("%v: from logits %v, on the device %v", by, ids[0], ids[1])
		}
		for _, id := range ids[1] {
			seen[id] = true
		}
	}
	if len(seen) < 2*maxNew {
		t.Errorf("all samplings together give %d different tokens", len(seen))
	}
}

// A row's token is the same in every bucket, and whatever stands beside it.
func TestSampleHeadBuckets(t *testing.T) {
	const pages, requests = 1, 3
	m := sampleTiny(t)
	by := []engine.Sampling{{Temperature: 1, Seed: 5}, {}, {Temperature: 2, TopK: 50, TopP: 0.9, Seed: 6}}
	ids := devicetest.Prompt(requests)
	// step decodes the requests that are named, as the first tokens of theirs.
	step := func(b int, which ...int) []int32 {
		e, _ := m.Engine(t, 8, 8*pages)
		var feeds []engine.Feed
		for i, r := range which {
			s, err := e.NewSeq(i, pages)
			if err != nil {
				t.Fatal(err)
			}
			feeds = append(feeds, engine.Feed{Seq: s, IDs: ids[r : r+1], Out: []int{0}, Sampling: by[r]})
		}
		out, err := e.Step("decode", feeds, engine.Shape{T: b, B: b, O: b, P: pages})
		if err != nil {
			t.Fatal(err)
		}
		chosen, err := engine.Choose(feeds, out)
		if err != nil {
			t.Fatal(err)
		}
		for row := len(which); row < b; row++ {
			if f := out["sample_flags"].I[row]; f != 0 {
				t.Errorf("padding row %d has flags %d", row, f)
			}
		}
		var got []int32
		for i, c := range chosen {
			if c.Err != nil {
				t.Errorf("row %d: %v", i, c.Err)
			}
			got = append(got, c.ID)
		}
		return got
	}
	var alone []int32
	for r := range requests {
		alone = append(alone, step(1, r)...)
	}
	for _, b := range []int{3, 4, 8} {
		if got := step(b, 0, 1, 2); !slices.Equal(got, alone) {
			t.Errorf("bucket %d: %v, alone %v", b, got, alone)
		}
		if got := step(b, 2, 0); got[0] != alone[2] || got[1] != alone[0] {
			t.Errorf("bucket %d, in another order: %v, alone %v", b, got, alone)
		}
	}
}
