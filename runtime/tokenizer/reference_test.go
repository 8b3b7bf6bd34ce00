package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	tinyFile   = "../../testdata/tiny-dsv4/tokenizer.json"
	styledFile = "../../testdata/golden/tokens/dsv4-style-tokenizer.json"
	goldenFile = "../../testdata/golden/tokens/tokens.json"
)

var baseFiles = map[string]string{"tiny": tinyFile, "dsv4-style": styledFile}

func readJSON(t testing.TB, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func mustLoad(t testing.TB, path string) *Tokenizer {
	t.Helper()
	tok, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// loadJSON loads a tokenizer from the JSON of v.
func loadJSON(t testing.TB, v any) (*Tokenizer, error) {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path)
}

func TestGolden(t *testing.T) {
	var golden map[string][]struct {
		Text    string
		IDs     []int32
		Decoded string
	}
	readJSON(t, goldenFile, &golden)
	for name, file := range baseFiles {
		tok := mustLoad(t, file)
		if len(golden[name]) != 40 {
			t.Errorf("%s: %d cases, want 40", name, len(golden[name]))
		}
		for _, c := range golden[name] {
			ids := tok.Encode(c.Text)
			if diff := cmp.Diff(c.IDs, ids); diff != "" {
				t.Errorf("%s: Encode(%q) (-want +got):\n%s", name, c.Text, diff)
			}
			text, err := tok.Decode(c.IDs)
			if err != nil || text != c.Decoded {
				t.Errorf("%s: Decode(%v) = %q, %v, want %q", name, c.IDs, text, err, c.Decoded)
			}
		}
	}
}

// A variant of one of the two tokenizer files, with what Hugging Face tokenizers 0.23.2 answered for random texts made
// of words, all kinds of white space, marks, numbers, fragments of added tokens and arbitrary code points, and for
// random ids, most of them single bytes. The file is testdata/reference.json.
type refVariant struct {
	Base       string
	Patterns   []string   // replace the Split patterns
	Normalized []string   // added tokens to mark "normalized": true
	Added      []struct { // more added tokens, with the next free ids
		Content    string
		Normalized bool
	}
	IgnoreMerges *bool `json:"ignore_merges"`
	DropMerges   int   `json:"drop_merges"` // remove this many merges from the end
	Encode       []refPair[string, []int32]
	Decode       []refPair[[]int32, string]
}

// A refPair is written as a JSON array of two.
type refPair[A, B any] struct {
	in  A
	out B
}

func (p *refPair[A, B]) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&p.in, &p.out})
}

// spec is the JSON of the variant.
func (v *refVariant) spec(t testing.TB) map[string]any {
	var spec map[string]any
	readJSON(t, baseFiles[v.Base], &spec)
	if v.Patterns != nil {
		pre := spec["pre_tokenizer"].(map[string]any)
		old := pre["pretokenizers"].([]any)
		var list []any
		for _, p := range v.Patterns {
			list = append(list, split(p))
		}
		pre["pretokenizers"] = append(list, old[len(old)-1])
	}
	model := spec["model"].(map[string]any)
	added := spec["added_tokens"].([]any)
	next := len(model["vocab"].(map[string]any))
	for _, a := range added {
		token := a.(map[string]any)
		next = max(next, int(token["id"].(float64))+1)
		if slices.Contains(v.Normalized, token["content"].(string)) {
			token["normalized"] = true
		}
	}
	for i, a := range v.Added {
		added = append(added, addedSpec(next+i, a.Content, a.Normalized))
	}
	spec["added_tokens"] = added
	if v.IgnoreMerges != nil {
		model["ignore_merges"] = *v.IgnoreMerges
	}
	merges := model["merges"].([]any)
	model["merges"] = merges[:len(merges)-v.DropMerges]
	return spec
}

func split(pattern string) map[string]any {
	return map[string]any{"type": "Split", "pattern": map[string]any{"Regex": pattern}, "behavior": "Isolated", "invert": false}
}

func addedSpec(id int, content string, normalized bool) map[string]any {
	return map[string]any{
		"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
		"normalized": normalized, "special": false,
	}
}

func TestReference(t *testing.T) {
	var variants map[string]*refVariant
	readJSON(t, "testdata/reference.json", &variants)
	if len(variants) != 8 {
		t.Errorf("%d variants, want 8", len(variants))
	}
	for name, v := range variants {
		t.Run(name, func(t *testing.T) {
			tok, err := loadJSON(t, v.spec(t))
			if err != nil {
				t.Fatal(err)
			}
			if len(v.Encode) != 120 || len(v.Decode) != 30 {
				t.Errorf("%d and %d cases, want 120 and 30", len(v.Encode), len(v.Decode))
			}
			for _, c := range v.Encode {
				if got := tok.Encode(c.in); !slices.Equal(got, c.out) {
					t.Errorf("Encode(%q)\n got %v\nwant %v", c.in, got, c.out)
				}
			}
			for _, c := range v.Decode {
				if got, err := tok.Decode(c.in); got != c.out || err != nil {
					t.Errorf("Decode(%v) = %q, %v, want %q", c.in, got, err, c.out)
				}
			}
		})
	}
}
