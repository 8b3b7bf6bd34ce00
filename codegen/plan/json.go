package plan

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// AppendJSON appends the plan as encoding/json writes it, without escapes for HTML. A
// bundle has hundreds of plans with tens of thousands of arguments: going through
// reflection takes five times as long.
func (p *Plan) AppendJSON(b []byte) []byte {
	b = text(append(b, `{"entry":`...), p.Entry)
	b = list(append(b, `,"binding":`...), p.Binding, func(b []byte, x *Binding) []byte {
		b = text(append(b, `{"symbol":`...), x.Symbol)
		return append(integer(append(b, `,"value":`...), x.Value), '}')
	})
	b = integer(append(b, `,"arena_bytes":`...), p.Arena)
	b = list(append(b, `,"inputs":`...), p.Inputs, appendTensor)
	b = list(append(b, `,"outputs":`...), p.Outputs, appendTensor)
	b = list(append(b, `,"states":`...), p.States, appendInt)
	b = list(append(b, `,"values":`...), p.Values, func(b []byte, v *Value) []byte { return quoted(b, v.append) })
	b = list(append(b, `,"launches":`...), p.Launches, appendLaunch)
	return append(b, '}')
}

func appendTensor(b []byte, t *Tensor) []byte {
	b = text(append(b, `{"name":`...), t.Name)
	b = text(append(b, `,"type":`...), t.Type)
	b = quoted(append(b, `,"data":`...), t.Data.append)
	if t.Scales != nil {
		b = quoted(append(b, `,"scales":`...), t.Scales.append)
	}
	return append(b, '}')
}

func appendLaunch(b []byte, l *Launch) []byte {
	b = integer(append(b, `{"k":`...), l.Kernel)
	b = text(append(b, `,"op":`...), l.Op)
	if l.Loc != "" {
		b = text(append(b, `,"loc":`...), l.Loc)
	}
	b = integer(append(b, `,"grid":`...), l.Grid)
	b = integer(append(b, `,"work":`...), l.Work)
	if l.Flops != 0 {
		b = integer(append(b, `,"flops":`...), l.Flops)
	}
	b = integer(append(b, `,"bytes":`...), l.Bytes)
	if l.Rate != "" {
		b = text(append(b, `,"rate":`...), l.Rate)
	}
	if len(l.Choices) > 0 {
		b = list(append(b, `,"choices":`...), l.Choices, appendInt)
	}
	b = list(append(b, `,"args":`...), l.Args, func(b []byte, a *Arg) []byte { return quoted(b, a.append) })
	return append(b, '}')
}

func appendInt(b []byte, n *int) []byte { return integer(b, *n) }

func integer[T int | int64](b []byte, n T) []byte { return strconv.AppendInt(b, int64(n), 10) }

// list appends a JSON array; nil is null.
func list[T any](b []byte, of []T, each func([]byte, *T) []byte) []byte {
	if of == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i := range of {
		if i > 0 {
			b = append(b, ',')
		}
		b = each(b, &of[i])
	}
	return append(b, ']')
}

// quoted appends as a JSON string what is appended as text.
func quoted(b []byte, as func([]byte) []byte) []byte {
	from := len(b)
	if b = as(append(b, '"')); plain(b[from+1:]) {
		return append(b, '"')
	}
	return text(b[:from], string(b[from+1:]))
}

// text appends a JSON string.
func text(b []byte, s string) []byte {
	if plain(s) {
		return append(append(append(b, '"'), s...), '"')
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic("plan: a string that JSON cannot hold: " + err.Error()) // there is none
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// plain reports that no character of s is written as another in JSON.
func plain[T string | []byte](s T) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
