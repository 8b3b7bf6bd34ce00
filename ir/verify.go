package ir

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Rule names one thing that Verify checks. Every rule has a negative test.
type Rule string

// The verifier's rules, in the order in which they are checked.
const (
	RuleSymbol    Rule = "symbol"    // symbols are declared once, before use; derived ones depend on earlier ones only
	RuleName      Rule = "name"      // names are well formed and unique within their kind
	RuleType      Rule = "type"      // types are legal: extents >= 1, scaling on formats that carry it
	RuleStacked   Rule = "stacked"   // a weight name has at most one "*", over a constant first axis
	RuleOp        Rule = "op"        // the op is in the op table, as the same row
	RuleArity     Rule = "arity"     // the number of operands and results is the table's
	RuleAttr      Rule = "attr"      // every attribute is declared, present, of its kind
	RuleDominance Rule = "dominance" // operands are defined before their use, in this graph
	RuleInfer     Rule = "infer"     // operands fit the op, and result types are the inferred ones
	RuleOutput    Rule = "output"    // there is an output or update; output names are unique
	RuleUpdate    Rule = "update"    // a state is updated at most once, by a value of its type that derives from it
	RuleStateUse  Rule = "state-use" // a pool is not read after it was written
)

// Rules lists every rule.
var Rules = []Rule{RuleSymbol, RuleName, RuleType, RuleStacked, RuleOp, RuleArity, RuleAttr, RuleDominance, RuleInfer, RuleOutput, RuleUpdate, RuleStateUse}

// VerifyError is one breach of a rule.
type VerifyError struct {
	Rule  Rule
	Graph string
	Pos   Pos    // where, when the graph was parsed
	Loc   string // the op's loc
	Msg   string
}

func (e *VerifyError) Error() string {
	var b strings.Builder
	if e.Pos.Line != 0 {
		fmt.Fprintf(&b, "%s: ", e.Pos)
	}
	fmt.Fprintf(&b, "graph @%s: ", e.Graph)
	if e.Loc != "" {
		fmt.Fprintf(&b, "%s: ", e.Loc)
	}
	fmt.Fprintf(&b, "%s [%s]", e.Msg, e.Rule)
	return b.String()
}

// maxVerifyErrors bounds one report: the first breaches explain the rest.
const maxVerifyErrors = 10

// Verify checks every rule and returns all breaches (at most ten) joined, or
// nil. It never changes the graph's meaning; it renumbers results.
func Verify(g *Graph) error {
	g.Number()
	v := &verifier{g: g, defined: make(map[*Value]bool, len(g.Weights)+2*len(g.Ops)), pool: map[*Value]*Value{}, syms: map[string]bool{}}
	v.symbols()
	v.declarations()
	for _, op := range g.Ops {
		v.op(op)
	}
	v.results()
	return errors.Join(v.errs...)
}

type verifier struct {
	g       *Graph
	defined map[*Value]bool
	pool    map[*Value]*Value // states, and results of scatter_rows on them -> the state
	syms    map[string]bool
	errs    []error
}

// report adds a breach; without a place of its own it stands at the graph's.
func (v *verifier) report(rule Rule, pos Pos, loc, format string, args ...any) {
	if pos.Line == 0 {
		pos = v.g.Pos
	}
	if len(v.errs) < maxVerifyErrors {
		v.errs = append(v.errs, &VerifyError{Rule: rule, Graph: v.g.Name, Pos: pos, Loc: loc, Msg: fmt.Sprintf(format, args...)})
	}
}

func (v *verifier) symbols() {
	for _, s := range v.g.Syms {
		if !validSym(s) {
			v.report(RuleSymbol, Pos{}, "", "symbol %q is not a name", s)
		}
		if v.syms[s] {
			v.report(RuleSymbol, Pos{}, "", "symbol %s is declared twice", s)
		}
		v.syms[s] = true
	}
	// Derived symbols stand for their definitions: values use the definition, so
	// only the names must be distinct.
	names := map[string]bool{}
	for _, l := range v.g.Lets {
		if !validSym(l.Name) || v.syms[l.Name] || names[l.Name] {
			v.report(RuleSymbol, l.Pos, "", "derived symbol %q is not a name or is declared twice", l.Name)
		}
		names[l.Name] = true
		v.dims(l.Pos, "", "let "+l.Name, l.Dim)
	}
}

func validSym(s string) bool {
	for i := range len(s) {
		if !isNameByte(s[i]) {
			return false
		}
	}
	_, isDType := dtypeByName[s]
	return s != "" && isNameStart(s[0]) && !isDType
}

// dims checks expressions that stand outside a type.
func (v *verifier) dims(pos Pos, loc, what string, dims ...Dim) {
	for _, d := range dims {
		if err := d.check(); err != nil {
			v.report(RuleType, pos, loc, "%s: %v", what, err)
		}
	}
	v.symbolsOf(pos, loc, what, dims...)
}

