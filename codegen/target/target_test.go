package target

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/object"
)

func TestLookup(t *testing.T) {
	for _, tc := range []struct{ given, name, features string }{
		{"gfx942", "gfx942", ""},
		{"gfx942:sramecc+:xnack-", "gfx942:sramecc+:xnack-", "+sramecc,-xnack"},
		{"gfx942:xnack-:sramecc+", "gfx942:sramecc+:xnack-", "+sramecc,-xnack"},
		{"gfx950:xnack+", "gfx950:xnack+", "+xnack"},
		{"gfx950:sramecc-", "gfx950:sramecc-", "-sramecc"},
		{"x86-64-v3", "x86-64-v3", ""},
		{"sm_90", "sm_90", "+ptx78"},
		{"sm_90a", "sm_90a", "+ptx80"},
	} {
		got, err := Lookup(tc.given)
		if err != nil {
			t.Fatal(err)
		}
		if got.Name != tc.name || got.Features != tc.features {
			t.Errorf("%s: %s with features %q, want %s with %q", tc.given, got.Name, got.Features, tc.name, tc.features)
		}
		if got.Kind == AMDGPU && (got.ID.String() != tc.name || got.CPU != got.ID.Chip || got.Lanes == 0) {
			t.Errorf("%s: %+v", tc.given, got)
		}
	}
	for name, want := range map[string]string{
		"":                       `unknown target "": have x86-64-v3, `,
		"gfx900:xnack+":          `unknown target "gfx900:xnack+"`,
		"gfx942:":                `unknown feature ""`,
		"gfx942:speed+":          `unknown feature "speed+"`,
		"gfx942:xnack":           `feature "xnack" must end in + or -`,
		"gfx942:xnack+:xnack+":   `feature "xnack" is given twice`,
		"x86-64-v3:xnack+":       `x86-64-v3 takes no features, got "xnack+"`,
		"sm_90:sramecc-":         `sm_90 takes no features, got "sramecc-"`,
		"gfx942-generic:xnack+":  "unknown target",
		"gfx942:sramecc+,xnack-": `unknown feature "sramecc+,xnack-"`,
	} {
		if got, err := Lookup(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, error %v, want %q in it", name, got, err, want)
		}
	}
}

// The rows of the table leave every feature that a chip has open, so that a bare
// name is code for any setting.
func TestTable(t *testing.T) {
	for _, row := range Table {
		if row.Kind != AMDGPU {
			if row.ID != (object.TargetID{}) {
				t.Errorf("%s has target ID %s", row.Name, row.ID)
			}
			continue
		}
		if row.ID.String() != row.Name || row.Features != row.ID.Attributes() || row.CPU != row.Name {
			t.Errorf("%s: target ID %s, CPU %s, features %q", row.Name, row.ID, row.CPU, row.Features)
		}
		got, err := Lookup(row.Name)
		if err != nil || got.ID != row.ID {
			t.Errorf("%s: %+v, %v", row.Name, got, err)
		}
	}
}
