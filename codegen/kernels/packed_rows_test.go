package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// rowFormats are the model's ways to pack rows and ones that fit no lanes, with the
// floors of their blocks.
var rowFormats = []struct {
	ir.RowFormat
	floor float64
}{
	{ir.RowFormat{To: ir.F8E4M3, Block: 64, Dims: 448, D: 512}, 1e-4},
	{ir.RowFormat{To: ir.F8E4M3, Block: 64, Dims: 64, D: 128}, 1e-4},
	{ir.RowFormat{To: ir.F4E2M1, Block: 32, Dims: 128, D: 128}, 6 * 0x1p-126},
	{ir.RowFormat{To: ir.F8E4M3, Block: 6, Dims: 12, D: 13}, 1e-2},
	{ir.RowFormat{To: ir.F4E2M1, Block: 10, Dims: 20, D: 33}, 1e-4},
}

func packAttrs(f ir.RowFormat, floor float64) ir.Attrs {
	return append(f.Attrs(), ir.A("floor", floor)...)
}

// unpackAttrs are those of unpack_rows.
func unpackAttrs(f ir.RowFormat) ir.Attrs { return append(f.Attrs(), ir.A("d", f.D)...) }

// kvFormat and indexFormat are the model's formats for rows of d numbers.
func kvFormat(d int) ir.RowFormat {
	return ir.RowFormat{To: ir.F8E4M3, Block: 64, Dims: d - 64, D: d}
}

func indexFormat(d int) ir.RowFormat {
	return ir.RowFormat{To: ir.F4E2M1, Block: 32, Dims: d, D: d}
}

// addPacked adds a case with some operands packed.
func (c *cases) addPacked(attrs ir.Attrs, f ir.RowFormat, floor float64, tables []int, args ...*eval.Tensor) {
	c.t.Helper()
	if c.packs == nil {
		c.packs = map[*eval.Tensor]*eval.Tensor{}
	}
	for _, i := range tables {
		x := args[i]
		if c.packs[x] == nil {
			y := x
			if c.positive {
				y = positive(x)
			}
			c.packs[x] = packed(c.t, f, floor, y)
		}
		args[i] = c.packs[x]
	}
	c.add(append(attrs[:len(attrs):len(attrs)], f.Attrs()...), args...)
}

// packed is rows of x as the evaluator packs them.
func packed(t testing.TB, f ir.RowFormat, floor float64, x *eval.Tensor) *eval.Tensor {
	t.Helper()
	c := newBatch(t)
	c.op("pack_rows", packAttrs(f, floor), exact, x)
	out, _ := c.want(c.graph())
	return out["y0"]
}

// TestPackRows: every byte, of blocks that stress the choice of a scale.
func TestPackRows(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 4))
	c := newBatch(t)
	for _, f := range rowFormats {
		for _, n := range []int{1, 3, 30} {
			x := blocks(t, r, ir.BF16, f.Block, n, f.D)
			for i := range x.F { // a NaN that is copied may become another one
				if i%f.D >= f.Dims && x.F[i] != x.F[i] {
					x.F[i] = 1
				}
			}
			c.op("pack_rows", packAttrs(f.RowFormat, f.floor), exact, x)
		}
		c.op("pack_rows", packAttrs(f.RowFormat, f.floor), exact, random(t, r, ordinary, ir.BF16, 2, 3, f.D))
	}
	c.run(bothHosts...)
}

// TestUnpackRows: all bytes, and all codes with all scales.
func TestUnpackRows(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	c := newBatch(t)
	for _, f := range rowFormats {
		c.op("unpack_rows", unpackAttrs(f.RowFormat), exact, random(t, r, patterns, ir.U8, 40, f.Bytes()), rowsIn(t, r, 40, 3, 30))
	}
	for _, f := range []ir.RowFormat{{To: ir.F8E4M3, Block: 256, Dims: 256, D: 256}, {To: ir.F4E2M1, Block: 16, Dims: 16, D: 16}} {
		all := blank(t, ir.T(ir.U8, ir.Int(256), ir.Int(f.Bytes())))
		for scale := range 256 {
			row := all.I[scale*f.Bytes():]
			for i := range f.Rest() {
				row[i] = int64(i * 256 / f.Rest() * 17 / 16)
			}
			row[f.Scales()] = int64(scale)
		}
		c.output(fmt.Sprintf("all codes of %s", f.To), exact, c.b.Unpack(f, c.input(all)))
	}
	c.run(bothHosts...)
}

// pools are attention and scores over pools, first packed, then as bf16 numbers.
type pools struct {
	*cases
	pairs int
}

func (p *pools) add(op string, attrs ir.Attrs, f ir.RowFormat, floor float64, args []*eval.Tensor, tables ...int) {
	asBF16 := append([]*eval.Tensor{}, args...)
	for _, i := range tables {
		args[i] = packed(p.t, f, floor, args[i])
		c := newBatch(p.t)
		c.output("unpack_rows", exact, c.b.Unpack(f, c.input(args[i])))
		out, _ := c.want(c.graph())
		asBF16[i] = out["y0"]
	}
	p.batch.op(op, append(attrs[:len(attrs):len(attrs)], f.Attrs()...), exact, args...)
	p.batch.op(op, attrs, exact, asBF16...)
	p.pairs++
}

// check compares each pair.
func (p *pools) same(name string) {
	p.t.Helper()
	out := p.outputs(name)
	for i := range p.pairs {
		packed, wide := out[fmt.Sprintf("y%d", 2*i)], out[fmt.Sprintf("y%d", 2*i+1)]
		if d := exact.compare(wide, packed); d != "" {
			p.t.Errorf("%s: %s: packed and bf16 pools: %s", name, p.what[2*i], d)
		}
	}
}

// packedPools has the cases of every width that a form treats in a way of its own.
func packedPools(t *testing.T, r *rand.Rand) *pools {
	p := &pools{cases: &cases{batch: newBatch(t), r: r}}
	for _, f := range rowFormats {
		if f.To == ir.F4E2M1 {
			for _, n := range []int{5, 70} {
				q, w, rows := p.bf16(1, 3, 5, f.D), p.bf16(1, 3, 5), p.rows(50, 3, n)
				p.add("indexer_scores", nil, f.RowFormat, f.floor, []*eval.Tensor{q, w, p.bf16(1, 50, f.D), rows}, 2)
			}
			continue
		}
		attrs := ir.A("scale", math.Pow(float64(f.D), -0.5))
		for _, n := range []int{5, 70} {
			q, sink, rows, few := p.bf16(1, 3, 5, f.D), p.f32(1, 5), p.rows(50, 3, n), p.rows(5, 3, 7)
			p.add("sparse_attention", attrs, f.RowFormat, f.floor, []*eval.Tensor{q, sink, p.bf16(1, 50, f.D), rows, p.bf16(1, 5, f.D), few}, 2, 4)
			p.add("sparse_attention", attrs, f.RowFormat, f.floor, []*eval.Tensor{q, sink, p.spoiled(p.bf16(1, 50, f.D), 50), rows}, 2)
			p.add("sparse_attention", attrs, f.RowFormat, f.floor, []*eval.Tensor{q, sink, p.bf16(1, 50, f.D), without(rows)}, 2)
		}
	}
	return p
}

// TestPackedPools: a packed pool gives the bits that a bf16 pool of the same numbers
// gives.
func TestPackedPools(t *testing.T) {
	p := packedPools(t, rand.New(rand.NewPCG(5, 6)))
	for _, name := range slices.Concat(bothHosts, bothChips) {
		p.same(name)
	}
}
