package ir

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Dim is the extent of one tensor axis: an integer or an expression over
// declared symbols. Expressions are kept in normal form (a sum of integer
// multiples of products of symbols and floor divisions), so two dims are equal
// exactly when their normal forms are; Equal compares nothing else. The zero
// value is the integer 0, which is never a legal extent.
//
// Arithmetic is exact or gives the dim "?": a number beyond 2^62, an expression
// beyond the limits below, a division by less than 1. Like NaN, "?" stays "?",
// equals nothing, itself included, and is no legal extent.
type Dim struct {
	n int64 // the constant summand
	x *dimExpr
}

// dimExpr is the symbolic part of a Dim: never empty, terms sorted by key.
type dimExpr struct {
	terms []dimTerm
	key   string // canonical text, compared by Equal
}

type dimTerm struct {
	coef  int64 // never 0
	atoms []dimAtom
	key   string // product of the atoms' texts, sorted
}

// dimAtom is a symbol (den is 0), or the floor of num/den.
type dimAtom struct {
	sym string
	num Dim
	den int64
	key string
}

// Limits on expressions, far beyond any real graph: what hostile text may cost.
const (
	maxDimValue = math.MaxInt32 // of an extent, and of every number in text
	maxDimTerms = 64            // and factors of a term
	maxDimDepth = 64            // of parentheses
	maxDimText  = 1024          // bytes of the canonical text
	maxDimInt   = 1 << 62
)

// outOfRange is the expression of the dim "?".
var outOfRange = &dimExpr{key: "?"}

// exactDim is n, or "?" if it is beyond the limits.
func exactDim(n int64) Dim {
	if n > maxDimInt || n < -maxDimInt {
		return Dim{x: outOfRange}
	}
	return Dim{n: n}
}

// mulInt is a*b of numbers within the limits; if the product is beyond them, so
// is the result, without overflow.
func mulInt(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(max(a, -a)), uint64(max(b, -b)))
	switch {
	case hi != 0 || lo > maxDimInt:
		return math.MaxInt64
	case (a < 0) != (b < 0):
		return -int64(lo)
	}
	return int64(lo)
}

// Int is the constant dim n.
func Int(n int) Dim { return exactDim(int64(n)) }

// Sym is the dim that stands for the declared symbol name.
func Sym(name string) Dim {
	return newDim(0, []dimTerm{{coef: 1, atoms: []dimAtom{{sym: name, key: name}}, key: name}})
}

func newDim(n int64, terms []dimTerm) Dim {
	kept := terms[:0:0]
	text := 0
	for _, t := range terms {
		if t.outOfRange() {
			return Dim{x: outOfRange}
		}
		if t.coef != 0 {
			kept = append(kept, t)
			text += len(t.key)
		}
	}
	if len(kept) > maxDimTerms || text > maxDimText {
		return Dim{x: outOfRange}
	}
	d := exactDim(n)
	if len(kept) == 0 || d.x != nil {
		return d
	}
	sort.Slice(kept, func(i, j int) bool { return kept[i].key < kept[j].key })
	var b strings.Builder
	for i, t := range kept {
		c := t.coef
		switch {
		case i > 0 && c < 0:
			b.WriteByte('-')
			c = -c
		case i > 0:
			b.WriteByte('+')
		case c < 0:
			b.WriteByte('-')
			c = -c
		}
		if c != 1 {
			b.WriteString(strconv.FormatInt(c, 10))
			b.WriteByte('*')
		}
		text := t.key
		if c == 1 && len(t.atoms) == 1 && t.atoms[0].den != 0 {
			text = text[1 : len(text)-1] // a division alone needs no parentheses
		}
		b.WriteString(text)
	}
	key := b.String()
	if len(key) > maxDimText || parenDepth(key) > maxDimDepth {
		return Dim{x: outOfRange}
	}
	return Dim{n: n, x: &dimExpr{terms: kept, key: key}}
}

func parenDepth(s string) int {
	depth, deepest := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
			deepest = max(deepest, depth)
		case ')':
			depth--
		}
	}
	return deepest
}

// Const reports the integer value of d, if d has no symbols.
func (d Dim) Const() (int, bool) { return int(d.n), d.x == nil }

// Equal reports whether d and e have the same normal form.
func (d Dim) Equal(e Dim) bool {
	if d.n != e.n || (d.x == nil) != (e.x == nil) || d.x == outOfRange {
		return false
	}
	return d.x == nil || d.x == e.x || d.x.key == e.x.key
}

// String is the canonical text of d; ParseDim reads it back.
func (d Dim) String() string {
	switch {
	case d.x == nil:
		return strconv.FormatInt(d.n, 10)
	case d.n > 0:
		return d.x.key + "+" + strconv.FormatInt(d.n, 10)
	case d.n < 0:
		return d.x.key + strconv.FormatInt(d.n, 10)
	}
	return d.x.key
}

// Add returns d + e.
func (d Dim) Add(e Dim) Dim { return d.combine(e, 1) }

