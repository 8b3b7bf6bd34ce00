package ir

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var dimSyms = []string{"A", "B", "C"}

func anySym(name string) (Dim, error) {
	if validSym(name) {
		return Sym(name), nil
	}
	return Dim{}, fmt.Errorf("no symbol %s", name)
}

// tree is an expression as written: the independent reference for Dim.
type tree struct {
	op   byte // '+', '-', '*', '/'; 'n' an integer, 's' a symbol
	l, r *tree
	n    int // the integer, or the divisor
	sym  string
}

// drawTree makes a random expression.
func drawTree(t *rapid.T, depth, maxInt int) *tree {
	ops := []byte("ns")
	if depth > 0 {
		ops = []byte("+-*/+-*/ns")
	}
	e := &tree{op: rapid.SampledFrom(ops).Draw(t, "op")}
	switch e.op {
	case 'n':
		e.n = rapid.IntRange(0, maxInt).Draw(t, "n")
	case 's':
		e.sym = rapid.SampledFrom(dimSyms).Draw(t, "sym")
	case '/':
		e.l = drawTree(t, depth-1, maxInt)
		e.n = rapid.IntRange(1, 8).Draw(t, "divisor")
	default:
		e.l, e.r = drawTree(t, depth-1, maxInt), drawTree(t, depth-1, maxInt)
	}
	return e
}

// dim builds the expression by the methods of Dim.
func (e *tree) dim() Dim {
	switch e.op {
	case 'n':
		return Int(e.n)
	case 's':
		return Sym(e.sym)
	case '+':
		return e.l.dim().Add(e.r.dim())
	case '-':
		return e.l.dim().Sub(e.r.dim())
	case '*':
		return e.l.dim().Mul(e.r.dim())
	}
	return e.l.dim().Div(e.n)
}

// text writes it with every parenthesis.
func (e *tree) text() string {
	switch e.op {
	case 'n':
		return strconv.Itoa(e.n)
	case 's':
		return e.sym
	case '/':
		return "(" + e.l.text() + "/" + strconv.Itoa(e.n) + ")"
	}
	return "(" + e.l.text() + " " + string(e.op) + " " + e.r.text() + ")"
}

// eval is its value, exactly; a division is the floor.
func (e *tree) eval(env map[string]int) *big.Int {
	switch e.op {
	case 'n':
		return big.NewInt(int64(e.n))
	case 's':
		return big.NewInt(int64(env[e.sym]))
	case '+':
		return new(big.Int).Add(e.l.eval(env), e.r.eval(env))
	case '-':
		return new(big.Int).Sub(e.l.eval(env), e.r.eval(env))
	case '*':
		return new(big.Int).Mul(e.l.eval(env), e.r.eval(env))
	}
	// With a positive divisor big.Int's Euclidean division is the floor.
	return new(big.Int).Div(e.l.eval(env), big.NewInt(int64(e.n)))
}

// checkMany is rapid.Check with more than its 100 runs, which are quick here.
func checkMany(t *testing.T, f func(t *rapid.T)) {
	for range 10 {
		rapid.Check(t, f)
	}
}

func drawEnv(t *rapid.T, most int) map[string]int {
	env := map[string]int{}
	for _, s := range dimSyms {
		env[s] = rapid.IntRange(1, most).Draw(t, s)
	}
	return env
}

func intEnv(env map[string]int) map[string]Dim {
	m := map[string]Dim{}
	for s, n := range env {
		m[s] = Int(n)
	}
	return m
}

// value substitutes all symbols at once.
func value(d Dim, env map[string]int) (int, bool) { return d.Subst(intEnv(env)).Const() }

