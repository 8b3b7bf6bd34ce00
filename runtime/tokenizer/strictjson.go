package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A rule checks, and possibly stores, the value of one JSON field. where is the dotted path of the field; every error
// starts with it.
type rule func(where string, raw json.RawMessage) error

// rules is the complete list of the fields an object may have. A field outside it is an error, which is what keeps a
// setting this package does not know from being dropped silently.
type rules map[string]rule

// ValidJSON reports what encoding/json would repair silently: bytes that are not UTF-8, and \u escapes that are half
// of a surrogate pair. Both would become U+FFFD inside a token or a pattern. It also reports JSON syntax errors, with
// their offset, so that the readers below only meet well-formed text.
func ValidJSON(data []byte) error {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n <= 1 {
			return fmt.Errorf("byte %d: not UTF-8", i)
		}
		i += n
	}
	var all json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		var syn *json.SyntaxError
		if errors.As(err, &syn) {
			return fmt.Errorf("byte %d: %s", syn.Offset, syn.Error())
		}
		return err
	}
	// In well-formed JSON a backslash occurs only inside a string.
	for i := 0; i < len(data); {
		switch {
		case data[i] != '\\':
			i++
		case data[i+1] != 'u':
			i += 2
		default:
			r := hex4(data[i+2:])
			n := 6
			if utf16.IsSurrogate(r) {
				if !bytes.HasPrefix(data[i+6:], []byte(`\u`)) || utf16.DecodeRune(r, hex4(data[i+8:])) == utf8.RuneError {
					return fmt.Errorf("byte %d: unpaired surrogate escape %s", i, data[i:i+6])
				}
				n = 12
			}
			i += n
		}
	}
	return nil
}

// hex4 reads the four hex digits at the start of b, which JSON syntax guarantees.
func hex4(b []byte) rune {
	v, err := strconv.ParseUint(string(b[:4]), 16, 16)
	if err != nil {
		return utf8.RuneError
	}
	return rune(v)
}

// readObject applies rs to the fields of the JSON object raw, in the order of the file. Unknown and repeated fields are
// errors, and so is a missing one of required.
func readObject(where string, raw json.RawMessage, rs rules, required ...string) error {
	seen := map[string]bool{}
	err := eachField(where, raw, func(name string, val json.RawMessage) error {
		r, ok := rs[name]
		if !ok {
			return fmt.Errorf("%s: unknown field", join(where, name))
		}
		if seen[name] {
			return fmt.Errorf("%s: field given twice", join(where, name))
		}
		seen[name] = true
		return r(join(where, name), val)
	})
	if err != nil {
		return err
	}
	for _, name := range required {
		if !seen[name] {
			return fmt.Errorf("%s: missing field", join(where, name))
		}
	}
	return nil
}

// eachField calls f for every field of the object raw, in the order of the file.
func eachField(where string, raw json.RawMessage, f func(name string, val json.RawMessage) error) error {
	if kind(raw) != "object" {
		return wrongKind(where, "an object", raw)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return at(where, err)
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return at(where, err)
		}
		var val json.RawMessage
		if err := dec.Decode(&val); err != nil {
			return at(where, err)
		}
		if err := f(key.(string), val); err != nil {
			return err
		}
	}
	return nil
}

// eachElement calls f for every element of the array raw.
func eachElement(where string, raw json.RawMessage, f func(where string, val json.RawMessage) error) error {
	if kind(raw) != "array" {
		return wrongKind(where, "an array", raw)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return at(where, err)
	}
	for i := 0; dec.More(); i++ {
		var val json.RawMessage
		if err := dec.Decode(&val); err != nil {
			return at(where, err)
		}
		if err := f(where+"["+strconv.Itoa(i)+"]", val); err != nil {
			return err
		}
	}
	return nil
}

// kind names the JSON type of raw by its first byte.
func kind(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

func wrongKind(where, want string, raw json.RawMessage) error {
	return at(where, fmt.Errorf("must be %s, is %s", want, brief(raw)))
}

// brief shows a JSON value in an error message without flooding it.
func brief(raw json.RawMessage) string {
	const most = 60
	s := string(raw)
	if len(s) <= most {
		return s
	}
	cut := most
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

func join(where, name string) string {
	if where == "" {
		return name
	}
	return where + "." + name
}

// at prefixes err with the path of the field it is about; the document itself has the empty path.
func at(where string, err error) error {
	if where == "" {
		return err
	}
	return fmt.Errorf("%s: %w", where, err)
}

func stringAt(where string, raw json.RawMessage) (string, error) {
	if kind(raw) != "string" {
		return "", wrongKind(where, "a string", raw)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", at(where, err)
	}
	return s, nil
}

func boolAt(where string, raw json.RawMessage) (bool, error) {
	if kind(raw) != "boolean" {
		return false, wrongKind(where, "true or false", raw)
	}
	return raw[0] == 't', nil
}

// idAt reads a token id: a plain non-negative integer of at most 31 bits.
func idAt(where string, raw json.RawMessage) (int32, error) {
	v, err := strconv.ParseUint(string(raw), 10, 31)
	if err != nil {
		return 0, wrongKind(where, "a token id", raw)
	}
	return int32(v), nil
}

func intoString(dst *string) rule {
	return func(where string, raw json.RawMessage) (err error) {
		*dst, err = stringAt(where, raw)
		return err
	}
}

func intoBool(dst *bool) rule {
	return func(where string, raw json.RawMessage) (err error) {
		*dst, err = boolAt(where, raw)
		return err
	}
}

func intoID(dst *int32) rule {
	return func(where string, raw json.RawMessage) (err error) {
		*dst, err = idAt(where, raw)
		return err
	}
}

// must accepts only the listed JSON texts: the values under which the field has no effect, or the only ones supported.
func must(want ...string) rule {
	return func(where string, raw json.RawMessage) error {
		for _, w := range want {
			if string(raw) == w {
				return nil
			}
		}
		return wrongKind(where, strings.Join(want, " or "), raw)
	}
}

// anyBool accepts true and false alike, for flags that do not change ids or decoded text.
func anyBool(where string, raw json.RawMessage) error {
	_, err := boolAt(where, raw)
	return err
}

// names lists the keys of a table for error messages, sorted.
func names[V any](m map[string]V) string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return strings.Join(keys, ", ")
}
