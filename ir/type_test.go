package ir

import (
	"strings"
	"testing"
)

func TestDTypeTable(t *testing.T) {
	for d := F32; d <= Bool; d++ {
		got, err := ParseDType(d.String())
		if err != nil || got != d {
			t.Errorf("%s reads as %v, %v", d, got, err)
		}
		classes := 0
		for _, in := range []bool{d.IsFloat(), d.IsInt(), d.IsCode(), d == E8M0, d == Bool} {
			if in {
				classes++
			}
		}
		if classes != 1 {
			t.Errorf("%s is in %d classes", d, classes)
		}
		if b := d.Bits(); b != 4 && b != 8 && b != 16 && b != 32 && b != 64 {
			t.Errorf("%s has %d bits", d, b)
		}
		if !strings.Contains(d.String(), itoa(d.Bits())) && d != Bool {
			t.Errorf("%s does not name its %d bits", d, d.Bits())
		}
	}
	if len(everyDType) != int(Bool) {
		t.Errorf("everyDType has %d formats, the table %d", len(everyDType), Bool)
	}
	for _, d := range []DType{Invalid, Bool + 1, 255} {
		if d.String() != "invalid" || d.Bits() != 0 || d.IsFloat() || d.IsInt() || d.IsCode() {
			t.Errorf("dtype %d is something", uint8(d))
		}
	}
	for _, name := range []string{"", "invalid", "F32", "f64", "f8e4m3 "} {
		if _, err := ParseDType(name); err == nil {
			t.Errorf("%q is a dtype", name)
		}
	}
}

func TestTypeText(t *testing.T) {
	for in, want := range map[string]string{
		"f32[]":                           "f32[]",
		" bf16 [ A , 4 ] ":                "bf16[A,4]",
		"f8e4m3[2,4]block(1,2)scale e8m0": "f8e4m3[2,4] block(1,2) scale e8m0",
		"f4e2m1[A,64] block( 1 , 32 )  scale\te8m0 ": "f4e2m1[A,64] block(1,32) scale e8m0",
		"i8[2*(A+B)]":                            "i8[2*A+2*B]",
		"f32":                                    `! type "f32": missing [`,
		"]f32[":                                  `! unknown dtype "]f32"`,
		"f32[2":                                  `! type "f32[2": missing ]`,
		"f32[2]]":                                `! type "f32[2]]": want block(N,N) scale DTYPE after ]`,
		"f32[2] x":                               `! type "f32[2] x": want block(N,N) scale DTYPE after ]`,
		"f32[,]":                                 `! dimension "": unexpected end`,
		"f32[[2]":                                `! dimension "[2": unexpected "[2"`,
		"f8e4m3[2,2] block(1) scale e8m0":        `! type "f8e4m3[2,2] block(1) scale e8m0": want block(N,N) scale DTYPE after ]`,
		"f8e4m3[2,2] block(1,x) scale e8m0":      `! type "f8e4m3[2,2] block(1,x) scale e8m0": want block(N,N) scale DTYPE after ]`,
		"f8e4m3[2,2] block(1,2) scale":           `! type "f8e4m3[2,2] block(1,2) scale": want block(N,N) scale DTYPE after ]`,
		"f8e4m3[2,2] block(1,2) scaled e8m0":     `! type "f8e4m3[2,2] block(1,2) scaled e8m0": want block(N,N) scale DTYPE after ]`,
		"f8e4m3[2,2] block(1,2) scale e8m0 e8m0": `! unknown dtype "e8m0 e8m0"`,
		"f8e4m3[2,2] block(1,99999999999999999999) scale e8m0": `! type "f8e4m3[2,2] block(1,99999999999999999999) scale e8m0": want block(N,N) scale DTYPE after ]`,
		"g32[2]": `! unknown dtype "g32"`,
	} {
		typ, err := ParseType(in, anySym)
		got := typ.String()
		if err != nil {
			got = "! " + err.Error()
		}
		if got != want {
			t.Errorf("%q\ngot  %s\nwant %s", in, got, want)
		}
		if err != nil {
			continue
		}
		if back, err := ParseType(got, anySym); err != nil || !back.Equal(typ) {
			t.Errorf("%s reads back as %s, %v", got, back, err)
		}
	}
	if dims, err := ParseDims("  ", nil); err != nil || len(dims) != 0 {
		t.Errorf("no extents: %v, %v", dims, err)
	}
}

