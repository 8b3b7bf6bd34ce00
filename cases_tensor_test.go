package kiln_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// Tensors as run cases write them: NAME = elements, more of them on indented lines.
// N*COUNT stands for COUNT elements; codes are bytes in hex, and a / stands before
// the block scales.

// readTensors reads a tensor for each type.
func readTensors(text string, types map[string]ir.Type) (map[string]*eval.Tensor, error) {
	out := map[string]*eval.Tensor{}
	var words []string
	name := ""
	finish := func() error {
		if name == "" {
			return nil
		}
		t, ok := types[name]
		if !ok || out[name] != nil {
			return fmt.Errorf("%s is no operand, or is given twice", name)
		}
		x, err := readTensor(words, t)
		if err != nil {
			return fmt.Errorf("%s : %s: %w", name, t, err)
		}
		out[name] = x
		return nil
	}
	for line := range strings.Lines(text) {
		if more := strings.TrimLeft(line, " \t"); more != line {
			words = append(words, strings.Fields(more)...)
			continue
		}
		if err := finish(); err != nil {
			return nil, err
		}
		before, after, ok := strings.Cut(line, " =")
		if !ok {
			return nil, fmt.Errorf("line %q: want NAME = elements", strings.TrimSpace(line))
		}
		name, words = before, strings.Fields(after)
	}
	if err := finish(); err != nil {
		return nil, err
	}
	if len(out) < len(types) {
		return nil, fmt.Errorf("want all of %s", strings.Join(slices.Sorted(maps.Keys(types)), ", "))
	}
	return out, nil
}

func readTensor(words []string, t ir.Type) (*eval.Tensor, error) {
	x, err := eval.New(t)
	if err != nil {
		return nil, err
	}
	f, i, codes := x.F[:0], x.I[:0], [2][]byte{x.Codes[:0], x.Scales[:0]}
	part := 0
	for _, w := range words {
		if w == "/" && part == 0 {
			part = 1
			continue
		}
		one, times, repeated := strings.Cut(w, "*")
		n := 1
		if repeated {
			if n, err = strconv.Atoi(times); err != nil {
				return nil, err
			}
		}
		var v float64
		var u uint64
		var k int64
		switch {
		case x.F != nil:
			if v, err = strconv.ParseFloat(one, 32); err == nil {
				if exact, _ := eval.FromF32(t.DType, []float32{float32(v)}, 1); v == v && float64(exact.F[0]) != v {
					err = fmt.Errorf("%s is not a number of %s", one, t.DType)
				}
			}
		case x.I != nil:
			k, err = strconv.ParseInt(one, 10, 64)
		default:
			u, err = strconv.ParseUint(one, 16, 8)
		}
		if err != nil {
			return nil, err
		}
		for range n {
			switch {
			case x.F != nil:
				f = append(f, float32(v))
			case x.I != nil:
				i = append(i, k)
			default:
				codes[part] = append(codes[part], byte(u))
			}
		}
	}
	x.F, x.I, x.Codes, x.Scales = f, i, codes[0], codes[1]
	return x, x.Check()
}

// printTensors writes outputs, then updated pools, in the graph's order.
func printTensors(g *ir.Graph, all map[string]*eval.Tensor) string {
	var b strings.Builder
	show := func(name string) { fmt.Fprintf(&b, "%s =%s\n", name, rows(all[name])) }
	for _, o := range g.Outputs {
		show(o.Name)
	}
	for _, u := range g.Updates {
		show(u.State.String())
	}
	return b.String()
}

// rows is values with a line for every row of a matrix.
func rows(x *eval.Tensor) string {
	if len(x.Shape) < 2 {
		return " " + values(x)
	}
	width := x.Shape[len(x.Shape)-1]
	text := ""
	for at := 0; at < x.Len(); at += width {
		row := &eval.Tensor{DType: x.DType, Shape: []int{width}}
		switch {
		case x.F != nil:
			row.F = x.F[at : at+width]
		case x.I != nil:
			row.I = x.I[at : at+width]
		default:
			bits := x.DType.Bits()
			row.Codes = x.Codes[at*bits/8 : (at+width)*bits/8]
		}
		text += "\n  " + values(row)
	}
	if x.Scales != nil {
		text += "\n  / " + hexes(x.Scales)
	}
	return text
}

// values are the elements on one line.
func values(x *eval.Tensor) string {
	var words []string
	for _, v := range x.F {
		words = append(words, strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(float64(v), 'g', -1, 32), "+")))
	}
	for _, v := range x.I {
		words = append(words, strconv.FormatInt(v, 10))
	}
	if x.Codes != nil {
		words = append(words, hexes(x.Codes))
	}
	if x.Scales != nil {
		words = append(words, "/", hexes(x.Scales))
	}
	return shortened(words)
}

func hexes(b []byte) string {
	words := make([]string, len(b))
	for i, c := range b {
		words[i] = fmt.Sprintf("%02x", c)
	}
	return shortened(words)
}

// shortened joins words, four or more equal ones as one with their number.
func shortened(words []string) string {
	var out []string
	for i := 0; i < len(words); {
		n := 1
		for i+n < len(words) && words[i+n] == words[i] {
			n++
		}
		if n < 4 {
			out = append(out, words[i])
			i++
			continue
		}
		out = append(out, fmt.Sprintf("%s*%d", words[i], n))
		i += n
	}
	return strings.Join(out, " ")
}

// What is printed reads as the same tensor.
func TestTensorText(t *testing.T) {
	for text, typ := range map[string]ir.Type{
		" inf -inf nan -0 1e-45 0.1 0*7":  ir.T(ir.F32, ir.Int(13)),
		"\n  1 2 3\n  -4*3":               ir.T(ir.I32, ir.Int(2), ir.Int(3)),
		"\n  38*128\n  00*128\n  / 7f 80": ir.Scaled(ir.F8E4M3, 1, 128, ir.Int(2), ir.Int(128)),
		"\n  12 34\n  / 7f":               ir.Scaled(ir.F4E2M1, 1, 32, ir.Int(1), ir.Int(4)),
	} {
		x, err := readTensor(strings.Fields(text), typ)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		y, err := readTensor(strings.Fields(rows(x)), typ)
		if err != nil || differs(x, y, ir.Limit{}, 0) != "" {
			t.Errorf("%q prints as %q: %v", text, rows(x), err)
		}
	}
	for _, text := range []string{"1.01", "1 2", "", "x", "1*x", "1 / 7f"} {
		if _, err := readTensor(strings.Fields(text), ir.T(ir.BF16, ir.Int(1))); err == nil {
			t.Errorf("%q was read as one number of bf16", text)
		}
	}
}
