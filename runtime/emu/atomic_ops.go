package emu

import (
	"math"

	"github.com/kiln-project/kiln/ir/num"
)

// atomicOp is a read-modify-write of memory: old is what is there, a and b the data.
// Values of 32 bits are in the low halves.
type atomicOp struct {
	size uint64 // bytes: 4 or 8
	data int    // operands: 1, or 2 if b counts
	do   func(old, a, b uint64) uint64
}

// atomicOps are all of them. Memory and LDS have their own names for them
// (memoryAtomics, ldsAtomics).
//
// Floating point keeps denormals, of LDS by the kernel's mode, of memory as these chips
// always do, and rounds to nearest even. A minimum or maximum replaces the value only
// if a comparison says that the data is less or greater: not for a NaN, nor one zero
// by another (MI300 ISA, "DS_MIN_F32" and the like).
var atomicOps = map[string]atomicOp{
	"swap":     {4, 1, func(_, a, _ uint64) uint64 { return a }},
	"cmpswap":  {4, 2, compareSwap},
	"add":      {4, 1, func(x, a, _ uint64) uint64 { return x + a }},
	"sub":      {4, 1, func(x, a, _ uint64) uint64 { return x - a }},
	"rsub":     {4, 1, func(x, a, _ uint64) uint64 { return a - x }},
	"smin":     {4, 1, func(x, a, _ uint64) uint64 { return uint64(min(int32(x), int32(a))) }},
	"smax":     {4, 1, func(x, a, _ uint64) uint64 { return uint64(max(int32(x), int32(a))) }},
	"umin":     {4, 1, func(x, a, _ uint64) uint64 { return min(x, a) }},
	"umax":     {4, 1, func(x, a, _ uint64) uint64 { return max(x, a) }},
	"and":      {4, 1, func(x, a, _ uint64) uint64 { return x & a }},
	"or":       {4, 1, func(x, a, _ uint64) uint64 { return x | a }},
	"xor":      {4, 1, func(x, a, _ uint64) uint64 { return x ^ a }},
	"mskor":    {4, 2, func(x, a, b uint64) uint64 { return x&^a | b }},
	"inc":      {4, 1, increment},
	"dec":      {4, 1, decrement},
	"fcmpswap": {4, 2, compareSwapF32},
	"add_f32":  {4, 1, func(x, a, _ uint64) uint64 { return bits32(float32of(x) + float32of(a)) }},
	"min_f32":  {4, 1, func(x, a, _ uint64) uint64 { return pick(float32of(a) < float32of(x), a, x) }},
	"max_f32":  {4, 1, func(x, a, _ uint64) uint64 { return pick(float32of(a) > float32of(x), a, x) }},
	// The sum of two halves has at most 24 bits that count twice, so that rounding it to
	// f32 first changes nothing.
	"pk_add_f16":  {4, 1, func(x, a, _ uint64) uint64 { return pairs(x, a, num.FromF16, num.F16Bits) }},
	"pk_add_bf16": {4, 1, func(x, a, _ uint64) uint64 { return pairs(x, a, num.FromBF16, num.BF16Bits) }},

	"swap_x2":     {8, 1, func(_, a, _ uint64) uint64 { return a }},
	"cmpswap_x2":  {8, 2, compareSwap},
	"add_x2":      {8, 1, func(x, a, _ uint64) uint64 { return x + a }},
	"sub_x2":      {8, 1, func(x, a, _ uint64) uint64 { return x - a }},
	"rsub_x2":     {8, 1, func(x, a, _ uint64) uint64 { return a - x }},
	"smin_x2":     {8, 1, func(x, a, _ uint64) uint64 { return uint64(min(int64(x), int64(a))) }},
	"smax_x2":     {8, 1, func(x, a, _ uint64) uint64 { return uint64(max(int64(x), int64(a))) }},
	"umin_x2":     {8, 1, func(x, a, _ uint64) uint64 { return min(x, a) }},
	"umax_x2":     {8, 1, func(x, a, _ uint64) uint64 { return max(x, a) }},
	"and_x2":      {8, 1, func(x, a, _ uint64) uint64 { return x & a }},
	"or_x2":       {8, 1, func(x, a, _ uint64) uint64 { return x | a }},
	"xor_x2":      {8, 1, func(x, a, _ uint64) uint64 { return x ^ a }},
	"mskor_x2":    {8, 2, func(x, a, b uint64) uint64 { return x&^a | b }},
	"inc_x2":      {8, 1, increment},
	"dec_x2":      {8, 1, decrement},
	"fcmpswap_x2": {8, 2, compareSwapF64},
	"add_f64": {8, 1, func(x, a, _ uint64) uint64 {
		return math.Float64bits(math.Float64frombits(x) + math.Float64frombits(a))
	}},
	"min_f64": {8, 1, func(x, a, _ uint64) uint64 { return pick(math.Float64frombits(a) < math.Float64frombits(x), a, x) }},
	"max_f64": {8, 1, func(x, a, _ uint64) uint64 { return pick(math.Float64frombits(a) > math.Float64frombits(x), a, x) }},
}

