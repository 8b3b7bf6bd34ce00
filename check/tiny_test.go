package check

import "testing"

func TestTinyPasses(t *testing.T) {
	for _, tc := range []struct {
		entry string
		bind  map[string]int
	}{{"decode", decode}, {"prefill", prefill}} {
		t.Run(tc.entry, func(t *testing.T) {
			results, breaches, err := Passes(t.Context(), subject(t, tc.entry, tc.bind))
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range breaches {
				t.Error(b)
			}
			for _, r := range results {
				t.Logf("%+v", r)
			}
		})
	}
}

func TestTinyOps(t *testing.T) {
	for _, tc := range []struct {
		entry string
		bind  map[string]int
	}{{"decode", decode}, {"prefill", prefill}} {
		t.Run(tc.entry, func(t *testing.T) {
			sub := subject(t, tc.entry, tc.bind)
			sub.Seeds = 12
			rep, err := Ops(t.Context(), sub, onHost(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range rep.Breaches {
				t.Error(b)
			}
			for _, r := range rep.Ops {
				t.Logf("%+v", r)
			}
			for _, r := range rep.Layers {
				t.Logf("%+v", r)
			}
		})
	}
}
