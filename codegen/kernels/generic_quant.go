package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/num"
)

func init() {
	register(
		&Form{Name: "generic_quantize", Op: "quantize", Match: always, Lower: lowerQuantize},
		&Form{Name: "generic_dequantize", Op: "dequantize", Match: always, Lower: lowerDequantize},
		&Form{Name: "generic_recode_fnuz", Op: "recode_fnuz", Match: always, Lower: lowerRecodeFNUZ},
	)
}

// blockFormats is what quantize needs of a format.
var blockFormats = map[ir.DType]struct {
	format num.Format
	encode func(*kernel.K, kernel.V) kernel.V // f32 -> code
}{
	ir.F8E4M3:     {num.FmtE4M3, (*kernel.K).EncodeE4M3},
	ir.F8E4M3FNUZ: {num.FmtE4M3FNUZ, (*kernel.K).EncodeFNUZ},
	ir.F4E2M1:     {num.FmtE2M1, (*kernel.K).EncodeE2M1},
}

// lowerQuantize finds the scales, then the codes.
func lowerQuantize(l Lowering, o *ir.Op) error {
	to, block := o.DType("to"), o.Int("block")
	n := product(dims(o.Args[0]))
	x, scales := l.Buf(o.Args[0]), l.Scales(o.Results[0])
	quantScales(l, x, scales, n/block, block, to, o.Float("floor"))
	codes := stores(l, o.Results[0])[0]
	per := 1 // elements of a unit of codes
	if to == ir.F4E2M1 {
		per = 2
	}
	s := spreadOver(l.Target(), n/block, block/per, 4*per)
	mixed := block%per != 0 // a byte has codes of two blocks
	if mixed {
		s = spreadOver(l.Target(), 1, n/per, 4*per)
	}
	spec := fmt.Sprintf("%s %s", to, s.mode)
	if mixed {
		spec = fmt.Sprintf("%s block%d", spec, block)
	}
	l.Launch(Launch{
		Name: "quant_codes", Spec: spec, Grid: s.grid(), Work: int64(n) * 8,
		In: []Ref{x, bits(scales, 1)}, Out: []Ref{bits(codes.ref, 1)}, Ints: s.ints(),
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			code := func(at, scale kernel.V) kernel.V {
				inverse := k.Bits(k.Shl(k.Sub(k.Int32(254), scale), k.Int32(23))) // scales are at most 2^126
				c := blockFormats[to].encode(k, k.Mul(b[0].Load(at), inverse))
				return k.Select(k.Cmp(kernel.EQ, scale, k.Int32(int(num.ScaleNaN))), k.Int32(0), c)
			}
			s.each(k, ints, func(row kernel.V) func(col, at kernel.V) {
				scale := k.Int32(0)
				if !mixed {
					scale = b[1].LoadBits(row)
				}
				return func(_, at kernel.V) {
					if per == 1 {
						b[2].StoreBits(at, code(at, scale))
						return
					}
					b[2].StoreBits(at, packPair(k, func(i int) kernel.V {
						e := k.Add(k.Mul(at, k.Int(2)), k.Int(i))
						if mixed {
							return code(e, b[1].LoadBits(k.UDiv(e, k.Int(block))))
						}
						return code(e, scale)
					}))
				}
			})
		},
	})
	return nil
}

// quantScales writes the e8m0 scale of each block, by the rule of
// num.QuantizeBlock.
func quantScales(l Lowering, x, scales Ref, blocks, block int, to ir.DType, floor float64) {
	top := float64(blockFormats[to].format.Max())
	reduction{
		name: "quant_scales", spec: fmt.Sprintf("%s floor%g", to, floor),
		x: x, y: scales, outer: blocks, n: block, inner: 1,
		start:   func(k *kernel.K) kernel.V { return k.Float(floor) },
		step:    func(k *kernel.K, acc, x kernel.V) kernel.V { return k.MaxNaN(acc, k.Abs(x)) },
		combine: func(k *kernel.K) func(a, b kernel.V) kernel.V { return k.MaxNaN },
		finish: func(k *kernel.K, a kernel.V) kernel.V {
			t := k.Mul(a, k.Float(1/top))
			_, exp := k.Pow2Ceil(t)
			exp = k.Select(k.Cmp(kernel.LE, t, k.Float(0x1p-127)), k.Int32(0), exp)
			return k.Select(k.Cmp(kernel.LE, a, k.Float(math.MaxFloat32)), exp, k.Int32(int(num.ScaleNaN)))
		},
	}.launch(l)
}

