package num

// RecodeFNUZ returns the e4m3fnuz code that means half of what the e4m3fn code b
// means: b itself, as the exponents are biased by one more. -0, which e4m3fnuz
// has not, gives 0; the NaNs 0x7F and 0xFF, which are numbers there, give 0x80.
func RecodeFNUZ(b byte) byte {
	switch {
	case b&0x7F == 0x7F:
		return 0x80
	case b == 0x80:
		return 0
	}
	return b
}

// DoubleE8M0 returns the e8m0 byte of twice b's value. 2^127 has no double: it
// gives ScaleNaN, as ScaleNaN does.
func DoubleE8M0(b byte) byte {
	if b >= ScaleNaN-1 {
		return ScaleNaN
	}
	return b + 1
}