func (v *verifier) symbolsOf(pos Pos, loc, what string, dims ...Dim) {
	for _, d := range dims {
		if d.x == nil {
			continue
		}
		for _, s := range d.Symbols(nil) {
			if !v.syms[s] {
				v.report(RuleSymbol, pos, loc, "%s uses undeclared symbol %s", what, s)
			}
		}
	}
}

func (v *verifier) declarations() {
	if !validValueName(v.g.Name) {
		v.report(RuleName, Pos{}, "", "graph name %q is not a name", v.g.Name)
	}
	keys := map[string]bool{}
	for _, m := range v.g.Meta {
		if !validSym(m.Key) || keys[m.Key] {
			v.report(RuleName, Pos{}, "", "graph attribute %q is not a name or is given twice", m.Key)
		}
		keys[m.Key] = true
	}
	for _, list := range []struct {
		kind   ValueKind
		values []*Value
	}{{InputValue, v.g.Inputs}, {WeightValue, v.g.Weights}, {StateValue, v.g.States}} {
		names := map[string]bool{}
		for _, x := range list.values {
			if x == nil || x.Kind != list.kind {
				v.report(RuleName, Pos{}, "", "%v is declared as another kind of value than it is", x)
				continue
			}
			if names[x.Name] {
				v.report(RuleName, x.Pos, "", "%s is declared twice", x)
			}
			names[x.Name] = true
			if !validValueName(strings.ReplaceAll(x.Name, "*", "0")) || x.Kind != WeightValue && strings.Contains(x.Name, "*") {
				v.report(RuleName, x.Pos, "", "%s is not a valid name", x)
			}
			if x.Kind == InputValue && x.Name != "" && x.Name[0] >= '0' && x.Name[0] <= '9' {
				v.report(RuleName, x.Pos, "", "input %s: names that start with a digit are op results", x)
			}
			if err := x.Type.Check(); err != nil {
				v.report(RuleType, x.Pos, "", "%s: %v", x, err)
			}
			if x.Kind == WeightValue && strings.Contains(x.Name, "*") {
				ok := x.Type.Rank() > 0
				if ok {
					_, ok = x.Type.Dims[0].Const()
				}
				if !ok || strings.Count(x.Name, "*") > 1 {
					v.report(RuleStacked, x.Pos, "", "%s : %s: one * stands for a constant first axis", x, x.Type)
				}
			}
			v.symbolsOf(x.Pos, "", x.String(), x.Type.Dims...)
			v.defined[x] = true
			if x.Kind == StateValue {
				v.pool[x] = x
			}
		}
	}
}

// validValueName accepts dotted names: letters, digits, _ and single dots.
func validValueName(s string) bool {
	for i := range len(s) {
		if !isNameByte(s[i]) && s[i] != '.' {
			return false
		}
	}
	return s != "" && s[0] != '.' && s[len(s)-1] != '.' && !strings.Contains(s, "..")
}

func (v *verifier) op(op *Op) {
	if op == nil || op.Def == nil {
		v.report(RuleOp, Pos{}, "", "an op has no row of the op table")
		return
	}
	fail := func(rule Rule, format string, args ...any) {
		v.report(rule, op.Pos, op.Loc, "%s: %s", op.Def.Name, fmt.Sprintf(format, args...))
	}
	defer func() { // later ops may use the results even if this op is wrong
		for _, r := range op.Results {
			v.defined[r] = true
		}
		if p := v.written(op); p != nil {
			v.pool[op.Results[0]] = p
		}
	}()
	if d, err := Lookup(op.Def.Name); err != nil || d != op.Def {
		fail(RuleOp, "not the op table's row of that name")
		return
	}
	ok := true
	for i, a := range op.Args {
		if !v.defined[a] {
			fail(RuleDominance, "operand %d (%s) is not defined before its use in this graph", i, a)
			ok = false
		}
	}
	for i, r := range op.Results {
		switch {
		case r == nil || r.Kind != OpResult || r.Op != op || r.Index != i:
			fail(RuleDominance, "result %d is not marked as that result of this op", i)
			ok = false
		case v.defined[r]:
			fail(RuleDominance, "result %s is defined twice", r)
			ok = false
		}
	}
	if !ok {
		return
	}
	if err := op.Def.arity(len(op.Args)); err != nil {
		fail(RuleArity, "%v", err)
		return
	}
	if len(op.Results) != len(op.Def.Results) {
		fail(RuleArity, "has %d results, want %d", len(op.Results), len(op.Def.Results))
		return
	}
	full, err := op.Def.completeAttrs(op.Attrs)
	if err != nil || len(full) != len(op.Attrs) {
		if err == nil {
			err = errors.New("attributes are incomplete")
		}
		fail(RuleAttr, "%v", err)
		return
	}
	for _, a := range op.Attrs {
		switch d := a.Val.(type) {
		case Dim:
			v.dims(op.Pos, op.Loc, op.Def.Name+" attribute "+a.Key, d)
		case []Dim:
			v.dims(op.Pos, op.Loc, op.Def.Name+" attribute "+a.Key, d...)
		}
	}
	for _, a := range op.Args {
		if a.Type.Check() != nil {
			return // reported where the operand is defined
		}
	}
	types, err := op.Def.Infer(op)
	if err != nil {
		fail(RuleInfer, "%v", err)
		return
	}
	if len(types) != len(op.Results) {
		fail(RuleInfer, "inference gave %d results, the op table declares %d", len(types), len(op.Results))
		return
	}
	for i, t := range types {
		if err := t.Check(); err != nil {
			fail(RuleType, "result %s: %v", op.Def.Results[i], err)
		} else if !t.Equal(op.Results[i].Type) {
			fail(RuleInfer, "result %s is declared %s, inferred %s", op.Def.Results[i], op.Results[i].Type, t)
		}
	}
}

