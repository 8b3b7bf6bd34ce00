package cli

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func TestFlagTable(t *testing.T) {
	names := map[string]bool{}
	for _, c := range commands {
		names[c.name] = true
		seen := map[string]bool{"help": true}
		for _, d := range flagsOf(c.name) {
			if seen[d.name] {
				t.Errorf("%s: --%s is in the table twice", c.name, d.name)
			}
			seen[d.name] = true
		}
	}
	form := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	byEnv := map[string]string{}
	for _, d := range flagTable {
		if !form.MatchString(d.name) {
			t.Errorf("--%s is not of the form x-y", d.name)
		}
		if want := "KILN_" + strings.ToUpper(strings.ReplaceAll(d.name, "-", "_")); d.env() != want {
			t.Errorf("--%s reads %s, want %s", d.name, d.env(), want)
		}
		if other, ok := byEnv[d.env()]; ok && other != d.name {
			t.Errorf("--%s and --%s both read %s", d.name, other, d.env())
		}
		byEnv[d.env()] = d.name
		if d.doc == "" || strings.HasSuffix(d.doc, ".") || unicode.IsUpper(rune(d.doc[0])) && !strings.HasPrefix(d.doc, "MTP") {
			t.Errorf("--%s: doc %q is not a phrase", d.name, d.doc)
		}
		if len(d.doc) > 100 {
			t.Errorf("--%s: doc has %d characters, more than a line", d.name, len(d.doc))
		}
		_, isBool := d.def.(bool)
		if isBool != (d.arg == "") {
			t.Errorf("--%s: default of type %T and placeholder %q", d.name, d.def, d.arg)
		}
		if d.required && !reflect.ValueOf(d.def).IsZero() {
			t.Errorf("--%s is required and has the default %v", d.name, d.def)
		}
		if len(d.commands) == 0 {
			t.Errorf("--%s belongs to no command", d.name)
		}
		for _, c := range d.commands {
			if !names[c] {
				t.Errorf("--%s belongs to %q, which is no command", d.name, c)
			}
		}
	}
}

// Every accessor reads the flags of its type, by the table's default.
func TestFlagDefaults(t *testing.T) {
	for _, c := range commands {
		f := newFlags(c.name, pflag.NewFlagSet(c.name, pflag.ContinueOnError))
		for _, d := range f.defs {
			var got any
			switch d.def.(type) {
			case string:
				got = f.text(d.name)
			case []string:
				got = f.list(d.name)
			case repeated:
				got = repeated(f.repeated(d.name))
			case int:
				got = f.number(d.name)
			case uint64:
				got = f.seed(d.name)
			case float64:
				got = f.float(d.name)
			case bool:
				got = f.boolean(d.name)
			}
			if !reflect.DeepEqual(got, d.def) || f.given(d.name) {
				t.Errorf("%s --%s: default %v, given %v; the table says %v", c.name, d.name, got, f.given(d.name), d.def)
			}
		}
	}
}

// parsed are a command's flags with a command line read.
func parsed(command string, args ...string) (*flags, error) {
	set := pflag.NewFlagSet(command, pflag.ContinueOnError)
	f := newFlags(command, set)
	return f, set.Parse(args)
}

