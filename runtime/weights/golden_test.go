package weights_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/kiln-project/kiln/ir/num"
	"github.com/kiln-project/kiln/runtime/weights"
)

const testdata = "../../testdata"

// TestTinyCheckpoint checks count and bytes of the tiny checkpoint, that its
// names are canonical, and a round trip of all of it through Write.
func TestTinyCheckpoint(t *testing.T) {
	c := open(t, filepath.Join(testdata, "tiny-dsv4"))
	names := c.Names()
	var total int
	var tensors []weights.Tensor
	counts := map[weights.DType]int{}
	for _, name := range names {
		x, err := c.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if x.Name != name {
			t.Errorf("%s is called %s", name, x.Name)
		}
		total += len(x.Data)
		counts[x.DType]++
		tensors = append(tensors, *x)
	}
	if len(names) != 585 || total != 10_756_074 {
		t.Errorf("%d tensors of %d bytes, want 585 of 10756074", len(names), total)
	}
	for d, want := range map[weights.DType]int{weights.F8E8M0: 228, weights.I8: 168, weights.F32: 67, weights.BF16: 61, weights.F8E4M3: 60, weights.I64: 1} {
		if counts[d] != want {
			t.Errorf("%d tensors of type %v, want %d", counts[d], d, want)
		}
	}
	if got := c.Metadata()["format"]; got != "pt" {
		t.Errorf("format %q, want pt", got)
	}
	path := filepath.Join(t.TempDir(), "copy.safetensors")
	if err := weights.Write(path, tensors, c.Metadata()); err != nil {
		t.Fatal(err)
	}
	again := open(t, path)
	for _, want := range tensors {
		got, err := again.Lookup(want.Name)
		if err != nil {
			t.Fatal(err)
		}
		if got.DType != want.DType || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("%s changed on the way", want.Name)
		}
	}
	hash, err := c.Lookup("layers.0.ffn.gate.tid2eid")
	if err != nil {
		t.Fatal(err)
	}
	experts, err := hash.Int64s()
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range experts {
		if e < 0 || e >= 8 {
			t.Fatalf("tid2eid element %d is %d, the model has 8 experts", i, e)
		}
	}
}

// TestTinyByFile opens the file itself instead of its folder.
func TestTinyByFile(t *testing.T) {
	c := open(t, filepath.Join(testdata, "tiny-dsv4", "model.safetensors"))
	if n := len(c.Names()); n != 585 {
		t.Errorf("%d tensors, want 585", n)
	}
}

// TestGoldenNames checks that renaming leaves the tensors of the golden files
// alone.
func TestGoldenNames(t *testing.T) {
	for _, file := range []string{"expected/ops", "expected/e2e", "expected-production/ops", "expected-production/e2e"} {
		path := filepath.Join(testdata, "golden", filepath.FromSlash(file)+".safetensors")
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range open(t, path).Names() {
			if !bytes.Contains(raw, []byte(`"`+name+`"`)) {
				t.Errorf("%s: %s is not a name of the file", file, name)
			}
		}
	}
}

// golden decodes a tensor, and returns its bytes as well.
func golden(t *testing.T, c *weights.Checkpoint, name string) ([]float32, []byte) {
	t.Helper()
	x, err := c.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	v, err := x.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return v, x.Data
}

// roundTrip quantises x in blocks and returns the decoded values in bf16.
func roundTrip(x []float32, block int, f num.Format, floor float32) []float32 {
	out := make([]float32, 0, len(x))
	codes := make([]byte, block)
	for ; len(x) > 0; x = x[block:] {
		s := num.FromE8M0(num.QuantizeBlock(codes, x[:block], f, floor))
		for _, c := range codes {
			out = append(out, num.RoundBF16(f.Decode(c)*s))
		}
	}
	return out
}

// TestGoldenQuantisation holds the block quantisation of package num to the
// reference, bit by bit: codes and scales in blocks of 128, and the round trips
// in place, which are the identity in the variant that does not round.
func TestGoldenQuantisation(t *testing.T) {
	for _, variant := range []struct {
		folder string
		rounds bool
	}{{"expected", false}, {"expected-production", true}} {
		t.Run(variant.folder, func(t *testing.T) {
			c := open(t, filepath.Join(testdata, "golden", variant.folder, "ops.safetensors"))
			x, _ := golden(t, c, "act_quant.x")
			_, codes := golden(t, c, "act_quant.q")
			_, scales := golden(t, c, "act_quant.scale")
			const block = 128
			if len(x) != 7*256 || len(codes) != len(x) || len(scales) != len(x)/block {
				t.Fatalf("%d values, %d codes, %d scales", len(x), len(codes), len(scales))
			}
			got := make([]byte, block)
			for i, want := range scales {
				s := num.QuantizeBlock(got, x[i*block:(i+1)*block], num.FmtE4M3, num.FloorE4M3)
				if s != want || !bytes.Equal(got, codes[i*block:(i+1)*block]) {
					t.Errorf("block %d: scale %d, want %d; codes %v, want %v", i, s, want, got, codes[i*block:(i+1)*block])
				}
			}
			for _, op := range []struct {
				name  string
				block int
				f     num.Format
				floor float32
			}{
				{"act_quant.inplace64", 64, num.FmtE4M3, num.FloorE4M3},
				{"fp4_act_quant.inplace32", 32, num.FmtE2M1, num.FloorE2M1},
			} {
				want, _ := golden(t, c, op.name)
				rounded := roundTrip(x, op.block, op.f, op.floor)
				got, other := x, rounded
				if variant.rounds {
					got, other = rounded, x
				}
				if i := firstDifference(got, want); i >= 0 {
					t.Errorf("%s: element %d is %x, want %x", op.name, i, got[i], want[i])
				}
				if firstDifference(other, want) < 0 {
					t.Errorf("%s: the values do not tell the variants apart", op.name)
				}
			}
		})
	}
}

// firstDifference returns the first index whose bits differ, or -1.
func firstDifference(a, b []float32) int {
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}
