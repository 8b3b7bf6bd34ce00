package ir

import (
	"fmt"
	"sort"
	"strings"
)

// OpDef is one row of the op table: the one place where an op is declared.
type OpDef struct {
	Name  string
	Group string // heading in the op reference
	Doc   string // one sentence or two; formulas in plain text

	// Operands in order. A trailing operand group with Repeat true may be given
	// any number of times (at least once).
	Operands []OperandDef
	Results  []string // names; the number of results
	Attrs    []AttrDef

	// Infer computes result types from checked operands and attributes.
	Infer func(o *Op) ([]Type, error)

	// Table says that the op makes a table from attributes alone, too costly to
	// make again in every step: packing hoists it.
	Table bool

	// Decompose builds the op's meaning from simpler ops; nil for a primitive,
	// whose meaning is its evaluator in ir/eval.
	Decompose func(b *Builder, o *Op) []*Value

	// FusedBy is the pass that makes the op of the ones that it decomposes into; "" for
	// ops that models are written in.
	FusedBy string

	// Flops is the op's arithmetic cost once its shapes are integers: floating
	// point operations, a multiply-add counting 2. Nil means that a composite
	// costs what its decomposition does, and that a primitive moves data. Only a
	// composite of matrix products that needs less than its decomposition has one.
	Flops func(o *Op) int64

	// Limit is the error an implementation form of this op may have against its
	// meaning, without declared liberties.
	Limit Limit

	// MoreLimits are those of the results after the first, in order; the last one
	// holds for all that follow. None: Limit is for every result.
	MoreLimits []Limit

	// Liberties are what a form may do otherwise than the decomposition, if it says so,
	// each with the limits that hold for it instead.
	Liberties []Liberty

	// Rest, if not nil, makes the results after the first from the first, as
	// Decompose does. They are then compared given the first result that the
	// implementation has: a rounding that went the other way there, which its limit
	// allows, moves all that follows by more than their own arithmetic may.
	Rest func(b *Builder, o *Op, first *Value) []*Value
}

// OperandDef declares one operand.
type OperandDef struct {
	Name   string
	Doc    string
	Repeat bool
}

// LimitKind says how results of an implementation are compared with the meaning.
type LimitKind uint8

// The comparison kinds, from /docs/dsv4.md section 9 ("Recommended limits").
const (
	Exact     LimitKind = iota // bit for bit
	AbsF32                     // absolute error at most Bound
	BF16ULP                    // at least Bound of the values identical, the rest within one bf16 ulp; f32 results after rounding to bf16
	ByChoice                   // discrete: every chosen score >= best rejected one, ties to the lower index
	OneMinCos                  // 1 - cosine at most Bound
	LastPlace                  // at least Bound of the values identical, the rest within one unit of their dtype's last place
	OneCode                    // at least Bound of the values identical, the rest within one f8e4m3 code, with the scale of their block
)

// Limit is an error bound and where it comes from.
type Limit struct {
	Kind  LimitKind
	Bound float64
	Abs   float64 // BF16ULP: the rest may also be this close, absolutely: sums that cancel
	Ulps  int     // BF16ULP: how far the rest may be instead of one ulp
	Per   string  // OneCode: the attribute with the number of elements along the last axis that share a scale
	Why   string
}

func (l Limit) String() string {
	switch l.Kind {
	case AbsF32:
		return fmt.Sprintf("abs <= %g", l.Bound)
	case BF16ULP:
		text := fmt.Sprintf(">= %g%% identical, rest within %d bf16 ulp", 100*l.Bound, max(1, l.Ulps))
		if l.Abs > 0 {
			text += fmt.Sprintf(" or %g absolute", l.Abs)
		}
		return text
	case ByChoice:
		return "by validity of the choice"
	case OneMinCos:
		return fmt.Sprintf("1-cos <= %g", l.Bound)
	case LastPlace:
		return fmt.Sprintf(">= %g%% identical, rest within 1 ulp", 100*l.Bound)
	case OneCode:
		return fmt.Sprintf(">= %g%% identical, rest within 1 f8e4m3 code of blocks of %s", 100*l.Bound, l.Per)
	}
	return "bit for bit"
}

