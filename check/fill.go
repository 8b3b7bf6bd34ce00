package check

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/num"
)

// Case is a way to choose operands.
type Case struct {
	Name    string
	Doc     string
	element func(r *rand.Rand) float64
	spoils  bool // NaN and infinities in some rows
	none    bool // every index is -1
	// Of weights: only where equal rows are what the case is about.
	weights bool
}

// Cases lists the ways, plain random numbers first: those are chosen anew for
// every seed, the others, which look for trouble, once.
var Cases = []Case{
	{Name: "random", Doc: "normally distributed numbers", element: normal(1)},
	{Name: "zeros", Doc: "zeros", element: func(*rand.Rand) float64 { return 0 }},
	{Name: "ties", Doc: "three different numbers only, so that scores are equal", weights: true,
		element: func(r *rand.Rand) float64 { return []float64{-1, 0.5, 1}[r.IntN(3)] }},
	{Name: "large", Doc: "numbers about 100", element: normal(100)},
	{Name: "small", Doc: "numbers about 1e-4", element: normal(1e-4)},
	{Name: "spoiled", Doc: "NaN and infinities in some rows", element: normal(1), spoils: true},
	{Name: "none", Doc: "every index is -1", element: normal(1), none: true},
}

func normal(scale float64) func(r *rand.Rand) float64 {
	return func(r *rand.Rand) float64 { return r.NormFloat64() * scale }
}

// source is a generator for one named thing: what it gives depends on nothing
// else that is drawn.
func source(seed uint64, what, name string) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s", what, name)
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// value makes a value that is no weight.
func (c *Case) value(r *rand.Rand, v *ir.Value, spans map[*ir.Value]span, packs map[*ir.Value]ir.RowFormat) (*eval.Tensor, error) {
	if f, ok := packs[v]; ok {
		return c.packed(r, v.Type, f)
	}
	return c.fill(r, v.Type, spans[v])
}

// fill makes a tensor of its elements' type alone.
func (c *Case) fill(r *rand.Rand, t ir.Type, s span) (*eval.Tensor, error) {
	x, err := eval.New(t)
	if err != nil {
		return nil, err
	}
	floats(x, r, 1, c.element)
	if c.spoils {
		spoil(x, r)
	}
	codes(x, r)
	s.fill(x, r)
	if c.none && s.index {
		for i := range x.I {
			x.I[i] = -1
		}
	}
	return x, nil
}

// weight makes a weight: products with it keep the size of numbers.
func (c *Case) weight(r *rand.Rand, t ir.Type, s span) (*eval.Tensor, error) {
	x, err := eval.New(t)
	if err != nil {
		return nil, err
	}
	element, scale := normal(1), 1.0
	if c.weights {
		element = c.element
	}
	if n := t.Rank(); n > 1 {
		scale = 1 / math.Sqrt(float64(x.Shape[n-1]))
	}
	floats(x, r, scale, element)
	codes(x, r)
	s.fill(x, r)
	return x, nil
}

func floats(x *eval.Tensor, r *rand.Rand, scale float64, element func(*rand.Rand) float64) {
	for i := range x.F {
		v := float32(element(r) * scale)
		switch x.DType {
		case ir.BF16:
			v = num.RoundBF16(v)
		case ir.F16:
			v = num.RoundF16(v)
		}
		x.F[i] = v
	}
}

// spoil puts a bad number into all rows but the last, each another: what is bad
// must not leave its row. A single row gets NaN.
func spoil(x *eval.Tensor, r *rand.Rand) {
	if len(x.F) == 0 {
		return
	}
	bad := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}
	rows := 1
	if len(x.Shape) > 0 {
		rows = x.Shape[0]
	}
	width := len(x.F) / rows
	for i := 0; i < max(1, min(rows-1, len(bad))); i++ {
		x.F[i*width+r.IntN(width)] = bad[i]
	}
}

// codes fills the 8- and 4-bit formats: no NaN, which binding refuses, and with
// block scales that undo the codes' size and the length of a row.
func codes(x *eval.Tensor, r *rand.Rand) {
	if len(x.Codes) == 0 {
		return
	}
	encode, gain := num.E4M3, 6 // codes hold numbers times 2^gain
	switch x.DType {
	case ir.F8E4M3FNUZ:
		encode = num.FmtE4M3FNUZ.Encode
	case ir.F4E2M1:
		encode, gain = num.E2M1, 1
	case ir.E8M0:
		for i := range x.Codes {
			x.Codes[i] = byte(120 + r.IntN(8))
		}
		return
	}
	one := func() byte { return encode(float32(math.Ldexp(r.NormFloat64(), gain-1))) }
	for i := range x.Codes {
		x.Codes[i] = one()
		if x.DType == ir.F4E2M1 {
			x.Codes[i] |= one() << 4
		}
	}
	length := 1.0
	if n := len(x.Shape); n > 0 {
		length = math.Sqrt(float64(x.Shape[n-1]))
	}
	for i := range x.Scales {
		x.Scales[i] = byte(128 - gain - int(math.Round(math.Log2(length))) - r.IntN(2))
	}
}
