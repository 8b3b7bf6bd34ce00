package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
)

// Code is what a bundle holds for one target.
type Code struct {
	Module *plan.Module
	// Plans, if not nil, are the module's plans as AppendPlan wrote them, which then has
	// none itself: many plans take much less memory so.
	Plans  [][]byte
	Object []byte
	Pack   string // .kir text; "" if nothing is packed
	// What was compiled beside the plans, or nil.
	Unfused, Probes *Side
}

// PackGraph reads the pack graph, which engine.BindPack evaluates; nil if nothing
// is packed.
func (c *Code) PackGraph() (*ir.Graph, error) {
	if c.Pack == "" {
		return nil, nil
	}
	graphs, err := ir.Parse(packName, c.Pack)
	if err != nil {
		return nil, err
	}
	if len(graphs) != 1 {
		return nil, fmt.Errorf("%s: %d graphs, want one", packName, len(graphs))
	}
	return graphs[0], nil
}

const (
	moduleName = "module.json"
	packName   = "pack.kir"
	planPrefix = "plan-"
	emitFolder = "ir/"
)

// AppendPlan appends a plan's file.
func AppendPlan(b []byte, p *plan.Plan) []byte { return append(p.AppendJSON(b), '\n') }

// Encode makes the files. Equal code gives equal bytes.
func (c *Code) Encode() (Files, error) {
	module, err := marshal(c.Module)
	files := Files{{Name: ObjectName(c.Module.Target), Data: c.Object}, {Name: moduleName, Data: module}}
	errs := []error{err}
	if c.Pack != "" {
		files = append(files, File{Name: packName, Data: []byte(c.Pack)})
	}
	plans := c.Plans
	if plans == nil {
		for _, p := range c.Module.Plans {
			plans = append(plans, AppendPlan(nil, p))
		}
	}
	for i, data := range plans {
		files = append(files, File{Name: fmt.Sprintf("%s%03d.json", planPrefix, i), Data: data})
	}
	for _, s := range []struct {
		folder string
		side   *Side
	}{{unfusedFolder, c.Unfused}, {probesFolder, c.Probes}} {
		more, err := s.side.encode(s.folder)
		errs = append(errs, err)
		files = append(files, more...)
	}
	return files, errors.Join(errs...)
}

// Emit adds a file that people read and nothing runs.
func (f Files) Emit(name string, data []byte) Files {
	return append(f, File{Name: emitFolder + name, Data: data})
}

// DecodeModule reads the module without its plans.
func (f Files) DecodeModule(target string) (*plan.Module, error) {
	data, err := f.Get(moduleName)
	if err != nil {
		return nil, err
	}
	m := &plan.Module{}
	if err := decode(moduleName, data, m); err != nil {
		return nil, err
	}
	if m.Target != target {
		return nil, fmt.Errorf("%s: is for %s, not %s", moduleName, m.Target, target)
	}
	return m, nil
}

// Decode reads the files and checks every plan.
func (f Files) Decode(target string) (*Code, error) {
	c, err := f.decodeCode(target)
	if err != nil {
		return nil, err
	}
	return c, c.sides(f, target)
}

// decodeCode reads the plans and their code.
func (f Files) decodeCode(target string) (*Code, error) {
	m, err := f.DecodeModule(target)
	if err != nil {
		return nil, err
	}
	c := &Code{Module: m}
	if c.Object, err = f.Get(ObjectName(target)); err != nil {
		return nil, err
	}
	pack, err := f.Get(packName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	c.Pack = string(pack)
	for _, x := range f {
		if !strings.HasPrefix(x.Name, planPrefix) {
			continue
		}
		if x.Data, err = x.content(); err != nil {
			return nil, err
		}
		p := &plan.Plan{}
		if err := decode(x.Name, x.Data, p); err != nil {
			return nil, err
		}
		m.Plans = append(m.Plans, p)
	}
	if len(m.Plans) == 0 {
		return nil, errors.New("no plans")
	}
	return c, m.Check()
}

func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return buf.Bytes(), err
}
