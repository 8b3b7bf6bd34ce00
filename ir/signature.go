package ir

import (
	"fmt"
	"strings"
)

// Signature is what an op is but for its place and the values of its operands: name,
// attributes, types of operands, and the values of constants, which are part of what is
// computed. mark adds what else tells operand i apart, or "".
func (op *Op) Signature(mark func(i int) string) string {
	var s strings.Builder
	s.WriteString(op.Def.Name)
	for _, a := range op.Attrs {
		fmt.Fprintf(&s, " %s=%v", a.Key, a.Val)
	}
	for i, a := range op.Args {
		fmt.Fprintf(&s, " (%s", a.Type)
		if c := a.Constant(); c != nil {
			fmt.Fprintf(&s, " = %v", c.Float("value"))
		}
		s.WriteString(mark(i) + ")")
	}
	return s.String()
}

// Constant is the op that makes a value, if that is const; else nil.
func (v *Value) Constant() *Op {
	if v.Kind == OpResult && v.Op.Def.Name == "const" {
		return v.Op
	}
	return nil
}
