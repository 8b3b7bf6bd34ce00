package tokenizer

import (
	"sync"
	"unicode"
)

// A class is the set of properties the hand-written matchers ask for, one bit each.
type class uint8

const (
	letter      class = 1 << iota // \p{L}
	mark                          // \p{M}
	number                        // \p{N}
	punctuation                   // \p{P}
	symbol                        // \p{S}
	space                         // \s
	newline                       // \r or \n
)

// classes maps code points to classes in two steps: pages of 256 code points, of which equal ones are stored once.
type classes struct {
	page  [(unicode.MaxRune + 1) / 256]uint16
	pages [][256]class
}

func (c *classes) of(r rune) class { return c.pages[c.page[r>>8]][byte(r)] }

// theClasses is built on first use: a few milliseconds that a program without a tokenizer does not pay.
var theClasses = sync.OnceValue(func() *classes {
	flat := make([]class, unicode.MaxRune+1)
	set := func(s runeSet, bit class) {
		for _, r := range s {
			for c := r.first; c <= r.last; c++ {
				flat[c] |= bit
			}
		}
	}
	for _, p := range []struct {
		name string
		bit  class
	}{{"L", letter}, {"M", mark}, {"N", number}, {"P", punctuation}, {"S", symbol}} {
		s, _ := category(p.name)
		set(s, p.bit)
	}
	set(whiteSpace(), space)
	set(runeSet{{'\n', '\n'}, {'\r', '\r'}}, newline)

	c := &classes{}
	index := map[[256]class]uint16{}
	for i := range c.page {
		p := [256]class(flat[i*256:])
		n, ok := index[p]
		if !ok {
			n = uint16(len(c.pages))
			index[p] = n
			c.pages = append(c.pages, p)
		}
		c.page[i] = n
	}
	return c
})