// memoryAtomics are the endings of global_atomic_ and flat_atomic_, and of
// buffer_atomic_.
var memoryAtomics = []string{
	"swap", "cmpswap", "add", "sub", "smin", "smax", "umin", "umax", "and", "or", "xor", "inc", "dec", "add_f32", "pk_add_f16", "pk_add_bf16",
	"swap_x2", "cmpswap_x2", "add_x2", "sub_x2", "smin_x2", "smax_x2", "umin_x2", "umax_x2", "and_x2", "or_x2", "xor_x2", "inc_x2", "dec_x2",
	"add_f64", "min_f64", "max_f64",
}

// ldsAtomics are the names of the operations in DS instructions. The data of cmpst
// comes the other way around: first what to compare with.
var ldsAtomics = map[string]string{
	"add_u32": "add", "sub_u32": "sub", "rsub_u32": "rsub", "inc_u32": "inc", "dec_u32": "dec", "min_i32": "smin", "max_i32": "smax",
	"min_u32": "umin", "max_u32": "umax", "and_b32": "and", "or_b32": "or", "xor_b32": "xor", "mskor_b32": "mskor", "cmpst_b32": "cmpswap",
	"cmpst_f32": "fcmpswap", "add_f32": "add_f32", "min_f32": "min_f32", "max_f32": "max_f32", "pk_add_f16": "pk_add_f16", "pk_add_bf16": "pk_add_bf16",
	"add_u64": "add_x2", "sub_u64": "sub_x2", "rsub_u64": "rsub_x2", "inc_u64": "inc_x2", "dec_u64": "dec_x2", "min_i64": "smin_x2", "max_i64": "smax_x2",
	"min_u64": "umin_x2", "max_u64": "umax_x2", "and_b64": "and_x2", "or_b64": "or_x2", "xor_b64": "xor_x2", "mskor_b64": "mskor_x2", "cmpst_b64": "cmpswap_x2",
	"cmpst_f64": "fcmpswap_x2", "add_f64": "add_f64", "min_f64": "min_f64", "max_f64": "max_f64",
}

// compareSwap stores a if b is there.
func compareSwap(x, a, b uint64) uint64 { return pick(x == b, a, x) }

func compareSwapF32(x, a, b uint64) uint64 { return pick(float32of(x) == float32of(b), a, x) }

func compareSwapF64(x, a, b uint64) uint64 {
	return pick(math.Float64frombits(x) == math.Float64frombits(b), a, x)
}

// increment counts up to a, then from 0.
func increment(x, a, _ uint64) uint64 { return pick(x >= a, 0, x+1) }

// decrement counts down to 0, then from a.
func decrement(x, a, _ uint64) uint64 { return pick(x == 0 || x > a, a, x-1) }

func pick(first bool, a, b uint64) uint64 {
	if first {
		return a
	}
	return b
}

func float32of(x uint64) float32 { return math.Float32frombits(uint32(x)) }

func bits32(f float32) uint64 { return uint64(math.Float32bits(f)) }

// pairs adds two pairs of 16-bit numbers.
func pairs(x, a uint64, from func(uint16) float32, to func(float32) uint16) uint64 {
	low := to(from(uint16(x)) + from(uint16(a)))
	high := to(from(uint16(x>>16)) + from(uint16(a>>16)))
	return uint64(low) | uint64(high)<<16
}
