package tokenizer

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"unicode"
)

// TestCategories compares every supported category, and \s, with the members that Hugging Face tokenizers 0.23.2 gives
// it: their number, and the start of the SHA-256 of their ranges written as "first-last " in hexadecimal. Surrogates
// cannot occur in its texts, so they count as gaps.
func TestCategories(t *testing.T) {
	want := []struct {
		name  string
		count int
		hash  string
	}{
		{"L", 141028, "0cef053eaf5bc443"},
		{"Lu", 1858, "2b2753451cd1ad3d"},
		{"Ll", 2258, "a95a9d9ede8d3887"},
		{"Lt", 31, "3cbbdd446c6d2a1e"},
		{"Lm", 404, "234a5e75ec9c6efe"},
		{"Lo", 136477, "ff5ab34868fe7981"},
		{"M", 2501, "7f5d43f9d66126e7"},
		{"Mn", 2020, "ec794eb19b2eb1e3"},
		{"Mc", 468, "228120bbc0d7bc84"},
		{"Me", 13, "4a3aeb4967418f48"},
		{"N", 1911, "f6b70db17f421215"},
		{"Nd", 760, "cfcc529a82e8eb19"},
		{"Nl", 236, "f95b72f4c9ee2b1e"},
		{"No", 915, "4a57584a25cda88a"},
		{"P", 855, "89f86f68879ebe48"},
		{"Pc", 10, "21054dd7011693cb"},
		{"Pd", 27, "a82d0f4f795c3c7f"},
		{"Ps", 79, "f98116f961bbbbff"},
		{"Pe", 77, "9129c6a72a4a2ba6"},
		{"Pi", 12, "608923362487b1e2"},
		{"Pf", 10, "73b1f9186c915f86"},
		{"Po", 640, "7cd8c80128536cea"},
		{"S", 8514, "c2168bfe73335ec2"},
		{"Sm", 950, "ddcb11cb795b0028"},
		{"Sc", 63, "1433111937de97ef"},
		{"Sk", 125, "99ad81312b1e9f25"},
		{"So", 7376, "6244239fc6f72096"},
		{"Z", 19, "ae5c7a4aa0f5b3c6"},
		{"Zs", 17, "3698c8621b9d229e"},
		{"Zl", 1, "5804583996abd509"},
		{"Zp", 1, "c155048834c521b7"},
		{"C", 957236, "913b10295f7b36f0"},
		{"Cc", 65, "6eb99c08837f81d0"},
		{"Cf", 170, "d8d5207632bca05f"},
		{"Co", 137468, "33d12f9d961f58b1"},
		{"Cn", 819533, "231e3201e60d9428"},
		{"s", 25, "9546376ca422647e"},
	}
	if len(want) != len(categoryNames)+1 {
		t.Errorf("%d sets checked, want %d", len(want), len(categoryNames)+1)
	}
	for _, w := range want {
		set, ok := category(w.name)
		if w.name == "s" {
			set, ok = whiteSpace(), true
		}
		if !ok {
			t.Errorf("category %s is missing", w.name)
			continue
		}
		var text strings.Builder
		count := 0
		for _, r := range withoutSurrogates(set) {
			fmt.Fprintf(&text, "%x-%x ", r.first, r.last)
			count += int(r.last-r.first) + 1
		}
		hash := fmt.Sprintf("%x", sha256.Sum256([]byte(text.String())))[:16]
		if count != w.count || hash != w.hash {
			t.Errorf("%s: %d code points, hash %s; want %d, %s (Go has Unicode %s)",
				w.name, count, hash, w.count, w.hash, unicode.Version)
		}
	}
}

func withoutSurrogates(s runeSet) runeSet {
	return makeSet(append(s.not(), runeRange{0xD800, 0xDFFF})).not()
}

func TestRuneSet(t *testing.T) {
	s := makeSet([]runeRange{{'x', 'z'}, {'a', 'c'}, {'d', 'f'}, {'b', 'b'}, {0, 0}, {unicode.MaxRune, unicode.MaxRune}})
	want := runeSet{{0, 0}, {'a', 'f'}, {'x', 'z'}, {unicode.MaxRune, unicode.MaxRune}}
	if fmt.Sprint(s) != fmt.Sprint(want) {
		t.Errorf("makeSet = %v, want %v", s, want)
	}
	not := runeSet{{1, 'a' - 1}, {'g', 'w'}, {'z' + 1, unicode.MaxRune - 1}}
	if got := s.not(); fmt.Sprint(got) != fmt.Sprint(not) {
		t.Errorf("not = %v, want %v", got, not)
	}
	if got := s.not().not(); fmt.Sprint(got) != fmt.Sprint(s) {
		t.Errorf("not twice = %v, want %v", got, s)
	}
	if got := runeSet(nil).not().not(); len(got) != 0 {
		t.Errorf("complement of everything = %v", got)
	}
	if _, ok := category("Latin"); ok {
		t.Error("category accepts a script")
	}
}

// TestClasses checks the paged table against the sets it is built from, at every code point.
func TestClasses(t *testing.T) {
	table := theClasses()
	sets := map[class]runeSet{space: whiteSpace(), newline: {{'\n', '\n'}, {'\r', '\r'}}}
	for bit, name := range map[class]string{letter: "L", mark: "M", number: "N", punctuation: "P", symbol: "S"} {
		sets[bit], _ = category(name)
	}
	want := make([]class, unicode.MaxRune+1)
	for bit, set := range sets {
		for _, r := range set {
			for c := r.first; c <= r.last; c++ {
				want[c] |= bit
			}
		}
	}
	for c, k := range want {
		if got := table.of(rune(c)); got != k {
			t.Fatalf("%U has classes %b, want %b", c, got, k)
		}
	}
}
