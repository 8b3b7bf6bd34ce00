package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/runtime/weights"
)

// Exit codes of every command.
const (
	exitOK      = 0
	exitFailed  = 1 // something went wrong: a file, a device, an internal error
	exitUsage   = 2 // the command line or a KILN_ variable is wrong
	exitRefused = 3 // understood, and not supported or not allowed
	exitCheck   = 4 // a comparison or check did not hold
)

// codedError carries the exit code, and optionally what to try next.
type codedError struct {
	code int
	err  error
	hint string
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

func usagef(hint, format string, args ...any) error {
	return &codedError{exitUsage, fmt.Errorf(format, args...), hint}
}

// refuse marks an error as a refusal; nil stays nil. Text that is not JSON was
// not understood, so it stays a failure.
func refuse(err error, hint string) error {
	if syntax := (*json.SyntaxError)(nil); err == nil || errors.As(err, &syntax) {
		return err
	}
	return &codedError{exitRefused, err, hint}
}

// env is what a command may use of the world outside.
type env struct {
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer
	getenv  []string // KEY=VALUE, as os.Environ gives
	ctx     context.Context
	started time.Time
	log     *logs // what stderr is written by
	// held are lines of -v that wait for the line on the device; nil: none wait.
	held *[]string
	// replaced is what runs in place of what start-up checks found wrong.
	replaced []string
}

// variable is an environment variable that other programs define; kiln's own are
// flags.
func (e *env) variable(name string) string {
	for _, kv := range slices.Backward(e.getenv) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// program is the name of this program in command lines that it prints: passes of a
// program of one's own are in that program alone.
var program = "kiln"

// commandLine has this program's name in a command line that is written as kiln's.
func commandLine(text string) string {
	if rest, ok := strings.CutPrefix(text, "kiln "); ok {
		return program + " " + rest
	}
	return text
}

// Main runs the command line of this process and returns the exit code. A program
// of one's own registers its passes, ops and kernel forms, then calls it; LLVM's
// workers are children of that program, and Main serves them too.
func Main() int {
	llvm.MaybeServeWorker(os.Args) // first: a worker is no command
	program = filepath.Base(os.Args[0])
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return run(&env{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Environ(), ctx: ctx, started: time.Now()}, os.Args[1:])
}

func run(outside *env, args []string) int {
	e := *outside
	out := &output{w: e.stdout}
	e.stdout = out
	e.log = newLogs(e.stderr, levelDefault, asksForJSON(args, e.getenv))
	err := execute(&e, args)
	if err == nil {
		err = out.err
	}
	if err == nil {
		return exitOK
	}
	return tell(e.log, err)
}

// tell says an error, with what to try next, and returns its exit code.
func tell(log *logs, err error) int {
	code, hint := exitFailed, ""
	var c *codedError
	var unsupported *weights.UnsupportedError
	if errors.As(err, &c) {
		code, hint = c.code, c.hint
	} else if errors.As(err, &unsupported) {
		code = exitRefused
	}
	attrs := []any{"code", code}
	if hint != "" {
		attrs = append(attrs, tryKey, commandLine(hint))
	}
	log.Error(oneLine(err), attrs...)
	return code
}

func execute(e *env, args []string) error {
	if err := checkEnvironment(e); err != nil {
		return err
	}
	// Cobra's hidden completion commands read variables of their own.
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		return unknownCommand(args[0])
	}
	root := newRoot(e)
	root.SetArgs(slices.Concat([]string{}, spelled(args))) // cobra takes nil for the arguments of the process
	var helpErr error
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { helpErr = showHelp(e, c) })
	if err := root.ExecuteContext(e.ctx); err != nil {
		return err
	}
	return helpErr
}

// spelled has the two spellings that other programs have taught: kiln help COMMAND is
// kiln COMMAND --help, and kiln --version is kiln version.
func spelled(args []string) []string {
	switch {
	case len(args) > 0 && args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case len(args) == 1 && args[0] == "--version":
		return []string{"version"}
	}
	return args
}

// oneLine is the text of an error on one line. Of several joined errors it is
// the first, with their number.
func oneLine(err error) string {
	text := err.Error()
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	var many interface{ Unwrap() []error }
	if errors.As(err, &many) {
		if all := fmt.Sprint(many); strings.Contains(all, "\n") {
			first := fmt.Sprintf("%v (and %d more)", many.Unwrap()[0], len(many.Unwrap())-1)
			text = strings.Replace(text, all, first, 1)
		}
	}
	return strings.ReplaceAll(text, "\n", `\n`)
}

