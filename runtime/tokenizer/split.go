package tokenizer

// A splitter cuts s into pieces by a pattern: every match is a piece, and so is every stretch between two matches
// (Hugging Face's behavior "Isolated"). The pieces are not empty and concatenate to s.
type splitter func(s string, emit func(piece string))

// A matcher finds the leftmost match of one pattern in s at or after from, with a regular expression's own choice
// among several matches at the same place. Without one it returns len(s), len(s). Matches are never empty.
type matcher func(s string, from int) (start, end int)

func (m matcher) split(s string, emit func(piece string)) {
	for done := 0; done < len(s); {
		start, end := m(s, done)
		if start > done {
			emit(s[done:start])
		}
		if end > start {
			emit(s[start:end])
		}
		done = end
	}
}

// knownPatterns are the patterns with a hand-written matcher, by their exact text. The long DeepSeek pattern occurs in
// two spellings, with \r and \n as escapes and as the characters themselves.
var knownPatterns = map[string]matcher{
	patternDigits:       matchDigits,
	patternCJK:          matchCJK,
	patternDeepSeek:     matchDeepSeek,
	patternDeepSeekCRLF: matchDeepSeek,
	patternTiny:         matchTiny,
}

// newSplitter gives the splitter of a Split pre-tokenizer's regular expression.
func newSplitter(pattern string) (splitter, error) {
	if m, ok := knownPatterns[pattern]; ok {
		return m.split, nil
	}
	re, err := compilePattern(pattern)
	if err != nil {
		return nil, err
	}
	return regexpSplitter(re), nil
}

// pretokenize runs s through the splitters one after the other: each one sees, and looks ahead in, one piece of the
// one before.
func pretokenize(splitters []splitter, s string, emit func(piece string)) {
	if len(splitters) == 0 {
		emit(s)
		return
	}
	splitters[0](s, func(piece string) { pretokenize(splitters[1:], piece, emit) })
}
