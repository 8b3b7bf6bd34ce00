package emu_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/emu"
	"github.com/kiln-project/kiln/runtime/engine"
)

// openTiny opens the tiny checkpoint on an emulated chip. With sanitizers its plans
// are laid out so that no two values share bytes or touch each other.
func openTiny(t *testing.T, c *codegen.Compiler, chip string, checks emu.Checks) *devicetest.Tiny {
	t.Helper()
	return openTinyAs(t, c, chip, checks, dsv4.DefaultOptions())
}

// openTinyAs is openTiny with other options, and taps.
func openTinyAs(t *testing.T, c *codegen.Compiler, chip string, checks emu.Checks, options dsv4.Options) *devicetest.Tiny {
	t.Helper()
	tg, err := target.Lookup(chip)
	if err != nil {
		t.Fatal(err)
	}
	options.Taps = true
	m := devicetest.OpenTiny(t, c, opener(chip, emu.Options{Sanitize: checks, Shuffle: uint64(checks)}), tg.FNUZ, options)
	if checks != 0 {
		m.Exec.Relay = func(p *plan.Plan) (*plan.Plan, error) { return plan.Spread(p, 256) }
	}
	return m
}

// Pools of so many requests, with so many pages each.
const requests, pages = 3, 1

// step is one step of the requests of a run.
type step struct {
	entry  string
	tokens []int // of each request, all with logits but those of a prefill
	shape  engine.Shape
	draft  bool // the draft step beside it
}

// runSteps runs steps from spoiled pools, and returns all outputs by step, and the
// pools.
func runSteps(t *testing.T, m *devicetest.Tiny, steps []step) (map[string][]float32, []*device.State) {
	t.Helper()
	e, st := m.Engine(t, requests, requests*pages)
	m.Spoil(t, st)
	seqs, ids := make([]*engine.Seq, requests), make([][]int32, requests)
	for i := range seqs {
		var err error
		if seqs[i], err = e.NewSeq(i, pages); err != nil {
			t.Fatal(err)
		}
		ids[i] = devicetest.Prompt(60 + i)[i:]
	}
	rows := map[string][]float32{}
	for i, s := range steps {
		var feeds, next []engine.Feed
		for j, n := range s.tokens {
			q := seqs[j]
			f := engine.Feed{Seq: q, IDs: ids[j][q.Len : q.Len+n], Out: []int{n - 1}}
			if s.entry == "verify" {
				f.Out = nil
				for k := range n {
					f.Out = append(f.Out, k)
				}
			}
			feeds = append(feeds, f)
			next = append(next, engine.Feed{Seq: q, IDs: ids[j][q.Len+1 : q.Len+n+1], Out: f.Out})
		}
		out, err := e.Step(s.entry, feeds, s.shape)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		for name, v := range out {
			rows[fmt.Sprintf("step %d, %s", i, name)] = v.F
		}
		if s.draft {
			out, err := e.Draft(next, s.shape, devicetest.LastHidden(out))
			if err != nil {
				t.Fatalf("draft of step %d: %v", i, err)
			}
			for name, v := range out {
				rows[fmt.Sprintf("draft of step %d, %s", i, name)] = v.F
			}
		}
		engine.Commit(feeds)
	}
	return rows, m.Made
}

// sanitized runs steps on the tiny checkpoint with every sanitizer and without: no
// report, and the same bits, padding and pools included.
func sanitized(t *testing.T, steps []step) {
	c := devicetest.Compiler(t)
	for _, chip := range emu.Chips {
		t.Run(chip, func(t *testing.T) {
			plain, checked := openTiny(t, c, chip, 0), openTiny(t, c, chip, emu.CheckAll)
			want, wantPools := runSteps(t, plain, steps)
			got, pools := runSteps(t, checked, steps)
			if len(want) < len(steps) {
				t.Fatalf("%d outputs of %d steps", len(want), len(steps))
			}
			for name := range want {
				devicetest.SameBits(t, name, want[name], got[name])
			}
			for i := range wantPools {
				for _, name := range wantPools[i].Names() {
					if !bytes.Equal(devicetest.PoolBytes(t, wantPools[i], name), devicetest.PoolBytes(t, pools[i], name)) {
						t.Errorf("pool %s differs", name)
					}
				}
			}
			checked.Touched(t, pools[0], func(kind string, rows int) int { return touched(steps, kind, rows) })
		})
	}
}

// TestSanitizedModel: a prefill of 5 tokens among padding, which closes a group of 4,
// and the smallest decode after it.
func TestSanitizedModel(t *testing.T) {
	sanitized(t, []step{
		{entry: "prefill", tokens: []int{5}, shape: engine.Shape{T: 7, B: 2, O: 2, P: 2}},
		{entry: "decode", tokens: []int{1}, shape: engine.Shape{T: 1, B: 1, O: 1, P: 1}},
	})
}

// TestPackedPools: packed pools are pools of bf16 numbers bit for bit, in all outputs
// and in what is left.
func TestPackedPools(t *testing.T) { packedPools(t, emu.Chips[len(emu.Chips)-1:]) }

func packedPools(t *testing.T, chips []string) {
	c := devicetest.Compiler(t)
	steps := []step{
		{entry: "prefill", tokens: []int{6, 3}, shape: engine.Shape{T: 10, B: 2, O: 2, P: 1}},
		{entry: "verify", tokens: []int{2, 2}, shape: engine.Shape{T: 4, B: 2, O: 4, P: 1}},
		{entry: "decode", tokens: []int{1, 1}, shape: engine.Shape{T: 2, B: 2, O: 2, P: 1}, draft: true},
	}
	o := dsv4.DefaultOptions()
	o.BF16Pools = true
	for _, chip := range chips {
		t.Run(chip, func(t *testing.T) {
			want, wantPools := runSteps(t, openTinyAs(t, c, chip, 0, o), steps)
			got, pools := runSteps(t, openTiny(t, c, chip, 0), steps)
			for name := range want {
				devicetest.SameBits(t, name, want[name], got[name])
			}
			devicetest.SamePools(t, wantPools, pools)
		})
	}
}

// touched is how many rows of a pool the requests of steps write: a row of the rings
// for each token until the request's ring is full, and one for each group of 4 tokens
// that they close; they close none of 128.
func touched(steps []step, kind string, rows int) (n int) {
	for i := range requests {
		tokens := 0
		for _, s := range steps {
			if i < len(s.tokens) {
				tokens += s.tokens[i]
			}
		}
		switch {
		case kind != "entries" && kind != "index_entries":
			n += min(tokens, rows/requests)
		case rows > requests*pages: // else one entry a page, of 128 tokens
			n += tokens / 4
		}
	}
	return n
}
