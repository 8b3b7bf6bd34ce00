package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The text is the plain one, greedy or drawn, in fewer steps; what the drafts were worth
// stands in the JSON and among the statistics.
func TestRunSpeculate(t *testing.T) {
	for _, sampling := range [][]string{nil, {"--temperature", "0.7", "--seed", "3"}} {
		args := append([]string{"--prompt", "func (b *Buffer) ", "--ignore-eos", "--max-new-tokens", "13"}, sampling...)
		plain := generateJSON(t, args...)
		if plain.MainSteps != 12 || plain.Acceptance != nil {
			t.Errorf("plain: %d steps, acceptance %v", plain.MainSteps, plain.Acceptance)
		}
		for _, k := range []int{1, 4} { // more than the default rings have room for
			r := generateJSON(t, append(args, "--speculate", fmt.Sprint(k), "--stats")...)
			if !slices.Equal(r.IDs, plain.IDs) || r.Text != plain.Text {
				t.Errorf("K=%d: %v, want %v", k, r.IDs, plain.IDs)
			}
			if r.MainSteps < 1 || r.MainSteps > 12 || sampling == nil && r.MainSteps > 8 || len(r.Acceptance) != k {
				t.Errorf("K=%d: %d steps, acceptance %v", k, r.MainSteps, r.Acceptance)
			}
			s := r.Stats
			if s.Speculate == nil || s.Draft == nil || s.Speculate.Steps != r.MainSteps || s.Draft.Steps != k || s.Decode.Steps != 0 ||
				s.Eager != 1+s.Speculate.Steps+k || s.Speculate.Tokens != 12 {
				t.Errorf("K=%d: statistics %+v", k, s)
			}
		}
	}
	text := kiln(t, "run", "--model", tinyModel, "--prompt-ids", "0", "--max-new-tokens", "3", "--ignore-eos", "--speculate", "1", "--stats").ok(t).stderr
	for _, want := range []string{"\nspeculate: ", "\ndraft: ", "\nmain model: ", " behind the prompt; acceptance by draft: "} {
		if !strings.Contains(text, want) {
			t.Errorf("standard error lacks %q:\n%s", want, text)
		}
	}
	// A single token is the prompt's: no draft is verified, which is no acceptance of 0.
	one := []string{"run", "--model", tinyModel, "--prompt-ids", "0", "--max-new-tokens", "1", "--speculate", "2"}
	if out := kiln(t, append(one, "--json")...).ok(t).stdout; !strings.Contains(out, `"main_steps":0,"acceptance":[null,null],`) {
		t.Errorf("standard output %s", out)
	}
	if text := kiln(t, append(one, "--stats")...).ok(t).stderr; !strings.HasSuffix(text, "\nmain model: 0 steps behind the prompt; acceptance by draft: -, -\n") {
		t.Errorf("standard error %q", text)
	}
}

func TestRunSpeculateRefuses(t *testing.T) {
	noMTP := withConfig(t, `"num_nextn_predict_layers": 1`, `"num_nextn_predict_layers": 0`)
	config := strings.Replace(string(readFile(t, noMTP+"/config.json")), "    128,\n    0\n  ]", "    128\n  ]", 1)
	if err := os.WriteFile(noMTP+"/config.json", []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
		if err := os.WriteFile(filepath.Join(noMTP, name), readFile(t, tinyModel+"/"+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		model string
		args  []string
		exit  int
		want  []string
	}{
		{tinyModel, []string{"--speculate", "-1"}, exitUsage, []string{"--speculate is -1, want at least 0"}},
		{tinyModel, []string{"--speculate", "17"}, exitRefused, []string{"--speculate 17: at most 16 draft tokens"}},
		{tinyModel, []string{"--speculate", "2", "--draft-tree", "3"}, exitRefused, []string{"--draft-tree 3: tree drafts are not supported", "leave --draft-tree out"}},
		{noMTP, []string{"--speculate", "1"}, exitRefused, []string{"--speculate 1: the model has no MTP block"}},
	} {
		kiln(t, append([]string{"run", "--model", tc.model, "--prompt-ids", "0"}, tc.args...)...).failed(t, tc.exit, tc.want...)
	}
}

// A bundle runs as many drafts as it was compiled for, padded where its buckets are
// larger, and refuses more, naming both numbers; steps in different order classes are
// told.
func TestRunSpeculateBundle(t *testing.T) {
	needLLVM(t)
	dir := t.TempDir()
	b := filepath.Join(dir, "b.kiln")
	kiln(t, "compile", "--model", tinyModel, "--batch", "2", "--prefill", "16", "--max-seq", "128", "--speculate", "2", plansOnly, "--set", "fuse-hc.max_tokens=3", "-o", b).ok(t)
	run := []string{"run", "--model", tinyModel, "--bundle", b, "--device", "host", "--prompt", "func (b *Buffer) ", "--ignore-eos", "--max-new-tokens", "24", "--json"}
	var plain runResult
	kiln(t, run...).decode(t, &plain)
	for k := 1; k <= 2; k++ {
		var r runResult
		kiln(t, append(run, "--speculate", fmt.Sprint(k))...).decode(t, &r)
		if !slices.Equal(r.IDs, plain.IDs) || r.MainSteps >= plain.MainSteps || len(r.Acceptance) != k {
			t.Errorf("K=%d: %v in %d steps, acceptance %v, want %v in fewer than %d", k, r.IDs, r.MainSteps, r.Acceptance, plain.IDs, plain.MainSteps)
		}
		if want := "are of different order classes (fuse-hc.max_tokens ends at 3): the text may differ"; !strings.Contains(r.OtherClass, want) {
			t.Errorf("K=%d: the note is %q, want %q in it", k, r.OtherClass, want)
		}
	}
	for _, more := range [][]string{nil, {"--dry-run"}} {
		kiln(t, append(append(run, "--speculate", "3"), more...)...).failed(t, exitRefused, "--speculate 3: "+b+" was compiled with --speculate 2")
	}
}
