package kernels_test
import ("testing";"os";"github.com/kiln-project/kiln/codegen";"github.com/kiln-project/kiln/ir";"maps";"slices")
func TestZZ(t *testing.T) {
	bin := llvmBin(t)
	u := codegen.NewUnit(mustTarget(t, "sm_90"))
	graphs := []*ir.Graph{wide(t)}
	names := slices.Sorted(maps.Keys(makers))
	for i := range (len(names) + 1) / 2 {
		d := newDAG(t, uint64(i))
		graphs = append(graphs, d.graph(4, []string{names[2*i%len(names)], names[(2*i+1)%len(names)]}))
	}
	for _, g := range graphs {
		if _, err := u.Lower(g, nil); err != nil { t.Fatal(err) }
	}
	os.WriteFile("/tmp/kiln/sm90.ll", []byte(mergedIR(u.Kernels)), 0o644)
	asm, err := llvmRun(bin, mergedIR(u.Kernels), u.Target, "-mattr=+ptx78", "-filetype=asm")
	if err != nil { t.Fatal(err) }
	os.WriteFile("/tmp/kiln/sm90.ptx", asm, 0o644)
}
