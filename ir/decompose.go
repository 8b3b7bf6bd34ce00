package ir

import "fmt"

// Decompose builds one level of a composite op's meaning: the simpler ops, whose
// operands are o's operands or one another, and the values that stand for o's
// results. A primitive is an error.
func Decompose(o *Op) (ops []*Op, results []*Value, err error) {
	if o.Def.Primitive() {
		return nil, nil, fmt.Errorf("%s is a primitive", o.Def.Name)
	}
	b := &Builder{g: &Graph{Name: o.Def.Name}, loc: o.Loc}
	results = o.Def.Decompose(b, o)
	if b.err != nil {
		return nil, nil, fmt.Errorf("decomposition of %s: %w", o.Def.Name, b.err)
	}
	if len(results) != len(o.Results) {
		return nil, nil, fmt.Errorf("decomposition of %s gives %d results, want %d", o.Def.Name, len(results), len(o.Results))
	}
	for i, r := range results {
		if r == nil {
			return nil, nil, fmt.Errorf("decomposition of %s: result %s is nil", o.Def.Name, o.Def.Results[i])
		}
		if !r.Type.Equal(o.Results[i].Type) {
			return nil, nil, fmt.Errorf("decomposition of %s: result %s is %s, inferred %s", o.Def.Name, o.Def.Results[i], r.Type, o.Results[i].Type)
		}
	}
	return b.g.Ops, results, nil
}