func TestTypeEqual(t *testing.T) {
	a := Sym("A")
	types := []Type{
		T(F32), T(BF16), T(F32, Int(1)), T(F32, a), T(F32, a.Add(Int(1))), T(F32, a, Int(1)), T(F32, Int(1), a),
		T(F8E4M3, a, Int(4)), Scaled(F8E4M3, 1, 2, a, Int(4)), Scaled(F8E4M3, 2, 2, a, Int(4)),
		{DType: F8E4M3, Dims: []Dim{a, Int(4)}, Quant: &Quant{Block: [2]int{1, 2}, Scale: F32}},
	}
	for i, x := range types {
		for j, y := range types {
			if x.Equal(y) != (i == j) {
				t.Errorf("%s and %s: Equal is %v", x, y, x.Equal(y))
			}
		}
	}
	s := types[8]
	if u := s.With(Int(8), Int(4)); u.Quant == nil || u.String() != "f8e4m3[8,4] block(1,2) scale e8m0" {
		t.Errorf("With gives %s", u)
	}
	if u := s.As(BF16); u.Quant != nil || u.String() != "bf16[A,4]" {
		t.Errorf("As gives %s", u)
	}
}

func TestTypeSize(t *testing.T) {
	for _, c := range []struct {
		typ  Type
		size int
		ok   bool
	}{
		{T(F32), 1, true},
		{T(F32, Int(3), Int(4)), 12, true},
		{T(F32, Sym("A")), 0, false},
		{T(F32, Int(1<<31), Int(1<<31)), 1 << 62, true},
		{T(F32, Int(1<<31), Int(1<<31), Int(2)), 0, false},
		{T(F32, Int(1<<32), Int(1<<32)), 0, false}, // 0 in 64 bits
	} {
		if n, ok := c.typ.Size(); ok != c.ok || ok && n != c.size {
			t.Errorf("%s: got %d, %v", c.typ, n, ok)
		}
	}
}

func TestTypeBytes(t *testing.T) {
	for _, c := range []struct {
		typ          Type
		data, scales int64
		ok           bool
	}{
		{T(F32), 4, 0, true},
		{T(BF16, Int(3), Int(5)), 30, 0, true},
		{T(F4E2M1, Int(3), Int(6)), 9, 0, true},
		{T(F32, Sym("A")), 0, 0, false},
		{Scaled(F8E4M3, 128, 128, Int(256), Int(300)), 76800, 6, true},  // a short block at the edge
		{Scaled(F4E2M1, 1, 32, Int(2), Int(3), Int(64)), 192, 12, true}, // stacked: two of [3,64]
		{Scaled(F8E4M3, 128, 128, Sym("A"), Int(300)), 0, 0, false},
	} {
		if data, scales, ok := c.typ.Bytes(); ok != c.ok || data != c.data || scales != c.scales {
			t.Errorf("%s: got %d, %d, %v", c.typ, data, scales, ok)
		}
	}
}

func TestHolds(t *testing.T) {
	for _, c := range []struct {
		dt        DType
		low, high float64
	}{{U8, 0, 255}, {I8, -128, 127}, {I32, -2147483648, 2147483647}, {I64, -9223372036854775808, 9223372036854774784}} {
		step := 1.0
		if c.dt == I64 {
			step = 2048 // the next float64
		}
		for v, want := range map[float64]bool{c.low: true, c.high: true, c.low - step: false, c.high + step: false, 0.5: false, 1: true} {
			if holds(c.dt, v) != want {
				t.Errorf("holds(%s, %v) is %v", c.dt, v, !want)
			}
		}
	}
	if !holds(F32, 0.5) {
		t.Error("a float does not hold 0.5")
	}
}
