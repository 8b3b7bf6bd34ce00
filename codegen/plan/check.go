package plan

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kiln-project/kiln/ir"
)

// Check validates a module that was read from files, its plans included: the
// version, and every slice inside the memory that it names.
func (m *Module) Check() error {
	if m.Version != Version {
		return fmt.Errorf("plans of version %d, this kiln reads %d: compile again", m.Version, Version)
	}
	if m.Block < 1 {
		return fmt.Errorf("groups of %d work-items", m.Block)
	}
	for _, list := range []struct {
		space Space
		s     []Storage
	}{{State, m.States}, {Weight, m.Weights}} {
		seen := map[string]bool{}
		for _, s := range list.s {
			data, scales, err := sizes(s.Type)
			if err != nil {
				return fmt.Errorf("%v %s: %w", list.space, s.Name, err)
			}
			if s.Bytes != [2]int64{data, scales} {
				return fmt.Errorf("%v %s: %s has %d bytes and %d of scales, not %d and %d", list.space, s.Name, s.Type, data, scales, s.Bytes[0], s.Bytes[1])
			}
			if seen[s.Name] {
				return fmt.Errorf("%v %s is declared twice", list.space, s.Name)
			}
			seen[s.Name] = true
		}
	}
	symbols := map[string]bool{}
	for _, k := range m.Kernels {
		if k.Symbol == "" || symbols[k.Symbol] {
			return fmt.Errorf("kernel %q is declared twice or has no name", k.Symbol)
		}
		symbols[k.Symbol] = true
		if k.Shared < 0 {
			return fmt.Errorf("kernel %s: %d bytes of shared memory", k.Symbol, k.Shared)
		}
	}
	if s := m.Step; s != nil && (s.Prologue < 0 || s.Prologue >= len(m.Kernels) || s.Epilogue < 0 || s.Epilogue >= len(m.Kernels)) {
		return fmt.Errorf("kernels %d and %d around a step, of %d", s.Prologue, s.Epilogue, len(m.Kernels))
	}
	for _, p := range m.Plans {
		if err := m.CheckPlan(p); err != nil {
			return err
		}
	}
	return nil
}

// CheckPlan validates one plan of the module: besides what Check says, that every
// slice of the arena lies in one value that its launch may use.
func (m *Module) CheckPlan(p *Plan) error {
	if err := m.checkPlan(p); err != nil {
		return fmt.Errorf("plan %s %v: %w", p.Entry, p.Binding, err)
	}
	return nil
}

func (m *Module) checkPlan(p *Plan) error {
	if p.Arena < 0 {
		return fmt.Errorf("arena of %d bytes", p.Arena)
	}
	has := map[int]bool{}
	for _, i := range p.States {
		if i < 0 || i >= len(m.States) || has[i] {
			return fmt.Errorf("state %d of %d is unknown or named twice", i, len(m.States))
		}
		has[i] = true
	}
	slice := func(s Slice) error {
		if s.Space == State && !has[s.Index] {
			return fmt.Errorf("the entry has no state %d", s.Index)
		}
		return m.checkSlice(s, p.Arena)
	}
	for _, list := range [][]Tensor{p.Inputs, p.Outputs} {
		seen := map[string]bool{}
		for _, t := range list {
			err := t.check(slice)
			if err == nil && seen[t.Name] {
				err = errors.New("is declared twice")
			}
			if err != nil {
				return fmt.Errorf("tensor %s: %w", t.Name, err)
			}
			seen[t.Name] = true
		}
	}
	for i, l := range p.Launches {
		if l.Kernel < 0 || l.Kernel >= len(m.Kernels) {
			return fmt.Errorf("launch %d: kernel %d of %d", i, l.Kernel, len(m.Kernels))
		}
		where := launchName{i, m.Kernels[l.Kernel].Symbol}
		for _, n := range l.Choices {
			if n < 0 || n >= len(m.Choices) {
				return fmt.Errorf("%s: choice %d of %d", where, n, len(m.Choices))
			}
		}
		if l.Grid < 1 {
			return fmt.Errorf("%s: grid %d", where, l.Grid)
		}
		params := m.Kernels[l.Kernel].Params
		if len(l.Args) != len(params) {
			return fmt.Errorf("%s: %d arguments, the kernel has %d parameters", where, len(l.Args), len(params))
		}
		for j, a := range l.Args {
			if a.Mode == "" && params[j] == "int" {
				continue
			}
			if a.Mode == "" {
				return fmt.Errorf("%s argument %d: an integer, the parameter is %s", where, j, params[j])
			}
			if err := slice(a.Buf); err != nil {
				return fmt.Errorf("%s argument %d: %w", where, j, err)
			}
			if a.Mode != Read && a.Mode != Write && a.Mode != Update {
				return fmt.Errorf("%s argument %d: mode %q", where, j, a.Mode)
			}
			if a.Buf.Space == Weight && a.Mode != Read {
				return fmt.Errorf("%s argument %d writes weight %s", where, j, m.Weights[a.Buf.Index].Name)
			}
			if err := a.fits(params[j]); err != nil {
				return fmt.Errorf("%s argument %d: %w", where, j, err)
			}
		}
	}
	return p.checkValues()
}

