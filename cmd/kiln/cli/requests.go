package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/tokenizer"
)

// requestLine is a request as a line of --requests has it.
type requestLine struct {
	line      int // from 1
	id        *string
	prompt    *string
	promptIDs []int32
	messages  json.RawMessage
	thinking  *bool
	maxNew    *int
	ignoreEOS *bool
	sampling  engine.Sampling
}

// fields are those of a request: where each is kept.
func (r *requestLine) fields() map[string]any {
	return map[string]any{
		"id": &r.id, "prompt": &r.prompt, "prompt_ids": &r.promptIDs, "messages": &r.messages, "thinking": &r.thinking,
		"max_new_tokens": &r.maxNew, "ignore_eos": &r.ignoreEOS,
		"temperature": &r.sampling.Temperature, "top_k": &r.sampling.TopK, "top_p": &r.sampling.TopP, "seed": &r.sampling.Seed,
	}
}

// readRequests reads a file of requests. Whatever is wrong with a line's form is an
// error that names line and field.
func readRequests(path string) ([]*requestLine, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []*requestLine
	ids := map[string]int{}
	for i, text := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		r, err := parseRequest(text)
		if err == nil && r.id != nil {
			if before := ids[*r.id]; before > 0 {
				err = fmt.Errorf("id: %q is that of line %d, too", *r.id, before)
			}
			ids[*r.id] = i + 1
		}
		if err != nil {
			return nil, &codedError{exitRefused, fmt.Errorf("%s: line %d: %w", path, i+1, err), `a request is {"prompt": "package main", "max_new_tokens": 16}; docs/serving.md lists the fields`}
		}
		r.line = i + 1
		list = append(list, r)
	}
	return list, nil
}

// parseRequest reads the object of a line.
func parseRequest(text []byte) (*requestLine, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("no request")
	}
	if err := tokenizer.ValidJSON(text); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if open, _ := dec.Token(); open != json.Delim('{') {
		return nil, errors.New("want a JSON object")
	}
	r := &requestLine{}
	fields := r.fields()
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string) // the syntax has been checked
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, err
		}
		to, known := fields[name]
		switch {
		case !known:
			return nil, fmt.Errorf("field %q is unknown", name)
		case seen[name]:
			return nil, fmt.Errorf("field %q is given twice", name)
		}
		seen[name] = true
		if err := readField(raw, to); err != nil {
			return nil, fmt.Errorf("field %q: %w", name, err)
		}
	}
	n := 0
	for _, name := range []string{"prompt", "prompt_ids", "messages"} {
		if seen[name] {
			n++
		}
	}
	if n != 1 {
		return nil, fmt.Errorf("want exactly one of prompt, prompt_ids and messages, got %d", n)
	}
	if r.thinking != nil && r.messages == nil {
		return nil, errors.New(`field "thinking" applies to messages only`)
	}
	return r, nil
}

// readField reads a value of the type that it is kept in. null, which would leave a
// field or an id as it is, is none.
func readField(raw json.RawMessage, to any) error {
	if bytes.Equal(raw, []byte("null")) {
		return errors.New("null is no value")
	}
	if ids, ok := to.(*[]int32); ok {
		var list []*int32
		if err := json.Unmarshal(raw, &list); err != nil {
			return fieldError(err)
		}
		for i, id := range list {
			if id == nil {
				return fmt.Errorf("id %d is null", i)
			}
			*ids = append(*ids, *id)
		}
		return nil
	}
	return fieldError(json.Unmarshal(raw, to))
}

// fieldError is an error of package json in the words of a file.
func fieldError(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		kind := wrong.Type.String()
		if strings.HasPrefix(kind, "[]") {
			kind = "array"
		}
		return fmt.Errorf("it is a %s, want %s", wrong.Value, kind)
	}
	return err
}

// requestReader makes requests of lines.
type requestReader struct {
	f      *flags
	tok    *tokenizer.Tokenizer
	encode func(text string) ([]int32, error)
	stop   []int32
}

// read makes the request of a line. Its error, like those of Layout.Check, is that
// request's alone.
func (q *requestReader) read(r *requestLine) (engine.Request, error) {
	out := engine.Request{Prompt: r.promptIDs, MaxNew: q.f.number("max-new-tokens"), Sampling: r.sampling, Stop: q.stop}
	if r.maxNew != nil {
		out.MaxNew = *r.maxNew
	}
	ignore := q.f.boolean("ignore-eos")
	if r.ignoreEOS != nil {
		ignore = *r.ignoreEOS
	}
	if ignore {
		out.Stop = nil
	}
	var err error
	switch {
	case r.prompt != nil:
		out.Prompt, err = q.encode(*r.prompt)
	case r.messages != nil:
		out.Prompt, err = q.chat(r)
	}
	return out, err
}

func (q *requestReader) chat(r *requestLine) ([]int32, error) {
	chat, err := dsv4.ParseChat(r.messages)
	if err != nil {
		return nil, err
	}
	if r.thinking != nil {
		mode := chatMode(*r.thinking)
		if chat.ThinkingMode != "" && chat.ThinkingMode != mode {
			return nil, fmt.Errorf("thinking_mode of the messages is %q and thinking is %v", chat.ThinkingMode, *r.thinking)
		}
		chat.ThinkingMode = mode
	}
	return encodeChat(chat, q.tok)
}

// samples tells whether a request draws its tokens.
func samples(list []*requestLine) bool {
	return slices.ContainsFunc(list, func(r *requestLine) bool { return r.sampling.Temperature != 0 })
}
