package ir

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const opReferencePath = "../docs/ops.md"

// docs/ops.md is the table's; -update renews it.
func TestOpReference(t *testing.T) {
	var b bytes.Buffer
	if err := WriteOpReference(&b); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(opReferencePath, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(opReferencePath)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(have), b.String()); diff != "" {
		t.Errorf("%s is stale; run go test ./ir -run OpReference -update. -file +table:\n%s", opReferencePath, diff)
	}
	var again bytes.Buffer
	if err := WriteOpReference(&again); err != nil || !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Errorf("written twice it differs (%v)", err)
	}
	for _, d := range Ops() {
		if n := strings.Count(b.String(), "\n### "+d.Name+"\n"); n != 1 {
			t.Errorf("op %s stands there %d times", d.Name, n)
		}
	}
}

func TestOpReferenceRow(t *testing.T) {
	register(t, &OpDef{
		Name: "example", Group: "zz", Doc: "One | two*three.",
		Operands: []OperandDef{{Name: "x", Doc: "|x|"}, {Name: "k", Repeat: true}, {Name: "v", Doc: "value", Repeat: true}},
		Results:  []string{"y", "z"},
		Attrs:    []AttrDef{{Name: "n", Kind: AttrInt, Doc: "a|b*c"}, {Name: "f", Kind: AttrFloat, AnyFloat: true, Doc: "f"}, {Name: "shape", Kind: AttrDims, Default: []Dim{Sym("T"), Int(1)}, Doc: "s"}},
		Infer:    func(o *Op) ([]Type, error) { return nil, nil },
		Limit:    Limit{Kind: AbsF32, Bound: 1e-6, Why: "because"},
	})
	var b strings.Builder
	if err := WriteOpReference(&b); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(b.String(), "\n## zz ops\n")
	const want = `
### example

    %y, %z = example %x, %k.., %v.. {n, f, shape}

One | two\*three.

Primitive; error limit: abs <= 1e-06 (because).

| operand | |
|---|---|
| ` + "`x`" + ` | \|x\| |
| ` + "`k`" + ` | repeated |
| ` + "`v`" + ` | value; repeated |

| attribute | kind | default | |
|---|---|---|---|
| ` + "`n`" + ` | int | required | a\|b\*c |
| ` + "`f`" + ` | float, infinities and NaN too | required | f |
| ` + "`shape`" + ` | dim list | ` + "`[T,1]`" + ` | s |
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestWriterErrors(t *testing.T) {
	if err := WriteOpReference(brokenWriter{}); err != errBroken {
		t.Errorf("WriteOpReference: got %v", err)
	}
	if err := Print(brokenWriter{}, brokenGraph(t)); err != errBroken {
		t.Errorf("Print: got %v", err)
	}
}
