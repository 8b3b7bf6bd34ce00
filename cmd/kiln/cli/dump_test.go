package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

// Every entry of every config prints a graph that reads back and prints alike,
// the same each time.
func TestDumpReadsBack(t *testing.T) {
	for dir, entries := range map[string][]string{
		tinyModel:   {"prefill", "decode", "verify", "draft", "speculate1", "speculate5", "pack"},
		flashConfig: {"prefill", "draft", "speculate2", "pack"},
		proConfig:   {"verify", "pack"},
	} {
		for _, entry := range entries {
			t.Run(filepath.Base(dir)+" "+entry, func(t *testing.T) {
				r := kiln(t, "dump", "--model", dir, "--entry", entry).ok(t)
				if r.stderr != "" {
					t.Errorf("standard error is %q, want nothing", r.stderr)
				}
				if !strings.HasPrefix(r.stdout, "graph @"+entry) && !strings.Contains(r.stdout, "\ngraph @"+entry) {
					t.Fatalf("the text begins with %.60q", r.stdout)
				}
				g, err := ir.ParseOne(entry+".kir", r.stdout)
				if err != nil {
					t.Fatal(err)
				}
				var again strings.Builder
				if err := ir.Print(&again, g); err != nil {
					t.Fatal(err)
				}
				if again.String() != r.stdout {
					t.Error("the graph that was read prints another text")
				}
			})
		}
	}
	a, b := kiln(t, "dump", "--model", tinyModel, "--entry", "verify"), kiln(t, "dump", "--model", tinyModel, "--entry", "verify")
	if a != b {
		t.Error("two dumps differ")
	}
}

func TestDumpBinding(t *testing.T) {
	syms := regexp.MustCompile(`(?m)^sym (.*)$`)
	ids := regexp.MustCompile(`%ids : i32\[([^\]]*)\]`)
	for _, tc := range []struct {
		name       string
		args       []string
		syms, rows string // the symbols that stay, the extent of %ids
	}{
		{"prefill", []string{"--entry", "prefill"}, "T, B, O, R, P, N", "T"},
		{"speculate", []string{"--entry", "speculate2"}, "B, R, P, N", "T"},
		{"speculate batch", []string{"--entry", "speculate2", "--batch", "2"}, "R, P, N", "6"},
		{"speculate tokens", []string{"--entry", "speculate2", "--tokens", "6"}, "R, P, N", "6"},
		{"prefill tokens", []string{"--entry", "prefill", "--tokens", "5"}, "B, O, R, P, N", "5"},
		{"prefill tokens and batch", []string{"--entry", "prefill", "--tokens", "5", "--batch", "2"}, "O, R, P, N", "5"},
		{"decode", []string{"--entry", "decode"}, "B, R, P, N", "B"},
		{"decode batch", []string{"--entry", "decode", "--batch", "3"}, "R, P, N", "3"},
		{"decode tokens", []string{"--entry", "decode", "--tokens", "3"}, "R, P, N", "3"},
		{"decode both", []string{"--entry", "decode", "--tokens", "3", "--batch", "3"}, "R, P, N", "3"},
		{"verify batch", []string{"--entry", "verify", "--batch", "2"}, "K, R, P, N", "T"},
		{"verify both", []string{"--entry", "verify", "--batch", "2", "--tokens", "8"}, "R, P, N", "8"},
		{"draft", []string{"--entry", "draft", "--batch", "2", "--tokens", "4"}, "O, R", "4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := kiln(t, append([]string{"dump", "--model", tinyModel}, tc.args...)...).ok(t).stdout
			s, r := syms.FindStringSubmatch(out), ids.FindStringSubmatch(out)
			if s == nil || r == nil {
				t.Fatalf("no symbols or no ids in\n%.400s", out)
			}
			if s[1] != tc.syms || r[1] != tc.rows {
				t.Errorf("symbols %s and %s rows, want %s and %s", s[1], r[1], tc.syms, tc.rows)
			}
		})
	}
}

func TestDumpNumerics(t *testing.T) {
	production := kiln(t, "dump", "--model", tinyModel, "--entry", "decode").ok(t).stdout
	unrounded := kilnWith(t, []string{"KILN_NUMERICS=unrounded"}, "", "dump", "--model", tinyModel, "--entry", "decode").ok(t).stdout
	if production == unrounded {
		t.Error("--numerics makes no difference")
	}
	if !strings.Contains(unrounded, `numerics = "unrounded"`) || !strings.Contains(production, `numerics = "production"`) {
		t.Error("the graph does not tell its numerics")
	}
}

// withConfig is a folder with only the tiny model's config, edited.
func withConfig(t *testing.T, from, to string) string {
	t.Helper()
	text := string(readFile(t, tinyModel+"/config.json"))
	if from != "" && strings.Count(text, from) != 1 {
		t.Fatalf("the config has %q %d times", from, strings.Count(text, from))
	}
	return filepath.Dir(writeFile(t, "config.json", strings.Replace(text, from, to, 1)))
}

