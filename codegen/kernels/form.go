package kernels

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Form is one way to run an op.
type Form struct {
	Name string // unique; --disable-kernel takes it
	Op   string
	// Match reports why the form does not take the op, or "".
	Match func(o *ir.Op, t *target.Target) (reason string)
	// Lower emits the launches. Results are written in full.
	Lower func(l Lowering, o *ir.Op) error
	// Liberty, if not empty, names the liberty of the op table that the form takes: its
	// results are within the liberty's limits, not the op's.
	Liberty string
	// Joins: its launches are little work, and may be parts of one with others'.
	Joins bool
}

// Lowering is what a form sees of the compiler.
type Lowering interface {
	Target() *target.Target
	// Buf is the storage of a value (operand or result).
	Buf(v *ir.Value) Ref
	// Scales is the storage of a block-scaled value's scales.
	Scales(v *ir.Value) Ref
	// Requests is the number of requests whose rows the step has, or 0.
	Requests() int
	// Threshold is a number of the passes' threshold table, or what the user set.
	Threshold(key string) int
	// Choose says which of several ways a form takes for a shape, which key tells but for
	// its rows. No bit of a result may depend on it, and the Spec must tell it where code
	// does. model is the one that the form's cost model takes. The next launch carries the
	// choice.
	Choose(key string, rows int, candidates []string, model string) string
	// Inlined reports that a value has no storage: its op, elementwise, runs inside
	// of the op being lowered.
	Inlined(v *ir.Value) bool
	// Scratch reserves memory that lives until the op's last launch.
	Scratch(dt ir.DType, elements int) Ref
	// Launch runs a kernel. spec must tell everything that the kernel's code
	// depends on besides form, target and parameter formats: equal specs share
	// one kernel. Row counts belong into grid and integer arguments, so that the
	// buckets of an entry share kernels.
	Launch(l Launch)
}

// Ref is memory that a launch argument can name.
type Ref struct {
	ID int // assigned by the compiler
	DT ir.DType
}

// Launch describes one launch.
type Launch struct {
	Name string // kernel name, e.g. "rms_norm"
	Spec string // static parameters, e.g. "d256"
	Grid int
	Work int64 // rough number of element operations
	// Flops of a product, a multiply-add counting 2; 0 for a part of what the op
	// table counts.
	Flops int64
	In    []Ref
	Out   []Ref
	Ints  []int
	// Touched is how many bytes are read or written of memory that the launch does
	// not go through as a whole, such as a table of which it gathers rows, when every
	// row is there and no two tokens of a request ask for different ones.
	Touched map[Ref]int64
	// Joins: as of the form, of this launch.
	Joins bool
	// Pooled: the launch gives its groups shared memory (kernel.K.SharedPool), so that
	// little is left for what others declare.
	Pooled bool
	// Body builds the kernel: bufs are In then Out, ints the Ints.
	Body func(k *kernel.K, bufs []*kernel.Buf, ints []kernel.V)
}

// forms is the library, by op, best form first.
var forms = map[string][]*Form{}

func register(fs ...*Form) {
	for _, f := range fs {
		forms[f.Op] = append(forms[f.Op], f)
	}
}

// Register adds forms of one's own. For an op that the library has forms for, they
// are tried before the library's, in the order given; what they do not match goes
// on to those. Call it before anything is compiled, and after ir.Register of the
// ops; nothing is added on an error.
func Register(fs ...*Form) error {
	names := map[string]bool{}
	for _, list := range forms {
		for _, f := range list {
			names[f.Name] = true
		}
	}
	for i, f := range fs {
		switch {
		case f == nil:
			return fmt.Errorf("form %d is nil", i)
		case f.Name == "":
			return fmt.Errorf("form %d, of op %q, has no name", i, f.Op)
		case names[f.Name]:
			return fmt.Errorf("form %s is in the library already", f.Name)
		case f.Match == nil || f.Lower == nil:
			return fmt.Errorf("form %s: needs Match and Lower", f.Name)
		}
		if _, err := ir.Lookup(f.Op); err != nil {
			return fmt.Errorf("form %s: %w", f.Name, err)
		}
		names[f.Name] = true
	}
	for i := len(fs) - 1; i >= 0; i-- {
		forms[fs[i].Op] = append([]*Form{fs[i]}, forms[fs[i].Op]...)
	}
	return nil
}

// For lists the forms of an op, best first.
func For(op string) []*Form { return forms[op] }

// Ops lists the ops that have forms, sorted.
func Ops() []string { return slices.Sorted(maps.Keys(forms)) }

// always matches every op on every target.
func always(*ir.Op, *target.Target) string { return "" }

// extent is an integer extent of a bound graph.
func extent(d ir.Dim) int {
	n, _ := d.Const()
	return n
}

// dims are the extents of a value.
func dims(v *ir.Value) []int {
	out := make([]int, v.Type.Rank())
	for i, d := range v.Type.Dims {
		out[i] = extent(d)
	}
	return out
}

func product(n []int) int {
	p := 1
	for _, x := range n {
		p *= x
	}
	return p
}