// Block is how many elements along the last axis share a scale in a result of o that
// has the limit OneCode; 0 for other limits.
func (l Limit) Block(o *Op) int {
	if l.Kind != OneCode {
		return 0
	}
	return o.Int(l.Per)
}

// LimitOf is the limit of result i.
func (d *OpDef) LimitOf(i int) Limit {
	if n := len(d.MoreLimits); i > 0 && n > 0 {
		return d.MoreLimits[min(i, n)-1]
	}
	return d.Limit
}

// Liberty is a way to compute that differs from an op's meaning by more than the order
// of sums.
type Liberty struct {
	Name   string
	Doc    string
	Limits []Limit // by result; the last one holds for all that follow
}

// LimitOf is the limit of result i.
func (y *Liberty) LimitOf(i int) Limit { return y.Limits[min(i, len(y.Limits)-1)] }

// Liberty returns the liberty of that name, or nil.
func (d *OpDef) Liberty(name string) *Liberty {
	for i := range d.Liberties {
		if d.Liberties[i].Name == name {
			return &d.Liberties[i]
		}
	}
	return nil
}

// Primitive reports whether the op has no decomposition.
func (d *OpDef) Primitive() bool { return d.Decompose == nil }

func (d *OpDef) attr(name string) *AttrDef {
	for i := range d.Attrs {
		if d.Attrs[i].Name == name {
			return &d.Attrs[i]
		}
	}
	return nil
}

// table holds every op by name. It is filled by the group files' init-time
// tables and by Register.
var table = map[string]*OpDef{}

// Register adds ops to the table. A duplicate name, an unfinished row or a
// repeated attribute is an error; nothing is added then.
func Register(defs ...*OpDef) error {
	for i, d := range defs {
		if err := d.check(); err != nil {
			return err
		}
		if _, dup := table[d.Name]; dup {
			return fmt.Errorf("op %s: already in the op table", d.Name)
		}
		for _, e := range defs[:i] {
			if e.Name == d.Name {
				return fmt.Errorf("op %s: twice in one Register call", d.Name)
			}
		}
	}
	for _, d := range defs {
		table[d.Name] = d
	}
	return nil
}

func (d *OpDef) check() error {
	switch {
	case d == nil:
		return fmt.Errorf("an op table row is nil")
	case !validValueName(d.Name) || !validSym(strings.ReplaceAll(d.Name, ".", "_")):
		return fmt.Errorf("op %q: not a name", d.Name)
	case d.Doc == "" || d.Group == "":
		return fmt.Errorf("op %s: needs Doc and Group", d.Name)
	case d.Infer == nil:
		return fmt.Errorf("op %s: needs Infer", d.Name)
	case len(d.Results) == 0 || len(d.Results) > maxRank:
		return fmt.Errorf("op %s: has %d results, want 1..%d", d.Name, len(d.Results), maxRank)
	}
	seen := map[string]bool{}
	for _, a := range d.Attrs {
		if !validSym(a.Name) || int(a.Kind) >= len(attrKindName) {
			return fmt.Errorf("op %s: attribute %q: not a name, or of no kind", d.Name, a.Name)
		}
		if seen[a.Name] {
			return fmt.Errorf("op %s: attribute %s declared twice", d.Name, a.Name)
		}
		seen[a.Name] = true
		if a.Default != nil {
			if err := a.Check(a.Default); err != nil {
				return fmt.Errorf("op %s: attribute %s: default %w", d.Name, a.Name, err)
			}
		}
	}
	limits := append([]Limit{d.Limit}, d.MoreLimits...)
	for _, y := range d.Liberties {
		if y.Name == "" || y.Doc == "" || len(y.Limits) == 0 {
			return fmt.Errorf("op %s: liberty %q needs Name, Doc and Limits", d.Name, y.Name)
		}
		limits = append(limits, y.Limits...)
	}
	for _, l := range limits {
		if a := d.attr(l.Per); (l.Kind == OneCode) != (l.Per != "") || l.Per != "" && (a == nil || a.Kind != AttrInt) {
			return fmt.Errorf("op %s: limit %q: Per is %q, want an integer attribute of the op for a limit of codes, none for others", d.Name, l, l.Per)
		}
	}
	for i, o := range d.Operands {
		if !o.Repeat && i > 0 && d.Operands[i-1].Repeat {
			return fmt.Errorf("op %s: repeated operands come last", d.Name)
		}
	}
	return nil
}

