package ir

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/alecthomas/participle/v2"
	"github.com/alecthomas/participle/v2/lexer"
)

// The grammar of .kir text. Statement order is fixed: sym, let, input, weight,
// state, ops, output, update.
type fileAST struct {
	Graphs []*graphAST `parser:"@@*"`
}

type graphAST struct {
	Pos     lexer.Position
	Name    string      `parser:"'graph' @Weight"`
	Meta    []*metaAST  `parser:"( '{' @@ ( ',' @@ )* '}' )?"`
	Syms    []*symAST   `parser:"( 'sym' @@ ( ',' @@ )* )*"`
	Lets    []*letAST   `parser:"@@*"`
	Decls   []*declAST  `parser:"@@*"`
	Ops     []*opAST    `parser:"@@*"`
	Outputs []*outAST   `parser:"@@*"`
	Updates []*stateAST `parser:"@@*"`
}

type metaAST struct {
	Pos lexer.Position
	Key string `parser:"@Ident '='"`
	Val string `parser:"@String"`
}

type symAST struct {
	Pos  lexer.Position
	Name string `parser:"@Ident"`
}

type letAST struct {
	Pos  lexer.Position
	Name string `parser:"'let' @Ident '='"`
	Expr string `parser:"@LetExpr"`
}

type declAST struct {
	Pos  lexer.Position
	Kind string `parser:"@( 'input' | 'weight' | 'state' )"`
	Name string `parser:"@( Local | Weight | State ) ':'"`
	Type string `parser:"@Type"`
}

type opAST struct {
	Pos     lexer.Position
	Results []string   `parser:"@Local ( ',' @Local )* '='"`
	Name    string     `parser:"@Ident"`
	Args    []string   `parser:"( @( Local | Weight | State ) ( ',' @( Local | Weight | State ) )* )?"`
	Attrs   []*attrAST `parser:"( '{' @@ ( ',' @@ )* '}' )?"`
	Types   []string   `parser:"':' @Type ( ',' @Type )*"`
	Loc     string     `parser:"( 'loc' '(' @String ')' )?"`
}

type attrAST struct {
	Pos lexer.Position
	Key string `parser:"@Ident '='"`
	Val string `parser:"@( Ident | Number | String | List )"`
}

type outAST struct {
	Pos   lexer.Position
	Name  string `parser:"'output' @Ident '='"`
	Value string `parser:"@( Local | Weight | State )"`
}

type stateAST struct {
	Pos   lexer.Position
	State string `parser:"'update' @State '='"`
	Value string `parser:"@( Local | State )"`
}

var kirParser = participle.MustBuild[fileAST](participle.Lexer(kirLexer{}))

// ParseError is a syntax error, or a name or type that does not resolve.
type ParseError struct {
	Pos Pos
	Msg string
}

func (e *ParseError) Error() string { return e.Pos.String() + ": " + e.Msg }

// Parse reads .kir text: one or more graphs, each verified. Errors carry
// file:line:col.
func Parse(filename, text string) ([]*Graph, error) {
	graphs, err := ParseUnverified(filename, text)
	if err != nil {
		return nil, err
	}
	for _, g := range graphs {
		if err := Verify(g); err != nil {
			return nil, err
		}
	}
	return graphs, nil
}

// ParseUnverified is Parse without the verifier, for tools that want to show a
// broken graph.
func ParseUnverified(filename, text string) ([]*Graph, error) {
	ast, err := kirParser.ParseString(filename, text)
	if err != nil {
		var at participle.Error
		if errors.As(err, &at) {
			return nil, &ParseError{fromLexer(at.Position()), syntaxMessage(at.Message())}
		}
		return nil, fmt.Errorf("%s: %w", filename, err)
	}
	if len(ast.Graphs) == 0 {
		return nil, &ParseError{Pos{filename, 1, 1}, "no graph"}
	}
	var out []*Graph
	seen := map[string]bool{}
	for _, a := range ast.Graphs {
		r := &resolver{values: map[string]*Value{}, syms: map[string]Dim{}}
		g, err := r.graph(a)
		if err != nil {
			return nil, err
		}
		if seen[g.Name] {
			return nil, &ParseError{fromLexer(a.Pos), fmt.Sprintf("graph @%s is defined twice", g.Name)}
		}
		seen[g.Name] = true
		out = append(out, g)
	}
	return out, nil
}

