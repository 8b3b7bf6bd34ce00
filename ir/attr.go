package ir

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// AttrKind is the kind of value an attribute holds.
type AttrKind uint8

// Attribute kinds with the Go type of their values.
const (
	AttrInt    AttrKind = iota // int
	AttrFloat                  // float64
	AttrBool                   // bool
	AttrString                 // string
	AttrInts                   // []int
	AttrDType                  // DType
	AttrDim                    // Dim
	AttrDims                   // []Dim
)

var attrKindName = [...]string{"int", "float", "bool", "string", "int list", "dtype", "dim", "dim list"}

func (k AttrKind) String() string {
	if int(k) >= len(attrKindName) {
		return "invalid"
	}
	return attrKindName[k]
}

// Attr is one attribute of an op: Val has the Go type that the op table's
// AttrDef.Kind names.
type Attr struct {
	Key string
	Val any
}

// Attrs is a list of attributes in the order of the op table.
type Attrs []Attr

// Get returns the value of key.
func (a Attrs) Get(key string) (any, bool) {
	for _, x := range a {
		if x.Key == key {
			return x.Val, true
		}
	}
	return nil, false
}

// AttrDef declares one attribute of an op. Default nil means required. A float
// is finite unless AnyFloat says otherwise; an int lies within 32 bits.
type AttrDef struct {
	Name     string
	Kind     AttrKind
	Default  any
	Doc      string
	AnyFloat bool // infinities and NaN are allowed
}

// Check reports why v is not a legal value of the attribute.
func (d *AttrDef) Check(v any) error {
	if k, ok := kindOf(v); !ok || k != d.Kind {
		return fmt.Errorf("%v (Go type %T) is not a valid %s", v, v, d.Kind)
	}
	ns, _ := v.([]int)
	switch v := v.(type) {
	case int:
		ns = []int{v}
	case float64:
		if !d.AnyFloat && (math.IsNaN(v) || math.IsInf(v, 0)) {
			return fmt.Errorf("%v is not a finite number", v)
		}
	}
	for _, n := range ns {
		if n > maxDimValue || n < -maxDimValue {
			return fmt.Errorf("%d is out of range", n)
		}
	}
	return nil
}

// kindOf maps a Go value to the kind it can have.
func kindOf(v any) (AttrKind, bool) {
	switch v.(type) {
	case int:
		return AttrInt, true
	case float64:
		return AttrFloat, true
	case bool:
		return AttrBool, true
	case string:
		return AttrString, true
	case []int:
		return AttrInts, true
	case DType:
		return AttrDType, true
	case Dim:
		return AttrDim, true
	case []Dim:
		return AttrDims, true
	}
	return 0, false
}

// attrText prints a value; parseAttr reads it back.
func attrText(v any, dim func(Dim) string) string {
	switch v := v.(type) {
	case int:
		return strconv.Itoa(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	case string:
		return strconv.Quote(v)
	case []int:
		s := make([]string, len(v))
		for i, n := range v {
			s[i] = strconv.Itoa(n)
		}
		return "[" + strings.Join(s, ",") + "]"
	case DType:
		return v.String()
	case Dim:
		return "[" + dim(v) + "]"
	case []Dim:
		s := make([]string, len(v))
		for i, d := range v {
			s[i] = dim(d)
		}
		return "[" + strings.Join(s, ",") + "]"
	}
	return fmt.Sprintf("<%T>", v)
}

// parseAttr reads the text of a value of the given kind.
func parseAttr(kind AttrKind, text string, resolve func(string) (Dim, error)) (any, error) {
	list, isList := strings.CutPrefix(text, "[")
	list = strings.TrimSuffix(list, "]")
	if wantList := kind == AttrInts || kind == AttrDim || kind == AttrDims; wantList != isList {
		return nil, fmt.Errorf("%s is not a valid %s", text, kind)
	}
	var v any
	var err error
	switch kind {
	case AttrInt:
		v, err = strconv.Atoi(text)
	case AttrFloat:
		if v, err = strconv.ParseFloat(text, 64); strings.ContainsAny(text, "xX_") {
			err = fmt.Errorf("not decimal")
		}
	case AttrBool:
		if text != "true" && text != "false" {
			err = fmt.Errorf("not a bool")
		}
		v = text == "true"
	case AttrString:
		v, err = strconv.Unquote(text)
	case AttrInts:
		ns := []int{}
		if strings.TrimSpace(list) != "" {
			for _, s := range strings.Split(list, ",") {
				n, e := strconv.Atoi(strings.TrimSpace(s))
				if e != nil {
					err = e
					break
				}
				ns = append(ns, n)
			}
		}
		v = ns
	case AttrDType:
		return ParseDType(text)
	case AttrDim:
		return ParseDim(list, resolve)
	case AttrDims:
		return ParseDims(list, resolve)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not a valid %s", text, kind)
	}
	return v, nil
}

// A builds an attribute list from key, value pairs: A("eps", 1e-6, "to", F32).
// A malformed list yields an attribute that no op has, so the op reports it.
func A(kv ...any) Attrs {
	var out Attrs
	for i := 0; i < len(kv); i += 2 {
		key := fmt.Sprint(kv[i])
		if i+1 == len(kv) {
			return append(out, Attr{Key: key + " (without a value)"})
		}
		out = append(out, Attr{key, kv[i+1]})
	}
	return out
}