// With small numbers nothing is out of range, so the value must always be right.
func TestDimValue(t *testing.T) {
	checkMany(t, func(t *rapid.T) {
		e := drawTree(t, 3, 9)
		env := drawEnv(t, 50)
		want := e.eval(env)
		d := e.dim()
		check := func(what string, d Dim) {
			if n, ok := value(d, env); !ok || big.NewInt(int64(n)).Cmp(want) != 0 {
				t.Fatalf("%s of %s is %s: at %v it gives %d, %v, want %s", what, e.text(), d, env, n, ok, want)
			}
		}
		check("the normal form", d)
		if err := d.check(); err != nil {
			t.Fatalf("%s: %v", e.text(), err)
		}

		parsed, err := ParseDim(e.text(), anySym)
		if err != nil {
			t.Fatal(err)
		}
		check("the parsed text", parsed)
		if !parsed.Equal(d) || !d.Equal(parsed) {
			t.Fatalf("%s: parsed %s, built %s", e.text(), parsed, d)
		}

		again, err := ParseDim(d.String(), anySym)
		if err != nil {
			t.Fatal(err)
		}
		if !again.Equal(d) || again.String() != d.String() {
			t.Fatalf("%s prints as %s, which reads as %s", e.text(), d, again)
		}

		// One symbol at a time, in any order.
		step := d
		for _, s := range rapid.Permutation(dimSyms).Draw(t, "order") {
			step = step.Subst(map[string]Dim{s: Int(env[s])})
			for _, left := range step.Symbols(nil) {
				if left == s {
					t.Fatalf("%s is left in %s", s, step)
				}
			}
		}
		check("step by step substitution", step)

		// A symbol by an expression.
		inner := drawTree(t, 2, 9)
		iv := inner.eval(env)
		if iv.Sign() > 0 && iv.BitLen() < 20 {
			envInner := map[string]int{"A": int(iv.Int64()), "B": env["B"], "C": env["C"]}
			got, ok := value(d.Subst(map[string]Dim{"A": inner.dim()}), env)
			if want := e.eval(envInner); !ok || big.NewInt(int64(got)).Cmp(want) != 0 {
				t.Fatalf("%s with A = %s gives %d, %v, want %s", d, inner.text(), got, ok, want)
			}
		}
	})
}

// With huge numbers a dim may be "?", but it must not be wrong.
func TestDimNeverWrong(t *testing.T) {
	checkMany(t, func(t *rapid.T) {
		e := drawTree(t, 4, 1<<31-1)
		env := drawEnv(t, 1<<31-1)
		d := e.dim()
		want := e.eval(env)
		if n, ok := value(d, env); ok && big.NewInt(int64(n)).Cmp(want) != 0 {
			t.Fatalf("%s at %v is %d, want %s", e.text(), env, n, want)
		}
		if parsed, err := ParseDim(e.text(), anySym); err == nil && !parsed.Equal(d) {
			t.Fatalf("%s: parsed %s, built %s", e.text(), parsed, d)
		}
		if d.check() == nil { // what a legal type may hold prints and reads back
			again, err := ParseDim(d.String(), anySym)
			if err != nil || !again.Equal(d) {
				t.Fatalf("%s reads as %s, %v", d, again, err)
			}
		}
	})
}

