package kernels_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Forms of one's own go before the library's, and a form that could not be used is
// refused. The forms that this test leaves behind match nothing.
func TestRegister(t *testing.T) {
	never := func(*ir.Op, *target.Target) string { return "is for a test" }
	lower := func(kernels.Lowering, *ir.Op) error { return nil }
	form := func(name, op string) *kernels.Form {
		return &kernels.Form{Name: name, Op: op, Match: never, Lower: lower}
	}
	before := len(kernels.For("hadamard"))
	for want, bad := range map[string]*kernels.Form{
		"form 1 is nil":                           nil,
		`form 1, of op "hadamard", has no name`:   form("", "hadamard"),
		"form rms_norm is in the library already": form("rms_norm", "hadamard"),
		"form test_a is in the library already":   form("test_a", "hadamard"), // twice in the call
		`form test_b: unknown op "nothing"`:       form("test_b", "nothing"),
		"form test_c: needs Match and Lower":      {Name: "test_c", Op: "hadamard", Lower: lower},
		"form test_d: needs Match and Lower":      {Name: "test_d", Op: "hadamard", Match: never},
	} {
		if err := kernels.Register(form("test_a", "hadamard"), bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if n := len(kernels.For("hadamard")); n != before {
		t.Errorf("%d forms were added in spite of an error", n-before)
	}
	if err := kernels.Register(form("test_a", "hadamard"), form("test_b", "hadamard")); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range kernels.For("hadamard") {
		names = append(names, f.Name)
	}
	if !slices.Equal(names[:2], []string{"test_a", "test_b"}) || len(names) != before+2 {
		t.Errorf("forms %v, want test_a and test_b before the library's", names)
	}
}
