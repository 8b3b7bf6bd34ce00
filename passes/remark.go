package passes

import (
	"fmt"
	"strings"

	"github.com/kiln-project/kiln/ir"
)

// Remark says what a pass did at an op, or why it did not.
type Remark struct {
	Pass  string     `json:"pass"`
	Kind  RemarkKind `json:"kind"`
	Graph string     `json:"graph"`
	Loc   string     `json:"loc"` // of the op
	Pos   string     `json:"pos,omitempty"`
	Op    string     `json:"op"`
	Text  string     `json:"text"` // what was done, or the condition that failed
	At    *ir.Op     `json:"-"`    // the op itself: a loc and a name may be those of several; nil where nobody listens to the passes
}

// RemarkKind tells remarks apart.
type RemarkKind string

// The kinds.
const (
	Applied  RemarkKind = "applied"
	Missed   RemarkKind = "missed"
	Analysis RemarkKind = "analysis"
)

// String is one line, whatever a loc holds.
func (r Remark) String() string {
	where := r.Loc
	if r.Pos != "" {
		where = r.Pos
	}
	text := fmt.Sprintf("%s: %s @%s %s: %s: %s", r.Kind, r.Pass, r.Graph, where, r.Op, r.Text)
	return strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(text)
}

// Remark notes something about an op.
func (c *Context) Remark(kind RemarkKind, op *ir.Op, format string, args ...any) {
	c.Module.Remarks = append(c.Module.Remarks, Remark{
		Pass: c.pass, Kind: kind, Graph: c.graph, Loc: op.Loc, Pos: op.Pos.String(), Op: op.Def.Name, Text: fmt.Sprintf(format, args...), At: op,
	})
}
