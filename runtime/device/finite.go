package device

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/num"
)

// finite refuses NaN codes in 8-bit weights: kernels decode OCP's without looking
// (kernel.LoadWeight), and e4m3fnuz has them only where a checkpoint had them. A NaN
// scale of e4m3fnuz may stand for one that had no double. b begins at a byte of the
// data (part 0) or of the scales.
func finite(t ir.Type, part int, from int64, b []byte) error {
	if t.Quant == nil {
		return nil
	}
	fnuz := t.DType == ir.F8E4M3FNUZ
	at := -1
	switch {
	case part == 1 && fnuz:
		if at = bytes.IndexByte(b, num.ScaleNaN); at >= 0 {
			return fmt.Errorf("block scale %d is NaN, or 2^127 before it was doubled for e4m3fnuz", from+int64(at))
		}
	case part == 0 && fnuz:
		at = bytes.IndexByte(b, 0x80)
	case part == 0 && t.DType == ir.F8E4M3:
		at = indexNaN(b)
	}
	if at >= 0 {
		return fmt.Errorf("element %d is NaN (code %#02x)", from+int64(at), b[at])
	}
	return nil
}

// indexNaN is the first of codes of f8e4m3 that is NaN, 0x7F or 0xFF; -1 without one.
func indexNaN(b []byte) int {
	const low, one, high = 0x7F7F7F7F7F7F7F7F, 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(b); i += 8 { // eight at a time: 0x7F alone carries into the top bit
		if (binary.LittleEndian.Uint64(b[i:])&low+one)&high != 0 {
			break
		}
	}
	for ; i < len(b); i++ {
		if b[i]&0x7F == 0x7F {
			return i
		}
	}
	return -1
}
