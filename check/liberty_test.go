package check

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/emu"
)

// onChip is a config for an emulated chip.
func onChip(t *testing.T, chip string) OpsConfig {
	t.Helper()
	cfg := onHost(t)
	tg, err := target.Lookup(chip)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Target = tg
	cfg.Open = func() (device.Device, error) {
		l := emu.Loader{ObjDump: cfg.Compiler.Tools.ObjDump, Version: cfg.Compiler.Tools.Version, Store: cfg.Compiler.Cache}
		return emu.Open(t.Context(), chip, l, emu.Options{})
	}
	return cfg
}

// A kernel that takes a liberty is held to what the op table allows it, and what it is
// told; without the form there is none.
func TestLiberty(t *testing.T) {
	for _, tc := range []struct {
		only    string
		disable []string
		limit   string
		taken   string
	}{
		{"layers.0.attn", nil, "1-cos <= 0.0005", "liberty bf16-probabilities of sparse_attention_mfma"},
		{"sparse_attention", []string{"sparse_attention_mfma"}, ">= 99.5% identical, rest within 1 bf16 ulp", ""},
	} {
		cfg := onChip(t, "gfx950")
		cfg.Only, cfg.Disable = tc.only, tc.disable
		s := subject(t, "decode", decode)
		r, err := Ops(t.Context(), s, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range r.Breaches {
			t.Error(b)
		}
		for _, o := range r.Ops {
			taken := ""
			if o.Liberty != nil {
				taken = o.Liberty.String()
			}
			switch o.Op {
			case "sparse_attention":
				if o.Limit != tc.limit || taken != tc.taken || o.Values == 0 {
					t.Errorf("without %q: %+v, %s", tc.disable, o, taken)
				}
			case "hc_pre", "hc_fused_quant":
				if !strings.HasPrefix(taken, "liberty two-bf16-weights of "+o.Op+"_mfma") {
					t.Errorf("%+v, %q", o, taken)
				}
			default:
				if o.Liberty != nil || o.Limit != o.def.LimitOf(0).String() {
					t.Errorf("%+v, %q", o, taken)
				}
			}
		}
	}
}

// What is beyond the liberty is found: a probability that is its score, and a factor,
// which no angle shows.
func TestPlantedBeyondLiberty(t *testing.T) {
	for _, tc := range []struct{ from, to, want string }{
		{`call float @llvm\.amdgcn\.exp2\.f32\((float %\d+)\)`, "fadd $1, 0.0", "1-cos of bf16[2,4,128] is "},
		{`fdiv float 1\.0,`, "fdiv float 2.0,", "bf16[2,4,128] has 2 times the length that is wanted"},
	} {
		cfg := onChip(t, "gfx950")
		cfg.Only = "sparse_attention"
		planted := false
		cfg.Lowered = func(u *codegen.Unit) {
			for i, k := range u.Kernels {
				if u.Module.Kernels[i].Form != "sparse_attention_mfma" {
					continue
				}
				wrong := regexp.MustCompile(tc.from).ReplaceAllString(k.IR, tc.to)
				planted, k.IR = planted || wrong != k.IR, wrong
			}
		}
		r, err := Ops(t.Context(), subject(t, "decode", decode), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if !planted || len(r.Ops) != 1 || r.Ops[0].OK || r.Ops[0].Liberty == nil || len(r.Breaches) == 0 {
			t.Fatalf("%s: planted %t, %+v", tc.from, planted, r.Ops)
		}
		if !strings.HasPrefix(r.Breaches[0].Text, tc.want) {
			t.Errorf("%s: %s", tc.from, r.Breaches[0])
		}
	}
}

// A chip whose 8-bit floats have no -0 gives 0 where an op's numbers are of 8-bit codes,
// and nowhere else.
func TestNoMinusZero(t *testing.T) {
	minus := float32(math.Copysign(0, -1))
	row := func(x ...float32) *eval.Tensor {
		return &eval.Tensor{DType: ir.BF16, Shape: []int{len(x)}, F: x}
	}
	want := row(minus, minus, 0, 1)
	got := withoutMinusZero(want, row(0, minus, minus, 2))
	if !got.SameBits(row(0, minus, 0, 1)) || !want.SameBits(row(minus, minus, 0, 1)) {
		t.Errorf("%v of %v", got.F, want.F)
	}
	s := subject(t, "prefill", prefill)
	s.Module.Target = passes.Target{Name: "gfx942", Chip: "gfx942", GPU: true, FNUZ: true}
	list, err := s.versions()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]bool{}
	for _, op := range list[len(list)-1].graph.Ops {
		if skipped(op) {
			continue
		}
		var ones oneOps
		o, err := ones.of(op)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(o.ofCodes, true) {
			found[op.Def.Name] = o.ofCodes
		}
	}
	makers := map[string][]bool{ // the rows of caches are packed
		"compress_row": {true}, "hc_fused_quant": {false, false, false, false, true}, "rms_norm_quant": {true}, "rms_norm_rope": {true},
	}
	if diff := cmp.Diff(makers, found); diff != "" {
		t.Error(diff)
	}
}
