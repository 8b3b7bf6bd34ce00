package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type tokenized struct {
	IDs     []int32 `json:"ids"`
	Decoded string  `json:"decoded"`
}

func TestTokenizeGolden(t *testing.T) {
	var golden map[string][]struct {
		Text    string  `json:"text"`
		IDs     []int32 `json:"ids"`
		Decoded string  `json:"decoded"`
	}
	if err := json.Unmarshal(readFile(t, goldenTokens), &golden); err != nil {
		t.Fatal(err)
	}
	cases := golden["tiny"]
	if len(cases) == 0 {
		t.Fatal("no golden texts of the tiny tokenizer")
	}
	for i, tc := range cases {
		var got tokenized
		kilnWith(t, nil, tc.Text, "tokenize", "--model", tinyModel, "--json").decode(t, &got)
		if diff := cmp.Diff(tokenized{tc.IDs, tc.Decoded}, got); diff != "" {
			t.Errorf("%q: -want +got:\n%s", tc.Text, diff)
		}
		list := strings.Trim(fmt.Sprint(tc.IDs), "[]")
		if len(tc.IDs) == 0 || i > 12 {
			continue // each command loads the tokenizer, and the ids are the same
		}
		plain := kilnWith(t, nil, tc.Text, "tokenize", "--model", tinyModel).ok(t)
		if plain.stdout != list+"\n" || plain.stderr != "" {
			t.Errorf("%q: standard output %q, want %q; standard error %q", tc.Text, plain.stdout, list, plain.stderr)
		}
		back := kiln(t, "tokenize", "--model", tinyModel, "--decode", list).ok(t)
		if back.stdout != tc.Decoded || back.stderr != "" {
			t.Errorf("%v decodes to %q, want %q; standard error %q", tc.IDs, back.stdout, tc.Decoded, back.stderr)
		}
	}
}

func TestTokenize(t *testing.T) {
	const bos, eos = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
	file := tinyModel + "/tokenizer.json"
	for _, tc := range []struct {
		name    string
		args    []string
		environ []string
		stdin   string
		stdout  string
	}{
		{"nothing", []string{"--model", tinyModel}, nil, "", ""},
		{"nothing as JSON", []string{"--model", tinyModel, "--json"}, nil, "", `{"ids":[],"decoded":""}` + "\n"},
		{"tokenizer file", []string{"--tokenizer", file}, nil, "a", "66\n"},
		{"tokenizer of the environment", nil, []string{"KILN_TOKENIZER=" + file}, "a", "66\n"},
		{"command line over environment", []string{"--tokenizer", file}, []string{"KILN_MODEL=none"}, "a", "66\n"},
		{"special tokens, and none added", []string{"--tokenizer", file}, nil, bos + "a" + eos, "0 66 1\n"},
		{"text that is markup stays itself", []string{"--tokenizer", file, "--json"}, nil, "<", `{"ids":[29],"decoded":"<"}` + "\n"},
		{"bytes that are no text", []string{"--tokenizer", file, "--json"}, nil, "\xff", `{"ids":[189],"decoded":"` + "\ufffd" + `"}` + "\n"},
		{"decode", []string{"--tokenizer", file, "--decode", "[0, 66,1]"}, nil, "ignored", bos + "a" + eos},
		{"decode as JSON", []string{"--tokenizer", file, "--decode", "66 66", "--json"}, nil, "", `{"ids":[66,66],"decoded":"aa"}` + "\n"},
		{"decode of the environment", []string{"--tokenizer", file}, []string{"KILN_DECODE=66", "KILN_JSON=1"}, "x", `{"ids":[66],"decoded":"a"}` + "\n"},
		{"decode of a file", []string{"--tokenizer", file, "--decode", "@" + writeFile(t, "ids", "[66,\n66]\n")}, nil, "", "aa"},
		{"decode of a part of a character", []string{"--tokenizer", file, "--decode", "164"}, nil, "", "\ufffd"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := kilnWith(t, tc.environ, tc.stdin, append([]string{"tokenize"}, tc.args...)...).ok(t)
			if r.stdout != tc.stdout || r.stderr != "" {
				t.Errorf("standard output %q, want %q; standard error %q", r.stdout, tc.stdout, r.stderr)
			}
		})
	}
	for _, ids := range []string{"2048", "1,-1"} {
		kiln(t, "tokenize", "--tokenizer", file, "--decode", ids).failed(t, exitRefused, "is not in the vocabulary of 2048 tokens")
	}
	kiln(t, "tokenize", "--model", flashConfig).failed(t, exitFailed, "flash/tokenizer.json")
}

// brokenReader fails after some text.
type brokenReader struct{ text io.Reader }

func (r brokenReader) Read(p []byte) (int, error) {
	n, err := r.text.Read(p)
	if err == io.EOF {
		err = errors.New("the cable is out")
	}
	return n, err
}

func TestTokenizeInput(t *testing.T) {
	var stdout, stderr bytes.Buffer
	e := &env{stdin: brokenReader{strings.NewReader("a")}, stdout: &stdout, stderr: &stderr, ctx: t.Context(), started: time.Now()}
	code := run(e, []string{"tokenize", "--model", tinyModel})
	result{code, stdout.String(), stderr.String()}.failed(t, exitFailed, "kiln: standard input: the cable is out\n")

	// An input without an end does not hold an interrupted command.
	in, out := io.Pipe()
	defer out.Close()
	stdout.Reset()
	stderr.Reset()
	e = &env{stdin: in, stdout: &stdout, stderr: &stderr, ctx: cancelled(t), started: time.Now()}
	code = run(e, []string{"tokenize", "--model", tinyModel})
	result{code, stdout.String(), stderr.String()}.failed(t, exitFailed, "kiln: interrupted\n")
}