// Sub returns d - e.
func (d Dim) Sub(e Dim) Dim { return d.combine(e, -1) }

func (d Dim) combine(e Dim, sign int64) Dim {
	switch {
	case d.x == outOfRange || e.x == outOfRange:
		return Dim{x: outOfRange}
	case d.x == nil && e.x == nil:
		return exactDim(d.n + sign*e.n)
	}
	return newDim(d.n+sign*e.n, mergeTerms(d.terms(), e.terms(), sign))
}

func (d Dim) terms() []dimTerm {
	if d.x == nil {
		return nil
	}
	return d.x.terms
}

func (t dimTerm) outOfRange() bool { return t.coef > maxDimInt || t.coef < -maxDimInt }

func mergeTerms(a, b []dimTerm, sign int64) []dimTerm {
	out := append([]dimTerm{}, a...)
next:
	for _, t := range b {
		for i := range out {
			if out[i].key == t.key {
				out[i].coef += sign * t.coef
				continue next
			}
		}
		t.coef *= sign
		out = append(out, t)
	}
	return out
}

// Mul returns d * e.
func (d Dim) Mul(e Dim) Dim {
	n := mulInt(d.n, e.n)
	switch {
	case d.x == outOfRange || e.x == outOfRange:
		return Dim{x: outOfRange}
	case d.x == nil && e.x == nil:
		return exactDim(n)
	}
	one := dimTerm{coef: 1}
	var terms []dimTerm
	withConst := func(x Dim) []dimTerm {
		t := x.terms()
		if x.n != 0 {
			c := one
			c.coef = x.n
			t = append(append([]dimTerm{}, t...), c)
		}
		return t
	}
	for _, a := range withConst(d) {
		for _, b := range withConst(e) {
			atoms := append(append([]dimAtom{}, a.atoms...), b.atoms...)
			if len(atoms) == 0 {
				continue // the product of the two constants, already in n
			}
			sort.Slice(atoms, func(i, j int) bool { return atoms[i].key < atoms[j].key })
			p := dimTerm{coef: mulInt(a.coef, b.coef), atoms: atoms, key: atomsKey(atoms)}
			if p.outOfRange() || len(atoms) > maxDimTerms {
				return Dim{x: outOfRange}
			}
			terms = mergeTerms(terms, []dimTerm{p}, 1)
			if len(terms) > maxDimTerms || slices.ContainsFunc(terms, dimTerm.outOfRange) {
				return Dim{x: outOfRange}
			}
		}
	}
	return newDim(n, terms)
}

func atomsKey(atoms []dimAtom) string {
	keys := make([]string, len(atoms))
	for i, a := range atoms {
		keys[i] = a.key
	}
	return strings.Join(keys, "*")
}

// Div returns the floor of d/den for den >= 1. Multiples of den leave the
// floor, so (4*T+3)/4 and T have one normal form, as have (5*T)/4 and T+T/4.
func (d Dim) Div(den int) Dim {
	k := int64(den)
	switch {
	case k < 1 || d.x == outOfRange:
		return Dim{x: outOfRange}
	case k == 1:
		return d
	}
	whole, rest := Dim{n: floorDiv(d.n, k)}, Dim{n: d.n - k*floorDiv(d.n, k)}
	var outT, inT []dimTerm
	for _, t := range d.terms() {
		out, in := t, t
		out.coef = floorDiv(t.coef, k)
		if in.coef -= k * out.coef; in.coef != 0 {
			inT = append(inT, in)
		}
		outT = append(outT, out)
	}
	whole = newDim(whole.n, outT)
	if len(inT) == 0 {
		return whole
	}
	num := newDim(rest.n, inT)
	s := num.String()
	if num.n != 0 || len(inT) > 1 || inT[0].coef != 1 || len(inT[0].atoms) > 1 {
		s = "(" + s + ")"
	}
	key := "(" + s + "/" + strconv.Itoa(den) + ")"
	return whole.Add(newDim(0, []dimTerm{{coef: 1, atoms: []dimAtom{{num: num, den: k, key: key}}, key: key}}))
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Symbols appends the names of d's symbols to into, each once per occurrence.
func (d Dim) Symbols(into []string) []string {
	for _, t := range d.terms() {
		for _, a := range t.atoms {
			if a.den == 0 {
				into = append(into, a.sym)
			} else {
				into = a.num.Symbols(into)
			}
		}
	}
	return into
}

// Subst replaces symbols by dims. Symbols that are not in env stay.
func (d Dim) Subst(env map[string]Dim) Dim {
	if d.x == nil || d.x == outOfRange {
		return d
	}
	sum := Dim{n: d.n}
	for _, t := range d.x.terms {
		p := Dim{n: t.coef}
		for _, a := range t.atoms {
			switch {
			case a.den != 0:
				p = p.Mul(a.num.Subst(env).Div(int(a.den)))
			default:
				if v, ok := env[a.sym]; ok {
					p = p.Mul(v)
				} else {
					p = p.Mul(Sym(a.sym))
				}
			}
		}
		sum = sum.Add(p)
	}
	return sum
}

// ParseDim reads a dim expression: integers, symbols, + - * and floor division
// by a positive integer, with parentheses. resolve gives the meaning of a name
// (a declared symbol, or the definition of a derived one); nil: there are none.
func ParseDim(text string, resolve func(name string) (Dim, error)) (Dim, error) {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return Dim{n: int64(n)}, nil // by far the commonest case
	}
	p := dimParser{s: text, resolve: resolve}
	d, err := p.sum()
	if p.peek(); err == nil && p.i < len(p.s) {
		err = fmt.Errorf("unexpected %s", clip(p.s[p.i:]))
	}
	if err == nil {
		err = d.check()
	}
	if err != nil {
		return Dim{}, fmt.Errorf("dimension %s: %w", clip(text), err)
	}
	return d, nil
}

