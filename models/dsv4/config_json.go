package dsv4

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// encoding/json alone cannot read the model's JSON files safely: it takes the
// last of two equal keys, matches names whatever their case and lets absent
// fields be zero. So the text becomes a tree here, and tables say what may and
// must stand in it.

// jsonObject is a JSON object. Values are nil, bool, string, json.Number, []any
// or *jsonObject.
type jsonObject struct {
	path   string   // "" at the top, else "name." of the enclosing fields
	keys   []string // in file order
	values map[string]any
}

// parseJSONObject parses a text that must be one JSON object without repeated
// keys at any depth. Errors name the byte offset.
func parseJSONObject(data []byte) (*jsonObject, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("text is not valid UTF-8")
	}
	// Syntax first, over the whole text: the token reader below stops at the
	// end of the first value and has no limit on nesting.
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			return nil, fmt.Errorf("offset %d: %w", syntax.Offset, err)
		}
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := parseJSONValue(dec, "")
	if err != nil {
		return nil, err
	}
	obj, ok := v.(*jsonObject)
	if !ok {
		return nil, fmt.Errorf("text is %s, want an object", kindOf(v))
	}
	return obj, nil
}

func parseJSONValue(dec *json.Decoder, path string) (any, error) {
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch tok {
	case json.Delim('{'):
		obj := &jsonObject{path: path, values: make(map[string]any)}
		for dec.More() {
			tok, err := dec.Token()
			if err != nil {
				return nil, err
			}
			key := tok.(string) // the syntax is known to be right
			if _, dup := obj.values[key]; dup {
				return nil, fieldErrorf(path+key, "stands twice, again at offset %d", dec.InputOffset())
			}
			v, err := parseJSONValue(dec, path+key+".")
			if err != nil {
				return nil, err
			}
			obj.keys = append(obj.keys, key)
			obj.values[key] = v
		}
		_, err = dec.Token()
		return obj, err
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, err := parseJSONValue(dec, path)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = dec.Token()
		return list, err
	}
	return tok, nil
}

// jsonField says how one field of an object is read into a T.
type jsonField[T any] struct {
	name     string
	read     func(t *T, name string, v any) error // name is the full path, for errors
	optional bool
	absent   string // what to say when a required field is missing; "" for "is missing"
}

// ignoredField is a field that is read over, and why.
type ignoredField struct{ name, reason string }

// readFields reads obj into t by the table, in its order. A field in neither
// list is an error, as is a missing one that is not optional. Unknown fields
// are reported after the first field of the table was read, which so decides
// what kind of file this is.
func readFields[T any](t *T, obj *jsonObject, fields []jsonField[T], ignored []ignoredField) error {
	if err := fields[0].readFrom(t, obj); err != nil {
		return err
	}
	for _, key := range obj.keys {
		known := slices.ContainsFunc(fields, func(f jsonField[T]) bool { return f.name == key }) ||
			slices.ContainsFunc(ignored, func(f ignoredField) bool { return f.name == key })
		if !known {
			return fieldErrorf(obj.path+key, "is unknown")
		}
	}
	for _, f := range fields[1:] {
		if err := f.readFrom(t, obj); err != nil {
			return err
		}
	}
	return nil
}

func (f jsonField[T]) readFrom(t *T, obj *jsonObject) error {
	v, ok := obj.values[f.name]
	switch {
	case ok:
		return f.read(t, obj.path+f.name, v)
	case f.optional:
		return nil
	case f.absent != "":
		return fieldErrorf(obj.path+f.name, "%s", f.absent)
	}
	return fieldErrorf(obj.path+f.name, "is missing")
}

// fieldErrorf is the form of all errors about a field.
func fieldErrorf(name, format string, args ...any) error {
	return fmt.Errorf("field %q "+format, append([]any{name}, args...)...)
}

func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case string:
		return fmt.Sprintf("the string %q", v)
	case json.Number:
		return "the number " + v.String()
	case []any:
		return "an array"
	}
	return "an object"
}