// astNames are what stands for a part of the grammar in messages.
var astNames = map[string]string{"MetaAST": `name = "text"`, "AttrAST": "name = value", "SymAST": "a symbol"}

// syntaxMessage cuts participle's message: of what it expected only the first
// element is of use.
func syntaxMessage(msg string) string {
	msg = strings.Replace(msg, `unexpected token "<EOF>"`, "unexpected end of text", 1)
	head, expected, ok := strings.Cut(msg, " (expected ")
	if !ok {
		return msg
	}
	first, _, _ := strings.Cut(strings.TrimSuffix(expected, ")"), " ")
	if expected[0] == '(' { // alternatives
		first, _, _ = strings.Cut(expected[1:], ")")
	}
	if name, ok := astNames[first]; ok {
		first = name
	}
	return head + ", expected " + first
}

// ParseOne is Parse for text that holds exactly one graph.
func ParseOne(filename, text string) (*Graph, error) {
	gs, err := Parse(filename, text)
	if err != nil {
		return nil, err
	}
	if len(gs) != 1 {
		return nil, fmt.Errorf("%s: has %d graphs, want one", filename, len(gs))
	}
	return gs[0], nil
}

func fromLexer(p lexer.Position) Pos { return Pos{p.Filename, p.Line, p.Column} }

// resolver turns names into values.
type resolver struct {
	values map[string]*Value // by text with sigil
	syms   map[string]Dim
}

func errAt(p lexer.Position, format string, args ...any) error {
	return &ParseError{fromLexer(p), fmt.Sprintf(format, args...)}
}

func (r *resolver) sym(name string) (Dim, error) {
	if d, ok := r.syms[name]; ok {
		return d, nil
	}
	return Dim{}, fmt.Errorf("undeclared symbol %s", name)
}

func (r *resolver) declareSym(p lexer.Position, name string, d Dim) error {
	if !validSym(name) {
		return errAt(p, "symbol %q is not a name [%s]", name, RuleSymbol)
	}
	if _, dup := r.syms[name]; dup {
		return errAt(p, "symbol %s is declared twice [%s]", name, RuleSymbol)
	}
	r.syms[name] = d
	return nil
}

func (r *resolver) graph(a *graphAST) (*Graph, error) {
	g := &Graph{Name: a.Name[1:], Pos: fromLexer(a.Pos)}
	for _, m := range a.Meta {
		s, err := strconv.Unquote(m.Val)
		if err != nil {
			return nil, errAt(m.Pos, "graph attribute %s: %s is not a valid string", m.Key, m.Val)
		}
		g.Meta = append(g.Meta, Meta{m.Key, s})
	}
	for _, s := range a.Syms {
		if err := r.declareSym(s.Pos, s.Name, Sym(s.Name)); err != nil {
			return nil, err
		}
		g.Syms = append(g.Syms, s.Name)
	}
	for _, l := range a.Lets {
		d, err := ParseDim(l.Expr, r.sym)
		if err != nil {
			return nil, errAt(l.Pos, "let %s: %v", l.Name, err)
		}
		if err := r.declareSym(l.Pos, l.Name, d); err != nil {
			return nil, err
		}
		g.Lets = append(g.Lets, Let{l.Name, d, fromLexer(l.Pos)})
	}
	for _, d := range a.Decls {
		if err := r.decl(g, d); err != nil {
			return nil, err
		}
	}
	for _, o := range a.Ops {
		if err := r.op(g, o); err != nil {
			return nil, err
		}
	}
	for _, o := range a.Outputs {
		v, ok := r.values[o.Value]
		if !ok {
			return nil, errAt(o.Pos, "output %s: undefined value %s", o.Name, o.Value)
		}
		g.Outputs = append(g.Outputs, Output{o.Name, v, fromLexer(o.Pos)})
	}
	for _, u := range a.Updates {
		s, v := r.values[u.State], r.values[u.Value]
		if s == nil || v == nil {
			return nil, errAt(u.Pos, "update %s = %s: undefined value", u.State, u.Value)
		}
		g.Updates = append(g.Updates, Update{s, v, fromLexer(u.Pos)})
	}
	return g, nil
}

