package kernels_test
import ("testing";"os";"github.com/kiln-project/kiln/codegen")
func TestZZ(t *testing.T) {
	bin := llvmBin(t)
	u := codegen.NewUnit(mustTarget(t, "gfx950"))
	u.Lower(wide(t), nil)
	asm, err := llvmRun(bin, mergedIR(u.Kernels), u.Target, "-filetype=asm")
	if err != nil { t.Fatal(err) }
	os.WriteFile("/tmp/kiln/wide.s", asm, 0o644)
}
