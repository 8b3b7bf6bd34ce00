package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestLookups(t *testing.T) {
	tok := mustLoad(t, styledFile)
	if got := tok.VocabSize(); got != 1603 {
		t.Errorf("VocabSize = %d, want 1603", got)
	}
	for token, want := range map[string]int32{"<｜User｜>": 2, "<think>": 1600, "｜DSML｜": 1602, "!": 4, "ĠĠ": 261} {
		if id, ok := tok.ID(token); id != want || !ok {
			t.Errorf("ID(%q) = %d, %v, want %d", token, id, ok, want)
		}
	}
	if id, ok := tok.ID("  "); ok {
		t.Errorf("ID of two spaces = %d: tokens are looked up in the file's spelling", id)
	}
}

func TestDecodeUnknownID(t *testing.T) {
	tok := mustLoad(t, styledFile)
	for _, id := range []int32{-1, 1603, 1 << 30} {
		want := fmt.Sprintf("ids[1]: token id %d is not in the vocabulary of 1603 tokens", id)
		if _, err := tok.Decode([]int32{5, id}); err == nil || err.Error() != want {
			t.Errorf("Decode of %d: %v, want %q", id, err, want)
		}
		s := tok.NewStream()
		if a, b, c := s.Push(id), s.Push(5), s.Flush(); a+b+c != "" || s.Err() == nil {
			t.Errorf("stream after id %d gives %q and error %v", id, a+b+c, s.Err())
		}
	}
}

func TestDecodeReplacesMaximalSubparts(t *testing.T) {
	for in, want := range map[string]string{
		"":                     "",
		"a\xffb":               "a\ufffdb",
		"\xff\xfe":             "\ufffd\ufffd",
		"\xe6\xb7":             "\ufffd",             // truncated: one part
		"\xe6\xb7x":            "\ufffdx",            // interrupted: one part
		"\xf0\x9f\x98":         "\ufffd",             //
		"\xf0\x9f\xe6\xb7\xb1": "\ufffd深",            //
		"\xc0\xaf":             "\ufffd\ufffd",       // overlong: C0 never starts a sequence
		"\xe0\x80\x80":         "\ufffd\ufffd\ufffd", // overlong: 80 cannot follow E0
		"\xed\xa0\x80":         "\ufffd\ufffd\ufffd", // surrogate
		"\xf4\x90\x80\x80":     "\ufffd\ufffd\ufffd\ufffd",
		"\xf5\x80":             "\ufffd\ufffd",
		"\xf4\x8f\xbf\xbf":     "\U0010ffff",
		"\xed\x9f\xbf\x80":     "\ud7ff\ufffd",
	} {
		out, rest := appendLossy(nil, []byte(in), true)
		if string(out) != want || len(rest) != 0 {
			t.Errorf("%q decodes to %q, rest %q; want %q", in, out, rest, want)
		}
	}
}

func TestStreamHoldsBackIncompleteCharacters(t *testing.T) {
	tok := mustLoad(t, styledFile)
	// Each of these characters is in neither merges nor vocabulary, so it is one token per byte.
	s := tok.NewStream()
	var got []string
	for _, id := range tok.Encode("🙂é") {
		got = append(got, s.Push(id))
	}
	if want := []string{"", "", "", "🙂", "", "é"}; !slices.Equal(got, want) {
		t.Errorf("pushes give %q, want %q", got, want)
	}
	for _, id := range tok.Encode("🙂")[:3] {
		if text := s.Push(id); text != "" {
			t.Errorf("incomplete character gives %q", text)
		}
	}
	if a, b, c := s.Flush(), s.Flush(), s.Push(tok.Encode("x")[0]); a != "\ufffd" || b != "" || c != "x" {
		t.Errorf("flush, flush again, push give %q, %q, %q", a, b, c)
	}
}

func TestStreamEqualsDecode(t *testing.T) {
	tok := mustLoad(t, styledFile)
	rapid.Check(t, func(t *rapid.T) {
		// Ids below 260 are single bytes, mostly not forming UTF-8.
		id := rapid.OneOf(rapid.Int32Range(4, 259), rapid.Int32Range(0, int32(tok.VocabSize())-1))
		ids := rapid.SliceOf(id).Draw(t, "ids")
		want, err := tok.Decode(ids)
		if err != nil {
			t.Fatal(err)
		}
		s := tok.NewStream()
		var got strings.Builder
		for _, id := range ids {
			text := s.Push(id)
			if !utf8.ValidString(text) {
				t.Fatalf("Push gives %q, which is not UTF-8", text)
			}
			got.WriteString(text)
		}
		got.WriteString(s.Flush())
		if got.String() != want {
			t.Errorf("stream gives %q, Decode %q", got.String(), want)
		}
	})
}

