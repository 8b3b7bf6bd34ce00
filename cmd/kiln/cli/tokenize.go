package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/kiln-project/kiln/runtime/tokenizer"
)

const tokenizeHelp = `Reads all of standard input and prints its token ids. No begin-of-sentence
token is added; special tokens in the text are recognised.`

func runTokenize(e *env, f *flags, _ []string) error {
	from, err := f.oneOf("model", "tokenizer")
	if err != nil {
		return err
	}
	path := f.text(from)
	if from == "model" {
		path = filepath.Join(path, "tokenizer.json")
	}
	tok, err := loadTokenizer(path)
	if err != nil {
		return err
	}
	var ids []int32
	if f.given("decode") {
		if ids, err = readIDs(f, "decode"); err != nil {
			return err
		}
	} else {
		text, err := readInput(e)
		if err != nil {
			return err
		}
		ids = tok.Encode(string(text))
	}
	decoded, err := tok.Decode(ids)
	if err != nil {
		return refuse(err, "")
	}
	if f.boolean("json") {
		return printJSON(e.stdout, struct {
			IDs     []int32 `json:"ids"`
			Decoded string  `json:"decoded"`
		}{notNil(ids), decoded})
	}
	if f.given("decode") {
		_, err = io.WriteString(e.stdout, decoded)
		return err
	}
	var line []byte // one write: a large text has hundreds of thousands of ids
	for i, id := range ids {
		if i > 0 {
			line = append(line, ' ')
		}
		line = strconv.AppendInt(line, int64(id), 10)
	}
	if len(line) > 0 {
		_, err = e.stdout.Write(append(line, '\n'))
	}
	return err
}

// loadTokenizer tells a damaged tokenizer.json (failed) from one that is well
// formed and cannot be honoured (refused).
func loadTokenizer(path string) (*tokenizer.Tokenizer, error) {
	tok, err := tokenizer.Load(path)
	if err == nil {
		return tok, nil
	}
	if data, readErr := os.ReadFile(path); readErr == nil && json.Valid(data) {
		return nil, refuse(err, "")
	}
	return nil, err
}

// readInput reads standard input to its end, or until the context ends: a
// terminal may have nothing to say for long.
func readInput(e *env) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(e.stdin)
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, fmt.Errorf("standard input: %w", r.err)
		}
		return r.text, nil
	case <-e.ctx.Done():
		return nil, e.ctx.Err()
	}
}

// notNil makes an empty list print as [].
func notNil(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}

// printJSON writes one line. Characters stand for themselves: the text is not
// meant for HTML.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
