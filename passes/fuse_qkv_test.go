package passes

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// In the model every block joins wq_a and wkv, and the two wq_b where there is an
// indexer; no entry reads any of them by itself.
func TestFuseQKVOfTheModel(t *testing.T) {
	m := tinyModule(t)
	p, err := Lookup("fuse-qkv")
	if err != nil {
		t.Fatal(err)
	}
	if err := runOne(p, m); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, r := range m.Remarks {
		if r.Kind == Applied {
			got[r.Graph] = append(got[r.Graph], r.Text)
		}
	}
	pair := func(block string) string {
		return "one product with @" + block + ".attn.wkv and @" + block + ".attn.wq_a"
	}
	indexer := func(block string) string {
		return "one product with @" + block + ".attn.indexer.wq_b and @" + block + ".attn.wq_b"
	}
	main := []string{
		pair("layers.0"), pair("layers.1"), pair("layers.2"), indexer("layers.2"), pair("layers.3"),
		pair("layers.4"), indexer("layers.4"), pair("layers.5"),
	}
	want := map[string][]string{"prefill": main, "decode": main, "verify": main, "draft": {pair("mtp.0")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("joined weights, -want +got:\n%s", diff)
	}
	for _, g := range m.Entries {
		u := usesOf(g)
		for _, op := range g.Ops {
			if op.Def.Name != "concat" {
				continue
			}
			for _, w := range op.Args {
				if n := len(u.of[w]); n != 1 {
					t.Errorf("@%s: %s has %d uses", g.Name, w, n)
				}
			}
		}
	}
}
