package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/host"
)

// graphs builds every entry.
func graphs(c Config) ([]*ir.Graph, error) {
	var out []*ir.Graph
	for _, entry := range Entries {
		g, err := Build(c, entry)
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

// openCompiler finds an LLVM: in dir or, if that is empty, in the usual places.
// The caller closes LLVM.
func openCompiler(ctx context.Context, dir string) (*codegen.Compiler, error) {
	tools, err := llvm.Find(ctx, llvm.FindOptions{Dir: dir})
	if err != nil {
		return nil, err
	}
	lc, err := llvm.New(ctx, tools, llvm.Options{})
	if err != nil {
		return nil, err
	}
	return &codegen.Compiler{Tools: tools, LLVM: lc}, nil
}

// compiled is the model for one target.
type compiled struct {
	files bundle.Files // as a bundle holds them
	code  *bundle.Code // the same, read
}

// compile runs the passes and makes native code.
func compile(ctx context.Context, cc *codegen.Compiler, c Config, targetName string) (*compiled, error) {
	t, err := target.Lookup(targetName)
	if err != nil {
		return nil, err
	}
	// Passes rewrite the module for a target, so each target starts from new graphs.
	m := &passes.Module{Target: t.ForPasses()}
	if m.Entries, err = graphs(c); err != nil {
		return nil, err
	}
	if err := passes.Run(m); err != nil {
		return nil, err
	}
	files, _, err := cc.Build(ctx, t, m, buckets(), codegen.Emit{})
	if err != nil {
		return nil, err
	}
	code, err := files.Decode(t.Name)
	return &compiled{files, code}, err
}

// open loads the code for this CPU into the process and binds weights to it. The
// pack graph is what is computed from weights and tables alone, once: here the
// rotary tables.
func open(code *bundle.Code, weights eval.WeightSource) (*device.Executor, error) {
	pack, err := code.PackGraph()
	if err != nil {
		return nil, err
	}
	packed, err := engine.BindPack(pack, weights)
	if err != nil {
		return nil, err
	}
	cpu, err := host.Open()
	if err != nil {
		return nil, err
	}
	return device.NewExecutor(context.Background(), cpu, code.Object, code.Module, packed, nil)
}

// summary says what was made.
func (m *compiled) summary() string {
	mod := m.code.Module
	text := fmt.Sprintf("%s: %d kernels, %d bytes of code;", mod.Target, len(mod.Kernels), len(m.code.Object))
	for i, p := range mod.Plans {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(" %s %d launches", p.Entry, len(p.Launches))
	}
	return text
}

// write saves the code of all targets as one bundle, for kiln inspect and for
// programs of your own (bundle.ReadManifest, then open); kiln run knows DeepSeek-V4
// models only.
func write(dir string, cc *codegen.Compiler, c Config, targets []*compiled) error {
	config, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	b := &bundle.Bundle{Config: append(config, '\n'), Code: map[string]bundle.Files{}, Manifest: bundle.Manifest{
		Format: bundle.Format, Kiln: "examples/custommodel", LLVM: cc.Tools.ID(), Model: "custommodel",
		Settings: bundle.Settings{Numerics: "bf16", Layers: c.Layers, MaxSeq: positions, Batch: []int{1}, Prefill: []int{chunk}},
	}}
	for _, m := range targets {
		name := m.code.Module.Target
		b.Code[name] = m.files
		b.Manifest.Targets = append(b.Manifest.Targets, name)
	}
	return b.Write(dir)
}
