package tokenizer

import (
	"slices"
	"unicode"
)

// A runeRange is the closed interval first..last.
type runeRange struct{ first, last rune }

// A runeSet is a set of code points: sorted, disjoint ranges that do not touch.
type runeSet []runeRange

// makeSet sorts and merges ranges given in any order.
func makeSet(ranges []runeRange) runeSet {
	rs := slices.Clone(ranges)
	slices.SortFunc(rs, func(a, b runeRange) int { return int(a.first) - int(b.first) })
	var out runeSet
	for _, r := range rs {
		if n := len(out); n > 0 && r.first <= out[n-1].last+1 {
			out[n-1].last = max(out[n-1].last, r.last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// not is the complement within U+0000..U+10FFFF.
func (s runeSet) not() runeSet {
	var out runeSet
	next := rune(0)
	for _, r := range s {
		if r.first > next {
			out = append(out, runeRange{next, r.first - 1})
		}
		next = r.last + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, runeRange{next, unicode.MaxRune})
	}
	return out
}

// categoryNames are the general categories a pattern may name: \p{L}, \p{Lu}, ... Longer names, scripts and blocks are
// not here because the engines spell them differently.
var categoryNames = []string{
	"L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No",
	"P", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So",
	"Z", "Zs", "Zl", "Zp", "C", "Cc", "Cf", "Co", "Cn",
}

// category returns the code points of a general category in Unicode 16.0; ok is false for a name not in categoryNames.
func category(name string) (set runeSet, ok bool) {
	if !slices.Contains(categoryNames, name) {
		return nil, false
	}
	var moved, added []runeRange
	for _, n := range newerCategories {
		r := runeRange{n.first, n.last}
		moved = append(moved, r)
		if n.category[:len(name)] == name {
			added = append(added, r)
		}
	}
	// (Go's set without every moved code point) plus those that moved here, by De Morgan.
	out := append(fromTable(unicode.Categories[name]).not(), moved...)
	return makeSet(append(makeSet(out).not(), added...)), true
}

// whiteSpace is \s: the White_Space property, equal in Go's tables and in the reference's engine.
func whiteSpace() runeSet { return fromTable(unicode.White_Space) }

func fromTable(t *unicode.RangeTable) runeSet {
	var rs []runeRange
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			rs = append(rs, runeRange{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			rs = append(rs, runeRange{r, r})
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return makeSet(rs)
}
