package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// regexps compiles every known pattern with regexp2, the other implementation to compare the matchers with.
func regexps(t testing.TB) map[string]splitter {
	t.Helper()
	out := map[string]splitter{}
	for p := range knownPatterns {
		re, err := compilePattern(p)
		if err != nil {
			t.Fatal(err)
		}
		out[p] = regexpSplitter(re)
	}
	return out
}

func checkMatchers(t interface{ Errorf(string, ...any) }, regexps map[string]splitter, text string) {
	for p, m := range knownPatterns {
		got, want := pieces(m.split, text), pieces(regexps[p], text)
		if !slices.Equal(got, want) {
			t.Errorf("%s\non  %q\ngot  %q\nwant %q", p, text, got, want)
		}
		if strings.Join(got, "") != text || slices.Contains(got, "") {
			t.Errorf("%s\non  %q\npieces %q do not make up the text", p, text, got)
		}
	}
}

// awkward are texts and characters at the borders of the patterns' classes.
var awkward = []string{
	" ", "  ", "\t", "\n", "\r", "\r\n", "\v", "\f", "\u0085", "\u00a0", "\u1680", "\u2003", "\u2028", "\u2029", "\u202f", "\u3000",
	"\u200b", "\u180e", "\ufeff", "a", "Z", "_", "é", "ß", "Σ", "0", "123", "4567", "½", "Ⅷ", "²", "\u0663", "𝟙",
	"\u0301", "\u0903", "\u20dd", "\ufe0f", "!", "'", "\"", "\\", "]", "^", "`", "~", "...", "«", "、", "＿", "€", "+", "^^", "\u00a8",
	"人", "\u4dff", "\u4e00", "\u9fa5", "\u9fa6", "\u303f", "ぁ", "ゟ", "゠", "ヿ", "\u3100", "한", "🙂", "👩\u200d👧", "\x00", "\x7f",
	"\ue000", "\u0378", "\U0010ffff", "\ufffd", "\xff", "\x80", "\xe6\xb7", "\xf0\x9f", "\xed\xa0\x80",
}

func TestMatchersOnPairs(t *testing.T) {
	regexps := regexps(t)
	for _, a := range awkward {
		for _, b := range awkward {
			checkMatchers(t, regexps, a+b+"x")
			checkMatchers(t, regexps, "x"+a+b)
		}
	}
}

// TestMatchersOnRandomText draws texts from the awkward pieces and from every general category.
func TestMatchersOnRandomText(t *testing.T) {
	regexps := regexps(t)
	var members []*rapid.Generator[string]
	for _, name := range categoryNames {
		set, _ := category(name)
		set = withoutSurrogates(set)
		members = append(members, rapid.Custom(func(t *rapid.T) string {
			r := rapid.SampledFrom(set).Draw(t, name)
			return string(rapid.Int32Range(r.first, r.last).Draw(t, "rune"))
		}))
	}
	piece := rapid.OneOf(
		rapid.SampledFrom(awkward), rapid.SampledFrom(awkward), rapid.OneOf(members...),
		rapid.StringMatching(`[a-zA-Z]{1,4}|[0-9]{1,5}| {1,3}`),
	)
	rapid.Check(t, func(t *rapid.T) {
		checkMatchers(t, regexps, strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces"), ""))
	})
}

func FuzzMatchers(f *testing.F) {
	regexps := regexps(f)
	for i := range awkward {
		f.Add(strings.Join(awkward[i:min(i+6, len(awkward))], ""))
	}
	f.Add("func main() {\n\tfmt.Println(\"hi\")\n}\n\n")
	f.Add("don't  stop   2024-01-02 深度求索モデル\r\n \r\n\u0085 x")
	f.Fuzz(func(t *testing.T, text string) { checkMatchers(t, regexps, text) })
}
