package codegen

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/codegen/tune"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// Unit is what is compiled for one target: the plans of all steps, and the
// kernels and the memory that they share. It is the backend of the passes on
// steps.
type Unit struct {
	Target  *target.Target
	Disable map[string]bool // kernel forms that must not be chosen
	Module  *plan.Module
	Kernels []*Kernel // parallel to Module.Kernels, in the order of first use
	// Interrupted, if set, ends the lowering with its error.
	Interrupted func() error
	// Ask, if set, is asked first for each choice: what it returns is taken unless that
	// is empty.
	Ask func(Decision) string

	table   func() (*tune.Table, error) // of the target
	chosen  map[plan.Choice]int         // index of a choice in the module
	symbols map[string]int              // index of a kernel by form, spec and parameter formats
	storage map[string]int              // index of a pool or weight by space and name
	costs   map[string]cost
	key     []byte // of the kernel or op that is looked up
	encode  bool   // plans are not kept in the module but in plans, as they are written
	plans   [][]byte
	text    []byte // of the plan that is encoded
	arena   arena
	made    *madeKernels              // of several units; nil: of this one alone
	spare   *lowerer                  // of a step whose plan was encoded: its lists are used again
	steps   map[*passes.Step]*lowerer // between select-kernels and plan-memory
}

// Kernel is one kernel of a unit.
type Kernel struct {
	Symbol string
	Spec   string
	IR     string // LLVM IR of a module that holds just this kernel

	made *madeKernel // until settle: what is made of it meanwhile
	at   string      // what asked for it first
}

// NewUnit starts a unit.
func NewUnit(t *target.Target) *Unit {
	return &Unit{
		Target: t, Disable: map[string]bool{}, Module: &plan.Module{
			Version: plan.Version, Target: t.Name, Block: t.Block(),
			States: []plan.Storage{}, Weights: []plan.Storage{}, Kernels: []plan.Kernel{}, Decomposed: []plan.Decomposed{},
		},
		table: func() (*tune.Table, error) { return tune.For(t.Name) }, chosen: map[plan.Choice]int{},
		symbols: map[string]int{}, storage: map[string]int{}, costs: map[string]cost{}, steps: map[*passes.Step]*lowerer{},
	}
}

// LowerAll lowers every bucket of some entries, which have no pack graph to make,
// and returns the plans in order.
func (u *Unit) LowerAll(entries []*ir.Graph, buckets []passes.Bucket) ([]*plan.Plan, error) {
	before := len(u.Module.Plans)
	if err := passes.LowerEach(&passes.Module{Entries: entries, Target: u.Target.ForPasses()}, buckets, u); err != nil {
		return nil, err
	}
	return u.Module.Plans[before:], nil
}

// Lower lowers one bound graph.
func (u *Unit) Lower(g *ir.Graph) (*plan.Plan, error) {
	if err := u.lower(&passes.Step{Graph: g}); err != nil {
		return nil, err
	}
	return u.Module.Plans[len(u.Module.Plans)-1], nil
}

func (u *Unit) lower(s *passes.Step) error {
	if err := u.SelectKernels(s); err != nil {
		return err
	}
	return u.PlanMemory(s)
}

// kernel returns the index of a launch's kernel, building it on first use.
func (u *Unit) kernel(form string, rejected []plan.Rejected, k kernels.Launch) (int, error) {
	u.key = appendSpec(u.key[:0], form, &k)
	if i, ok := u.symbols[string(u.key)]; ok {
		u.Module.Kernels[i].Rejected = merge(u.Module.Kernels[i].Rejected, rejected)
		return i, nil
	}
	key, params := string(u.key), paramsOf(k)
	return u.build(key, k.Name, params, k.Body, plan.Kernel{Form: form, Spec: key, Params: formatsOf(params), Rejected: rejected})
}

// appendSpec appends all that the code of a launch's kernel depends on besides the
// target: form, name, spec and the formats of the parameters.
func appendSpec(b []byte, form string, k *kernels.Launch) []byte {
	b = append(append(append(append(append(b, form...), ' '), k.Name...), ' '), k.Spec...)
	for _, r := range k.In {
		b = appendFormat(append(b, ' '), r.DT, false)
	}
	for _, r := range k.Out {
		b = appendFormat(append(b, ' '), r.DT, true)
	}
	for range k.Ints {
		b = appendFormat(append(b, ' '), ir.Invalid, false)
	}
	return b
}