type dimParser struct {
	s       string
	i       int
	depth   int
	resolve func(string) (Dim, error)
}

func (p *dimParser) peek() byte {
	for p.i < len(p.s) && (p.s[p.i] == ' ' || p.s[p.i] == '\t') {
		p.i++
	}
	if p.i == len(p.s) {
		return 0
	}
	return p.s[p.i]
}

func (p *dimParser) sum() (Dim, error) {
	var acc Dim
	neg := false
	if p.peek() == '-' {
		p.i++
		neg = true
	}
	d, err := p.product()
	if err != nil {
		return d, err
	}
	if acc = d; neg {
		acc = Dim{}.Sub(d)
	}
	for {
		c := p.peek()
		if c != '+' && c != '-' {
			return acc, nil
		}
		p.i++
		d, err := p.product()
		if err != nil {
			return d, err
		}
		if c == '+' {
			acc = acc.Add(d)
		} else {
			acc = acc.Sub(d)
		}
		if err := acc.check(); err != nil {
			return acc, err
		}
	}
}

func (p *dimParser) product() (Dim, error) {
	acc, err := p.factor()
	if err != nil {
		return acc, err
	}
	for {
		c := p.peek()
		if c != '*' && c != '/' {
			return acc, nil
		}
		p.i++
		f, err := p.factor()
		if err != nil {
			return f, err
		}
		if c == '*' {
			acc = acc.Mul(f)
		} else {
			k, ok := f.Const()
			if !ok || k < 1 {
				return acc, fmt.Errorf("division by %s: the divisor must be a positive integer", f)
			}
			acc = acc.Div(k)
		}
		if err := acc.check(); err != nil {
			return acc, err
		}
	}
}

// check reports why d is beyond what text and extents may hold.
func (d Dim) check() error {
	if d.x == outOfRange {
		return fmt.Errorf("the expression is out of range")
	}
	if d.n > maxDimValue || d.n < -maxDimValue {
		return fmt.Errorf("constant %d is out of range", d.n)
	}
	for _, t := range d.terms() {
		if t.coef > maxDimValue || t.coef < -maxDimValue {
			return fmt.Errorf("factor %d of %.40s is out of range", t.coef, t.key)
		}
		for _, a := range t.atoms {
			if a.den == 0 {
				continue
			}
			if a.den > maxDimValue {
				return fmt.Errorf("divisor %d is out of range", a.den)
			}
			if err := a.num.check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// clip quotes the beginning of a text for a message.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:most]) + "..."
}

func (p *dimParser) factor() (Dim, error) {
	c := p.peek()
	start := p.i
	switch {
	case c == '(':
		if p.depth++; p.depth > maxDimDepth {
			return Dim{}, fmt.Errorf("nested deeper than %d", maxDimDepth)
		}
		p.i++
		d, err := p.sum()
		if err != nil {
			return d, err
		}
		if p.peek() != ')' {
			return d, fmt.Errorf("missing )")
		}
		p.i++
		p.depth--
		return d, nil
	case c >= '0' && c <= '9':
		for p.i < len(p.s) && p.s[p.i] >= '0' && p.s[p.i] <= '9' {
			p.i++
		}
		n, err := strconv.ParseUint(p.s[start:p.i], 10, 31)
		if err != nil {
			return Dim{}, fmt.Errorf("integer %.40s is out of range", p.s[start:p.i])
		}
		return Dim{n: int64(n)}, nil
	case isNameStart(c):
		for p.i < len(p.s) && isNameByte(p.s[p.i]) {
			p.i++
		}
		if p.resolve == nil {
			return Dim{}, fmt.Errorf("undeclared symbol %s", p.s[start:p.i])
		}
		return p.resolve(p.s[start:p.i])
	case p.i == len(p.s):
		return Dim{}, fmt.Errorf("unexpected end")
	}
	return Dim{}, fmt.Errorf("unexpected %s", clip(p.s[p.i:]))
}

func isNameStart(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
func isNameByte(c byte) bool { return isNameStart(c) || c >= '0' && c <= '9' }
