package kernel_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/num"
)

// probes stress rounding to a grid: every value, every midpoint, their
// neighbours, random patterns and special values, of both signs.
func probes(values []float32) []float32 {
	inf := float32(math.Inf(1))
	xs := []float32{0, inf, float32(math.NaN()), math.MaxFloat32, math.SmallestNonzeroFloat32, 0x1p-126, 0x1p-127, 1e-7, 464, 65519, 65520}
	around := func(x float32) { xs = append(xs, x, math.Nextafter32(x, inf), math.Nextafter32(x, -inf)) }
	for i, v := range values {
		if v != v {
			continue
		}
		around(v)
		if i > 0 {
			if mid := float32((float64(v) + float64(values[i-1])) / 2); mid == mid {
				around(mid)
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 20000 {
		xs = append(xs, math.Float32frombits(r.Uint32()))
	}
	for _, x := range xs[:len(xs):len(xs)] {
		xs = append(xs, -x)
	}
	return xs
}

// grid lists the values of a format's non-negative codes.
func grid(n int, decode func(code int) float32) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = decode(i)
	}
	return out
}

// Every code of each 8-bit format decodes, and everything near its values
// encodes, as ir/num says; so do all 16 of f4e2m1 and all 65536 of the 16-bit
// formats.
func TestFormats(t *testing.T) {
	var units []unit
	load := func(_ *kernel.K, x kernel.V) kernel.V { return x }

	for _, f := range []struct {
		dt     ir.DType
		encode func(k *kernel.K, x kernel.V) kernel.V
		from   func(byte) float32
		to     func(float32) byte
	}{
		{ir.F8E4M3, (*kernel.K).EncodeE4M3, num.FromE4M3, num.E4M3},
		{ir.F8E4M3FNUZ, (*kernel.K).EncodeFNUZ, num.FromE4M3FNUZ, num.E4M3FNUZ},
	} {
		xs := probes(grid(0x80, func(c int) float32 { return f.from(byte(c)) }))
		units = append(units,
			unit{name: "decode " + f.dt.String(), in: []*eval.Tensor{codes(t, f.dt, 256)}, out: ir.T(ir.F32, ir.Int(256)),
				body: elementwise(256, load), check: wantFloats(func(i int) float32 { return f.from(byte(i)) })},
			unit{name: "encode " + f.dt.String(), in: []*eval.Tensor{floats(t, ir.F32, xs)}, out: ir.T(f.dt, ir.Int(len(xs))),
				body: elementwise(len(xs), f.encode), check: wantCodes(func(i int) byte { return f.to(xs[i]) })},
		)
	}

	// Half of e4m3: its codes for the doubles, but one zero and another NaN.
	halves := probes(grid(0x80, func(c int) float32 { return num.FromE4M3(byte(c)) / 2 }))
	units = append(units, unit{name: "encode half", in: []*eval.Tensor{floats(t, ir.F32, halves)}, out: ir.T(ir.F8E4M3FNUZ, ir.Int(len(halves))),
		body: elementwise(len(halves), (*kernel.K).EncodeHalf), check: wantCodes(func(i int) byte { return num.RecodeFNUZ(num.E4M3(2 * halves[i])) })})

	finite := codes(t, ir.F8E4M3, 256)
	finite.Codes[0x7F], finite.Codes[0xFF] = 0, 0
	units = append(units, unit{name: "decode weights", in: []*eval.Tensor{finite}, out: ir.T(ir.F32, ir.Int(256)),
		body: func(k *kernel.K, in []*kernel.Buf, out *kernel.Buf) {
			k.Lanes(k.Int(256), func(i kernel.V) { out.Store(i, in[0].LoadWeight(i)) })
		}, check: wantFloats(func(i int) float32 { return num.FromE4M3(finite.Codes[i]) })})

	// e8m0 goes up to the next power of two.
	powers := probes(grid(255, func(c int) float32 { return num.FromE8M0(byte(c)) }))
	units = append(units,
		unit{name: "decode e8m0", in: []*eval.Tensor{codes(t, ir.E8M0, 256)}, out: ir.T(ir.F32, ir.Int(256)),
			body: elementwise(256, load), check: wantFloats(func(i int) float32 { return num.FromE8M0(byte(i)) })},
		unit{name: "encode e8m0", in: []*eval.Tensor{floats(t, ir.F32, powers)}, out: ir.T(ir.E8M0, ir.Int(len(powers))),
			body: elementwise(len(powers), (*kernel.K).EncodeE8M0), check: wantCodes(func(i int) byte {
				switch x := powers[i]; {
				case !(x >= 0) || x > 0x1p127:
					return num.ScaleNaN
				case x <= 0x1p-127:
					return 0
				default:
					b, _ := num.E8M0(num.Pow2Ceil(x))
					return b
				}
			})},
	)

	// f4e2m1: two codes a byte, read along lanes, from an odd start, and scattered.
	const pairs = 256 * 2
	nibble := func(i int) byte { return byte(i/2) >> (4 * (i % 2)) & 15 }
	packed := []*eval.Tensor{codes(t, ir.F4E2M1, pairs)}
	read := func(at func(k *kernel.K, i kernel.V) kernel.V) func(*kernel.K, []*kernel.Buf, *kernel.Buf) {
		return func(k *kernel.K, in []*kernel.Buf, out *kernel.Buf) {
			k.Lanes(k.Int(pairs-3), func(i kernel.V) { out.Store(i, in[0].LoadNibble(at(k, i))) })
		}
	}
	value := func(at func(i int) int) func(*testing.T, *eval.Tensor) {
		return wantFloats(func(i int) float32 { return num.FromE2M1(nibble(at(i))) })
	}
	four := probes(grid(8, func(c int) float32 { return num.FromE2M1(byte(c)) }))
	units = append(units,
		unit{name: "decode f4e2m1", in: packed, out: ir.T(ir.F32, ir.Int(pairs-3)), body: read(func(_ *kernel.K, i kernel.V) kernel.V { return i }), check: value(func(i int) int { return i })},
		unit{name: "decode f4e2m1 from an even start", in: packed, out: ir.T(ir.F32, ir.Int(pairs-3)), body: read(func(k *kernel.K, i kernel.V) kernel.V { return k.Add(i, k.Int(2)) }), check: value(func(i int) int { return i + 2 })},
		unit{name: "decode f4e2m1 backwards", in: packed, out: ir.T(ir.F32, ir.Int(pairs-3)), body: read(func(k *kernel.K, i kernel.V) kernel.V { return k.Sub(k.Int(pairs-1), i) }), check: value(func(i int) int { return pairs - 1 - i })},
		unit{name: "encode f4e2m1", in: []*eval.Tensor{floats(t, ir.F32, four)}, out: ir.T(ir.U8, ir.Int(len(four))), body: elementwise(len(four), (*kernel.K).EncodeE2M1), check: wantInts(func(i int) int64 { return int64(num.E2M1(four[i])) })},
	)

	for _, f := range []struct {
		dt   ir.DType
		from func(uint16) float32
		bits func(float32) uint16
		inK  func(k *kernel.K, x kernel.V) kernel.V
	}{
		{ir.BF16, num.FromBF16, num.BF16Bits, (*kernel.K).RoundBF16},
		{ir.F16, num.FromF16, num.F16Bits, (*kernel.K).RoundF16},
	} {
		all := grid(1<<16, func(c int) float32 { return f.from(uint16(c)) })
		xs := probes(all[:1<<15])
		units = append(units,
			unit{name: "decode " + f.dt.String(), in: []*eval.Tensor{floats(t, f.dt, all)}, out: ir.T(ir.F32, ir.Int(len(all))), body: elementwise(len(all), load), check: wantFloats(func(i int) float32 { return all[i] })},
			unit{name: "decode and encode " + f.dt.String(), in: []*eval.Tensor{floats(t, f.dt, all)}, out: ir.T(f.dt, ir.Int(len(all))), body: elementwise(len(all), load), check: wantFloats(func(i int) float32 { return all[i] })},
			unit{name: "encode " + f.dt.String(), in: []*eval.Tensor{floats(t, ir.F32, xs)}, out: ir.T(f.dt, ir.Int(len(xs))), body: elementwise(len(xs), load), check: wantFloats(func(i int) float32 { return f.from(f.bits(xs[i])) })},
			unit{name: "round to " + f.dt.String(), in: []*eval.Tensor{floats(t, ir.F32, xs)}, out: ir.T(ir.F32, ir.Int(len(xs))), body: elementwise(len(xs), f.inK), check: wantFloats(func(i int) float32 { return f.from(f.bits(xs[i])) })},
		)
	}
	run(t, units)
}

// A number that needs f64 is rounded once: x + y, where y decides a tie of x in
// the narrow format but is lost in f32.
func TestNarrow(t *testing.T) {
	var units []unit
	for _, f := range []struct {
		dt    ir.DType
		from  func(uint16) float32
		round func(float64) float32
	}{{ir.BF16, num.FromBF16, num.RoundBF16F64}, {ir.F16, num.FromF16, num.RoundF16F64}, {ir.F32, num.FromBF16, func(x float64) float32 { return float32(x) }}} {
		var xs, ys []float32
		add := func(x, y float32) { xs, ys = append(xs, x, x, x), append(ys, y, -y, 0) }
		for c := uint16(0); c < 0x7FFF; c += 3 {
			a, b := f.from(c), f.from(c+1)
			if a != a || math.IsInf(float64(b), 0) {
				continue
			}
			mid := float32((float64(a) + float64(b)) / 2)
			add(mid, mid*0x1p-40)
			add(-mid, mid*0x1p-30)
			add(a, a*0x1p-45)
		}
		inf := float32(math.Inf(1))
		add(inf, 1)
		add(math.MaxFloat32, math.MaxFloat32*0.9) // beyond f32
		add(0, math.SmallestNonzeroFloat32)
		add(float32(math.NaN()), 0)
		scale := 0x1p-60 // below f32's smallest number
		units = append(units, unit{
			name: "f64 to " + f.dt.String(), in: []*eval.Tensor{floats(t, ir.F32, xs), floats(t, ir.F32, ys)}, out: ir.T(f.dt, ir.Int(len(xs))),
			body: func(k *kernel.K, in []*kernel.Buf, out *kernel.Buf) {
				k.Lanes(k.Int(len(xs)), func(i kernel.V) {
					sum := k.Add(k.Convert(in[0].Load(i), kernel.F64), k.Convert(in[1].Load(i), kernel.F64))
					out.Store(i, k.Narrow(sum, f.dt))
				})
			},
			check: wantFloats(func(i int) float32 { return f.round(float64(xs[i]) + float64(ys[i])) }),
		}, unit{
			name: "tiny f64 to " + f.dt.String(), in: []*eval.Tensor{floats(t, ir.F32, xs)}, out: ir.T(f.dt, ir.Int(len(xs))),
			body: elementwise(len(xs), func(k *kernel.K, x kernel.V) kernel.V {
				return k.Narrow(k.Mul(k.Convert(x, kernel.F64), k.Double(scale)), f.dt)
			}),
			check: wantFloats(func(i int) float32 { return f.round(float64(xs[i]) * scale) }),
		})
	}
	run(t, units)
}

// Bits move unchanged, NaN payloads and all, whatever the format.
func TestBits(t *testing.T) {
	var units []unit
	for _, dt := range []ir.DType{ir.I64, ir.I32, ir.I8, ir.U8, ir.Bool} {
		x := ints(t, dt, make([]int64, 100)...)
		r := rand.New(rand.NewPCG(2, uint64(dt)))
		for i := range x.I {
			switch dt {
			case ir.I64:
				x.I[i] = int64(r.Uint64())
			case ir.I32:
				x.I[i] = int64(int32(r.Uint32()))
			case ir.I8:
				x.I[i] = int64(int8(r.Uint32()))
			case ir.U8:
				x.I[i] = int64(uint8(r.Uint32()))
			default:
				x.I[i] = int64(r.IntN(2))
			}
		}
		units = append(units, unit{name: dt.String(), in: []*eval.Tensor{x}, out: x.Type(), body: func(k *kernel.K, in []*kernel.Buf, out *kernel.Buf) {
			k.Lanes(k.Int(100), func(i kernel.V) { out.StoreBits(i, in[0].LoadBits(i)) })
		}, check: wantInts(func(i int) int64 { return x.I[i] })})
	}
	for _, dt := range []ir.DType{ir.F8E4M3, ir.F8E4M3FNUZ, ir.E8M0} {
		x := codes(t, dt, 256)
		units = append(units, unit{name: dt.String(), in: []*eval.Tensor{x}, out: x.Type(), body: func(k *kernel.K, in []*kernel.Buf, out *kernel.Buf) {
			k.Lanes(k.Int(256), func(i kernel.V) { out.StoreBits(i, in[0].LoadBits(i)) })
		}, check: wantCodes(func(i int) byte { return byte(i) })})
	}
	all := grid(1<<16, func(c int) float32 { return num.FromF16(uint16(c)) })
	wide := make([]float32, 1<<16)
	for i := range wide {
		wide[i] = math.Float32frombits(uint32(i) * 65521)
	}
	units = append(units, unit{name: "f16", in: []*eval.Tensor{floats(t, ir.F16, all)}, out: ir.T(ir.I32, ir.Int(1<<16)), body: func(k *kernel.K, in []*kernel.Buf, out *kernel.Buf) {
		k.Lanes(k.Int(1<<16), func(i kernel.V) { out.Store(i, in[0].LoadBits(i)) })
	}, check: wantInts(func(i int) int64 { return int64(num.F16Bits(all[i])) })},
		unit{name: "f32", in: []*eval.Tensor{floats(t, ir.F32, wide)}, out: ir.T(ir.I32, ir.Int(1<<16)), body: func(k *kernel.K, in []*kernel.Buf, out *kernel.Buf) {
			k.Lanes(k.Int(1<<16), func(i kernel.V) { out.Store(i, in[0].LoadBits(i)) })
		}, check: wantInts(func(i int) int64 { return int64(int32(uint32(i) * 65521)) })},
		unit{name: "i32 as f32", in: []*eval.Tensor{floats(t, ir.F32, wide)}, out: ir.T(ir.F32, ir.Int(1<<16)), body: func(k *kernel.K, in []*kernel.Buf, out *kernel.Buf) {
			k.Lanes(k.Int(1<<16), func(i kernel.V) { out.StoreBits(i, in[0].LoadBits(i)) })
		}, check: func(t *testing.T, y *eval.Tensor) {
			for i, v := range y.F {
				if math.Float32bits(v) != math.Float32bits(wide[i]) { // NaN payloads too
					t.Fatalf("element %d is %#08x, want %#08x", i, math.Float32bits(v), math.Float32bits(wide[i]))
				}
			}
		}})
	run(t, units)
}
