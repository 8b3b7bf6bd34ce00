package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
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

// refuse marks an error as a refusal; nil stays nil.
func refuse(err error, hint string) error {
	if err == nil {
		return nil
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
	log     *slog.Logger
}

// Main runs the command line of this process and returns the exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(&env{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Environ(), ctx: ctx, started: time.Now()}, os.Args[1:])
}

func run(e *env, args []string) int {
	e.log = slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{
		// A log line depends on what happened, not on when.
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	root := newRoot(e)
	root.SetArgs(args)
	err := checkEnvironment(e)
	if err == nil {
		err = root.ExecuteContext(e.ctx)
	}
	if err == nil {
		return exitOK
	}
	code, hint := exitFailed, ""
	var c *codedError
	if errors.As(err, &c) {
		code, hint = c.code, c.hint
	}
	fmt.Fprintf(e.stderr, "kiln: %s\n", strings.ReplaceAll(err.Error(), "\n", "\n  "))
	if hint != "" {
		fmt.Fprintf(e.stderr, "  try: %s\n", hint)
	}
	return code
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
	root.SetHelpCommand(&cobra.Command{Use: "no-help", Hidden: true, RunE: func(*cobra.Command, []string) error {
		return usagef("kiln --help", "unknown command")
	}})
	for _, c := range commands {
		root.AddCommand(c.build(e))
	}
	return root
}

func noArgs(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		if name == "kiln" {
			return usagef("kiln --help", "unknown command %q", args[0])
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
	run   func(e *env, f *flags, args []string) error
}

// commands is the table of commands, in the order of --help.
var commands = []command{
	{name: "run", short: "generate text with a model", long: runHelp, run: runRun},
	{name: "logits", short: "write teacher-forced logits", long: logitsHelp, run: runLogits},
	{name: "tokenize", short: "turn standard input into token ids", long: tokenizeHelp, run: runTokenize},
	{name: "compare", args: "A.safetensors B.safetensors", short: "compare tensors of two files", long: compareHelp, nargs: 2, run: runCompare},
	{name: "dump", short: "print a graph as .kir text", long: dumpHelp, run: runDump},
	{name: "version", short: "print the version", long: "Prints the version of kiln and of the Go toolchain that built it.", run: runVersion},
}

func (c command) build(e *env) *cobra.Command {
	use := c.name
	if c.args != "" {
		use += " " + c.args
	}
	cc := &cobra.Command{Use: use, Short: c.short, Long: c.long, DisableFlagsInUseLine: false}
	f := newFlags(c.name, cc.Flags())
	cc.Args = noArgs(c.name)
	if c.nargs > 0 {
		cc.Args = func(_ *cobra.Command, args []string) error {
			if len(args) != c.nargs {
				return usagef("kiln "+c.name+" --help", "%s takes %d arguments (%s), got %d", c.name, c.nargs, c.args, len(args))
			}
			return nil
		}
	}
	cc.RunE = func(_ *cobra.Command, args []string) error {
		if err := f.readEnvironment(e.getenv); err != nil {
			return err
		}
		if err := f.required(); err != nil {
			return err
		}
		return c.run(e, f, args)
	}
	return cc
}
