package emu_test

import (
	"testing"

	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/emu"
)

// Speculative greedy generation, in whole steps, is plain greedy generation, token for
// token. More of it is in speculate_long_test.go.
func TestSpeculateIsGreedy(t *testing.T) { speculate(t, "gfx950", 3, 2, 16) }

// speculate generates tokens for a batch of requests with k drafts a step.
func speculate(t *testing.T, chip string, batch, k, tokens int) {
	t.Helper()
	tg, err := target.Lookup(chip)
	if err != nil {
		t.Fatal(err)
	}
	o := dsv4.DefaultOptions()
	o.Head = dsv4.HeadGreedy
	m := devicetest.OpenTiny(t, devicetest.Compiler(t), opener(chip, emu.Options{}), tg.FNUZ, o, k)
	m.Exec.Requests = batch
	pages := m.Layout.Pages(tokens + 16)
	plain, _ := m.Engine(t, batch, batch*pages)
	speculative, _ := m.Engine(t, batch, batch*pages)
	st := devicetest.SpeculateIsGreedy(t, plain, speculative, pages, tokens, k, devicetest.SpeculativePrompts(batch))
	t.Logf("%d steps, acceptance %.3f", st.Steps, st.Drafts.Acceptance())
}
