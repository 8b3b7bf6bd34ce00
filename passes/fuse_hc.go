package passes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/ir"
)

// fuseHC makes one op of the border between two sublayers: hc_post of the one,
// hc_pre and the norm of the next, be it of the same layer or not. The streams may
// have other readers, such as the next hc_post or an output; y may not.
func fuseHC(c *Context, g *ir.Graph) (*ir.Graph, error) {
	out, err := Rewrite(c, g, hcBorder)
	if err != nil {
		return nil, err
	}
	// Every hc_pre has its remark. An hc_post that none reads has none yet.
	mixed := map[*ir.Value]bool{}
	for _, op := range out.Ops {
		if op.Def.Name == "hc_pre" {
			mixed[op.Args[0]] = true
		}
	}
	for _, op := range out.Ops {
		if op.Def.Name == "hc_post" && !mixed[op.Results[0]] {
			c.Remark(Missed, op, "no hc_pre reads the streams")
		}
	}
	return out, nil
}

var hcBorder = Rule{
	Pattern: Pattern{
		Op: "hc_pre", As: "pre",
		Args: map[int]Pattern{0: {Op: "hc_post", As: "post"}},
		User: map[int]Pattern{0: {Op: "rms_norm", As: "norm"}},
	},
	Anchor:  true,
	Gate:    fewTokens,
	Results: []Result{{"post", 0}, {"norm", 0}, {"pre", 1}, {"pre", 2}},
	Build: func(e *ir.Edit, m *Match) []*ir.Value {
		pre, norm := m.Op("pre"), m.Op("norm")
		var args []*ir.Value
		for _, v := range slices.Concat(m.Op("post").Args, pre.Args[1:], norm.Args[1:]) {
			args = append(args, e.Value(v))
		}
		return e.Op("hc_fused", slices.Concat(pre.Attrs, ir.A("rms_eps", norm.Float("eps"))), args...)
	},
	Says: "with hc_post and rms_norm, as hc_fused",
}

// fewTokens is the gate: a step of at most so many token rows.
func fewTokens(c *Context, m *Match) string {
	const key = FusedHCTokens
	rows := m.Arg("pre", 0).Type.Dims[0]
	t, ok := rows.Const()
	if !ok {
		syms := slices.Compact(slices.Sorted(slices.Values(rows.Symbols(nil))))
		return fmt.Sprintf("%s unbound: whether %s is within %s is not known", strings.Join(syms, ", "), rows, key)
	}
	most, err := c.Threshold(key)
	if err != nil {
		return err.Error()
	}
	if t > most {
		return fmt.Sprintf("T is %d, above %s, which is %d", t, key, most)
	}
	return ""
}