func mustRegister(defs ...*OpDef) {
	if err := Register(defs...); err != nil {
		panic("ir: " + err.Error())
	}
}

// Lookup finds an op by name.
func Lookup(name string) (*OpDef, error) {
	if d, ok := table[name]; ok {
		return d, nil
	}
	return nil, fmt.Errorf("unknown op %q", name)
}

// Ops lists the op table: by group, then by name.
func Ops() []*OpDef {
	out := make([]*OpDef, 0, len(table))
	for _, d := range table {
		out = append(out, d)
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Group != out[j].Group {
			return out[i].Group < out[j].Group
		}
		return out[i].Name < out[j].Name
	})
	return out
}

// arity reports whether n operands fit the declaration.
func (d *OpDef) arity(n int) error {
	fixed := 0
	for fixed < len(d.Operands) && !d.Operands[fixed].Repeat {
		fixed++
	}
	group := len(d.Operands) - fixed
	switch {
	case group == 0 && n != fixed:
		return fmt.Errorf("has %d operands, want %d", n, fixed)
	case group > 0 && (n < fixed+group || (n-fixed)%group != 0):
		return fmt.Errorf("has %d operands, want %d and then groups of %d", n, fixed, group)
	}
	return nil
}

// completeAttrs checks given attributes against the table and returns them in
// table order with defaults filled in.
func (d *OpDef) completeAttrs(given Attrs) (Attrs, error) {
	for i, a := range given {
		def := d.attr(a.Key)
		if def == nil {
			return nil, fmt.Errorf("has no attribute %q", a.Key)
		}
		if err := def.Check(a.Val); err != nil {
			return nil, fmt.Errorf("attribute %s: %w", a.Key, err)
		}
		for _, b := range given[:i] {
			if b.Key == a.Key {
				return nil, fmt.Errorf("attribute %s is given twice", a.Key)
			}
		}
	}
	out := make(Attrs, 0, len(d.Attrs))
	for _, def := range d.Attrs {
		v, ok := given.Get(def.Name)
		if !ok {
			if v = def.Default; v == nil {
				return nil, fmt.Errorf("attribute %s is missing", def.Name)
			}
		}
		out = append(out, Attr{def.Name, v})
	}
	return out, nil
}

// newOp makes a checked op with inferred result types.
func newOp(d *OpDef, args []*Value, attrs Attrs, loc string, pos Pos) (*Op, error) {
	if err := d.arity(len(args)); err != nil {
		return nil, err
	}
	full, err := d.completeAttrs(attrs)
	if err != nil {
		return nil, err
	}
	o := &Op{Def: d, Args: args, Attrs: full, Loc: loc, Pos: pos}
	for i, a := range args {
		if err := a.Type.Check(); err != nil {
			return nil, fmt.Errorf("operand %s: %w", o.operandName(i), err)
		}
	}
	types, err := d.Infer(o)
	if err != nil {
		return nil, err
	}
	if len(types) != len(d.Results) {
		return nil, fmt.Errorf("inference gave %d results, the op table declares %d", len(types), len(d.Results))
	}
	for i, t := range types {
		if err := t.Check(); err != nil {
			return nil, fmt.Errorf("result %s: %w", d.Results[i], err)
		}
		o.Results = append(o.Results, &Value{Kind: OpResult, Type: t, Op: o, Index: i, Pos: pos})
	}
	return o, nil
}
