package main

import (
	"math"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/num"
)

// reference is the model once more, in plain Go on float64: whole texts at once,
// without a cache, and nothing of it from the IR but the weights' numbers. It
// rounds to bf16 where the graph's values are bf16.
type reference struct {
	Config
	t       *testing.T
	round   func(float64) float64
	mistake string // a rule to leave out
}

func toBF16(x float64) float64 { return float64(num.RoundBF16F64(x)) }

func exactly(x float64) float64 { return x }

type matrix [][]float64

// weight reads a weight; a vector is a matrix of one row.
func (r *reference) weight(name string, shape ...int) matrix {
	r.t.Helper()
	dims := make([]ir.Dim, len(shape))
	for i, n := range shape {
		dims[i] = ir.Int(n)
	}
	x, err := weights.Weight(name, ir.T(ir.BF16, dims...))
	if err != nil {
		r.t.Fatal(err)
	}
	width := shape[len(shape)-1]
	var out matrix
	for i := 0; i < len(x.F); i += width {
		row := make([]float64, width)
		for j := range row {
			row[j] = float64(x.F[i+j])
		}
		out = append(out, row)
	}
	return out
}

// logits of the last token.
func (r *reference) logits(tokens []int32) []float32 {
	embed := r.weight("embed", r.Vocab, r.Dim)
	x := make(matrix, len(tokens))
	for i, id := range tokens {
		x[i] = embed[id]
	}
	for _, layer := range []string{"layers.0", "layers.1"} {
		x = r.add(x, r.attention(r.norm(x, layer+".attn_norm"), layer+".attn."))
		x = r.add(x, r.ffn(r.norm(x, layer+".ffn_norm"), layer+".ffn."))
	}
	last := r.norm(x[len(x)-1:], "norm")[0]
	out := make([]float32, r.Vocab)
	for i := range out {
		out[i] = float32(dot(last, embed[i]))
	}
	return out
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// each makes a matrix of the same shape, rounded.
func (r *reference) each(x matrix, f func(i, j int) float64) matrix {
	out := make(matrix, len(x))
	for i := range x {
		out[i] = make([]float64, len(x[i]))
		for j := range x[i] {
			out[i][j] = r.round(f(i, j))
		}
	}
	return out
}

func (r *reference) add(x, y matrix) matrix {
	return r.each(x, func(i, j int) float64 { return x[i][j] + y[i][j] })
}

func (r *reference) norm(x matrix, name string) matrix {
	w := r.weight(name, r.Dim)[0]
	return r.each(x, func(i, j int) float64 {
		return w[j] * x[i][j] / math.Sqrt(dot(x[i], x[i])/float64(r.Dim)+r.Eps)
	})
}

func (r *reference) linear(x matrix, name string, n int) matrix {
	w := r.weight(name, n, len(x[0]))
	wide := make(matrix, len(x))
	for i := range wide {
		wide[i] = make([]float64, n)
	}
	return r.each(wide, func(i, j int) float64 { return dot(x[i], w[j]) })
}

func (r *reference) ffn(x matrix, p string) matrix {
	gate, up := r.linear(x, p+"gate", r.FFN), r.linear(x, p+"up", r.FFN)
	return r.linear(r.each(gate, func(i, j int) float64 {
		g := gate[i][j]
		return g / (1 + math.Exp(-g)) * up[i][j]
	}), p+"down", r.Dim)
}

// rope turns the pair (2i, 2i+1) of every head by position * theta^(-2i/d).
func (r *reference) rope(x matrix) matrix {
	if r.mistake == "no positions" {
		return x
	}
	d := r.Dim / r.Heads
	return r.each(x, func(pos, j int) float64 {
		even := j &^ 1
		angle := float64(pos) * math.Pow(r.Theta, -float64(even%d)/float64(d))
		a, b := x[pos][even], x[pos][even+1]
		if j == even {
			return a*math.Cos(angle) - b*math.Sin(angle)
		}
		return a*math.Sin(angle) + b*math.Cos(angle)
	})
}

func (r *reference) attention(x matrix, p string) matrix {
	q, k, v := r.rope(r.linear(x, p+"wq", r.Dim)), r.rope(r.linear(x, p+"wk", r.Dim)), r.linear(x, p+"wv", r.Dim)
	d := r.Dim / r.Heads
	scale := 1 / math.Sqrt(float64(d))
	if r.mistake == "no scale" {
		scale = 1
	}
	o := r.each(x, func(t, j int) float64 {
		from := j / d * d
		sees := t + 1
		switch r.mistake {
		case "sees the future":
			sees = len(x)
		case "does not see itself":
			sees = max(1, t)
		}
		var sum, total float64
		for c := range sees {
			e := math.Exp(scale * dot(q[t][from:from+d], k[c][from:from+d]))
			sum, total = sum+e*v[c][j], total+e
		}
		return sum / total
	})
	return r.linear(o, p+"wo", r.Dim)
}
