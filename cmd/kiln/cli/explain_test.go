package cli

import (
	"slices"
	"strings"
	"testing"
)

// What is disabled is named as compile names it.
func TestExplainNamesPasses(t *testing.T) {
	args := []string{"explain", "--model", tinyModel, "--target", "gfx950", "--disable-pass", "fuse-hc", "--disable-kernel", "swiglu"}
	r := kiln(t, append(slices.Clone(args), "-v")...).ok(t)
	if head := strings.SplitN(r.stdout, "\n", 2)[0]; !strings.HasSuffix(head, ", disable-pass fuse-hc, disable-kernel swiglu") {
		t.Errorf("head %q", head)
	}
	if !strings.Contains(r.stderr, "passes: --disable-pass fuse-hc\n") {
		t.Errorf("standard error %q", r.stderr)
	}
	var x explanation
	kiln(t, append(slices.Clone(args), "--json")...).decode(t, &x)
	if x.Passes == nil || !slices.Equal(x.Passes.Disable, []string{"fuse-hc"}) || !slices.Equal(x.Passes.DisableKernels, []string{"swiglu"}) {
		t.Errorf("passes %+v", x.Passes)
	}
	var plain explanation
	if kiln(t, append(args[:5:5], "--json")...).decode(t, &plain); plain.Passes != nil {
		t.Errorf("the default is %+v", plain.Passes)
	}
}

func TestExplain(t *testing.T) {
	args := []string{"explain", "--model", flashConfig, "--target", "gfx950"}
	r := kiln(t, args...).ok(t)
	if again := kiln(t, args...); again != r {
		t.Error("a second time it says something else")
	}
	for _, part := range []string{
		"decode for gfx950, B=1 N=64 P=64 R=1; floor times of MI355X\n", "layers 0 (ratio 0) ", "layers 4,6,8... (ratio 4) ", "\nthe step ",
		"applied: cse: history_rows at layers.N.attn: is computed at layers.N.attn already",
	} {
		if !strings.Contains(r.stdout, part) {
			t.Errorf("explain lacks %q:\n%s", part, r.stdout)
		}
	}
	if out := kiln(t, "explain", "--model", tinyModel, "--target", "x86-64-v3").ok(t).stdout; !strings.Contains(strings.SplitN(out, "\n", 2)[0], "; no floor times: the rates of x86-64-v3 are not known") {
		t.Errorf("for a host: %.200s", out)
	}
	var x explanation
	kiln(t, append(args, "--json")...).decode(t, &x)
	layers, launches, floor := 0, [2]int{}, 0.0
	for _, k := range x.Kinds {
		n := max(1, len(k.Layers))
		layers += len(k.Layers)
		launches[0] += n * k.Cost.Before.Launches
		launches[1] += n * k.Cost.After.Launches
		floor += float64(n) * *k.Cost.After.FloorUS
		if k.Name == "layers" && k.Ratio == nil {
			t.Errorf("layers %v have no ratio", k.Layers)
		}
	}
	if layers != 43 || launches[0] != x.Total.Before.Launches || launches[1] != x.Total.After.Launches || launches[1] >= launches[0] {
		t.Errorf("%d layers, launches %v, totals %+v", layers, launches, x.Total)
	}
	if d := floor - *x.Total.After.FloorUS; d > 1e-6*floor || -d > 1e-6*floor {
		t.Errorf("the floor times add up to %v, the total is %v", floor, *x.Total.After.FloorUS)
	}
	// Without the optional passes there is nothing to tell.
	var none explanation
	kiln(t, append(args, "--json", "--pipeline", "required")...).decode(t, &none)
	if none.Total.Before.Launches != none.Total.After.Launches || none.Total.Before.Launches != x.Total.Before.Launches {
		t.Errorf("with the required passes only: %+v", none.Total)
	}
	for _, k := range none.Kinds {
		if len(k.Remarks) > 0 {
			t.Errorf("remarks %+v", k.Remarks)
		}
	}
	// A disabled form is no form of either side.
	var disabled explanation
	kiln(t, append(args, "--json", "--disable-kernel", "rms_norm")...).decode(t, &disabled)
	if disabled.Total.Before.Launches <= x.Total.Before.Launches {
		t.Errorf("without rms_norm: %+v", disabled.Total)
	}
}

func TestExplainOp(t *testing.T) {
	out := kiln(t, "explain", "--model", tinyModel, "--target", "gfx942", "--op", "layers.2.ffn", "--bind", "B=4").ok(t).stdout
	for _, part := range []string{"decode for gfx942, B=4 ", " R=4; ", "  launches, required:", "  launches, now:", "moe_experts at layers.2.ffn"} {
		if !strings.Contains(out, part) {
			t.Errorf("explain --op lacks %q:\n%s", part, out)
		}
	}
	if strings.Contains(out, "at layers.2.attn") || strings.Contains(out, "at layers.1.ffn ") {
		t.Errorf("explain --op has other places:\n%s", out)
	}
	for _, entry := range []string{"prefill", "verify", "draft"} {
		kiln(t, "explain", "--model", tinyModel, "--target", "x86-64-v3", "--entry", entry).ok(t)
	}
}

// A whole speculative step has the MTP block and the launches of its drafts.
func TestExplainSpeculate(t *testing.T) {
	explain := func(entry string) explanation {
		var x explanation
		kiln(t, "explain", "--model", tinyModel, "--target", "gfx950", "--entry", entry, "--json").decode(t, &x)
		return x
	}
	one, four := explain("speculate1"), explain("speculate4")
	if one.Entry != "speculate1" || one.Bind["B"] != 1 || one.Total.After.Launches >= one.Total.Before.Launches || four.Total.After.Launches <= one.Total.After.Launches {
		t.Errorf("%+v, with 4 drafts %+v", one.Total, four.Total)
	}
	var names []string
	for _, k := range one.Kinds {
		names = append(names, k.Name)
	}
	if !slices.Contains(names, "mtp") || !slices.Contains(names, "accept") {
		t.Errorf("kinds %v", names)
	}
}

func TestExplainErrors(t *testing.T) {
	base := []string{"explain", "--model", tinyModel, "--target", "gfx950"}
	for _, tc := range []struct {
		args []string
		code int
		part string
	}{
		{[]string{"--entry", "pack"}, 2, `unknown entry "pack"`},
		{[]string{"--entry", "speculate17"}, 3, "--entry speculate17: at most 16 draft tokens"},
		{[]string{"--target", "gfx942,gfx950"}, 2, "explain takes one target"},
		{[]string{"--bind", "X=1"}, 2, "@decode has no symbol X: it has B, R, P, N"},
		{[]string{"--op", "layers.99"}, 2, "no op of @decode is there"},
		{[]string{"--disable-kernel", "rms"}, 2, `unknown kernel form "rms": near are rms_norm`},
		{[]string{"--passes", "cze"}, 2, `unknown pass "cze"`},
	} {
		kiln(t, append(base, tc.args...)...).failed(t, tc.code, tc.part)
	}
}
