package host_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

func TestSpeculateIsGreedy(t *testing.T) {
	m := greedyTiny(t)
	for _, batch := range []int{1, 3} {
		for _, k := range []int{1, 2} {
			t.Run(fmt.Sprintf("B=%d K=%d", batch, k), func(t *testing.T) {
				const n = 256
				pages := m.Layout.Pages(n + 64)
				a, _ := m.Engine(t, batch, batch*pages)
				b, _ := m.Engine(t, batch, batch*pages)
				start := time.Now()
				st := devicetest.SpeculateIsGreedy(t, a, b, pages, n, k, devicetest.SpeculativePrompts(batch))
				t.Logf("%d steps, acceptance %.2f prefill %v decode %v, all %v", st.Steps, st.Drafts.Acceptance(), st.Prefill, st.Decode, time.Since(start))
			})
		}
	}
}