func TestDimEqual(t *testing.T) {
	checkMany(t, func(t *rapid.T) {
		a, b, c := drawTree(t, 2, 4), drawTree(t, 2, 4), drawTree(t, 1, 4)
		da, db, dc := a.dim(), b.dim(), c.dim()
		env := drawEnv(t, 20)
		if da.Equal(db) != db.Equal(da) || da.Equal(db) != (da.String() == db.String()) {
			t.Fatalf("Equal and String of %s and %s disagree", da, db)
		}
		if da.Equal(db) && a.eval(env).Cmp(b.eval(env)) != 0 {
			t.Fatalf("%s and %s are equal, but not at %v", a.text(), b.text(), env)
		}
		laws := []struct {
			name string
			l, r Dim
		}{
			{"a = a", da, a.dim()},
			{"a+b = b+a", da.Add(db), db.Add(da)},
			{"a*b = b*a", da.Mul(db), db.Mul(da)},
			{"(a+b)+c = a+(b+c)", da.Add(db).Add(dc), da.Add(db.Add(dc))},
			{"(a*b)*c = a*(b*c)", da.Mul(db).Mul(dc), da.Mul(db.Mul(dc))},
			{"a*(b+c) = a*b+a*c", da.Mul(db.Add(dc)), da.Mul(db).Add(da.Mul(dc))},
			{"a-a = 0", da.Sub(da), Int(0)},
			{"a-b = a+(-1)*b", da.Sub(db), da.Add(Int(-1).Mul(db))},
			{"a*0 = 0", da.Mul(Int(0)), Int(0)},
			{"a*1 = a", da.Mul(Int(1)), da},
			{"a/1 = a", da.Div(1), da},
			{"(7*a+6)/7 = a", da.Mul(Int(7)).Add(Int(6)).Div(7), da},
			{"(a+7*b)/7 = a/7+b", da.Add(db.Mul(Int(7))).Div(7), da.Div(7).Add(db)},
		}
		for _, l := range laws {
			if !l.l.Equal(l.r) {
				t.Fatalf("%s fails for a = %s, b = %s, c = %s: %s and %s", l.name, da, db, dc, l.l, l.r)
			}
		}
	})
}

func TestDimText(t *testing.T) {
	for in, want := range map[string]string{
		"0":                       "0",
		"-5":                      "-5",
		"  7 ":                    "7",
		"2147483647":              "2147483647",
		"-2147483647":             "-2147483647",
		"A":                       "A",
		"-A":                      "-A",
		"B+A":                     "A+B",
		"1-A":                     "-A+1",
		"A*B*A":                   "A*A*B",
		"2*A*3":                   "6*A",
		"A/4":                     "A/4",
		"-A/4":                    "-A/4", // -(A/4), as it stands
		"(-A)/4":                  "(3*A)/4-A",
		"(5*A+7)/4":               "(A+3)/4+A+1",
		"3*(A/4)":                 "3*(A/4)",
		"3*A/4":                   "(3*A)/4",
		"(A/4)/2":                 "A/4/2",
		"A/4*B":                   "(A/4)*B",
		"(A*B)/2":                 "(A*B)/2",
		"(A/2+B)/2":               "(A/2+B)/2",
		"(A-1)/4":                 "(A+3)/4-1",
		"(4*A+3)/4":               "A",
		"(4*A+B+9)/4":             "(B+1)/4+A+2",
		"(A+B)*(A-B)":             "A*A-B*B",
		"((((A))))":               "A",
		"A + - B":                 "",
		"A*-B":                    "",
		"--A":                     "",
		"+A":                      "",
		"":                        "",
		"()":                      "",
		"(A":                      "",
		"A)":                      "",
		"A B":                     "",
		"A/0":                     "",
		"A/B":                     "",
		"A%2":                     "",
		"2147483648":              "",
		"-2147483648":             "",
		"99999999999999999999999": "",
		"0x10":                    "",
		"1_000":                   "",
		"1.5":                     "",
		"1e3":                     "",
		"A.B":                     "",
		"A\x00":                   "",
		"\x00":                    "",
		"A\n":                     "",
		"ä":                       "",
		"?":                       "",
	} {
		d, err := ParseDim(in, anySym)
		switch {
		case want == "" && err == nil:
			t.Errorf("%q reads as %s, want an error", in, d)
		case want != "" && err != nil:
			t.Errorf("%q: %v", in, err)
		case want != "" && d.String() != want:
			t.Errorf("%q reads as %s, want %s", in, d, want)
		}
	}
	if _, err := ParseDim("A", nil); err == nil || err.Error() != `dimension "A": undeclared symbol A` {
		t.Errorf("without symbols: %v", err)
	}
}

