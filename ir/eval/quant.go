package eval

import (
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/num"
)

func makeQuantize(op *ir.Op) (kernel, error) {
	block, floor, to := op.Int("block"), float32(op.Float("floor")), op.DType("to")
	f := format(to)
	return func(in, out []*Tensor) error {
		codes := make([]byte, block)
		for i := range out[0].Scales {
			x := in[0].F[i*block : (i+1)*block]
			if to != ir.F4E2M1 {
				out[0].Scales[i] = num.QuantizeBlock(out[0].Codes[i*block:(i+1)*block], x, f, floor)
				continue
			}
			out[0].Scales[i] = num.QuantizeBlock(codes, x, f, floor)
			for j, c := range codes {
				at := i*block + j
				shift := 4 * (at % 2)
				out[0].Codes[at/2] = out[0].Codes[at/2]&^(15<<shift) | c<<shift
			}
		}
		return nil
	}, nil
}

func makeDequantize(op *ir.Op) (kernel, error) {
	t := op.Args[0].Type
	q := t.Quant
	shape := shapeOf(op.Args[0])
	r := len(shape)
	rows, cols := shape[r-2], shape[r-1]
	scaleRows, scaleCols := ceilDiv(rows, q.Block[0]), ceilDiv(cols, q.Block[1])
	round := rounder64(op.DType("to"))
	return func(in, out []*Tensor) error {
		decode := codeTable(in[0].DType)
		packed := in[0].DType == ir.F4E2M1
		for row := range product(shape[:r-1]) {
			scales := in[0].Scales[(row/rows*scaleRows+row%rows/q.Block[0])*scaleCols:][:scaleCols]
			for b, c := range scales {
				scale := float64(num.FromE8M0(c))
				from, to := row*cols+b*q.Block[1], row*cols+min((b+1)*q.Block[1], cols)
				y := out[0].F[from:to]
				if packed {
					for j := range y {
						at := from + j
						y[j] = round(decode[in[0].Codes[at/2]>>(4*(at%2))&15] * scale)
					}
					continue
				}
				for j, c := range in[0].Codes[from:to] {
					y[j] = round(decode[c] * scale)
				}
			}
		}
		return nil
	}, nil
}

func makeRecodeFNUZ(*ir.Op) (kernel, error) {
	return func(in, out []*Tensor) error {
		for i, c := range in[0].Codes {
			out[0].Codes[i] = num.RecodeFNUZ(c)
		}
		for i, s := range in[0].Scales {
			out[0].Scales[i] = num.DoubleE8M0(s)
		}
		return nil
	}, nil
}

// codeTable lists every code's value.
func codeTable(dt ir.DType) [256]float64 {
	var t [256]float64
	n := 256
	if dt == ir.F4E2M1 {
		n = 16
	}
	f := format(dt)
	for c := range n {
		t[c] = float64(f.Decode(byte(c)))
	}
	return t
}
