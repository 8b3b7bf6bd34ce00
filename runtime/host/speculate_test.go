package host_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/engine"
)

// Speculative greedy generation is plain greedy generation, token for token, by whole
// steps and by separate ones, which accept alike. The rest of the matrix is in
// speculate_long_test.go.
func TestSpeculateIsGreedy(t *testing.T) {
	speculateMatrix(t, []speculativeCase{{1, 1, 144}, {1, 3, 144}, {3, 2, 48}})
}

type speculativeCase struct{ batch, k, tokens int }

func speculateMatrix(t *testing.T, cases []speculativeCase) {
	t.Helper()
	m := greedyTiny(t)
	o := dsv4.DefaultOptions()
	o.Head = dsv4.HeadGreedy
	whole := devicetest.OpenTiny(t, devicetest.Compiler(t), openHost, false, o, 1, 2, 3)
	for _, c := range cases {
		t.Run(fmt.Sprintf("batch %d, K=%d", c.batch, c.k), func(t *testing.T) {
			pages := m.Layout.Pages(c.tokens + 16)
			var counts [2]engine.Stats
			for i, form := range []*devicetest.Tiny{m, whole} {
				m.Exec.Requests, form.Exec.Requests = c.batch, c.batch
				plain, _ := m.Engine(t, c.batch, c.batch*pages)
				speculative, _ := form.Engine(t, c.batch, c.batch*pages)
				counts[i] = devicetest.SpeculateIsGreedy(t, plain, speculative, pages, c.tokens, c.k, devicetest.SpeculativePrompts(c.batch))
			}
			a, b := counts[0], counts[1]
			if a.Steps != b.Steps || !slices.Equal(a.Drafts.Accepted, b.Drafts.Accepted) || a.Steps >= c.tokens-1 {
				t.Errorf("%d steps that accept %v, whole: %d steps that accept %v, want fewer than %d", a.Steps, a.Drafts.Accepted, b.Steps, b.Drafts.Accepted, c.tokens-1)
			}
			t.Logf("%d steps, acceptance %.3f", b.Steps, b.Drafts.Acceptance())
		})
	}
}

// Sampled tokens have the distribution of plain ones: the third and fourth tokens of
// many seeds, speculative, against those of as many other seeds, plain, by the
// chi-square of two samples. For one seed both are the same.
func TestSpeculateSampled(t *testing.T) {
	const batch, rounds, k, pages = 8, 25, 2, 1
	m := sampleTiny(t)
	m.Exec.Requests = batch
	prompt := devicetest.Prompt(6)
	seen := [2]map[int32]int{{}, {}}
	run := func(first uint64, speculative bool) [][]int32 {
		e, _ := m.Engine(t, batch, batch*pages)
		var seqs []*engine.Seq
		var reqs []engine.Request
		for i := range batch {
			s, err := e.NewSeq(i, pages)
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, s)
			reqs = append(reqs, engine.Request{Prompt: prompt, MaxNew: 4, Sampling: engine.Sampling{Temperature: 0.8, Seed: first + uint64(i)}})
		}
		var got []engine.Outcome
		var err error
		nobody := func(int, int32) error { return nil }
		if speculative {
			got, _, err = e.Speculate(t.Context(), seqs, reqs, k, nil, nobody)
		} else {
			got, err = e.GenerateBatch(t.Context(), seqs, reqs, nobody)
		}
		if err != nil {
			t.Fatal(err)
		}
		var ids [][]int32
		for _, o := range got {
			if o.Err != nil || len(o.IDs) != 4 {
				t.Fatalf("%v, error %v", o.IDs, o.Err)
			}
			ids = append(ids, o.IDs)
		}
		return ids
	}
	count := func(into map[int32]int, ids [][]int32) {
		for _, x := range ids {
			into[x[2]]++
			into[x[3]]++
		}
	}
	for r := range uint64(rounds) {
		ids := run(1+r*batch, true)
		count(seen[1], ids)
		count(seen[0], run(100_000+r*batch, false))
		if r == 0 {
			if plain := run(1, false); !slices.EqualFunc(plain, ids, slices.Equal) {
				t.Errorf("of the same seeds: plain %v, speculative %v", plain, ids)
			}
		}
	}
	x, df := chiSquare(seen[0], seen[1])
	// The 99.9% quantile by Wilson and Hilferty.
	d := 2 / (9 * float64(df))
	limit := float64(df) * math.Pow(1-d+3.09*math.Sqrt(d), 3)
	t.Logf("chi-square %.1f with %d degrees of freedom, limit %.1f", x, df, limit)
	if df < 8 || x > limit {
		t.Errorf("chi-square %.1f with %d degrees of freedom, want at most %.1f with at least 8", x, df, limit)
	}
}

// chiSquare compares two samples of equal size: tokens that both together have fewer
// than 10 times are counted as one.
func chiSquare(a, b map[int32]int) (x float64, df int) {
	var rest [2]float64
	add := func(m, n float64) {
		if m+n > 0 {
			x += (m - n) * (m - n) / (m + n)
			df++
		}
	}
	for id := range int32(2048) {
		m, n := float64(a[id]), float64(b[id])
		if m+n < 10 {
			rest[0], rest[1] = rest[0]+m, rest[1]+n
			continue
		}
		add(m, n)
	}
	add(rest[0], rest[1])
	return x, df - 1
}