// naiveMerge is byte-pair encoding as it is defined: merge the leftmost pair of the lowest rank until there is none.
func naiveMerge(m *bpe, word string) []int32 {
	var ids []int32
	for i := range len(word) {
		ids = append(ids, m.byteID[word[i]])
	}
	for {
		best, at := merge{rank: noMerge}, -1
		for i := 0; i+1 < len(ids); i++ {
			if v := m.lookup(ids[i], ids[i+1]); v.rank < best.rank {
				best, at = v, i
			}
		}
		if at < 0 {
			return ids
		}
		ids = slices.Replace(ids, at, at+2, best.id)
	}
}

func TestMergeAgainstDefinition(t *testing.T) {
	for name, file := range baseFiles {
		tok := mustLoad(t, file)
		e := tok.encoders.Get().(*encoder)
		check := func(t interface{ Errorf(string, ...any) }, word string) {
			// Twice, the second time from the cache.
			for range 2 {
				if got, want := e.encode(nil, word), naiveMerge(&tok.model, word); !slices.Equal(got, want) {
					t.Errorf("%s: %q encodes to %v, want %v", name, word, got, want)
				}
			}
		}
		for _, word := range []string{"a", "the", "aaaaaaaaaaaaa", strings.Repeat("ab", 100), strings.Repeat(" ", 77), "\xff\xfe"} {
			check(t, word)
		}
		// Few letters, so that many merges compete.
		word := rapid.OneOf(rapid.StringMatching(`[a-e]{1,80}`), rapid.StringMatching(`[ \t\nerintso]{1,80}`), rapid.StringN(1, 20, 40))
		rapid.Check(t, func(t *rapid.T) { check(t, word.Draw(t, "word")) })
	}
}

func TestCacheIsBounded(t *testing.T) {
	tok := mustLoad(t, styledFile)
	e := tok.encoders.Get().(*encoder)
	most := 0
	for i := range 2*cacheWords + 10 {
		e.encode(nil, fmt.Sprintf("w%d", i))
		most = max(most, len(e.cache))
	}
	if most != cacheWords {
		t.Errorf("cache grew to %d words, want %d", most, cacheWords)
	}
	before := len(e.cache)
	e.encode(nil, strings.Repeat("y", cacheWordLen+1))
	if len(e.cache) != before {
		t.Errorf("a word of %d bytes was cached", cacheWordLen+1)
	}
}

func TestConcurrentUse(t *testing.T) {
	tok := mustLoad(t, styledFile)
	text := goSource(t, 20_000)
	want := tok.Encode(text)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if !slices.Equal(tok.Encode(text), want) {
				t.Error("concurrent Encode gives other ids")
			}
		})
	}
	wg.Wait()
}

func TestAddedTokens(t *testing.T) {
	var a addedTokens
	for id, token := range []string{"<a>", "<a><b>", "b>", "<"} {
		a.add(token, int32(id))
	}
	for text, want := range map[string]string{
		"":            "",
		"x":           "x ",
		"x<a>y":       "x 0 y ",
		"<a><b>":      "1 ",     // the longest of those that start first
		"<a><a><b>":   "0 1 ",   //
		"<a><c":       "0 3 c ", // falls back from a prefix of a longer one
		"<<a>":        "3 0 ",   //
		"b>b":         "2 b ",   //
		"<ab>":        "3 a 2 ", //
		"é<a":         "é 3 a ", //
		"x<a>\xff<a>": "x 0 \xff 0 ",
	} {
		var got strings.Builder
		a.split(text, func(s string) { got.WriteString(s + " ") }, func(id int32) { fmt.Fprintf(&got, "%d ", id) })
		if got.String() != want {
			t.Errorf("%q splits into %q, want %q", text, got.String(), want)
		}
	}
}

func FuzzRoundTrip(f *testing.F) {
	toks := []*Tokenizer{mustLoad(f, tinyFile), mustLoad(f, styledFile)}
	for i := range awkward {
		f.Add(strings.Join(awkward[i:min(i+5, len(awkward))], ""))
	}
	f.Add("<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜><think>ok</think><｜end▁of▁sentence｜>")
	f.Add("func main() {\n\tfmt.Println(\"hi\")\n}\n")
	f.Fuzz(func(t *testing.T, text string) {
		want, _ := appendLossy(nil, []byte(text), true)
		if utf8.ValidString(text) && string(want) != text {
			t.Fatalf("lossy decoding changes %q", text)
		}
		for _, tok := range toks {
			got, err := tok.Decode(tok.Encode(text))
			if err != nil || got != string(want) {
				t.Errorf("%q comes back as %q, %v", text, got, err)
			}
		}
	})
}
