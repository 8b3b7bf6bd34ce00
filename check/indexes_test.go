package check

import (
	"testing"

	"github.com/kiln-project/kiln/ir"
)

func TestIndexes(t *testing.T) {
	const experts, vocab = 16, 40
	b := ir.NewBuilder("g")
	w := b.Weight("w", ir.T(ir.BF16, ir.Int(experts), ir.Int(8)))
	table, tokens := b.Weight("table", ir.T(ir.I64, ir.Int(vocab), ir.Int(6))), b.Input("tokens", ir.T(ir.I32, ir.Int(300)))
	b.Output("y", b.Op1("gather_rows", nil, w, b.Input("rows", ir.T(ir.I32, ir.Int(300)))))
	b.Output("z", b.Op1("gather_rows", nil, table, tokens))
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	inputs, below, err := Indexes(g, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(inputs) != 2 || len(below) != 1 {
		t.Fatalf("inputs %v, below %v", inputs, below)
	}
	for name, end := range map[string]int64{"rows": experts, "tokens": vocab} {
		seen := map[int64]bool{}
		for _, i := range inputs[name].I {
			if seen[i] = true; i < 0 || i >= end {
				t.Fatalf("%s: %d is not below %d", name, i, end)
			}
		}
		if len(seen) != int(end) {
			t.Errorf("%s: %d different indexes of %d", name, len(seen), end)
		}
	}
}
