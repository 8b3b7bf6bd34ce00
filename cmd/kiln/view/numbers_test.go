package view

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

// followed numbers graphs one after another and returns the last one's numbers
// of the results of its ops.
func followed(t *testing.T, texts ...string) string {
	t.Helper()
	n := &numbers{byName: map[string]int{}}
	var last *numbered
	for _, text := range texts {
		last = n.graph(last, parse(t, "graph @g\ninput %a : f32[4]\ninput %b : f32[4]\n"+text))
	}
	var out []string
	seen := map[int]*ir.Value{}
	for _, op := range last.graph.Ops {
		for _, r := range op.Results {
			id := last.of[r]
			if seen[id] != nil {
				t.Errorf("%s and %s have one number %d", r, seen[id], id)
			}
			seen[id] = r
			out = append(out, op.Def.Name+string(rune('0'+id)))
		}
	}
	return strings.Join(out, " ")
}

// Inputs are 0 and 1, so that the first op's result is 2.
func TestNumbers(t *testing.T) {
	for _, tc := range []struct{ name, before, after, want string }{
		{"the same",
			"%0 = add %a, %b : f32[4]\n%1 = exp %0 : f32[4]\noutput y = %1\n",
			"%0 = add %a, %b : f32[4]\n%1 = exp %0 : f32[4]\noutput y = %1\n", "add2 exp3"},
		{"another order",
			"%0 = exp %a : f32[4]\n%1 = exp %b : f32[4]\n%2 = add %0, %1 : f32[4]\noutput y = %2\n",
			"%0 = exp %b : f32[4]\n%1 = exp %a : f32[4]\n%2 = add %1, %0 : f32[4]\noutput y = %2\n", "exp3 exp2 add4"},
		{"an op before its like is gone",
			"%0 = exp %a : f32[4]\n%1 = exp %b : f32[4]\n%2 = add %1, %a : f32[4]\noutput y = %2\n",
			"%0 = exp %b : f32[4]\n%1 = add %0, %a : f32[4]\noutput y = %1\n", "exp3 add4"},
		{"other operands, as many ops",
			"%0 = exp %a : f32[4]\n%1 = exp %0 : f32[4]\noutput y = %1\n",
			"%0 = exp %b : f32[4]\n%1 = exp %0 : f32[4]\noutput y = %1\n", "exp2 exp3"},
		{"other operands, one op less",
			"%0 = exp %a : f32[4]\n%1 = add %a, %0 : f32[4]\n%2 = add %b, %0 : f32[4]\noutput x = %1\noutput y = %2\n",
			"%0 = add %b, %a : f32[4]\noutput x = %a\noutput y = %0\n", "add4"},
		{"two ops fused: who read their result reads the new op's",
			"%0 = add %a, %b : f32[4]\n%1 = exp %0 : f32[4]\n%2 = add %1, %a : f32[4]\noutput y = %2\n",
			"%0 = mul %a, %b : f32[4]\n%1 = add %0, %a : f32[4]\noutput y = %1\n", "mul3 add4"},
		{"a fused op makes an output",
			"%0 = add %a, %b : f32[4]\n%1 = exp %0 : f32[4]\noutput y = %1\n",
			"%0 = mul %a, %b : f32[4]\noutput y = %0\n", "mul3"},
		{"a new op has a new number",
			"%0 = exp %a : f32[4]\noutput y = %0\n",
			"%0 = exp %a : f32[4]\n%1 = neg %0 : f32[4]\n%2 = neg %1 : f32[4]\noutput y = %2\n", "exp2 neg3 neg4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := followed(t, tc.before, tc.after); got != tc.want {
				t.Errorf("numbers %s, want %s", got, tc.want)
			}
		})
	}
}

func TestGroupOf(t *testing.T) {
	for loc, want := range map[string]string{
		"": "no place", "head": "head", "layers.3": "layers.3", "layers.3.attn": "layers.3", "a.b.c.d": "a.b", "a.": "a.",
	} {
		if got := groupOf(loc); got != want {
			t.Errorf("%q is in %q, want %q", loc, got, want)
		}
	}
}

func TestNumbersRelative(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"layers.5.attn", "layers.+0.attn"},
		{"layers.4.attn and layers.6", "layers.-1.attn and layers.+1"},
		{"layers.55.attn, layers.0", "layers.55.attn, layers.0"},
		{"mtp.5", "mtp.5"},
		{"@packed.layers.5.w", "@packed.layers.+0.w"},
	} {
		if got := numbersRelative(tc.text, "layers", 5); got != tc.want {
			t.Errorf("%q is %q, want %q", tc.text, got, tc.want)
		}
	}
}
