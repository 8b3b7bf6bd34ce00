package plan

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/kiln-project/kiln/ir"
)

// Random contents of memory, for measurements: every byte is a function of a seed, the
// tensor and the place in it, so that kernels of every target, the host and this page
// write the same. Word i of 8 bytes comes from Mix(key, i).

// Forms of the kernels that write random contents. A module that can be measured
// without weights has both.
const (
	// FormRandomFill has the parameters words (out, i64), count, key, mask and add:
	// word i is (Mix(key, i) & mask) + add.
	FormRandomFill = "random_fill"
	// FormRandomIDs has the parameters ids (out, i64), count, key, columns and limit:
	// id i is (Mix(key, row) / 2 + column) mod limit, so that those of a row differ.
	FormRandomIDs = "random_ids"
)

// RandomChunk is how many words a group of a kernel of FormRandomFill or FormRandomIDs
// writes: a launch has (count + RandomChunk - 1) / RandomChunk groups.
const RandomChunk = 4096

// The constants of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
// number generators", 2014), by which kernels compute what Mix does.
const (
	MixStep = 0x9E3779B97F4A7C15
	MixMul1 = 0xBF58476D1CE4E5B9
	MixMul2 = 0x94D049BB133111EB
)

// Mix is number i of the SplitMix64 sequence that starts at key.
func Mix(key, i uint64) uint64 {
	z := key + (i+1)*MixStep
	z = (z ^ z>>30) * MixMul1
	z = (z ^ z>>27) * MixMul2
	return z ^ z>>31
}

// RandomKey is the key of part 0 or 1 of tensor number index.
func RandomKey(seed uint64, index, part int) uint64 {
	return Mix(Mix(seed, uint64(index)), uint64(part))
}

// RandomWords says what words of random contents are: as kernels of FormRandomFill
// take it, or those of FormRandomIDs if Columns is not 0.
type RandomWords struct {
	Mask, Add      uint64
	Columns, Limit int
}

// Word is word i of the contents under a key.
func (r RandomWords) Word(key, i uint64) uint64 {
	if r.Columns == 0 {
		return Mix(key, i)&r.Mask + r.Add
	}
	row, column := i/uint64(r.Columns), i%uint64(r.Columns)
	return (Mix(key, row)>>1 + column) % uint64(r.Limit)
}

// Fill writes the contents under a key to memory; a last word is cut off.
func (r RandomWords) Fill(dst []byte, key uint64) {
	var word [8]byte
	for i := 0; i < len(dst); i += 8 {
		binary.LittleEndian.PutUint64(word[:], r.Word(key, uint64(i/8)))
		copy(dst[i:], word[:])
	}
}

// numberFormat is how random numbers of a format are made: sign, all of the mantissa
// and the lowest bits of the exponent are random, the rest is fixed. So no code is an
// infinity or NaN, and none is subnormal.
type numberFormat struct {
	bits, mantissa int // of a code, of its mantissa
	bias           int
	random         int // random bits of the exponent
	unsigned       bool
	// spread: the root mean square is about 2^spread times the smallest number.
	spread int
}

var numberFormats = map[ir.DType]numberFormat{
	ir.F32:        {bits: 32, mantissa: 23, bias: 127, random: 2, spread: 3},
	ir.BF16:       {bits: 16, mantissa: 7, bias: 127, random: 2, spread: 3},
	ir.F16:        {bits: 16, mantissa: 10, bias: 15, random: 2, spread: 3},
	ir.F8E4M3:     {bits: 8, mantissa: 3, bias: 7, random: 3, spread: 6},
	ir.F8E4M3FNUZ: {bits: 8, mantissa: 3, bias: 8, random: 3, spread: 6},
	ir.E8M0:       {bits: 8, bias: 127, random: 1, unsigned: true},
}

// codeSizes are the exponents of the root mean square of random codes times that of
// random scales from 1 up: the block scale makes up for both.
var codeSizes = map[ir.DType]int{
	ir.F8E4M3:     smallest8 + 7,
	ir.F8E4M3FNUZ: smallest8 + 7,
	ir.F4E2M1:     2, // every code: the root mean square is 2.9
}

// smallest8 is the exponent of the smallest random 8-bit code.
const smallest8 = -3

// words fixes the exponent so that the smallest number is 2^exponent.
func (n numberFormat) words(exponent int) (RandomWords, error) {
	width := n.bits - 1 - n.mantissa // of the exponent
	if n.unsigned {
		width++
	}
	low := exponent + n.bias
	if most := 1<<width - 2 - (1<<n.random - 1); low < 1 || low > most {
		return RandomWords{}, fmt.Errorf("random numbers from 2^%d up have no codes in a format with %d bits of exponent", exponent, width)
	}
	code := uint64(1)<<(n.mantissa+n.random) - 1
	if !n.unsigned {
		code |= 1 << (n.bits - 1)
	}
	return RandomWords{Mask: repeat(code, n.bits), Add: repeat(uint64(low)<<n.mantissa, n.bits)}, nil
}

// repeat fills a word with a code of that many bits.
func repeat(code uint64, bits int) uint64 {
	for ; bits < 64; bits *= 2 {
		code |= code << bits
	}
	return code
}

// RandomOf says what the data, and the block scales if there are any, of a tensor hold
// so that numbers are about 2^exponent. limit is that of the ids of an i64 tensor.
func RandomOf(typ string, exponent, limit int) (parts []RandomWords, err error) {
	t, err := parse(typ)
	if err != nil {
		return nil, err
	}
	data := t.DType
	switch {
	case data == ir.I64:
		columns := 1
		if t.Rank() > 1 {
			columns, _ = t.Dims[t.Rank()-1].Const()
		}
		if limit < columns {
			return nil, fmt.Errorf("%s: random ids of a row differ, and are below %d", typ, limit)
		}
		return []RandomWords{{Columns: columns, Limit: limit}}, nil
	case data == ir.U8: // of packed rows: finite as a code, as a scale and as half of a bf16 number
		return []RandomWords{{Mask: repeat(0x03, 8), Add: repeat(0x3C, 8)}}, nil
	case data == ir.F4E2M1: // every code is a number
		parts = []RandomWords{{Mask: ^uint64(0)}}
	default:
		n, ok := numberFormats[data]
		if !ok {
			return nil, fmt.Errorf("%s: there are no random numbers of format %s", typ, data)
		}
		from := exponent - n.spread
		if data.IsCode() { // its scale makes the size, or nothing
			from = smallest8
		}
		w, err := n.words(from)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", typ, err)
		}
		parts = []RandomWords{w}
	}
	if t.Quant == nil {
		return parts, nil
	}
	n, ok := numberFormats[t.Quant.Scale]
	if !ok || !n.unsigned {
		return nil, fmt.Errorf("%s: there are no random scales of format %s", typ, t.Quant.Scale)
	}
	w, err := n.words(exponent - codeSizes[data])
	if err != nil {
		return nil, fmt.Errorf("%s: scales: %w", typ, err)
	}
	return append(parts, w), nil
}

// RandomExponent is that of numbers whose sums over the last axis are about 1: of
// 1/sqrt(K). A vector is multiplied with, element by element: about 1.
func RandomExponent(typ string) (int, error) {
	t, err := parse(typ)
	if err != nil || t.Rank() < 2 {
		return 0, err
	}
	k, _ := t.Dims[t.Rank()-1].Const()
	return -(bits.Len(uint(k)) / 2), nil
}
