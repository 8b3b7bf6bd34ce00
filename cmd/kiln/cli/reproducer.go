package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// reproduce says what to do about a pass that failed. Of a bug it leaves a file,
// beside the dumps or in the current folder, that shows it; the command that runs
// it is the hint. Other errors stay as they are.
func reproduce(f *flags, err error) error {
	var p *passes.Error
	var done *reproduced
	if !errors.As(err, &p) || errors.As(err, &done) {
		return err
	}
	if !p.Bug {
		if p.Pass == "select-kernels" && f.given("disable-kernel") && strings.Contains(err.Error(), "no kernel form") {
			return refuse(err, "leave "+f.origins("disable-kernel")+" out") // primitives have no decomposition to fall back on
		}
		if errors.Is(err, passes.ErrPacked) { // a file of graphs from before and after hoist-pack
			return &codedError{exitFailed, err, "kiln dump --model DIR --entry E, which has no pack graph yet; or leave @" + passes.PackGraph + " out of the file and its ops in the entries"}
		}
		return err
	}
	graphs, of := p.Given, "module"
	if p.Before != nil {
		graphs, of = []*ir.Graph{p.Before}, p.Before.Name
		if p.Pack != nil { // a pass may look at it
			graphs = append(graphs, p.Pack)
		}
	}
	if row, lerr := passes.Lookup(p.Pass); lerr != nil || p.Before == nil && row.On == passes.Steps {
		return err // no pass that opt runs
	}
	path := filepath.Join(f.text("dump-dir"), fmt.Sprintf("kiln-reproducer-%s-%s.kir", p.Pass, of))
	command := fmt.Sprintf("kiln opt %s --passes %s%s", path, p.Pass, passContext(p))
	var b strings.Builder
	fmt.Fprintf(&b, "// %s\n// pass %s: %s\n", commandLine(command), p.Pass, strings.ReplaceAll(p.Err.Error(), "\n", "\n// "))
	for _, call := range p.Stack {
		fmt.Fprintf(&b, "//   at %s\n", call)
	}
	for _, g := range graphs {
		b.WriteString(ir.Text(g))
	}
	if werr := os.WriteFile(path, []byte(b.String()), 0o644); werr != nil {
		return fmt.Errorf("%w (and no reproducer: %w)", err, werr)
	}
	return &codedError{exitFailed, &reproduced{err}, command}
}

// reproduced is an error that has its reproducer.
type reproduced struct{ error }

func (r *reproduced) Unwrap() error { return r.error }

// passContext are the flags that a pass's behaviour depends on.
func passContext(p *passes.Error) string {
	m := p.Module
	var b strings.Builder
	if m.Target.Name != "" {
		b.WriteString(" --target " + m.Target.Name)
	}
	var set []string
	for key, n := range m.Config.Set {
		set = append(set, fmt.Sprintf("%s=%d", key, n))
	}
	if slices.Sort(set); len(set) > 0 {
		b.WriteString(" --set " + strings.Join(set, ","))
	}
	if m.Config.VerifyEach {
		b.WriteString(" --verify-each")
	}
	return b.String()
}
