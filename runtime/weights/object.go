package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// reader walks JSON token by token. Unlike json.Unmarshal it sees duplicate
// keys, takes field names literally and never builds a value it was not asked
// for.
type reader struct{ dec *json.Decoder }

// newReader prepares text, which must be UTF-8: the decoder would replace
// invalid bytes and so change names.
func newReader(text []byte) (*reader, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("json is not valid utf-8")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return &reader{dec}, nil
}

// token returns the next token.
func (r *reader) token() (json.Token, error) {
	tok, err := r.dec.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("json near byte %d: %w", r.dec.InputOffset(), err)
	}
	return tok, nil
}

// delim consumes the given delimiter.
func (r *reader) delim(want json.Delim) error {
	tok, err := r.token()
	if err != nil {
		return err
	}
	if tok != want {
		return fmt.Errorf("found %s where %q is expected", describe(tok), want)
	}
	return nil
}

// object consumes an object and calls member after each key, to consume the
// value. A key that occurs twice is an error.
func (r *reader) object(member func(key string) error) error {
	if err := r.delim('{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for r.dec.More() {
		key, err := r.str()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("key %s occurs twice", quote(key))
		}
		seen[key] = true
		if err := member(key); err != nil {
			return err
		}
	}
	return r.delim('}')
}

// strings consumes an object whose values are all strings.
func (r *reader) strings() (map[string]string, error) {
	out := map[string]string{}
	err := r.object(func(key string) (err error) {
		if out[key], err = r.str(); err != nil {
			return fmt.Errorf("key %s: %w", quote(key), err)
		}
		return nil
	})
	return out, err
}

// str consumes a string.
func (r *reader) str() (string, error) {
	tok, err := r.token()
	if err != nil {
		return "", err
	}
	s, ok := tok.(string)
	if !ok {
		return "", fmt.Errorf("found %s where a string is expected", describe(tok))
	}
	return s, nil
}

// integers consumes an array of at most limit integers, each from 0 to the
// largest int.
func (r *reader) integers(limit int) ([]int, error) {
	if err := r.delim('['); err != nil {
		return nil, err
	}
	out := []int{}
	for r.dec.More() {
		tok, err := r.token()
		if err != nil {
			return nil, err
		}
		n, ok := tok.(json.Number)
		if !ok {
			return nil, fmt.Errorf("found %s where an integer is expected", describe(tok))
		}
		v, err := strconv.Atoi(n.String())
		if err != nil || v < 0 {
			return nil, fmt.Errorf("%s is not an integer from 0 to the largest int", quote(n.String()))
		}
		if len(out) == limit {
			return nil, fmt.Errorf("more than %d numbers", limit)
		}
		out = append(out, v)
	}
	return out, r.delim(']')
}

// skip consumes a value of any kind.
func (r *reader) skip() error {
	for depth := 0; ; {
		tok, err := r.token()
		if err != nil {
			return err
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// end checks that only white space is left.
func (r *reader) end() error {
	if tok, err := r.dec.Token(); err != io.EOF {
		if err != nil {
			return fmt.Errorf("after the json object: %w", err)
		}
		return fmt.Errorf("found %s after the json object", describe(tok))
	}
	return nil
}

// describe names a token in an error message.
func describe(tok json.Token) string {
	switch v := tok.(type) {
	case json.Delim:
		return strconv.Quote(v.String())
	case string:
		return "the string " + quote(v)
	case json.Number:
		return "the number " + quote(v.String())
	case nil:
		return "null"
	}
	return fmt.Sprint(tok) // true or false
}