// lowerDequantize multiplies codes and scales. A code has few bits and a scale
// one, so the f32 product is exact and the store rounds once.
func lowerDequantize(l Lowering, o *ir.Op) error {
	q, to := o.Args[0], o.Results[0]
	shape, block := dims(q), q.Type.Quant.Block
	rank := len(shape)
	height, cols := shape[rank-2], shape[rank-1]
	rows := product(shape) / cols
	scaleCols := ceilDiv(cols, block[1])
	// A run has one scale: a block's part of a row, or the whole of a row that
	// mixes them.
	s := spreadOver(l.Target(), rows*scaleCols, block[1], 2)
	uniform := cols%block[1] == 0 && block[1] >= l.Target().Lanes && (block[1]%2 == 0 || q.Type.DType != ir.F4E2M1)
	if !uniform {
		s = spreadOver(l.Target(), rows, cols, 2)
	}
	spec := fmt.Sprintf("%s block%v", s.mode, block)
	if uniform {
		spec += " runs"
	}
	if rank == 2 {
		spec += " matrix"
	}
	n := product(shape)
	l.Launch(Launch{
		Name: "dequantize", Spec: spec, Grid: s.grid(), Work: int64(n) * 4,
		In: []Ref{l.Buf(q), l.Scales(q)}, Out: []Ref{l.Buf(to)}, Ints: append(s.ints(), scaleCols, height, ceilDiv(height, block[0])),
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			scaleCols, height, scaleRows := ints[spreadInts], ints[spreadInts+1], ints[spreadInts+2]
			// firstScale is the first scale of a row.
			firstScale := func(row kernel.V) kernel.V {
				matrix := k.Int(0)
				if rank > 2 && block[0] > 1 {
					matrix = k.UDiv(row, height)
					row = k.Sub(row, k.Mul(matrix, height))
				}
				if block[0] > 1 {
					row = k.UDiv(row, k.Int(block[0]))
				}
				return k.Mul(k.Add(k.Mul(matrix, scaleRows), row), scaleCols)
			}
			s.each(k, ints, func(row kernel.V) func(col, at kernel.V) {
				if uniform {
					r := k.UDiv(row, scaleCols)
					scale := b[1].Load(k.Add(firstScale(r), k.Sub(row, k.Mul(r, scaleCols))))
					return func(_, at kernel.V) { b[2].Store(at, k.Mul(b[0].LoadAny(at), scale)) }
				}
				first := firstScale(row)
				return func(col, at kernel.V) {
					scale := b[1].Load(k.Add(k.UDiv(col, k.Int(block[1])), first))
					b[2].Store(at, k.Mul(b[0].LoadAny(at), scale))
				}
			})
		},
	})
	return nil
}

// lowerRecodeFNUZ maps codes and scales byte by byte, as num.RecodeFNUZ and
// num.DoubleE8M0 do.
func lowerRecodeFNUZ(l Lowering, o *ir.Op) error {
	from, to := stores(l, o.Args[0]), stores(l, o.Results[0])
	for part, f := range []struct {
		name string
		of   func(k *kernel.K, b kernel.V) kernel.V
	}{
		{"recode_codes", func(k *kernel.K, c kernel.V) kernel.V {
			nan := k.Cmp(kernel.EQ, k.And(c, k.Int32(0x7F)), k.Int32(0x7F))
			zero := k.Cmp(kernel.EQ, c, k.Int32(0x80))
			return k.Select(nan, k.Int32(0x80), k.Select(zero, k.Int32(0), c))
		}},
		{"recode_scales", func(k *kernel.K, s kernel.V) kernel.V {
			none := k.Int32(int(num.ScaleNaN))
			return k.Select(k.Cmp(kernel.LT, s, k.Int32(254)), k.Add(s, k.Int32(1)), none)
		}},
	} {
		n := product(from[part].shape)
		s := spreadOver(l.Target(), 1, n, 4)
		l.Launch(Launch{
			Name: f.name, Spec: string(s.mode), Grid: s.grid(), Work: int64(n) * 4,
			In: []Ref{bits(from[part].ref, 1)}, Out: []Ref{bits(to[part].ref, 1)}, Ints: s.ints(),
			Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
				s.each(k, ints, func(kernel.V) func(col, at kernel.V) {
					return func(_, at kernel.V) { b[1].StoreBits(at, f.of(k, b[0].LoadBits(at))) }
				})
			},
		})
	}
	return nil
}