// output is standard output. It keeps the first error, so that no result is lost
// in silence.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(p)
	if err != nil {
		o.err = fmt.Errorf("standard output: %w", err)
	}
	return n, o.err
}

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:           "kiln",
		Short:         "compile, inspect and run DeepSeek-V4 models",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs("kiln"),
		RunE: func(*cobra.Command, []string) error {
			return usagef("kiln --help", "no command given")
		},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.SetIn(e.stdin)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef(c.CommandPath()+" --help", "%v", err)
	})
	// Cobra adds a help command unless there is one; spelled has it done.
	root.SetHelpCommand(&cobra.Command{Use: "help", Hidden: true, RunE: func(c *cobra.Command, _ []string) error {
		return unknownCommand(c.CalledAs())
	}})
	for _, c := range commands {
		root.AddCommand(c.build(e))
	}
	return root
}

func unknownCommand(name string) error {
	return usagef("kiln --help", "unknown command %q", name)
}

func noArgs(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		if name == "kiln" {
			return unknownCommand(args[0])
		}
		return usagef("kiln "+name+" --help", "%s takes no arguments, got %q", name, args[0])
	}
}

// command is one row of the command table.
type command struct {
	name  string
	args  string // after the name in the usage line
	short string
	long  string
	nargs int
	// optional: the argument may be left out.
	optional bool
	run      func(e *env, f *flags, args []string) error
}

// commands is the table of commands, in the order of --help.
var commands = []command{
	{name: "run", short: "generate text with a model", long: runHelp, run: runRun},
	{name: "logits", short: "write teacher-forced logits", long: logitsHelp, run: runLogits},
	{name: "tokenize", short: "turn standard input into token ids", long: tokenizeHelp, run: runTokenize},
	{name: "compare", args: "A.safetensors B.safetensors", short: "compare tensors of two files", long: compareHelp, nargs: 2, run: runCompare},
	{name: "dump", short: "print a graph as .kir text", long: dumpHelp, run: runDump},
	{name: "check", args: "[FILE.kir]", short: "compare passes and kernels with the evaluator", long: checkHelp, nargs: 1, optional: true, run: runCheck},
	{name: "opt", args: "[FILE.kir|-]", short: "run passes on a .kir text", long: optHelp, nargs: 1, optional: true, run: runOpt},
	{name: "passes", short: "list passes, thresholds and kernel forms", long: passesHelp, run: runPasses},
	{name: "explain", short: "say what the passes did to each layer, and what it saved", long: explainHelp, run: runExplain},
	{name: "bisect", short: "find the pass application that breaks a command", long: bisectHelp, run: runBisect},
	{name: "compile", short: "compile a model to native code", long: compileHelp, run: runCompile},
	{name: "inspect", args: "FILE", short: "say what a code object holds", long: inspectHelp, nargs: 1, run: runInspect},
	{name: "plan", args: "BUNDLE", short: "say what a bundle takes of a device's memory", long: planHelp, nargs: 1, run: runPlan},
	{name: "bench", args: "BUNDLE", short: "time a bundle's steps and their kernels", long: benchHelp, nargs: 1, run: runBench},
	{name: "tune", short: "measure which way to run a kernel is the fastest", long: tuneHelp, run: runTune},
	{name: "launch", short: "run a kernel of a code object on an emulated GPU", long: launchHelp, run: runLaunch},
	{name: "view", args: "[FILE.kir]", short: "write passes, plan and kernels as an HTML page", long: viewHelp, nargs: 1, optional: true, run: runView},
	{name: "cache", args: "clean", short: "remove cached kernels", long: cacheHelp, nargs: 1, run: runCache},
	{name: "doctor", short: "say what kiln finds on this machine", long: doctorHelp, run: runDoctor},
	{name: "version", short: "print the version", long: "Prints the version of kiln and of the Go toolchain that built it.", run: runVersion},
}

func (c command) build(e *env) *cobra.Command {
	use := c.name
	if c.args != "" {
		use += " " + c.args
	}
	cc := &cobra.Command{Use: use, Short: c.short, Long: c.long}
	f := newFlags(c.name, cc.Flags())
	cc.Args = noArgs(c.name)
	if c.nargs > 0 {
		cc.Args = func(_ *cobra.Command, args []string) error {
			if len(args) > c.nargs || len(args) < c.nargs && !c.optional {
				word := "arguments"
				if c.nargs == 1 {
					word = "argument"
				}
				return usagef("kiln "+c.name+" --help", "%s takes %d %s (%s), got %d", c.name, c.nargs, word, c.args, len(args))
			}
			return nil
		}
	}
	cc.RunE = func(_ *cobra.Command, args []string) error {
		if err := f.readEnvironment(e.getenv); err != nil {
			return err
		}
		if err := e.setLogs(f); err != nil {
			return err
		}
		if err := f.required(); err != nil {
			return err
		}
		return sanitized(e, reproduce(f, c.run(e, f, args)))
	}
	return cc
}