// specOf is the like of a kernel that no op launches: a head, and the formats of its
// parameters.
func specOf(head string, params []kernel.Param) string {
	b := []byte(head)
	for _, p := range params {
		b = appendFormat(append(b, ' '), p.Mem, p.Out)
	}
	return string(b)
}

// appendFormat appends a parameter as plan.Kernel has it.
func appendFormat(b []byte, mem ir.DType, out bool) []byte {
	if mem == ir.Invalid {
		return append(b, "int"...)
	}
	if out {
		b = append(b, '=')
	}
	return append(b, mem.String()...)
}

// formatsOf are the parameters as plan.Kernel has them.
func formatsOf(params []kernel.Param) []string {
	var formats []string
	for _, p := range params {
		formats = append(formats, string(appendFormat(nil, p.Mem, p.Out)))
	}
	return formats
}

// build adds a kernel, whose symbol is its name and a digest of the key.
func (u *Unit) build(key, name string, params []kernel.Param, body func(*kernel.K, []*kernel.Buf, []kernel.V), as plan.Kernel) (int, error) {
	h := fnv.New64a()
	h.Write([]byte(key))
	kn := &Kernel{Symbol: fmt.Sprintf("%s_%016x", name, h.Sum64()), Spec: key}
	for _, other := range u.Kernels {
		if other.Symbol == kn.Symbol {
			return 0, fmt.Errorf("kernels %q and %q have one symbol %s", other.Spec, key, kn.Symbol)
		}
	}
	kn.made = u.made.begin(kn, func() (ir string, shared int, err error) {
		m := kernel.NewModule(u.Target)
		if err := m.Build(kn.Symbol, params, body); err != nil {
			return "", 0, err
		}
		return m.Text(), m.Pool(kn.Symbol), nil
	})
	i := len(u.Kernels)
	u.symbols[key] = i
	u.Kernels = append(u.Kernels, kn)
	as.Symbol = kn.Symbol
	u.Module.Kernels = append(u.Module.Kernels, as)
	if u.made == nil {
		return i, u.settle(i)
	}
	return i, nil
}

// settle waits for a kernel that is made beside, and takes what came of it.
func (u *Unit) settle(i int) error {
	k := u.Kernels[i]
	if k.made == nil {
		return nil
	}
	<-k.made.done
	if k.made.err != nil {
		return k.made.err
	}
	k.IR, u.Module.Kernels[i].Shared, k.made = k.made.ir, k.made.shared, nil
	return nil
}

// settleAll settles all kernels. The first error in their order is reported, with the
// place in the model that asked for the kernel.
func (u *Unit) settleAll() error {
	for i, k := range u.Kernels {
		if err := u.settle(i); err != nil && k.at != "" {
			return fmt.Errorf("%s: %w", k.at, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// AddAround adds the kernels that run around the launches of a step, unless they are
// there: Compile does. The host needs none: its memory is the process's.
func (u *Unit) AddAround() error {
	if !u.Target.GPU() || len(u.Kernels) == 0 || u.Module.Step != nil {
		return nil
	}
	var at [2]int
	for i, s := range kernels.Steps() {
		key := specOf(s.Form, s.Params)
		var err error
		if at[i], err = u.build(key, s.Form, s.Params, s.Body, plan.Kernel{Form: s.Form, Spec: key, Params: formatsOf(s.Params)}); err != nil {
			return err
		}
	}
	u.Module.Step = &plan.Step{Prologue: at[0], Epilogue: at[1]}
	return nil
}

// merge adds what list lacks.
func merge(list, more []plan.Rejected) []plan.Rejected {
	for _, r := range more {
		if !slices.Contains(list, r) {
			list = append(list, r)
		}
	}
	return list
}

// declare returns the index of a pool or weight. It is one memory for all steps
// of the unit: a second type for it is an error.
func (u *Unit) declare(space plan.Space, v *ir.Value) (int, error) {
	list := &u.Module.States
	if space == plan.Weight {
		list = &u.Module.Weights
	}
	typ := v.Type.String()
	if i, ok := u.storage[space.String()+" "+v.Name]; ok {
		if have := (*list)[i].Type; have != typ {
			return 0, fmt.Errorf("%s %s is %s in one step and %s in another", space, v, have, typ)
		}
		return i, nil
	}
	data, scales, _ := v.Type.Bytes() // bound
	*list = append(*list, plan.Storage{Name: v.Name, Type: typ, Bytes: [2]int64{data, scales}})
	u.storage[space.String()+" "+v.Name] = len(*list) - 1
	return len(*list) - 1, nil
}
