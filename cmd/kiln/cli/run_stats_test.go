package cli

import (
	"testing"
)

// The steps of a run by the evaluator, which has no device memory.
func TestRunStats(t *testing.T) {
	r := generateJSON(t, "--prompt-ids", "0,303,222", "--ignore-eos", "--max-new-tokens", "4", "--stats")
	s := r.Stats
	if s == nil || s.Memory != nil || s.Replays != 0 || s.Eager != 4 || s.Host != nil && *s.Host < 1<<20 {
		t.Fatalf("statistics %+v", s)
	}
	if p := s.Prefill; p.Steps != 1 || p.Tokens != 3 || p.Median <= 0 || p.P95 != p.Median || p.Seconds <= 0 || p.Seconds > r.PrefillS {
		t.Errorf("prefill %+v of %g s", p, r.PrefillS)
	}
	if d := s.Decode; d.Steps != 3 || d.Tokens != 3 || d.Median <= 0 || d.P95 < d.Median || d.Seconds > r.DecodeS {
		t.Errorf("decode %+v of %g s", d, r.DecodeS)
	}
	if r := generateJSON(t, "--prompt-ids", "5", "--max-new-tokens", "1"); r.Stats != nil {
		t.Errorf("statistics %+v that nobody asked for", r.Stats)
	}
}