func (v *verifier) results() {
	if len(v.g.Outputs) == 0 && len(v.g.Updates) == 0 {
		v.report(RuleOutput, Pos{}, "", "there is no output and no state update")
	}
	names := map[string]bool{}
	for _, o := range v.g.Outputs {
		if !validValueName(o.Name) || !isNameStart(o.Name[0]) || names[o.Name] {
			v.report(RuleOutput, o.Pos, "", "output %q is not a valid name or is given twice", o.Name)
		}
		names[o.Name] = true
		if !v.defined[o.Value] {
			v.report(RuleDominance, o.Pos, "", "output %s is not a value of this graph", o.Name)
		}
	}
	updated := map[*Value]bool{}
	for _, u := range v.g.Updates {
		switch {
		case !v.defined[u.State] || u.State.Kind != StateValue:
			v.report(RuleUpdate, u.Pos, "", "update of %v, which is not a state of this graph", u.State)
		case !v.defined[u.Value]:
			v.report(RuleDominance, u.Pos, "", "update of %s by a value that is not of this graph", u.State)
		case updated[u.State]:
			v.report(RuleUpdate, u.Pos, "", "%s is updated twice", u.State)
		case !u.Value.Type.Equal(u.State.Type):
			v.report(RuleUpdate, u.Pos, "", "%s : %s is updated by %s", u.State, u.State.Type, u.Value.Type)
		case v.pool[u.Value] != u.State:
			v.report(RuleUpdate, u.Pos, "", "%s is updated by %s, which does not derive from it by scatter_rows", u.State, u.Value)
		}
		updated[u.State] = true
	}
	v.stateUse()
}

// written is the state whose pool op writes, or nil.
func (v *verifier) written(op *Op) *Value {
	if op == nil || op.Def == nil || op.Def.Name != "scatter_rows" || len(op.Args) == 0 || len(op.Results) == 0 {
		return nil
	}
	return v.pool[op.Args[0]]
}

// stateUse rejects a use of a pool's old value after it was written: writes are
// in place, so the old value is gone. The last write of a chain is the one that
// updates the state; a write that no update keeps is an error too.
func (v *verifier) stateUse() {
	by := map[*Value]*Op{} // pool value -> the scatter that replaced it
	kept := map[*Value]bool{}
	for _, u := range v.g.Updates {
		kept[u.Value] = true
	}
	use := func(x *Value, pos Pos, loc, who string) {
		if w := by[x]; w != nil {
			v.report(RuleStateUse, pos, loc, "%s uses %s after %s wrote that pool", who, x, w.Where())
		}
	}
	for _, op := range v.g.Ops {
		if op == nil || op.Def == nil {
			continue
		}
		for _, a := range op.Args {
			use(a, op.Pos, op.Loc, op.Def.Name)
		}
		if v.written(op) != nil {
			if slices.Contains(op.Args[1:], op.Args[0]) {
				v.report(RuleStateUse, op.Pos, op.Loc, "scatter_rows reads %s while it writes that pool", op.Args[0])
			}
			by[op.Args[0]] = op
		}
	}
	for _, o := range v.g.Outputs {
		use(o.Value, o.Pos, "", "output "+o.Name)
	}
	for _, op := range v.g.Ops {
		if s := v.written(op); s != nil && by[op.Results[0]] == nil && !kept[op.Results[0]] {
			v.report(RuleUpdate, op.Pos, op.Loc, "scatter_rows writes %s, but no update keeps the result", s)
		}
	}
}
