package tokenizer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func pieces(s splitter, text string) []string {
	var out []string
	s(text, func(p string) { out = append(out, p) })
	return out
}

func TestPatternSplit(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          []string
	}{
		{`a`, "", nil},
		{`b+`, "abbab", []string{"a", "bb", "a", "b"}},
		{`\p{Lu}\p{Ll}*`, "éÀbcD1", []string{"é", "Àbc", "D", "1"}},
		{`\s+(?!\S)|\s+`, "a   b  ", []string{"a", "  ", " ", "b", "  "}},
		{`x(?=y)`, "xxy", []string{"x", "x", "y"}},
		{`a{2}`, "aaaaa", []string{"aa", "aa", "a"}},
		{`a{2,3}b{1,}`, "aaaabbab", []string{"a", "aaabb", "ab"}},
		{`(ab|a)(c|bcd)?`, "abcd", []string{"abc", "d"}}, // the first alternative that lets the rest match
		{`(?:a|ab)c`, "abc", []string{"abc"}},
		{`[^a-c\]]`, "a]db", []string{"a]", "d", "b"}},
		{`[-a]|[b-]`, "-ab", []string{"-", "a", "b"}},
		{`.\d?`, "a1\n2", []string{"a1", "\n", "2"}},
		{`\D\P{L}`, "1ab.", []string{"1a", "b."}},
		{`\.\$\^\{`, ".$^{", []string{".$^{"}},
		{`[\t\n\r\f\v]+`, "a\t\n\r\f\vb", []string{"a", "\t\n\r\f\v", "b"}},
		{`\p{S}`, "a\xffb\xe6\xb7", []string{"a", "\xff", "b", "\xe6", "\xb7"}}, // not UTF-8: one symbol per byte
	} {
		re, err := compilePattern(c.pattern)
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(c.want, pieces(regexpSplitter(re), c.text)); diff != "" {
			t.Errorf("%s on %q (-want +got):\n%s", c.pattern, c.text, diff)
		}
	}
}

func TestPatternRefusals(t *testing.T) {
	for _, c := range []struct{ pattern, want string }{
		{``, "empty alternative"},
		{`a|`, "empty alternative"},
		{`()`, "empty alternative"},
		{`a*`, "can match the empty string"},
		{`(?=a)`, "can match the empty string"},
		{`a|b?`, "can match the empty string"},
		{`(a)?`, "can match the empty string"},
		{`a{0,3}`, "can match the empty string"},
		{`^a`, `byte 0: '^' is not supported here`},
		{`a$`, `'$' is not supported here`},
		{`a]`, `']' is not supported here`},
		{`a{`, "missing }"},
		{`}`, `'}' is not supported here`},
		{`+a`, `'+' is not supported here`},
		{`a)`, "unmatched )"},
		{`(a`, "missing )"},
		{`[a`, "missing ]"},
		{`[a-`, "missing ]"},
		{`[]a]`, "class starts with ]"},
		{`[^]a]`, "class starts with ]"},
		{`[a[b]]`, "nested class"},
		{`[[:alpha:]]`, "nested class"},
		{`[a&&b]`, "class intersection"},
		{`[a-c-e]`, `"-" must be escaped`},
		{`[\s-a]`, "range in a class"},
		{`[b-a]`, "range in a class"},
		{`[a-\s]`, "range in a class"},
		{`[^\s\S]`, "class matches nothing"},
		{`\w`, `escape \w is not supported`},
		{`a\b`, `byte 1: escape \b is not supported`},
		{`\A`, `escape \A is not supported`},
		{`[\b]`, `escape \b is not supported`},
		{`\x41`, `escape \x is not supported`},
		{`\1`, `escape \1 is not supported`},
		{`a\`, "ends in a backslash"},
		{`\pL`, "must be followed by {category}"},
		{`\p{L`, "must be followed by {category}"},
		{`\p{Han}`, `"Han" is not a supported category`},
		{`\p{^L}`, `"^L" is not a supported category`},
		{`\p{l}`, `"l" is not a supported category`},
		{`(?i:a)`, "group options"},
		{`(?i)a`, "group options"},
		{`(?<=a)b`, "group options"},
		{`(?<n>a)`, "group options"},
		{`(?>a)`, "group options"},
		{`(*FAIL)`, "group options"},
		{`a*?b`, "lazy, possessive and stacked"},
		{`a++`, "lazy, possessive and stacked"},
		{`a{2}+`, "lazy, possessive and stacked"},
		{`a{2}{3}`, "lazy, possessive and stacked"},
		{`a{,2}`, "repeat count must be a number"},
		{`a{x}`, "repeat count must be a number"},
		{`a{+1}`, "repeat count must be a number"},
		{`a{100001}`, "repeat count must be a number"},
		{`a{3,2}`, "empty range"},
		{`a{0}`, "empty range"},
		{`ba{0,0}`, "empty range"},
		{`(a)+`, "a quantifier on a group"},
		{`(?:a)??`, "a quantifier on a group"},
		{`(?!a)*b`, "a quantifier on a group"},
		{`(?=a)?b`, "a quantifier on a group"},
		{strings.Repeat("(", 50) + "a" + strings.Repeat(")", 50), "nested more than 20 deep"},
		{strings.Repeat(`\p{Lo}`, 1000), "too many large classes"},
	} {
		_, err := compilePattern(c.pattern)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.pattern, err, c.want)
		}
	}
}