var declKinds = map[string]struct {
	kind  ValueKind
	sigil byte
}{"input": {InputValue, '%'}, "weight": {WeightValue, '@'}, "state": {StateValue, '!'}}

func (r *resolver) decl(g *Graph, d *declAST) error {
	k := declKinds[d.Kind]
	if d.Name[0] != k.sigil {
		return errAt(d.Pos, "%s names start with %c, not %s", d.Kind, k.sigil, d.Name)
	}
	t, err := ParseType(d.Type, r.sym)
	if err != nil {
		return errAt(d.Pos, "%s: %v", d.Name, err)
	}
	v := &Value{Kind: k.kind, Name: d.Name[1:], Type: t, Pos: fromLexer(d.Pos)}
	if r.values[d.Name] != nil {
		return errAt(d.Pos, "%s is declared twice [%s]", d.Name, RuleName)
	}
	r.values[d.Name] = v
	switch k.kind {
	case InputValue:
		g.Inputs = append(g.Inputs, v)
	case WeightValue:
		g.Weights = append(g.Weights, v)
	default:
		g.States = append(g.States, v)
	}
	return nil
}

func (r *resolver) op(g *Graph, a *opAST) error {
	pos := fromLexer(a.Pos)
	def, err := Lookup(a.Name)
	if err != nil {
		return errAt(a.Pos, "%v [%s]", err, RuleOp)
	}
	op := &Op{Def: def, Pos: pos, Args: make([]*Value, len(a.Args))}
	if a.Loc != "" {
		if op.Loc, err = strconv.Unquote(a.Loc); err != nil {
			return errAt(a.Pos, "loc %s is not a valid string", a.Loc)
		}
	}
	for i, name := range a.Args {
		v, ok := r.values[name]
		if !ok {
			return errAt(a.Pos, "%s: operand %s is not defined before its use [%s]", a.Name, name, RuleDominance)
		}
		op.Args[i] = v
	}
	given := make(Attrs, 0, len(a.Attrs))
	for _, x := range a.Attrs {
		ad := def.attr(x.Key)
		if ad == nil {
			return errAt(x.Pos, "%s has no attribute %q [%s]", a.Name, x.Key, RuleAttr)
		}
		val, err := parseAttr(ad.Kind, x.Val, r.sym)
		if err != nil {
			return errAt(x.Pos, "%s: attribute %s: %v [%s]", a.Name, x.Key, err, RuleAttr)
		}
		given = append(given, Attr{x.Key, val})
	}
	if op.Attrs, err = def.completeAttrs(given); err != nil {
		return errAt(a.Pos, "%s: %v [%s]", a.Name, err, RuleAttr)
	}
	if len(a.Types) != len(a.Results) {
		return errAt(a.Pos, "%s: %d results but %d types [%s]", a.Name, len(a.Results), len(a.Types), RuleArity)
	}
	for i, name := range a.Results {
		t, err := ParseType(a.Types[i], r.sym)
		if err != nil {
			return errAt(a.Pos, "%s: %v", a.Name, err)
		}
		if strings.Trim(name[1:], "0123456789") != "" {
			return errAt(a.Pos, "result %s: op results are numbered [%s]", name, RuleName)
		}
		if r.values[name] != nil {
			return errAt(a.Pos, "result %s is defined twice [%s]", name, RuleDominance)
		}
		v := &Value{Kind: OpResult, Type: t, Op: op, Index: i, Pos: pos}
		op.Results = append(op.Results, v)
		r.values[name] = v
	}
	g.Ops = append(g.Ops, op)
	return nil
}
