package ir

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// opReferenceHead introduces the op reference.
const opReferenceHead = `# Op reference

Generated from the op table of package ir; do not edit. To renew it:

    go test ./ir -run OpReference -update

A **primitive** has its meaning in the evaluator. A **composite** means its
decomposition into simpler ops. The **error limit** is what an implementation of
the op may deviate from that meaning; f32 results are held to a limit in bf16
ulps after rounding to bf16. What an op **that makes a table** gives depends on
attributes alone; packing computes it once.

Operands are listed in order; "repeated" ones come as groups, at least once.
Attributes stand in braces in the text form; one without a default is required.
Kinds of attributes: int (32 bits), float (finite unless said otherwise), bool,
string, dtype, dim (an extent in brackets, e.g. ` + "`[T/4+B]`" + `), int list, dim list.
`

// WriteOpReference writes the op table as Markdown: ops by group, then by name,
// each with its operands, attributes, results and error limit. Equal tables give
// equal bytes. The error is the writer's.
func WriteOpReference(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprint(out, opReferenceHead)
	ops := Ops()
	for i, d := range ops { // an overview, a line a group
		if i == 0 || ops[i-1].Group != d.Group {
			fmt.Fprintf(out, "\n**%s**: ", d.Group)
		} else {
			fmt.Fprint(out, ", ")
		}
		fmt.Fprintf(out, "[%s](#%[1]s)", d.Name)
		if i+1 == len(ops) || ops[i+1].Group != d.Group {
			fmt.Fprintln(out)
		}
	}
	for i, d := range ops {
		if i == 0 || ops[i-1].Group != d.Group {
			fmt.Fprintf(out, "\n## %s ops\n", d.Group)
		}
		d.writeReference(out)
	}
	return out.Flush()
}

func (d *OpDef) writeReference(w io.Writer) {
	fmt.Fprintf(w, "\n### %s\n\n    %s\n\n%s\n\n", d.Name, d.signature(), strings.ReplaceAll(d.Doc, "*", `\*`))
	kind := "Primitive"
	if !d.Primitive() {
		kind = "Composite"
	}
	if d.Table {
		kind += " that makes a table"
	}
	limit := ""
	if !d.Primitive() || d.Limit.Kind != Exact {
		limit = "; error limit: " + d.Limit.String()
		if d.Limit.Why != "" {
			limit += " (" + d.Limit.Why + ")"
		}
		for i := 1; i < len(d.Results); {
			from, l := i, d.LimitOf(i)
			for i < len(d.Results) && d.LimitOf(i) == l {
				i++
			}
			if l != d.Limit {
				limit += fmt.Sprintf("; %s: %s", strings.Join(d.Results[from:i], ", "), l)
				if l.Why != "" {
					limit += " (" + l.Why + ")"
				}
			}
		}
		if d.Rest != nil {
			limit += fmt.Sprintf("; all but %s given the %s that the implementation has", d.Results[0], d.Results[0])
		}
	}
	if d.FusedBy != "" {
		kind += " that " + d.FusedBy + " makes"
	}
	fmt.Fprintf(w, "%s%s.\n", kind, limit)
	for _, y := range d.Liberties {
		fmt.Fprintf(w, "\nLiberty %s: %s; error limit", y.Name, y.Doc)
		for i := range y.Limits {
			if i > 0 {
				fmt.Fprint(w, ", then")
			}
			fmt.Fprintf(w, " %s", y.Limits[i])
		}
		fmt.Fprint(w, ".\n")
	}
	described := func(o OperandDef) bool { return o.Doc != "" || o.Repeat }
	if slices.ContainsFunc(d.Operands, described) { // x and y say themselves
		fmt.Fprint(w, "\n| operand | |\n|---|---|\n")
		for _, o := range d.Operands {
			doc := o.Doc
			if o.Repeat {
				doc = strings.TrimPrefix(doc+"; repeated", "; ")
			}
			fmt.Fprintf(w, "| `%s` | %s |\n", o.Name, cell(doc))
		}
	}
	if len(d.Attrs) > 0 {
		fmt.Fprint(w, "\n| attribute | kind | default | |\n|---|---|---|---|\n")
		for _, a := range d.Attrs {
			def := "required"
			if a.Default != nil {
				def = "`" + attrText(a.Default, Dim.String) + "`"
			}
			kind := a.Kind.String()
			if a.AnyFloat {
				kind += ", infinities and NaN too"
			}
			fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", a.Name, kind, def, cell(a.Doc))
		}
	}
}

// signature shows the op as it stands in text, with names for values.
func (d *OpDef) signature() string {
	var b strings.Builder
	for i, r := range d.Results {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("%" + r)
	}
	b.WriteString(" = " + d.Name)
	for i, o := range d.Operands {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(" %" + o.Name)
		if o.Repeat {
			b.WriteString("..")
		}
	}
	var names []string
	for _, a := range d.Attrs {
		names = append(names, a.Name)
	}
	if len(names) > 0 {
		b.WriteString(" {" + strings.Join(names, ", ") + "}")
	}
	return b.String()
}

// cell escapes text for a table.
func cell(s string) string { return strings.NewReplacer("|", `\|`, "*", `\*`).Replace(s) }
