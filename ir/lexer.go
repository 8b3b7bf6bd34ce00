package ir

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/participle/v2/lexer"
)

// Token types of .kir text. A type and a bracketed attribute list are one token
// each: their inside has its own grammar (ParseType, parseAttr), and one token
// instead of ten keeps a 61-layer graph quick to parse.
const (
	tokIdent   lexer.TokenType = -(iota + 2) // rms_norm, true, f32
	tokNumber                                // 12, -1e-06, inf
	tokString                                // "layers.0"
	tokLocal                                 // %12
	tokWeight                                // @layers.0.attn.wq_a
	tokState                                 // !layers.0.window
	tokType                                  // f8e4m3[N,K] block(128,128) scale e8m0
	tokList                                  // [1,0,2]
	tokLetExpr                               // the right side of let NAME =
	tokPunct                                 // = , { } : ( )
)

var kirSymbols = map[string]lexer.TokenType{
	"EOF": lexer.EOF, "Ident": tokIdent, "Number": tokNumber, "String": tokString, "Local": tokLocal,
	"Weight": tokWeight, "State": tokState, "Type": tokType, "List": tokList, "LetExpr": tokLetExpr, "Punct": tokPunct,
}

// kirLexer makes tokens of .kir text. Comments run from // to the end of the line.
type kirLexer struct{}

func (kirLexer) Symbols() map[string]lexer.TokenType { return kirSymbols }

func (kirLexer) Lex(filename string, r io.Reader) (lexer.Lexer, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return kirLexer{}.LexString(filename, string(text))
}

func (kirLexer) LexString(filename, text string) (lexer.Lexer, error) {
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD") { // unquoting would replace it
			before := text[:i]
			pos := Pos{filename, 1 + strings.Count(before, "\n"), i - strings.LastIndexByte(before, '\n')}
			return nil, participleError{pos, fmt.Sprintf("byte 0x%02x is not UTF-8", text[i])}
		}
	}
	return &scanner{s: text, pos: lexer.Position{Filename: filename, Line: 1, Column: 1}}, nil
}

type scanner struct {
	s    string
	i    int
	bol  int // offset of the current line's first byte
	pos  lexer.Position
	prev [3]string // the tokens before: "let" NAME "=" starts an expression
	line int       // of the last of them
}

// Next implements lexer.Lexer.
func (s *scanner) Next() (lexer.Token, error) {
	s.space()
	start := s.i
	pos := s.pos
	pos.Offset, pos.Column = start, start-s.bol+1
	typ, n, err := s.scan(s.s[start:])
	if err != nil {
		return lexer.Token{}, participleError{Pos{pos.Filename, pos.Line, pos.Column}, err.Error()}
	}
	s.i += n
	tok := lexer.Token{Type: typ, Value: s.s[start:s.i], Pos: pos}
	if typ == tokLetExpr {
		tok.Value = strings.TrimRight(tok.Value, " \t\r")
	}
	s.prev[0], s.prev[1], s.prev[2] = s.prev[1], s.prev[2], tok.Value
	s.line = s.pos.Line
	return tok, nil
}

func (s *scanner) space() {
	for s.i < len(s.s) {
		switch c := s.s[s.i]; {
		case c == '\n':
			s.i++
			s.pos.Line++
			s.bol = s.i
		case c == ' ' || c == '\t' || c == '\r':
			s.i++
		case c == '/' && strings.HasPrefix(s.s[s.i:], "//"):
			end := strings.IndexByte(s.s[s.i:], '\n')
			if end < 0 {
				end = len(s.s) - s.i
			}
			s.i += end
		default:
			return
		}
	}
}

// lineEnd is the length of t up to the end of its line or a comment.
func lineEnd(t string) int {
	if n := strings.IndexByte(t, '\n'); n >= 0 {
		t = t[:n]
	}
	if n := strings.Index(t, "//"); n >= 0 {
		t = t[:n]
	}
	return len(t)
}

func (s *scanner) scan(t string) (lexer.TokenType, int, error) {
	if t == "" {
		return lexer.EOF, 0, nil
	}
	c := t[0]
	name := func(from int, dots string) int {
		n := from
		for n < len(t) && (isNameByte(t[n]) || strings.IndexByte(dots, t[n]) >= 0) {
			n++
		}
		return n
	}
	switch {
	case s.prev[0] == "let" && s.prev[2] == "=":
		if s.pos.Line != s.line {
			return 0, 0, fmt.Errorf("let %s = without an expression on the same line", s.prev[1])
		}
		return tokLetExpr, lineEnd(t), nil
	case c == '%', c == '@', c == '!':
		n := name(1, ".*")
		if n == 1 {
			return 0, 0, fmt.Errorf("%q without a name", c)
		}
		return map[byte]lexer.TokenType{'%': tokLocal, '@': tokWeight, '!': tokState}[c], n, nil
	case isNameStart(c):
		n := name(1, ".")
		if _, isType := dtypeByName[t[:n]]; isType && n < len(t) && t[n] == '[' {
			return s.scanType(t, n)
		}
		return tokIdent, n, nil
	case c >= '0' && c <= '9', c == '-', c == '+':
		n := 1
		for n < len(t) && (isNameByte(t[n]) || t[n] == '.' || (t[n] == '-' || t[n] == '+') && (t[n-1] == 'e' || t[n-1] == 'E')) {
			n++
		}
		return tokNumber, n, nil
	case c == '"':
		escaped := false
		for n := 1; n < len(t) && t[n] != '\n'; n++ {
			if t[n] == '"' && !escaped {
				return tokString, n + 1, nil
			}
			escaped = t[n] == '\\' && !escaped
		}
		return 0, 0, fmt.Errorf("string without an end")
	case c == '[':
		n := strings.IndexAny(t, "]\n")
		if n < 0 || t[n] == '\n' {
			return 0, 0, fmt.Errorf("[ without ] on the same line")
		}
		return tokList, n + 1, nil
	case strings.IndexByte("=,{}:()", c) >= 0:
		return tokPunct, 1, nil
	}
	r, _ := utf8.DecodeRuneInString(t)
	return 0, 0, fmt.Errorf("unexpected character %q", r)
}

// scanType takes dtype[dims] and, if present, block(a,b) scale dtype.
func (s *scanner) scanType(t string, n int) (lexer.TokenType, int, error) {
	shut := strings.IndexAny(t, "]\n")
	if shut < 0 || t[shut] == '\n' {
		return 0, 0, fmt.Errorf("type %s without ]", t[:n])
	}
	end := shut + 1
	rest := t[end:]
	trimmed := strings.TrimLeft(rest, " \t")
	if !strings.HasPrefix(trimmed, "block(") {
		return tokType, end, nil
	}
	line := trimmed[:lineEnd(trimmed)]
	at := strings.Index(line, "scale")
	if at < 0 {
		return 0, 0, fmt.Errorf("block(..) without scale")
	}
	m := at + len("scale")
	for m < len(line) && (line[m] == ' ' || line[m] == '\t') {
		m++
	}
	for m < len(line) && isNameByte(line[m]) {
		m++
	}
	return tokType, end + len(rest) - len(trimmed) + m, nil
}

// participleError carries a position in the form participle and Parse expect.
type participleError struct {
	pos Pos
	msg string
}

func (e participleError) Error() string   { return e.pos.String() + ": " + e.msg }
func (e participleError) Message() string { return e.msg }
func (e participleError) Position() lexer.Position {
	return lexer.Position{Filename: e.pos.File, Line: e.pos.Line, Column: e.pos.Col}
}
