package devicetest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/runtime/engine"
)

// canary fills pools whose untouched rows must stay as they are. As bf16 and as
// fp8 it is a number.
const canary = 0xA5

// fill writes the canary to every pool.
func (r *Runner) fill(t testing.TB) {
	t.Helper()
	for _, name := range pools(r.Bundle.Code.Module) {
		b, err := r.State.Bytes(name)
		if err != nil {
			continue // of the draft entry
		}
		for i := range b {
			b[i] = canary
		}
		if err := r.State.SetBytes(name, b); err != nil {
			t.Fatal(err)
		}
	}
}

// snapshot copies the pools.
func (r *Runner) snapshot() map[string][]byte {
	all := map[string][]byte{}
	for _, name := range pools(r.Bundle.Code.Module) {
		if b, err := r.State.Bytes(name); err == nil {
			all[name] = b
		}
	}
	return all
}

// samePools compares the pools of two runners byte by byte.
func samePools(t testing.TB, when string, a, b *Runner) {
	t.Helper()
	one, two := a.snapshot(), b.snapshot()
	if len(one) == 0 || len(one) != len(two) {
		t.Fatalf("%s: %d and %d pools", when, len(one), len(two))
	}
	for _, name := range pools(a.Bundle.Code.Module) {
		if !bytes.Equal(one[name], two[name]) {
			t.Errorf("%s: pool %s differs", when, name)
		}
	}
}

// differ counts values whose bits differ.
func differ(a, b []float32) int {
	if len(a) != len(b) {
		return max(len(a), len(b))
	}
	n := 0
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			n++
		}
	}
	return n
}

// batch is the smallest compiled batch for n requests.
func (b *Bundle) batch(n int) int {
	i := slices.IndexFunc(b.Batches, func(have int) bool { return have >= n })
	return b.Batches[i]
}

// sequences are placed one after the other.
func (r *Runner) sequences(t testing.TB, n int) []*engine.Seq {
	t.Helper()
	var list []*engine.Seq
	for i := range n {
		s, err := r.NewSeq(i, r.Bundle.Pages)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

// decode feeds one token to each sequence, in a padded step, and commits.
func (r *Runner) decode(t testing.TB, seqs []*engine.Seq, ids []int32) []float32 {
	t.Helper()
	var feeds []engine.Feed
	for i, s := range seqs {
		feeds = append(feeds, engine.Feed{Seq: s, IDs: ids[i : i+1], Out: []int{0}})
	}
	n := r.Bundle.batch(len(seqs))
	out, err := r.Step("decode", feeds, engine.Shape{T: n, B: n, O: n, P: r.Bundle.Pages})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range seqs {
		s.Len++
	}
	return out["logits"].F[:len(seqs)*r.Bundle.Layout.Vocab]
}

// tokens are some ids of the vocabulary.
func (b *Bundle) tokens(random *rand.Rand, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(2 + random.IntN(b.Layout.Vocab-2))
	}
	return ids
}

// Replays runs the same n decode steps on two devices, which must give the same
// bits: three requests in a step for four, tokens and positions new each time. A
// request that is full begins anew. It returns how many steps differed.
func Replays(t testing.TB, a, b *Runner, n int) int {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	requests := min(3, a.Bundle.Rings)
	one, two := a.sequences(t, requests), b.sequences(t, requests)
	bad := 0
	for i := range n {
		for j := range one {
			if one[j].Len == a.Bundle.MaxSeq || random.IntN(200) == 0 {
				one[j].Len, two[j].Len = 0, 0
			}
		}
		ids := a.Bundle.tokens(random, requests)
		if differ(a.decode(t, one, ids), b.decode(t, two, ids)) > 0 {
			if bad++; bad == 1 {
				t.Errorf("step %d of %d is the first whose logits differ", i, n)
			}
		}
	}
	samePools(t, fmt.Sprintf("after %d steps", n), a, b)
	return bad
}

// Batches runs decode steps of each number of requests up to most, in padded steps,
// with pools full of canaries, on two devices: logits and pools must be the same
// bits, a row must be what the request gives alone, and each request must have
// written one row of each ring.
func Batches(t testing.TB, a, b *Runner, most int) {
	t.Helper()
	a.fill(t)
	b.fill(t)
	random := rand.New(rand.NewPCG(3, 4))
	vocab := a.Bundle.Layout.Vocab
	one, two := a.sequences(t, most), b.sequences(t, most)
	for n := 1; n <= most; n++ {
		ids := a.Bundle.tokens(random, n)
		before := a.snapshot()
		// The last request alone, in a step that is done again with the others.
		alone := a.decode(t, one[n-1:n], ids[n-1:])
		one[n-1].Len--
		got := a.decode(t, one[:n], ids)
		if differ(alone, got[(n-1)*vocab:]) > 0 {
			t.Errorf("%d requests: the last one's logits are others than alone", n)
		}
		if differ(got, b.decode(t, two[:n], ids)) > 0 {
			t.Errorf("%d requests: the devices' logits differ", n)
		}
		after := a.snapshot()
		for _, s := range a.Bundle.Code.Module.States {
			if !strings.HasSuffix(s.Name, ".window") || before[s.Name] == nil {
				continue
			}
			pool, err := a.State.Pool(s.Name)
			if err != nil {
				t.Fatal(err)
			}
			row := len(after[s.Name]) / pool.Shape[0]
			changed := 0
			for i := 0; i < len(after[s.Name]); i += row {
				if !bytes.Equal(before[s.Name][i:i+row], after[s.Name][i:i+row]) {
					changed++
				}
			}
			if changed != n {
				t.Errorf("%d requests: %d rows of %s changed", n, changed, s.Name)
			}
		}
		if n == most || n%8 == 0 {
			samePools(t, fmt.Sprintf("%d requests", n), a, b)
		}
	}
}
