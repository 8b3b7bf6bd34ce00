package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// A pattern without a hand-written matcher runs on regexp2, after a translation that leaves the two engines nothing to
// disagree about. Hugging Face tokenizers runs patterns on Oniguruma; regexp2 follows .NET. They differ in \w, \b, ^, $,
// in case folding, in nested and intersected classes, in possessive quantifiers, in {,n}, in the handling of empty
// matches, and in their Unicode versions. The translation therefore accepts only
//
//	literals, . , \t \n \r \f \v, escaped punctuation, \s \S \d \D \p{X} \P{X} with a general category X,
//	classes [...] and [^...] of these and of ranges, | ( ) (?: ) (?= ) (?! ),
//	? * + {n} {n,} {n,m} after one character or class, and ? after a group,
//
// refuses everything else by name, and writes each character or class as explicit code-point ranges, so that no
// table of regexp2 is consulted. Quantified groups beyond "?" are refused because nesting repetitions makes both
// engines exponential; patterns that can match the empty string are refused because the engines step past such matches
// differently.

// compilePattern translates pattern and compiles it. Errors name the construct and its byte offset in the pattern.
func compilePattern(pattern string) (*regexp2.Regexp, error) {
	t := translator{src: pattern}
	least, err := t.alternatives(0)
	if err == nil && t.pos < len(t.src) {
		err = t.refuse("unmatched )")
	}
	if err != nil {
		return nil, err
	}
	if least == 0 {
		return nil, fmt.Errorf("pattern %q can match the empty string, which is not supported", pattern)
	}
	re, err := regexp2.Compile(t.out.String(), regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	return re, nil
}

const (
	maxNesting = 20      // groups within groups
	maxRepeat  = 100_000 // Oniguruma's own limit for {n,m}
	maxOutput  = 1 << 20 // bytes of translated pattern; a \p{L} is some ten thousand of them
)

type translator struct {
	src string
	pos int
	out strings.Builder
}

func (t *translator) refuse(format string, args ...any) error {
	return fmt.Errorf("pattern %q, byte %d: %s", t.src, t.pos, fmt.Sprintf(format, args...))
}

func (t *translator) rest() string { return t.src[t.pos:] }

// eat consumes s if it comes next.
func (t *translator) eat(s string) bool {
	if strings.HasPrefix(t.rest(), s) {
		t.pos += len(s)
		return true
	}
	return false
}

// char consumes one character. The caller has checked that there is one.
func (t *translator) char() rune {
	r, n := utf8.DecodeRuneInString(t.rest())
	t.pos += n
	return r
}

// alternatives translates up to the end or an unconsumed ")". least is the smallest number of characters matched.
func (t *translator) alternatives(depth int) (least int, err error) {
	if depth > maxNesting {
		return 0, t.refuse("groups nested more than %d deep", maxNesting)
	}
	least = -1
	for {
		n, err := t.sequence(depth)
		if err != nil {
			return 0, err
		}
		if least < 0 || n < least {
			least = n
		}
		if !t.eat("|") {
			return least, nil
		}
		t.out.WriteByte('|')
	}
}

func (t *translator) sequence(depth int) (least int, err error) {
	start := t.pos
	for t.pos < len(t.src) && t.src[t.pos] != '|' && t.src[t.pos] != ')' {
		n, err := t.term(depth)
		if err != nil {
			return 0, err
		}
		least += n
	}
	if t.pos == start {
		return 0, t.refuse("empty alternative")
	}
	return least, nil
}

// term translates one character, class or group with its quantifier.
func (t *translator) term(depth int) (least int, err error) {
	for _, g := range []struct {
		open, out string
		look      bool
	}{{"(?:", "(?:", false}, {"(?=", "(?=", true}, {"(?!", "(?!", true}, {"(", "(?:", false}} {
		if !t.eat(g.open) {
			continue
		}
		if strings.HasPrefix(t.rest(), "?") || strings.HasPrefix(t.rest(), "*") {
			return 0, t.refuse("group options, look-behind and named groups are not supported")
		}
		t.out.WriteString(g.out)
		n, err := t.alternatives(depth + 1)
		if err != nil {
			return 0, err
		}
		if !t.eat(")") {
			return 0, t.refuse("missing )")
		}
		t.out.WriteByte(')')
		if g.look {
			n = 0
		} else if t.eat("?") {
			t.out.WriteByte('?')
			n = 0
		}
		if t.quantifierNext() {
			return 0, t.refuse("a quantifier on a group, other than one ?, is not supported")
		}
		return n, nil
	}

	set, err := t.set()
	if err != nil {
		return 0, err
	}
	if len(set) == 0 {
		return 0, t.refuse("class matches nothing")
	}
	writeSet(&t.out, set)
	if t.out.Len() > maxOutput {
		return 0, t.refuse("too many large classes")
	}
	return t.quantifier()
}

// set reads one character, escape or class.
func (t *translator) set() (runeSet, error) {
	switch c := t.src[t.pos]; c {
	case '[':
		t.pos++
		return t.class()
	case '\\':
		return t.escape()
	case '.':
		t.pos++
		return runeSet{{'\n', '\n'}}.not(), nil
	case '^', '$', '*', '+', '?', '{', '}', ']':
		return nil, t.refuse("%q is not supported here", c)
	}
	r := t.char()
	return runeSet{{r, r}}, nil
}

// escapedText are the characters an escape may stand for literally.
const escapedText = `\.+*?()|[]{}^$-/&~#`

// escape reads \x, inside or outside a class.
func (t *translator) escape() (runeSet, error) {
	start := t.pos
	t.pos++
	if t.pos == len(t.src) {
		return nil, t.refuse("pattern ends in a backslash")
	}
	r := t.char()
	one := func(r rune) (runeSet, error) { return runeSet{{r, r}}, nil }
	switch r {
	case 't':
		return one('\t')
	case 'n':
		return one('\n')
	case 'r':
		return one('\r')
	case 'f':
		return one('\f')
	case 'v':
		return one('\v')
	case 's':
		return whiteSpace(), nil
	case 'S':
		return whiteSpace().not(), nil
	case 'd', 'D', 'p', 'P':
		name := "Nd"
		if r == 'p' || r == 'P' {
			end := strings.IndexByte(t.rest(), '}')
			if !t.eat("{") || end < 0 {
				t.pos = start
				return nil, t.refuse(`\%c must be followed by {category}`, r)
			}
			name = t.rest()[:end-1]
			t.pos += end
		}
		set, ok := category(name)
		if !ok {
			t.pos = start
			return nil, t.refuse("%q is not a supported category; supported: %s", name, strings.Join(categoryNames, " "))
		}
		if r == 'D' || r == 'P' {
			set = set.not()
		}
		return set, nil
	}
	if !strings.ContainsRune(escapedText, r) {
		t.pos = start
		return nil, t.refuse(`escape \%c is not supported`, r)
	}
	return one(r)
}

// class reads a character class; the opening bracket is consumed.
func (t *translator) class() (runeSet, error) {
	negated := t.eat("^")
	first := t.pos
	var members []runeRange
	for {
		switch {
		case t.pos == len(t.src):
			return nil, t.refuse("missing ]")
		case t.src[t.pos] == ']' && t.pos == first:
			return nil, t.refuse("class starts with ]")
		case t.eat("]"):
			set := makeSet(members)
			if negated {
				set = set.not()
			}
			return set, nil
		case strings.HasPrefix(t.rest(), "&&"):
			return nil, t.refuse("class intersection && is not supported")
		case t.src[t.pos] == '-' && t.pos != first && !strings.HasPrefix(t.rest(), "-]"):
			return nil, t.refuse(`"-" must be escaped, or come first or last in a class`)
		}
		lo, err := t.member()
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(t.rest(), "-") || strings.HasPrefix(t.rest(), "-]") {
			members = append(members, lo...)
			continue
		}
		t.pos++
		if t.pos == len(t.src) {
			return nil, t.refuse("missing ]")
		}
		hi, err := t.member()
		if err != nil {
			return nil, err
		}
		a, aOK := single(lo)
		b, bOK := single(hi)
		if !aOK || !bOK || a > b {
			return nil, t.refuse("range in a class must join two characters in ascending order")
		}
		members = append(members, runeRange{a, b})
	}
}

func (t *translator) member() (runeSet, error) {
	switch t.src[t.pos] {
	case '[':
		return nil, t.refuse("nested class is not supported")
	case '\\':
		return t.escape()
	}
	r := t.char()
	return runeSet{{r, r}}, nil
}

func single(s runeSet) (rune, bool) {
	if len(s) != 1 || s[0].first != s[0].last {
		return 0, false
	}
	return s[0].first, true
}

func (t *translator) quantifierNext() bool {
	return t.pos < len(t.src) && strings.IndexByte("?*+{", t.src[t.pos]) >= 0
}

// quantifier copies the quantifier that follows a character or class, if any.
func (t *translator) quantifier() (least int, err error) {
	start := t.pos
	least = 1
	switch {
	case t.eat("?"), t.eat("*"):
		least = 0
	case t.eat("+"):
	case t.eat("{"):
		body, _, ok := strings.Cut(t.rest(), "}")
		if !ok {
			return 0, t.refuse("missing }")
		}
		lo, hi, ranged := strings.Cut(body, ",")
		n, err := repeat(lo)
		if err != nil {
			return 0, t.refuse("{%s}: %v", body, err)
		}
		if ranged && hi != "" {
			m, err := repeat(hi)
			if err != nil {
				return 0, t.refuse("{%s}: %v", body, err)
			}
			if m < n || m == 0 {
				return 0, t.refuse("{%s}: empty range", body)
			}
		}
		if n == 0 && !ranged {
			return 0, t.refuse("{%s}: empty range", body)
		}
		t.pos += len(body) + 1
		least = n
	default:
		return 1, nil
	}
	t.out.WriteString(t.src[start:t.pos])
	if t.quantifierNext() {
		return 0, t.refuse("lazy, possessive and stacked quantifiers are not supported")
	}
	return least, nil
}

func repeat(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n > maxRepeat {
		return 0, fmt.Errorf("repeat count must be a number of at most %d", maxRepeat)
	}
	return int(n), nil
}

// writeSet writes s as a class of explicit code points.
func writeSet(out *strings.Builder, s runeSet) {
	out.WriteByte('[')
	for _, r := range s {
		fmt.Fprintf(out, `\x{%x}`, r.first)
		if r.last > r.first {
			fmt.Fprintf(out, `-\x{%x}`, r.last)
		}
	}
	out.WriteByte(']')
}

// regexpSplitter splits with a compiled pattern.
func regexpSplitter(re *regexp2.Regexp) splitter {
	return func(s string, emit func(piece string)) {
		// regexp2 works on code points; offset[i] is where the i-th starts in s. A byte that is not UTF-8 is one
		// U+FFFD, as in the hand-written matchers.
		runes := make([]rune, 0, len(s))
		offset := make([]int, 0, len(s)+1)
		for i, r := range s {
			runes = append(runes, r)
			offset = append(offset, i)
		}
		offset = append(offset, len(s))
		done := 0
		// The only error regexp2 can return from matching is its timeout, which is off unless set.
		for m, _ := re.FindRunesMatch(runes); m != nil; m, _ = re.FindNextMatch(m) {
			start, end := offset[m.Index], offset[m.Index+m.Length]
			if start > done {
				emit(s[done:start])
			}
			emit(s[start:end])
			done = end
		}
		if done < len(s) {
			emit(s[done:])
		}
	}
}
