package ir

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// register adds ops for the time of a test.
func register(t *testing.T, defs ...*OpDef) {
	t.Helper()
	if err := Register(defs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, d := range defs {
			delete(table, d.Name)
		}
	})
}

// testOp is a legal row with one f32 operand and result.
func testOp(name string) *OpDef {
	return &OpDef{
		Name: name, Group: "test", Doc: "A test's.",
		Operands: []OperandDef{{Name: "x"}}, Results: []string{"y"},
		Infer: func(o *Op) ([]Type, error) { return []Type{o.Args[0].Type}, nil },
	}
}

func TestRegisterRefuses(t *testing.T) {
	with := func(do func(d *OpDef)) *OpDef {
		d := testOp("fresh")
		do(d)
		return d
	}
	for _, c := range []struct {
		defs []*OpDef
		want string
	}{
		{[]*OpDef{nil}, "an op table row is nil"},
		{[]*OpDef{testOp("add")}, "op add: already in the op table"},
		{[]*OpDef{testOp("fresh"), testOp("other"), testOp("fresh")}, "op fresh: twice in one Register call"},
		{[]*OpDef{testOp("fresh"), with(func(d *OpDef) { d.Name = "" })}, `op "": not a name`},
		{[]*OpDef{testOp("1st")}, `op "1st": not a name`},
		{[]*OpDef{testOp("a b")}, `op "a b": not a name`},
		{[]*OpDef{testOp("a..b")}, `op "a..b": not a name`},
		{[]*OpDef{testOp("f32")}, `op "f32": not a name`},
		{[]*OpDef{with(func(d *OpDef) { d.Doc = "" })}, "op fresh: needs Doc and Group"},
		{[]*OpDef{with(func(d *OpDef) { d.Group = "" })}, "op fresh: needs Doc and Group"},
		{[]*OpDef{with(func(d *OpDef) { d.Infer = nil })}, "op fresh: needs Infer"},
		{[]*OpDef{with(func(d *OpDef) { d.Results = nil })}, "op fresh: has 0 results, want 1..16"},
		{[]*OpDef{with(func(d *OpDef) { d.Results = make([]string, 17) })}, "op fresh: has 17 results, want 1..16"},
		{[]*OpDef{with(func(d *OpDef) { d.Attrs = []AttrDef{{Name: "a"}, {Name: "a"}} })}, "op fresh: attribute a declared twice"},
		{[]*OpDef{with(func(d *OpDef) { d.Attrs = []AttrDef{{Name: "a.b"}} })}, `op fresh: attribute "a.b": not a name, or of no kind`},
		{[]*OpDef{with(func(d *OpDef) { d.Attrs = []AttrDef{{Name: "a", Kind: 99}} })}, `op fresh: attribute "a": not a name, or of no kind`},
		{[]*OpDef{with(func(d *OpDef) { d.Attrs = []AttrDef{{Name: "a", Kind: AttrFloat, Default: 1}} })}, "op fresh: attribute a: default 1 (Go type int) is not a valid float"},
		{[]*OpDef{with(func(d *OpDef) { d.Attrs = []AttrDef{{Name: "a", Default: struct{}{}}} })}, "op fresh: attribute a: default {} (Go type struct {}) is not a valid int"},
		{[]*OpDef{with(func(d *OpDef) {
			d.Operands = []OperandDef{{Name: "x", Repeat: true}, {Name: "y"}}
		})}, "op fresh: repeated operands come last"},
	} {
		before := len(table)
		err := Register(c.defs...)
		if err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
		if len(table) != before {
			t.Fatalf("%s: something was added all the same", c.want)
		}
	}
}

// The table is complete: what the reference, the parser and messages need is
// there, and decompositions and costs go with the right kind of op.
func TestTableRows(t *testing.T) {
	for _, d := range Ops() {
		if err := d.check(); err != nil {
			t.Error(err)
		}
		if !strings.HasSuffix(d.Doc, ".") {
			t.Errorf("op %s: the doc is not a sentence: %q", d.Name, d.Doc)
		}
		for _, a := range d.Attrs {
			if a.Doc == "" {
				t.Errorf("op %s: attribute %s has no doc", d.Name, a.Name)
			}
		}
		names := map[string]bool{}
		for _, o := range d.Operands {
			if names[o.Name] || !validSym(o.Name) {
				t.Errorf("op %s: operand %q is not a name, or is there twice", d.Name, o.Name)
			}
			names[o.Name] = true
		}
		results := slices.Clone(d.Results)
		slices.Sort(results)
		if len(slices.Compact(results)) != len(d.Results) || !validSym(d.Results[0]) {
			t.Errorf("op %s: results %v", d.Name, d.Results)
		}
		if got, err := Lookup(d.Name); err != nil || got != d {
			t.Errorf("Lookup(%s) = %v, %v", d.Name, got, err)
		}
	}
	if _, err := Lookup("nosuch"); err == nil || err.Error() != `unknown op "nosuch"` {
		t.Errorf("got %v", err)
	}
}

