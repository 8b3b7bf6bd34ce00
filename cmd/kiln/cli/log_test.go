package cli

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// logLine is a line of --log-format json.
type logLine struct {
	Level, Msg, Try string
	Code            int
}

// jsonLog reads standard error: an object on each line, without times.
func jsonLog(t *testing.T, stderr string) []logLine {
	t.Helper()
	var list []logLine
	for line := range strings.Lines(stderr) {
		var l logLine
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Level == "" || l.Msg == "" || strings.Contains(line, `"time"`) {
			t.Errorf("line %q is no object with level and message (%v)", line, err)
		}
		list = append(list, l)
	}
	return list
}

// What is said on standard error, by the flags: notes and the summary, errors only, or
// what was tried beside.
func TestLogLevels(t *testing.T) {
	run := []string{"run", "--model", tinyModel, "--prompt", "package main", "--max-new-tokens", "2"}
	for i, tc := range []struct {
		args    []string
		environ []string
		want    []string // parts of the lines
	}{
		{nil, nil, []string{"device: ref", "prompt: package main", "ref (reference evaluator"}},
		{[]string{"--quiet"}, nil, nil},
		{nil, []string{"KILN_QUIET=true"}, nil},
		{[]string{"-v"}, nil, []string{"device: ref", "passes: the default pipeline", "prompt: ", "ref ("}},
		{[]string{"-v", "--disable-pass", "fuse-hc", "--set", "fuse-hc.max_tokens=3"}, nil, []string{"device: ", "passes: --disable-pass fuse-hc", "passes: --set fuse-hc.max_tokens=3", "prompt: ", "ref ("}},
		{[]string{"-v"}, []string{"KILN_QUIET=true"}, []string{"device: ", "passes: ", "prompt: ", "ref ("}},
		{[]string{"--quiet"}, []string{"KILN_VERBOSE=true"}, nil},
		{[]string{"--json"}, nil, nil},
		{[]string{"--json", "--verbose"}, nil, []string{"device: ", "passes: ", "prompt: "}},
		{[]string{"--quiet", "--stats"}, nil, []string{"prefill: 1 step, ", "decode: 1 step, 1 token, ", "steps: 0 by replay of a graph, 2 launch by launch", "host memory: ", "main model: 1 step behind the prompt"}},
	} {
		form := [...]string{"text", "json"}[i%2]
		r := kilnWith(t, tc.environ, "", slices.Concat(run, tc.args, []string{"--log-format", form})...).ok(t)
		var lines []string
		for line := range strings.Lines(r.stderr) {
			lines = append(lines, line)
		}
		if form == "json" {
			lines = nil
			for _, l := range jsonLog(t, r.stderr) {
				lines = append(lines, l.Msg)
			}
		}
		same := len(lines) == len(tc.want)
		for i := range min(len(lines), len(tc.want)) {
			same = same && strings.HasPrefix(lines[i], tc.want[i])
		}
		if !same {
			t.Errorf("%v %v, %s: standard error\n%swant lines with\n%s", tc.args, tc.environ, form, r.stderr, strings.Join(tc.want, "\n"))
		}
	}
}

// Errors too are objects, also of command lines that cannot be read.
func TestLogErrors(t *testing.T) {
	asJSON := []string{"--log-format", "json"}
	for _, tc := range []struct {
		args    []string
		environ []string
		want    logLine
	}{
		{[]string{"run", "--model", tinyModel, "--prompt", "x", "--tp", "2"}, nil, logLine{"ERROR", "--tp 2: kiln runs a model on one device", "leave --tp out; kiln plan BUNDLE --device-memory 288GiB says what fits one device", exitRefused}},
		{[]string{"run", "--model", tinyModel, "--prompt", "x"}, []string{"KILN_EP=4"}, logLine{"ERROR", "KILN_EP 4: kiln runs a model on one device", "leave KILN_EP out; kiln plan BUNDLE --device-memory 288GiB says what fits one device", exitRefused}},
		{[]string{"run", "--modle", "x"}, nil, logLine{"ERROR", "unknown flag: --modle", "kiln run --help", exitUsage}},
		{[]string{"run", "--quiet"}, nil, logLine{"ERROR", "run needs --model", "kiln run --help", exitUsage}},
		{[]string{"compare", "a"}, []string{"KILN_LOG_FORMAT=json"}, logLine{"ERROR", "compare takes 2 arguments (A.safetensors B.safetensors), got 1", "kiln compare --help", exitUsage}},
	} {
		for _, how := range []struct{ args, environ []string }{{asJSON, nil}, {[]string{"--log-format=json"}, nil}, {nil, []string{"KILN_LOG_FORMAT=json"}}} {
			if slices.Contains(tc.environ, "KILN_LOG_FORMAT=json") {
				how.args = nil // the command has no such flag
			}
			var stdout, stderr bytes.Buffer
			code := run(&env{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, getenv: slices.Concat([]string{onRef}, tc.environ, how.environ), ctx: t.Context()}, slices.Concat(tc.args[:1], how.args, tc.args[1:]))
			if lines := jsonLog(t, stderr.String()); code != tc.want.Code || len(lines) != 1 || lines[0] != tc.want {
				t.Errorf("%v %v: exit code %d, standard error %s, want %+v", tc.args, how, code, stderr.String(), tc.want)
			}
		}
	}
	for _, tc := range []struct {
		args, environ []string
		want          string
	}{
		{[]string{"-v", "--quiet"}, nil, "--verbose, --quiet: one of them"},
		{nil, []string{"KILN_VERBOSE=true", "KILN_QUIET=true"}, "KILN_VERBOSE, KILN_QUIET: one of them"},
		{[]string{"--log-format", "xml"}, nil, `--log-format: unknown form "xml": want text or json`},
	} {
		kilnWith(t, tc.environ, "", append([]string{"run", "--model", tinyModel, "--prompt", "x"}, tc.args...)...).failed(t, exitUsage, tc.want)
	}
}

// What other flags ask for is written at every level, as objects where those are asked
// for; lines that are objects stay what they are.
func TestLogLines(t *testing.T) {
	var b bytes.Buffer
	j := &jsonLines{log: newLogs(&b, levelVerbose, true), raw: &b}
	for _, part := range []string{"a ta", "ble\n{\"pass\":1}\n", "{no object\n", "not ended"} {
		if n, err := j.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("%q: %d bytes, error %v", part, n, err)
		}
	}
	want := `{"level":"INFO","msg":"a table"}` + "\n" + `{"pass":1}` + "\n" + `{"level":"INFO","msg":"{no object"}` + "\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	r := kilnWith(t, nil, twice, "opt", "--log-format", "json", "--quiet", "--time-passes", "--passes", "cse").ok(t)
	var told []string
	for _, l := range jsonLog(t, r.stderr) {
		told = append(told, strings.Fields(l.Msg)[0])
	}
	if want := []string{"pass", "fnuz-weights", "hoist-pack", "cse", "total"}; !slices.Equal(told, want) {
		t.Errorf("standard error %s, want lines of %v", r.stderr, want)
	}
}
