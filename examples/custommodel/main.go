// Command custommodel is a small transformer of its own, not a DeepSeek-V4, on
// Kiln's packages: it builds the graphs (model.go), compiles them for this CPU and
// for an AMD gfx950 (compile.go), and writes a few tokens on this CPU (session.go)
// with made-up weights (weights.go), checking every step against the evaluator.
// README.md beside it explains the steps.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/host"
)

func main() {
	// LLVM runs in child processes of this program: a child is no more than that.
	llvm.MaybeServeWorker(os.Args)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "custommodel:", err)
		os.Exit(1)
	}
}

const weights = Random(1)

// gpu is compiled for; nothing here executes its code.
const gpu = "gfx950"

func run(ctx context.Context, args []string, w io.Writer) error {
	f := flag.NewFlagSet("custommodel", flag.ContinueOnError)
	show := f.Bool("print", false, "print the graph of prefill and end")
	out := f.String("o", "", "write the compiled model as a bundle, `DIR`.kiln")
	dir := f.String("llvm", "", "`folder` of LLVM; empty: the usual places")
	prompt := f.String("prompt", "package main", "text to go on from")
	n := f.Int("tokens", 8, "how many tokens to write")
	f.SetOutput(w)
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if *prompt == "" || *n < 1 || len(*prompt)+*n-1 > positions {
		return fmt.Errorf("want a prompt, at least 1 token, and no more than %d positions", positions)
	}
	entries, err := graphs(tiny)
	if err != nil {
		return err
	}
	if *show {
		return ir.Print(w, entries[0])
	}

	cc, err := openCompiler(ctx, *dir)
	if err != nil {
		return err
	}
	defer cc.LLVM.Close()
	cpu, err := host.Target()
	if err != nil {
		return err
	}
	var all []*compiled
	for _, name := range []string{cpu, gpu} {
		m, err := compile(ctx, cc, tiny, name)
		if err != nil {
			return err
		}
		all = append(all, m)
		fmt.Fprintln(w, m.summary())
	}
	fmt.Fprintf(w, "The code for %s was compiled and read back; it was not executed.\n", gpu)
	if *out != "" {
		if err := write(*out, cc, tiny, all); err != nil {
			return err
		}
	}

	device, err := open(all[0].code, weights)
	if err != nil {
		return err
	}
	defer device.Close()
	// The evaluator runs the graphs as they were built, before any pass.
	oracle, err := engine.NewRef(entries, nil, weights)
	if err != nil {
		return err
	}
	return compare(w, device, oracle, *prompt, *n)
}
