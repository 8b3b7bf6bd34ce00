package check

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen"
)

// chained has a chain of bf16 ops, a pool that is read after it is written, and a
// reshape of a value.
const chained = `graph @chained
sym T
input %x : bf16[T,4]
input %rows : i32[T]
state !pool : bf16[8,4]
weight @packed.w : bf16[4]
%0 = const {value = 0.8125, dtype = bf16} : bf16[]
%1 = mul %x, %0 : bf16[T,4]
%2 = add %1, %x : bf16[T,4]
%3 = mul %2, %1 : bf16[T,4]
%4 = sub %3, %x : bf16[T,4]
%5 = scatter_rows !pool, %rows, %4 : bf16[8,4]
%6 = gather_rows %5, %rows : bf16[T,4]
%7 = reshape %6 {shape = [4*T]} : bf16[4*T]
%8 = neg %7 : bf16[4*T]
output y = %8
output w = @packed.w
update !pool = %5
`

// The whole graph equals its ops; where it does not, that is a breach of its own.
func TestWholeGraph(t *testing.T) {
	for _, broken := range []bool{false, true} {
		cfg := onHost(t)
		cfg.Lowered = func(u *codegen.Unit) {
			if p := u.Module.Plans[0]; broken && p.Entry == "chained" {
				args := p.Launches[len(p.Launches)-1].Args
				args[len(args)-2].Int = 8 // of 20 elements: the others are what was there before
			}
		}
		s := parsed(t, chained, map[string]int{"T": 5})
		s.Seeds = 2
		r, err := Ops(t.Context(), s, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if w := r.Whole; w == nil || w.Values != 2*(20+32+4) || w.OK == broken || (w.Differ > 0) != broken {
			t.Errorf("broken %t: %+v", broken, r.Whole)
		}
		if found := len(r.Breaches) > 0; found != broken {
			t.Fatalf("broken %t: breaches %v", broken, r.Breaches)
		}
		for _, b := range r.Breaches {
			if !strings.HasPrefix(b.String(), WholeGraph+": output y (seed ") {
				t.Errorf("breach %s", b)
			}
		}
		for _, o := range r.Ops {
			if !o.OK {
				t.Errorf("broken %t: %+v", broken, o)
			}
		}
	}
	s := parsed(t, chained, map[string]int{"T": 5})
	cfg := onHost(t)
	cfg.Only = "mul"
	if r, err := Ops(t.Context(), s, cfg); err != nil || r.Whole != nil {
		t.Errorf("with --op: %+v, error %v", r, err)
	}
}
