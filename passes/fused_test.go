package passes

import (
	"slices"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

// What the op table calls the maker of an op is a pass that can be left out, and the op
// means something without it.
func TestFusedBy(t *testing.T) {
	makers := map[string]bool{}
	for _, d := range ir.Ops() {
		if d.FusedBy == "" {
			continue
		}
		makers[d.FusedBy] = true
		i := slices.IndexFunc(Table, func(p Pass) bool { return p.Name == d.FusedBy })
		if i < 0 || Table[i].Required {
			t.Errorf("%s is made by %q, which is no optional pass", d.Name, d.FusedBy)
		}
		if d.Primitive() {
			t.Errorf("%s is made by %s of nothing", d.Name, d.FusedBy)
		}
	}
	for _, name := range []string{"fuse-hc", "fuse-head-argmax", "fuse-linears", "fuse-moe-add", "fuse-norm-quant", "fuse-qkv", "fuse-rope", "fuse-topk"} {
		if !makers[name] {
			t.Errorf("no op is made by %s", name)
		}
	}
}