// Text made to cost much or to overflow is an error, or exact.
func TestDimHostile(t *testing.T) {
	nest := func(n int) string { return strings.Repeat("(", n) + "A" + strings.Repeat(")", n) }
	sum := func(n int, term string) string { return strings.TrimSuffix(strings.Repeat(term+"+", n), "+") }
	many := func(n int, sep string) string {
		var names []string
		for i := range n {
			names = append(names, "S"+itoa(i))
		}
		return strings.Join(names, sep)
	}
	powers := func(coef string, n int) string { // c*A + c*A*A + ...
		var terms []string
		for i := range n {
			terms = append(terms, coef+strings.Repeat("*A", i+1))
		}
		return strings.Join(terms, "+")
	}
	for _, c := range []struct{ name, text, want string }{
		{"deep", nest(64), "A"},
		{"too deep", nest(65), "! nested deeper than 64"},
		{"far too deep", nest(1000000), "! nested deeper than 64"},
		{"divisions in divisions", "A" + strings.Repeat("/2", 400), "A" + strings.Repeat("/2", 400)},
		{"too many divisions", "A" + strings.Repeat("/2", 10000), "! the expression is out of range"},
		{"deep divisions", strings.Repeat("(", 40) + "A" + strings.Repeat("+1)/2", 40), "(" + strings.Repeat("(", 39) + "A" + strings.Repeat("+1)/2", 40)},
		{"long sum", sum(100000, "A"), "100000*A"},
		{"long sum of ones", sum(100000, "1"), "100000"},
		{"many symbols", many(64, "+"), "S0+"},
		{"too many symbols", many(65, "+"), "! the expression is out of range"},
		{"long product", strings.TrimSuffix(strings.Repeat("A*", 64), "*"), "A*A*"},
		{"too long product", strings.TrimSuffix(strings.Repeat("A*", 10000), "*"), "! the expression is out of range"},
		{"long names", strings.Repeat("n", 500) + "+" + strings.Repeat("m", 500), strings.Repeat("m", 500) + "+n"},
		{"too long names", strings.Repeat("n", 600) + "+" + strings.Repeat("m", 600), "! the expression is out of range"},
		{"product of sums", "(" + many(60, "+") + ")*(" + many(60, "+") + ")", "! the expression is out of range"},
		{"int32 constant", "2147483647+0", "2147483647"},
		{"constant", "2147483647+1", "! constant 2147483648 is out of range"},
		{"negative constant", "-2147483647-1", "! constant -2147483648 is out of range"},
		{"product", "65536*65536", "! constant 4294967296 is out of range"},
		{"factor", "2147483647*A+A", "! factor 2147483648 of A is out of range"},
		{"negative factor", "-2147483647*A-A", "! factor -2147483648 of A is out of range"},
		{"factor inside a division", "(2147483647*A*2147483647)/3", "! factor 4611686014132420609 of A is out of range"},
		// Four products of 2^62 would be 0 if they wrapped around.
		{"wrap around", "(" + powers("2147483647", 8) + ")*(" + powers("2147483647", 8) + ")", "! the expression is out of range"},
		{"back to nothing", "2147483647*A-2147483647*A+A", "A"},
		{"long name", strings.Repeat("n", 5000), "! the expression is out of range"},
		{"long garbage", strings.Repeat("A", 100) + "$" + strings.Repeat("x", 100000), `! unexpected "$xxx`},
		{"long number", strings.Repeat("9", 100000), "! integer 9999999999999999999999999999999999999999 is out of range"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := ParseDim(c.text, anySym)
			got := ""
			if err != nil {
				if len(err.Error()) > 400 {
					t.Errorf("the message has %d bytes", len(err.Error()))
				}
				_, got, _ = strings.Cut(err.Error(), ": ")
				got = "! " + got
			} else {
				got = d.String()
			}
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("got %.100s, want %.100s", got, c.want)
			}
		})
	}
}