func TestDumpErrors(t *testing.T) {
	noDraft := withConfig(t, `"num_nextn_predict_layers": 1`, `"num_nextn_predict_layers": 0`)
	text := strings.Replace(string(readFile(t, noDraft+"/config.json")), "    128,\n    0\n  ]", "    128\n  ]", 1)
	if err := os.WriteFile(noDraft+"/config.json", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		args  []string
		code  int
		parts []string
	}{
		{"unknown entry", []string{"--model", tinyModel, "--entry", "encode"}, 2, []string{`unknown entry "encode": want prefill, decode, verify, draft, speculateK or pack`}},
		{"no MTP block", []string{"--model", noDraft, "--entry", "draft"}, 3, []string{"--entry draft: this model has no such graph"}},
		{"no MTP block for drafts", []string{"--model", noDraft, "--entry", "speculate1"}, 3, []string{"--entry speculate1: this model has no such graph\n", "--entry decode\n"}},
		{"too many drafts", []string{"--model", tinyModel, "--entry", "speculate17"}, 3, []string{"--entry speculate17: at most 16 draft tokens", "--entry speculate16\n"}},
		{"no drafts", []string{"--model", tinyModel, "--entry", "speculate0"}, 2, []string{`unknown entry "speculate0"`}},
		{"rows of drafts", []string{"--model", tinyModel, "--entry", "speculate2", "--tokens", "4"}, 2, []string{"entry speculate2 has 3 tokens per request: --tokens 4 and --batch 0 do not fit", "kiln dump --entry speculate2 --batch 1"}},
		{"rows of drafts and batch", []string{"--model", tinyModel, "--entry", "speculate2", "--tokens", "6", "--batch", "3"}, 2, []string{"--tokens 6 and --batch 3 do not fit"}},
		{"negative tokens", []string{"--model", tinyModel, "--entry", "prefill", "--tokens", "-1"}, 2, []string{"--tokens is -1 and --batch 0, want at least 0"}},
		{"decode rows", []string{"--model", tinyModel, "--entry", "decode", "--tokens", "4", "--batch", "3"}, 2, []string{"--tokens 4 and --batch 3 differ", "kiln dump --entry decode --batch 3"}},
		{"verify rows alone", []string{"--model", tinyModel, "--entry", "verify", "--tokens", "4"}, 2, []string{"--tokens 4 needs a --batch that divides it"}},
		{"verify rows uneven", []string{"--model", tinyModel, "--entry", "verify", "--tokens", "4", "--batch", "3"}, 2, []string{"--tokens 4 needs a --batch that divides it"}},
		{"verify without drafts", []string{"--model", tinyModel, "--entry", "verify", "--tokens", "4", "--batch", "4"}, 2, []string{"K >= 1"}},
		{"more drafts than the rings hold", []string{"--model", tinyModel, "--entry", "verify", "--tokens", "10", "--batch", "2"}, 3, []string{"--tokens 10 and --batch 2 make 4 drafts per request, the rings have room for 3", "kiln dump --entry verify --tokens 8 --batch 2"}},
		{"pack rows", []string{"--model", tinyModel, "--entry", "pack", "--batch", "4"}, 2, []string{"--tokens and --batch do not apply"}},
		{"rows beyond every bound", []string{"--model", tinyModel, "--entry", "prefill", "--tokens", "1000000000000000000"}, 2, []string{"kiln: --tokens: graph @prefill: ", "out of range", "more)"}},
		{"batch beyond every bound", []string{"--model", tinyModel, "--entry", "verify", "--batch", "9223372036854775807"}, 2, []string{"kiln: --batch: graph @verify: ", "out of range", "more)"}},
		{"unknown field", []string{"--model", withConfig(t, `"hc_mult": 4`, `"hc_mult": 4, "hc_more": 1`), "--entry", "decode"}, 3, []string{`config.json: field "hc_more" is unknown`}},
		{"another model", []string{"--model", withConfig(t, `"deepseek_v4"`, `"llama"`), "--entry", "decode"}, 3, []string{`config.json: field "model_type"`}},
		{"broken JSON", []string{"--model", withConfig(t, `"hc_mult": 4,`, `"hc_mult": 4`), "--entry", "decode"}, 1, []string{"config.json: offset "}},
		{"numerics", []string{"--model", tinyModel, "--entry", "decode", "--numerics", ""}, 2, []string{"unknown numerics"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kiln(t, append([]string{"dump"}, tc.args...)...).failed(t, tc.code, tc.parts...)
		})
	}
	out := kiln(t, "dump", "--model", noDraft, "--entry", "decode").ok(t).stdout
	if !strings.Contains(out, "graph @decode") {
		t.Errorf("a model without an MTP block: %.60q", out)
	}
}
