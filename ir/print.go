package ir

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Print writes g in .kir text. Equal graphs give equal bytes, and Parse reads
// back a graph that prints the same.
func Print(w io.Writer, g *Graph) error {
	g.Number()
	p := &printer{bufio.NewWriter(w), PartsOf(g)}
	p.graph(g)
	return p.w.Flush()
}

// Text is Print into a string.
func Text(g *Graph) string {
	var b strings.Builder
	Print(&b, g) // a strings.Builder does not fail
	return b.String()
}

// Parts makes pieces of a graph's text, for those who lay it out themselves.
type Parts struct {
	lets map[string]string // normal form -> derived symbol
}

// PartsOf starts on a graph: its derived symbols have names.
func PartsOf(g *Graph) *Parts {
	p := &Parts{lets: map[string]string{}}
	for _, l := range g.Lets {
		if _, isConst := l.Dim.Const(); !isConst {
			if _, taken := p.lets[l.Dim.String()]; !taken {
				p.lets[l.Dim.String()] = l.Name
			}
		}
	}
	return p
}

// Type is the text of a type.
func (p *Parts) Type(t Type) string { return t.text(p.dim) }

// Attrs is the text of an op's attributes, braces included; "" if all are as the
// op table says.
func (p *Parts) Attrs(o *Op) string {
	var b strings.Builder
	for _, a := range o.Attrs {
		if def := o.Def.attr(a.Key); def != nil && def.Default != nil && attrText(def.Default, p.dim) == attrText(a.Val, p.dim) {
			continue // the table says it
		}
		sep := ", "
		if b.Len() == 0 {
			sep = "{"
		}
		fmt.Fprintf(&b, "%s%s = %s", sep, a.Key, attrText(a.Val, p.dim))
	}
	if b.Len() > 0 {
		b.WriteByte('}')
	}
	return b.String()
}

type printer struct {
	w *bufio.Writer
	*Parts
}

// dim prefers the name of a derived symbol with the same normal form.
func (p *Parts) dim(d Dim) string {
	if d.x == nil {
		return d.String()
	}
	s := d.String()
	if name, ok := p.lets[s]; ok {
		return name
	}
	return s
}

func (p *printer) graph(g *Graph) {
	fmt.Fprintf(p.w, "graph @%s", g.Name)
	for i, m := range g.Meta {
		sep := ", "
		if i == 0 {
			sep = " {"
		}
		fmt.Fprintf(p.w, "%s%s = %s", sep, m.Key, strconv.Quote(m.Val))
	}
	if len(g.Meta) > 0 {
		p.w.WriteByte('}')
	}
	p.w.WriteByte('\n')
	if len(g.Syms) > 0 {
		fmt.Fprintf(p.w, "sym %s\n", strings.Join(g.Syms, ", "))
	}
	for _, l := range g.Lets {
		fmt.Fprintf(p.w, "let %s = %s\n", l.Name, l.Dim)
	}
	p.values("input", g.Inputs)
	p.values("weight", g.Weights)
	p.values("state", g.States)
	for _, op := range g.Ops {
		p.op(op)
	}
	for _, o := range g.Outputs {
		fmt.Fprintf(p.w, "output %s = %s\n", o.Name, o.Value)
	}
	for _, u := range g.Updates {
		fmt.Fprintf(p.w, "update %s = %s\n", u.State, u.Value)
	}
}

func (p *printer) values(keyword string, vs []*Value) {
	for _, v := range vs {
		fmt.Fprintf(p.w, "%s %s : %s\n", keyword, v, p.Type(v.Type))
	}
}

func (p *printer) op(o *Op) {
	for i, r := range o.Results {
		if i > 0 {
			p.w.WriteString(", ")
		}
		p.w.WriteString(r.String())
	}
	fmt.Fprintf(p.w, " = %s", o.Def.Name)
	for i, a := range o.Args {
		if i > 0 {
			p.w.WriteByte(',')
		}
		p.w.WriteByte(' ')
		p.w.WriteString(a.String())
	}
	if attrs := p.Attrs(o); attrs != "" {
		p.w.WriteString(" " + attrs)
	}
	for i, r := range o.Results {
		sep := ", "
		if i == 0 {
			sep = " : "
		}
		p.w.WriteString(sep + p.Type(r.Type))
	}
	if o.Loc != "" {
		fmt.Fprintf(p.w, " loc(%s)", strconv.Quote(o.Loc))
	}
	p.w.WriteByte('\n')
}
