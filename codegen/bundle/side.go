package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/kiln-project/kiln/codegen/plan"
)

// Side is code that a bundle holds beside the plans of a target, in a folder of its
// own. It has the weights of the plans, or some of them.
type Side struct {
	Module *plan.Module
	Plans  [][]byte // as of Code
	Object []byte
	Graphs string // .kir text: of probes
}

// Names in graphs of probes. A probe is a graph of one fused op; its plan is followed by
// that of the same op decomposed.
const (
	ProbeFirst  = "first"  // an input: the first result of the fused op
	ProbeScores = "scores" // an output: what a choice is made of
)

// ProbeResult is the output that is result i of the op.
func ProbeResult(i int) string { return fmt.Sprintf("r%d", i) }

// Folders of sides.
const (
	unfusedFolder = "unfused/"
	probesFolder  = "probes/"
	graphsName    = "graphs.kir"
)

func (s *Side) encode(folder string) (Files, error) {
	if s == nil {
		return nil, nil
	}
	files, err := (&Code{Module: s.Module, Plans: s.Plans, Object: s.Object}).Encode()
	if s.Graphs != "" {
		files = append(files, File{Name: graphsName, Data: []byte(s.Graphs)})
	}
	for i := range files {
		files[i].Name = folder + files[i].Name
	}
	return files, err
}

// side reads what is in a folder, nil if there is nothing. All of its weights must be
// those of the plans: they are bound once.
func (f Files) side(folder, target string, of *plan.Module) (*Side, error) {
	var in Files
	for _, x := range f {
		if name, ok := strings.CutPrefix(x.Name, folder); ok {
			x.Name = name
			in = append(in, x)
		}
	}
	if in == nil {
		return nil, nil
	}
	c, err := in.decodeCode(target)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	s := &Side{Module: c.Module, Object: c.Object}
	text, err := in.Get(graphsName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	s.Graphs = string(text)
	have := map[string]plan.Storage{}
	for _, w := range of.Weights {
		have[w.Name] = w
	}
	for _, w := range s.Module.Weights {
		if have[w.Name] != w {
			return nil, fmt.Errorf("%s: weight %s is not that of the plans", folder, w.Name)
		}
	}
	return s, nil
}

// sides adds what the files hold beside the plans.
func (c *Code) sides(f Files, target string) error {
	var err, failed error
	c.Unfused, err = f.side(unfusedFolder, target, c.Module)
	c.Probes, failed = f.side(probesFolder, target, c.Module)
	return errors.Join(err, failed)
}