// launchName is how an error names a launch.
type launchName struct {
	number int
	symbol string
}

func (n launchName) String() string { return fmt.Sprintf("launch %d (%s)", n.number, n.symbol) }

func (m *Module) checkSlice(s Slice, arena int64) error {
	size := arena
	name := func() string { return "arena" }
	if s.Space != Arena {
		list := m.States
		if s.Space == Weight {
			list = m.Weights
		} else if s.Space != State {
			return fmt.Errorf("unknown memory %q", string(rune(s.Space)))
		}
		if s.Index < 0 || s.Index >= len(list) || s.Part < 0 || s.Part > 1 {
			return fmt.Errorf("no %v %d part %d", s.Space, s.Index, s.Part)
		}
		size = list[s.Index].Bytes[s.Part]
		name = func() string { return s.Space.String() + " " + list[s.Index].Name }
	}
	if s.Offset%Align != 0 {
		return fmt.Errorf("offset %d of %s is no multiple of %d", s.Offset, name(), Align)
	}
	if s.Offset < 0 || s.Bytes < 0 || s.Bytes > size || s.Offset > size-s.Bytes {
		return fmt.Errorf("bytes %d..%d are outside %s (%d bytes)", s.Offset, s.Offset+s.Bytes, name(), size)
	}
	return nil
}

// check finds a tensor whose slices are not its type's size.
func (t Tensor) check(slice func(Slice) error) error {
	data, scales, err := sizes(t.Type)
	if err != nil {
		return err
	}
	if t.Data.Bytes != data || (t.Scales == nil) != (scales == 0) || t.Scales != nil && t.Scales.Bytes != scales {
		return fmt.Errorf("%s needs %d bytes and %d of scales", t.Type, data, scales)
	}
	if err := slice(t.Data); err != nil || t.Scales == nil {
		return err
	}
	return slice(*t.Scales)
}

// fits reports a buffer that is not what a parameter asks for.
func (a Arg) fits(param string) error {
	if _, written := strings.CutPrefix(param, "="); param == "int" || written != (a.Mode != Read) {
		return fmt.Errorf("mode %s, the parameter is %s", a.Mode, param)
	}
	return nil
}

// sizes are the bytes of a type's data and block scales. Its extents are integers.
func sizes(text string) (data, scales int64, err error) {
	t, err := parse(text)
	if err != nil {
		return 0, 0, err
	}
	data, scales, ok := t.Bytes()
	if !ok {
		return 0, 0, fmt.Errorf("type %s has no size", text)
	}
	return data, scales, nil
}

// parse reads a type whose extents are integers.
func parse(text string) (ir.Type, error) {
	return ir.ParseType(text, func(name string) (ir.Dim, error) {
		return ir.Dim{}, fmt.Errorf("symbol %s in a plan", name)
	})
}

// Align is the alignment of all memory and slices: a cache line, and the widest
// vector access.
const Align = 64