// The Go API has no errors: what is out of range is the dim "?".
func TestDimOutOfRange(t *testing.T) {
	const big = 1 << 62
	bad := Int(big).Add(Int(1))
	a := Sym("A")
	for name, d := range map[string]Dim{
		"sum":             bad,
		"difference":      Int(-big).Sub(Int(1)),
		"product":         Int(1 << 40).Mul(Int(1 << 40)),
		"wrapped product": Int(1 << 32).Mul(Int(1 << 32)),
		"smallest":        Int(-1 << 63),
		"largest":         Int(1<<63 - 1),
		"factor":          a.Mul(Int(big)).Add(a),
		"factor product":  a.Mul(Int(1 << 40)).Mul(a.Mul(Int(1 << 40))),
		"four products": func() Dim { // 4 * 2^62 is 0 in 64 bits
			x := Int(0)
			for range 4 {
				x = x.Add(a.Mul(Int(1 << 31)).Mul(Int(1 << 31)))
			}
			return x
		}(),
		"one product of a sum": func() Dim { // ABCD: -2^61, -2^61 and 2^62+2^31, which fits in the end
			ab, cd := a.Mul(Sym("B")), Sym("C").Mul(Sym("D"))
			x := a.Mul(Int(-1 << 31)).Add(ab.Mul(Int(-1 << 31))).Add(ab.Mul(Sym("C")).Mul(Int(1<<31 + 1)))
			y := cd.Mul(Sym("B")).Mul(Int(1 << 30)).Add(cd.Mul(Int(1 << 30))).Add(Sym("D").Mul(Int(1 << 31)))
			return x.Mul(y)
		}(),
		"zero divisor":     a.Div(0),
		"negative divisor": Int(4).Div(-2),
		"plus":             bad.Add(a),
		"minus":            a.Sub(bad),
		"times":            bad.Mul(Int(0)),
		"divided":          bad.Div(4),
		"substituted":      bad.Subst(map[string]Dim{"A": Int(1)}),
		"by substitution":  a.Mul(a).Subst(map[string]Dim{"A": Int(1 << 40)}),
	} {
		if _, ok := d.Const(); ok || d.String() != "?" || d.Equal(d) || d.check() == nil || len(d.Symbols(nil)) != 0 {
			t.Errorf("%s: %s is a constant (%v), equal to itself (%v) or legal", name, d, ok, d.Equal(d))
		}
		if err := T(F32, d).Check(); err == nil {
			t.Errorf("%s: a legal extent", name)
		}
	}
	for want, d := range map[string]Dim{ // within the range of arithmetic, but not of text
		"constant 4294967296 is out of range":    Int(1 << 32),
		"factor 4294967296 of A is out of range": a.Mul(Int(1 << 32)),
		"divisor 4294967296 is out of range":     a.Div(1 << 32),
	} {
		if err := d.check(); err == nil || err.Error() != want || d.String() == "?" {
			t.Errorf("%s: got %v, want %s", d, err, want)
		}
	}
	for name, d := range map[string]Dim{"largest": Int(big), "smallest": Int(-big), "zero times": Int(big).Mul(Int(0)), "minus times": Int(-1 << 31).Mul(Int(1 << 31))} {
		if _, ok := d.Const(); !ok {
			t.Errorf("%s: %s is out of range", name, d)
		}
	}
	if s := Sym(""); s.String() != "" || !slices.Equal(s.Symbols(nil), []string{""}) {
		t.Errorf("the symbol without a name is %q", s)
	}
	// Sums in text stay below 64 parentheses only if the normal form does, too.
	d := a
	for range 100 {
		d = d.Add(Int(1)).Div(2)
	}
	if d.String() != "?" {
		t.Errorf("%s is nested too deep to read back", d)
	}
}

func TestDimSymbols(t *testing.T) {
	d, err := ParseDim("(A+B*(C/2))/3 - A", anySym)
	if err != nil {
		t.Fatal(err)
	}
	got := d.Symbols([]string{"first"})
	if got[0] != "first" {
		t.Errorf("Symbols dropped what was there: %v", got)
	}
	slices.Sort(got)
	if want := []string{"A", "A", "B", "C", "first"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
