package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
)

// logCommands have something to say beside their result: all that log flags go with.
var logCommands = []string{"run", "logits", "check", "opt", "explain", "bisect", "compile", "inspect", "plan", "bench", "tune", "launch", "view"}

// logs is standard error: what is said by log/slog, as text or as lines of JSON.
type logs struct {
	*slog.Logger
	level slog.Level
	json  bool
	// before, if set, clears what is shown on a terminal.
	before func()
}

// Levels of what is said: --quiet leaves errors, -v adds what was tried and chosen.
const (
	levelQuiet   = slog.LevelError
	levelDefault = slog.LevelInfo
	levelVerbose = slog.LevelDebug
)

func newLogs(w io.Writer, level slog.Level, asJSON bool) *logs {
	l := &logs{level: level, json: asJSON}
	var h slog.Handler = &textHandler{w, l}
	if asJSON {
		h = slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: withoutTime})
	}
	l.Logger = slog.New(h)
	return l
}

// withoutTime: equal runs write equal lines.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// textHandler writes messages for people: one line each, and what to try after an
// error. Other attributes are in the messages already.
type textHandler struct {
	w    io.Writer
	logs *logs
}

// tryKey is the attribute of an error that says what to try.
const tryKey = "try"

func (h *textHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.logs.level }

func (h *textHandler) Handle(_ context.Context, r slog.Record) error {
	if h.logs.before != nil {
		h.logs.before()
	}
	text := r.Message + "\n"
	if r.Level >= slog.LevelError {
		text = "kiln: " + text
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == tryKey {
				text += "  try: " + a.Value.String() + "\n"
			}
			return true
		})
	}
	_, err := io.WriteString(h.w, text)
	return err
}

// WithAttrs and WithGroup implement slog.Handler.
func (h *textHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *textHandler) WithGroup(string) slog.Handler      { return h }

// jsonLines makes a line of JSON of each line that is written, unless it is one, at
// every level: it is what another flag asks for.
type jsonLines struct {
	log *logs // of all levels
	raw io.Writer

	mu   sync.Mutex
	rest []byte // of a line that is not complete
}

func (j *jsonLines) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rest = append(j.rest, p...)
	for {
		line, rest, found := bytes.Cut(j.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		j.rest = rest
		if err := j.line(line); err != nil {
			return 0, err
		}
	}
}

func (j *jsonLines) line(line []byte) error {
	if bytes.HasPrefix(line, []byte("{")) && json.Valid(line) {
		_, err := j.raw.Write(append(line, '\n'))
		return err
	}
	j.log.Info(strings.TrimRight(string(line), " "))
	return nil
}

// asksForJSON looks for --log-format json where the command line is not read yet, and
// may be wrong.
func asksForJSON(args, environ []string) bool {
	format := flagDef{name: "log-format"}
	asked := slices.Contains(environ, format.env()+"=json")
	for i, a := range args {
		value, found := strings.CutPrefix(a, "--"+format.name+"=")
		if a == "--"+format.name && i+1 < len(args) {
			value, found = args[i+1], true
		}
		if found {
			asked = value == "json"
		}
	}
	return asked
}

// setLogs reads -v, --quiet and --log-format for the rest of the command.
func (e *env) setLogs(f *flags) error {
	level := levelDefault
	verbose, quiet := f.boolean("verbose"), f.boolean("quiet")
	if verbose && quiet { // a flag wins over a variable
		switch {
		case f.fromEnv["verbose"] == f.fromEnv["quiet"]:
			return usagef("-v, or --quiet", "%s: one of them", f.origins("verbose", "quiet"))
		case f.fromEnv["verbose"]:
			verbose = false
		default:
			quiet = false
		}
	}
	switch {
	case verbose:
		level = levelVerbose
	case quiet:
		level = levelQuiet
	}
	asJSON := false
	switch format := f.text("log-format"); format {
	case "", "text":
	case "json":
		asJSON = true
	default:
		return usagef("--log-format json", "%s: unknown form %q: want text or json", f.origins("log-format"), format)
	}
	raw := e.stderr
	e.log = newLogs(raw, level, asJSON)
	if asJSON {
		e.stderr = &jsonLines{log: newLogs(raw, levelVerbose, true), raw: raw}
	}
	return nil
}

// debugf tells with -v what was tried and chosen.
func (e *env) debugf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	switch {
	case e.held != nil:
		*e.held = append(*e.held, text)
	case e.log != nil:
		e.log.Debug(text)
	}
}

// deviceFirst chooses a device. With -v the line on it is the first one, and what was
// tried on the way to it follows.
func (e *env) deviceFirst(choose func() (device, error)) (device, error) {
	var tried []string
	e.held = &tried
	d, err := choose()
	e.held = nil
	if err == nil && e.log != nil && e.log.level == levelVerbose {
		for _, line := range d.lines() {
			e.log.Info(line)
		}
		d.told = true
	}
	for _, line := range tried {
		e.debugf("%s", line)
	}
	return d, err
}

// tellBuild says with -v what came from the cache.
func (e *env) tellBuild(f *flags, target string, st codegen.Stats) {
	what := "plans made"
	if st.WholeHit {
		what = "plans too"
	}
	dir, err := cacheDir(f)
	if err != nil {
		dir = err.Error()
	}
	e.debugf("%s: %d of %d kernels from the cache, %s (%s)", target, st.Cached, st.Kernels, what, dir)
	if st.Choices > 0 {
		e.debugf("%s: %d choices by the target's table, %d by the cost model", target, st.Choices-st.Modelled, st.Modelled)
	}
}

// tellPasses says with -v which passes and kernel forms are off, or set otherwise.
func (e *env) tellPasses(p *bundle.Passes) {
	list := describePasses(p)
	if len(list) == 0 {
		e.debugf("passes: the default pipeline")
	}
	for _, x := range list {
		e.debugf("passes: --%s %s", x.flag, x.value)
	}
}

// notef tells what is good to know, unless --quiet.
func (e *env) notef(format string, args ...any) {
	if e.log != nil {
		e.log.Info(fmt.Sprintf(format, args...))
	}
}