// asInt takes a number written without fraction or exponent, lo <= n <= hi.
func asInt(name string, v any, lo, hi int) (int, error) {
	num, ok := v.(json.Number)
	if !ok {
		return 0, fieldErrorf(name, "is %s, want an integer", kindOf(v))
	}
	n, err := strconv.ParseInt(num.String(), 10, 64)
	if errors.Is(err, strconv.ErrSyntax) {
		return 0, fieldErrorf(name, "is %s, want an integer", kindOf(v))
	}
	if err != nil || n < int64(lo) || n > int64(hi) {
		return 0, fieldErrorf(name, "is %s, want %d to %d", num, lo, hi)
	}
	return int(n), nil
}

func asInts(name string, v any, lo, hi int) ([]int, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, fieldErrorf(name, "is %s, want an array of integers", kindOf(v))
	}
	out := make([]int, len(list))
	for i, e := range list {
		n, err := asInt(fmt.Sprintf("%s[%d]", name, i), e, lo, hi)
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}

// asTokenIDs takes one token id or a non-empty array of them.
func asTokenIDs(name string, v any) ([]int32, error) {
	list, ok := v.([]any)
	if !ok {
		id, err := asInt(name, v, 0, maxVocab-1)
		if err != nil {
			return nil, err
		}
		return []int32{int32(id)}, nil
	}
	ids, err := asInts(name, list, 0, maxVocab-1)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, fieldErrorf(name, "is an empty array, want a token id")
	}
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out, nil
}

func asFloat(name string, v any) (float64, error) {
	num, ok := v.(json.Number)
	if !ok {
		return 0, fieldErrorf(name, "is %s, want a number", kindOf(v))
	}
	f, err := num.Float64()
	if err != nil || math.IsInf(f, 0) {
		return 0, fieldErrorf(name, "is %s, beyond float64", num)
	}
	return f, nil
}

// floatRange is a condition on a number and its wording.
type floatRange struct {
	ok   func(float64) bool
	want string
}

var (
	positive    = floatRange{func(f float64) bool { return f > 0 }, "above 0"}
	notNegative = floatRange{func(f float64) bool { return f >= 0 }, "0 or more"}
	aboveOne    = floatRange{func(f float64) bool { return f > 1 }, "above 1"}
	atLeastOne  = floatRange{func(f float64) bool { return f >= 1 }, "1 or more"}
	fraction    = floatRange{func(f float64) bool { return f > 0 && f <= 1 }, "above 0 and at most 1"}
)

func intField[T any](dst func(*T) *int, lo, hi int) func(*T, string, any) error {
	return func(t *T, name string, v any) (err error) {
		*dst(t), err = asInt(name, v, lo, hi)
		return err
	}
}

func floatField[T any](dst func(*T) *float64, r floatRange) func(*T, string, any) error {
	return func(t *T, name string, v any) error {
		f, err := asFloat(name, v)
		if err == nil && !r.ok(f) {
			err = fieldErrorf(name, "is %v, want a number %s", v, r.want)
		}
		*dst(t) = f
		return err
	}
}

func objectField[T any](fields []jsonField[T]) func(*T, string, any) error {
	return func(t *T, name string, v any) error {
		obj, ok := v.(*jsonObject)
		if !ok {
			return fieldErrorf(name, "is %s, want an object", kindOf(v))
		}
		return readFields(t, obj, fields, nil)
	}
}

// oneString, oneBool, oneInt and oneFloat accept a single value; note says why
// others are refused.

func oneString[T any](want, note string) func(*T, string, any) error {
	return func(_ *T, name string, v any) error {
		if v != any(want) {
			return fieldErrorf(name, "is %s, want %q: %s", kindOf(v), want, note)
		}
		return nil
	}
}

func oneBool[T any](want bool, note string) func(*T, string, any) error {
	return func(_ *T, name string, v any) error {
		if v != any(want) {
			return fieldErrorf(name, "is %s, want %t: %s", kindOf(v), want, note)
		}
		return nil
	}
}

func oneInt[T any](want int, note string) func(*T, string, any) error {
	return func(_ *T, name string, v any) error {
		if num, ok := v.(json.Number); !ok || num.String() != strconv.Itoa(want) {
			return fieldErrorf(name, "is %s, want %d: %s", kindOf(v), want, note)
		}
		return nil
	}
}

func oneFloat[T any](want float64, note string) func(*T, string, any) error {
	return func(_ *T, name string, v any) error {
		f, err := asFloat(name, v)
		if err == nil && f != want {
			err = fieldErrorf(name, "is %v, want %v: %s", v, want, note)
		}
		return err
	}
}
