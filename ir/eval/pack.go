package eval

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/num"
)

func makePackRows(op *ir.Op) (kernel, error) {
	f, _ := ir.PackedResult(op)
	floor, to := float32(op.Float("floor")), format(op.DType("to"))
	return func(in, out []*Tensor) error {
		codes := make([]byte, f.Block)
		for r := range len(in[0].F) / f.D {
			x, y := in[0].F[r*f.D:][:f.D], out[0].I[r*f.Bytes():][:f.Bytes()]
			clear(y)
			for b := range f.Dims / f.Block {
				y[f.Scales()+b] = int64(num.QuantizeBlock(codes, x[b*f.Block:][:f.Block], to, floor))
				for i, c := range codes {
					at := b*f.Block + i
					if f.To == ir.F4E2M1 {
						y[at/2] |= int64(c) << (4 * (at % 2))
					} else {
						y[at] = int64(c)
					}
				}
			}
			for i, v := range x[f.Dims:] {
				bits := num.BF16Bits(v)
				y[f.Rest()+2*i], y[f.Rest()+2*i+1] = int64(bits&0xFF), int64(bits>>8)
			}
		}
		return nil
	}, nil
}

func makeUnpackRows(op *ir.Op) (kernel, error) {
	f, _ := ir.PackedOperand(op, 0)
	decode := codeTable(f.To)
	n := shapeOf(op.Args[0])[0]
	return func(in, out []*Tensor) error {
		for r, ix := range in[1].I {
			if err := rowIndex(ix, n); err != nil {
				return fmt.Errorf("index %d: %w", r, err)
			}
			y := out[0].F[r*f.D:][:f.D]
			if ix < 0 {
				clear(y)
				continue
			}
			x := in[0].I[int(ix)*f.Bytes():][:f.Bytes()]
			for i := range y[:f.Dims] {
				at, shift, mask := i, 0, int64(0xFF)
				if f.To == ir.F4E2M1 {
					at, shift, mask = i/2, 4*(i%2), 0xF
				}
				scale := float64(num.FromE8M0(byte(x[f.Scales()+i/f.Block])))
				y[i] = num.RoundBF16F64(decode[x[at]>>shift&mask] * scale)
			}
			for i := range y[f.Dims:] {
				at := f.Rest() + 2*i
				y[f.Dims+i] = num.FromBF16(uint16(x[at]) | uint16(x[at+1])<<8)
			}
		}
		return nil
	}, nil
}
