package tokenizer

import "unicode/utf8"

// The byte-level alphabet: vocabulary files cannot hold raw bytes, so each of the 256 byte values is written as one
// printable character. Printable Latin-1 bytes stand for themselves; the other 68 take the characters from U+0100 on,
// in the order of the byte value (space, 0x20, is U+0120). The scheme is GPT-2's.
var byteText, charByte = byteAlphabet()

// byteAlphabet gives the character of every byte value, as text, and the byte of every such character.
func byteAlphabet() (text [256]string, value map[rune]byte) {
	value = make(map[rune]byte, 256)
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		if !standsForItself(r) {
			r = next
			next++
		}
		text[b] = string(r)
		value[r] = byte(b)
	}
	return text, value
}

func standsForItself(r rune) bool {
	return '!' <= r && r <= '~' || 0xA1 <= r && r <= 0xAC || 0xAE <= r && r <= 0xFF
}

// tokenBytes gives the bytes that a token of the vocabulary stands for. A token with any character outside the
// byte-level alphabet stands for its own UTF-8 text, the way Hugging Face's ByteLevel decoder treats added tokens such
// as "<｜User｜>"; inAlphabet is then false.
func tokenBytes(token string) (text string, inAlphabet bool) {
	b := make([]byte, 0, len(token))
	for _, r := range token {
		v, ok := charByte[r]
		if !ok {
			return token, false
		}
		b = append(b, v)
	}
	return string(b), true
}

// appendLossy appends b to dst with every ill-formed part replaced by U+FFFD, one for each maximal subpart of a
// sequence (Unicode 16.0, section 3.9, "U+FFFD Substitution of Maximal Subparts"), which is what Rust's
// String::from_utf8_lossy does. Go's own conversions differ: they give one U+FFFD per byte or per run. Unless final,
// an incomplete but so far well-formed sequence at the end is left over in rest.
func appendLossy(dst, b []byte, final bool) (out, rest []byte) {
	for len(b) > 0 {
		n, ok, partial := sequence(b)
		switch {
		case ok:
			dst = append(dst, b[:n]...)
		case partial && !final:
			return dst, b
		default:
			dst = utf8.AppendRune(dst, utf8.RuneError)
		}
		b = b[n:]
	}
	return dst, nil
}

// sequence measures the UTF-8 sequence at the start of b: its length if ok, else the length of the maximal ill-formed
// subpart; partial says that b ends before the sequence was either complete or wrong.
func sequence(b []byte) (n int, ok, partial bool) {
	need, lo, hi := 0, byte(0x80), byte(0xBF)
	switch c := b[0]; {
	case c < 0x80:
		return 1, true, false
	case 0xC2 <= c && c <= 0xDF:
		need = 1
	case 0xE0 <= c && c <= 0xEF:
		need = 2
		switch c {
		case 0xE0: // shorter forms exist below U+0800
			lo = 0xA0
		case 0xED: // surrogates
			hi = 0x9F
		}
	case 0xF0 <= c && c <= 0xF4:
		need = 3
		switch c {
		case 0xF0: // shorter forms exist below U+10000
			lo = 0x90
		case 0xF4: // beyond U+10FFFF
			hi = 0x8F
		}
	default:
		return 1, false, false
	}
	for i := 1; i <= need; i++ {
		if i == len(b) {
			return i, false, true
		}
		if b[i] < lo || b[i] > hi {
			return i, false, false
		}
		lo, hi = 0x80, 0xBF
	}
	return need + 1, true, false
}