// Ops has one order, whatever the order of registration.
func TestOpsOrder(t *testing.T) {
	names := func() []string {
		var out []string
		for _, d := range Ops() {
			out = append(out, d.Group+"/"+d.Name)
		}
		return out
	}
	first := names()
	if !slices.IsSortedFunc(Ops(), func(a, b *OpDef) int {
		return strings.Compare(a.Group+"\x00"+a.Name, b.Group+"\x00"+b.Name)
	}) {
		t.Errorf("not sorted: %v", first)
	}
	for range 20 { // the table is a map
		if diff := cmp.Diff(first, names()); diff != "" {
			t.Fatal(diff)
		}
	}
	register(t, testOp("zz"), testOp("aa"))
	if got := names(); len(got) != len(first)+2 || slices.Index(got, "test/aa")+1 != slices.Index(got, "test/zz") {
		t.Errorf("got %v", got)
	}
}

func TestLimitString(t *testing.T) {
	for want, l := range map[string]Limit{
		"bit for bit":  {},
		"abs <= 1e-05": {Kind: AbsF32, Bound: 1e-5},
		">= 99.5% identical, rest within 1 bf16 ulp":                 {Kind: BF16ULP, Bound: 0.995},
		">= 99% identical, rest within 1 bf16 ulp or 2e-06 absolute": {Kind: BF16ULP, Bound: 0.99, Abs: 2e-6},
		">= 99% identical, rest within 2 bf16 ulp":                   {Kind: BF16ULP, Bound: 0.99, Ulps: 2},
		">= 99% identical, rest within 1 f8e4m3 code of blocks of n": {Kind: OneCode, Bound: 0.99, Per: "n"},
		"by validity of the choice":                                  {Kind: ByChoice},
		"1-cos <= 0.0005":                                            {Kind: OneMinCos, Bound: 5e-4},
	} {
		if got := l.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// A name with dots, an operand-less op and attributes of every kind print and
// parse.
func TestRegisteredOpText(t *testing.T) {
	d := testOp("my.op_2")
	d.Operands = nil
	d.Infer = func(o *Op) ([]Type, error) { return []Type{T(F32, o.Dim("d"))}, nil }
	d.Attrs = []AttrDef{
		{Name: "i", Kind: AttrInt}, {Name: "f", Kind: AttrFloat, AnyFloat: true}, {Name: "b", Kind: AttrBool},
		{Name: "s", Kind: AttrString}, {Name: "is", Kind: AttrInts}, {Name: "dt", Kind: AttrDType},
		{Name: "d", Kind: AttrDim}, {Name: "ds", Kind: AttrDims}, {Name: "o", Kind: AttrString, Default: "]"},
	}
	register(t, d)
	b := NewBuilder("g")
	e := b.Let("E", b.Sym("T").Div(2))
	attrs := A("i", -3, "f", 1e-300, "b", true, "s", "a\"]}// \u00e4", "is", []int{}, "dt", F4E2M1, "d", e, "ds", []Dim{e, Int(2)})
	v := b.Op1("my.op_2", attrs)
	b.Output("y", v)
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	const want = `graph @g
sym T
let E = T/2
%0 = my.op_2 {i = -3, f = 1e-300, b = true, s = "a\"]}// ä", is = [], dt = f4e2m1, d = [E], ds = [E,2]} : f32[E]
output y = %0
`
	if diff := cmp.Diff(want, Text(g)); diff != "" {
		t.Fatal(diff)
	}
	back, err := ParseOne("t.kir", want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, Text(back)); diff != "" {
		t.Error(diff)
	}
	o := back.Ops[0]
	if o.Int("i") != -3 || o.Float("f") != 1e-300 || !o.Bool("b") || o.Str("s") != "a\"]}// ä" || len(o.Ints("is")) != 0 ||
		o.DType("dt") != F4E2M1 || !o.Dim("d").Equal(e) || !SameDims(o.Dims("ds"), []Dim{e, Int(2)}) || o.Str("o") != "]" {
		t.Errorf("attributes read back as %v", o.Attrs)
	}
	bound, err := Bind(back, map[string]int{"T": 9})
	if err != nil {
		t.Fatal(err)
	}
	if o := bound.Ops[0]; !o.Dim("d").Equal(Int(4)) || !SameDims(o.Dims("ds"), []Dim{Int(4), Int(2)}) {
		t.Errorf("Bind left %v", o.Attrs)
	}
	if !back.Ops[0].Dim("d").Equal(e) {
		t.Error("Bind changed its operand")
	}
}
