package tokenizer

import "unicode/utf8"

// The patterns of the tokenizers this package is made for, and a matcher for each. The matchers are linear in the
// length of the text. A byte that is not UTF-8 counts as one U+FFFD, a symbol.

const (
	patternDigits = `\p{N}{1,3}`
	patternCJK    = `[一-龥぀-ゟ゠-ヿ]+`

	patternDeepSeek = `[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_` + "`" + `{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|` +
		` ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternDeepSeekCRLF = `[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_` + "`{|}~][A-Za-z]+|[^\r\n" + `\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|` +
		` ?[\p{P}\p{S}]+[` + "\r\n" + `]*|\s*[` + "\r\n" + `]+|\s+(?!\S)|\s+`

	patternTiny = `[A-Za-z_]+|[\t]+|[\n]+| ?[^\sA-Za-z_0-9]+| +`
)

// at gives the class and length of the character at s[i:]; past the end they are 0.
func (c *classes) at(s string, i int) (class, int) {
	if i >= len(s) {
		return 0, 0
	}
	if b := s[i]; b < utf8.RuneSelf {
		return c.pages[c.page[0]][b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return c.of(r), n
}

// run is the end of the longest run of characters of any class in want that starts at i.
func (c *classes) run(s string, i int, want class) int {
	for {
		k, n := c.at(s, i)
		if k&want == 0 {
			return i
		}
		i += n
	}
}

func matchDigits(s string, from int) (start, end int) {
	c := theClasses()
	for i := from; i < len(s); {
		k, n := c.at(s, i)
		if k&number == 0 {
			i += n
			continue
		}
		end := i + n
		for range 2 {
			if k, n := c.at(s, end); k&number != 0 {
				end += n
			}
		}
		return i, end
	}
	return len(s), len(s)
}

func matchCJK(s string, from int) (start, end int) {
	// The one class is U+3040..U+30FF (the two kana blocks adjoin) and U+4E00..U+9FA5.
	in := func(i int) int {
		if i >= len(s) || s[i] < utf8.RuneSelf {
			return 0
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if 0x3040 <= r && r <= 0x30FF || 0x4E00 <= r && r <= 0x9FA5 {
			return n
		}
		return 0
	}
	for i := from; i < len(s); i++ {
		// A continuation byte decodes to U+FFFD, which is not in the class, so stepping by bytes is safe.
		n := in(i)
		if n == 0 {
			continue
		}
		start = i
		for ; n > 0; n = in(i) {
			i += n
		}
		return start, i
	}
	return len(s), len(s)
}

func isASCIILetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }

// isASCIIPunct reports the 32 printable ASCII characters that are neither letters nor digits nor space.
func isASCIIPunct(b byte) bool {
	return '!' <= b && b <= '~' && !isASCIILetter(b) && (b < '0' || b > '9')
}

func matchDeepSeek(s string, from int) (start, end int) {
	c := theClasses()
	for i := from; i < len(s); {
		k, n := c.at(s, i)
		next, _ := c.at(s, i+n)
		switch {
		// [ASCII punctuation][A-Za-z]+
		case isASCIIPunct(s[i]) && i+1 < len(s) && isASCIILetter(s[i+1]):
			end = i + 2
			for end < len(s) && isASCIILetter(s[end]) {
				end++
			}
			return i, end

		// [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+: either the run starts here, or one character further on. A mark
		// may be the optional character or part of the run; the match is the same.
		case k&(letter|mark) != 0, k&(newline|punctuation|symbol) == 0 && next&(letter|mark) != 0:
			return i, c.run(s, i+n, letter|mark)

		//  ?[\p{P}\p{S}]+[\r\n]*
		case k&(punctuation|symbol) != 0, s[i] == ' ' && next&(punctuation|symbol) != 0:
			return i, c.run(s, c.run(s, i+n, punctuation|symbol), newline)

		case k&space != 0:
			return i, c.spaceEnd(s, i)
		}
		i += n
	}
	return len(s), len(s)
}

// spaceEnd is where \s*[\r\n]+|\s+(?!\S)|\s+ ends when it starts at the white space s[i:]: after the last line break of
// the run; without one at the end of the text if the run reaches it; else before the last character of the run, which
// is left to the next word, unless that would leave nothing.
func (c *classes) spaceEnd(s string, i int) int {
	afterBreak, last, end := i, i, i
	for end < len(s) {
		k, n := c.at(s, end)
		if k&space == 0 {
			break
		}
		last = end
		end += n
		if k&newline != 0 {
			afterBreak = end
		}
	}
	switch {
	case afterBreak > i:
		return afterBreak
	case end == len(s) || last == i:
		return end
	}
	return last
}

func matchTiny(s string, from int) (start, end int) {
	c := theClasses()
	// other is [^\sA-Za-z_0-9]: the length of such a character at i, or 0.
	other := func(i int) int {
		k, n := c.at(s, i)
		if n == 0 || k&space != 0 || n == 1 && (isASCIILetter(s[i]) || s[i] == '_' || '0' <= s[i] && s[i] <= '9') {
			return 0
		}
		return n
	}
	for i := from; i < len(s); {
		b := s[i]
		end = i
		switch {
		case isASCIILetter(b) || b == '_':
			for end < len(s) && (isASCIILetter(s[end]) || s[end] == '_') {
				end++
			}
			return i, end
		case b == '\t' || b == '\n' || b == ' ' && other(i+1) == 0:
			for end < len(s) && s[end] == b {
				end++
			}
			return i, end
		case b == ' ' || other(i) > 0:
			if b == ' ' {
				end++
			}
			for n := other(end); n > 0; n = other(end) {
				end += n
			}
			return i, end
		}
		_, n := c.at(s, i)
		i += n
	}
	return len(s), len(s)
}
