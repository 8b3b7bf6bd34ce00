package dsv4_test

import (
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
)

// BenchmarkParsePro parses and verifies the text of the Pro decode graph.
func BenchmarkParsePro(b *testing.B) {
	c, err := dsv4.LoadConfig("../../testdata/configs/pro")
	if err != nil {
		b.Fatal(err)
	}
	g, err := dsv4.Build(c, dsv4.Decode, dsv4.DefaultOptions())
	if err != nil {
		b.Fatal(err)
	}
	text := ir.Text(g)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := ir.ParseOne("pro.kir", text); err != nil {
			b.Fatal(err)
		}
	}
}