func TestFlagPrecedence(t *testing.T) {
	for _, tc := range []struct {
		name    string
		args    []string
		environ []string
		want    []string // --prompt, --top-k, origin of --top-k
	}{
		{"default", nil, nil, []string{"", "0", ""}},
		{"environment", nil, []string{"KILN_TOP_K=3", "KILN_PROMPT=a=b"}, []string{"a=b", "3", "KILN_TOP_K"}},
		{"command line wins", []string{"--top-k", "4"}, []string{"KILN_TOP_K=3"}, []string{"", "4", "--top-k"}},
		{"even over nonsense", []string{"--top-k=4"}, []string{"KILN_TOP_K=many"}, []string{"", "4", "--top-k"}},
		{"the default on the command line wins", []string{"--top-k=0"}, []string{"KILN_TOP_K=3"}, []string{"", "0", "--top-k"}},
		{"other variables", nil, []string{"TOP_K=3", "KILNTOP_K=3", "kiln_top_k=3"}, []string{"", "0", ""}},
		{"a variable without =", nil, []string{"KILN_PROMPT"}, []string{"", "0", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := parsed("run", tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.readEnvironment(tc.environ); err != nil {
				t.Fatal(err)
			}
			got := []string{f.text("prompt"), f.text("top-k"), f.origins("top-k")}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestFlagGroups(t *testing.T) {
	for _, tc := range []struct {
		name    string
		args    []string
		environ []string
		want    string // the flag chosen, or the count in the error
	}{
		{"none", nil, nil, "got 0"},
		{"one", []string{"--prompt", ""}, nil, "prompt"},
		{"one from the environment", nil, []string{"KILN_CHAT=f"}, "chat"},
		{"command line over environment", []string{"--prompt", "x"}, []string{"KILN_CHAT=f", "KILN_PROMPT_IDS=1"}, "prompt"},
		{"two", []string{"--prompt", "x", "--prompt-ids", "1"}, nil, "got 2"},
		{"two from the environment", nil, []string{"KILN_CHAT=f", "KILN_PROMPT=x"}, "got 2"},
		{"three", []string{"--prompt", "x", "--prompt-ids", "1", "--chat", "f"}, nil, "got 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := parsed("run", tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.readEnvironment(tc.environ); err != nil {
				t.Fatal(err)
			}
			got, err := f.oneOf("prompt", "prompt-ids", "chat")
			if err != nil {
				got = err.Error()
			}
			if got != tc.want && !(err != nil && strings.HasSuffix(got, "--prompt, --prompt-ids, --chat, "+tc.want)) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	r := kiln(t, "--help").ok(t)
	if r.stderr != "" {
		t.Errorf("standard error is %q, want nothing", r.stderr)
	}
	at := 0
	for _, c := range commands {
		line := fmt.Sprintf("\n  %-9s %s\n", c.name, c.short)
		i := strings.Index(r.stdout, line)
		if i < at {
			t.Errorf("the help lacks %q, or has it out of order:\n%s", line, r.stdout)
		}
		at = i
	}
	for _, c := range commands {
		for _, flag := range []string{"--help", "-h"} {
			r := kilnWith(t, []string{"KILN_TOP_K=many"}, "", c.name, flag).ok(t)
			if r.stderr != "" {
				t.Errorf("%s %s: standard error is %q, want nothing", c.name, flag, r.stderr)
			}
			want := []string{"usage: kiln " + c.name, c.args, c.long}
			for _, d := range flagsOf(c.name) {
				want = append(want, "--"+d.name, d.env(), d.arg, d.doc)
			}
			for _, w := range want {
				if !strings.Contains(r.stdout, w) {
					t.Errorf("%s %s: %q is not in\n%s", c.name, flag, w, r.stdout)
				}
			}
			for _, line := range strings.Split(r.stdout, "\n") {
				if len(line) > 106 {
					t.Errorf("%s %s: line of %d characters: %s", c.name, flag, len(line), line)
				}
			}
		}
	}
}

func TestHelpOfRun(t *testing.T) {
	r := kiln(t, "run", "--help").ok(t)
	for _, want := range []string{
		"usage: kiln run [flags]\n",
		"  --model DIR                (KILN_MODEL, required)\n      model folder",
		"  --max-new-tokens N         (KILN_MAX_NEW_TOKENS, default 128)\n      new tokens at most\n",
		"  --temperature T            (KILN_TEMPERATURE)\n",
		"  --json                     (KILN_JSON)\n",
	} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q is not in\n%s", want, r.stdout)
		}
	}
	if got := kiln(t, "version", "--help").ok(t).stdout; got != "usage: kiln version\n\n"+commands[len(commands)-1].long+"\n" {
		t.Errorf("help of a command without flags: %q", got)
	}
}

// The command lines of the README, and those that make run ends with, use commands
// and flags that exist.
func TestShownCommands(t *testing.T) {
	text := string(readFile(t, "../../../README.md")) + string(readFile(t, "../../../scripts/next.sh"))
	text = strings.ReplaceAll(text, "\\\n", " ")
	used := map[string]bool{}
	flag := regexp.MustCompile(`--[a-z-]+`)
	for _, line := range strings.Split(text, "\n") {
		_, rest, ok := strings.Cut(line, "bin/kiln ")
		if !ok {
			continue
		}
		name, rest, _ := strings.Cut(strings.TrimRight(rest, "'"), " ")
		if !slices.ContainsFunc(commands, func(c command) bool { return c.name == name }) {
			t.Errorf("%s: no command %q", line, name)
		}
		used[name] = true
		rest, _, _ = strings.Cut(rest, "#")
		for _, f := range flag.FindAllString(rest, -1) {
			if !slices.ContainsFunc(flagsOf(name), func(d flagDef) bool { return "--"+d.name == f }) {
				t.Errorf("%s: %s has no flag %s", line, name, f)
			}
		}
	}
	if len(used) < 3 {
		t.Errorf("the README shows only %v", used)
	}
}

func FuzzParseIDs(f *testing.F) {
	for _, s := range []string{"", "1,2,3", "[1, 2, 3]", " 7 ", "[]", "[1", "1]", "-1", "2147483647", "2147483648", "1,,2", "0x10", "+5", "1\n2\t3\r\n", "１", "1_000", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ids, err := parseIDs(s)
		if err != nil {
			if ids != nil {
				t.Fatalf("%q: ids %v beside error %v", s, ids, err)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q: the error has more than one line: %v", s, err)
			}
			return
		}
		again, err := parseIDs(fmt.Sprint(ids))
		if err != nil || !slices.Equal(ids, again) {
			t.Fatalf("%q: %v reads back as %v, %v", s, ids, again, err)
		}
	})
}

func TestParseIDs(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []int32
		err  string
	}{
		{"1,2,3", []int32{1, 2, 3}, ""},
		{"[1, 2,\n 3]\n", []int32{1, 2, 3}, ""},
		{"1 2\t3\r\n", []int32{1, 2, 3}, ""},
		{"-1", []int32{-1}, ""}, // the vocabulary decides, by name
		{"", nil, "no ids"},
		{"[]", nil, "no ids"},
		{",", nil, "no ids"},
		{"1,x", nil, `id 1: "x" is not a 32-bit integer`},
		{"1.5", nil, `id 0: "1.5" is not a 32-bit integer`},
		{"2147483648", nil, `id 0: "2147483648" is not a 32-bit integer`},
		{"[1,2", nil, `id 0: "[1" is not a 32-bit integer`},
		{"0x10", nil, `id 0: "0x10" is not a 32-bit integer`},
	} {
		got, err := parseIDs(tc.text)
		if diff := cmp.Diff(tc.want, got); diff != "" || tc.err != errText(err) {
			t.Errorf("parseIDs(%q) = %v, %v; want %v, %q", tc.text, got, err, tc.want, tc.err)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// The environment is read in one place.
func TestEnvironmentIsReadInOnePlace(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`os\.(Getenv|LookupEnv|Environ|ExpandEnv)\(`)
	for _, file := range files {
		if strings.HasSuffix(file.Name(), "_test.go") || !strings.HasSuffix(file.Name(), ".go") {
			continue
		}
		n := len(call.FindAll(readFile(t, file.Name()), -1))
		if want := map[string]int{"cli.go": 1}[file.Name()]; n != want {
			t.Errorf("%s reads the environment %d times, want %d", file.Name(), n, want)
		}
	}
}
