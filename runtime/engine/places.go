package engine

import "fmt"

// Places hands out the rings and pages of an engine's pools. Each belongs to one
// sequence at a time; what is free is given in ascending order, so that equal calls
// give equal places.
type Places struct {
	rings, pages         []*Seq // who has each; nil: nobody
	freeRings, freePages int
}

// NewPlaces has so many rings and pages, all free.
func NewPlaces(rings, pages int) *Places {
	return &Places{make([]*Seq, rings), make([]*Seq, pages), rings, pages}
}

// Fits tells whether a sequence of n pages can be had now.
func (p *Places) Fits(n int) bool { return p.freeRings > 0 && n <= p.freePages }

// Take gives a fresh sequence a ring and n pages.
func (p *Places) Take(n int) (*Seq, error) {
	if n < 1 || !p.Fits(n) {
		return nil, fmt.Errorf("a ring and %d pages: %d rings and %d pages are free", n, p.freeRings, p.freePages)
	}
	s := &Seq{Pages: make([]int, 0, n)}
	for i, owner := range p.rings {
		if owner == nil {
			s.Ring, p.rings[i] = i, s
			break
		}
	}
	for i := 0; len(s.Pages) < n; i++ {
		if p.pages[i] == nil {
			p.pages[i] = s
			s.Pages = append(s.Pages, i)
		}
	}
	p.freeRings--
	p.freePages -= n
	return s, nil
}

// Free takes back what a sequence was given. That it has something else now, or
// nothing any more, is an error, and nothing is taken.
func (p *Places) Free(s *Seq) error {
	if s.Ring < 0 || s.Ring >= len(p.rings) || p.rings[s.Ring] != s {
		return fmt.Errorf("freeing ring %d: it is not this sequence's", s.Ring)
	}
	has := 0
	for _, owner := range p.pages {
		if owner == s {
			has++
		}
	}
	for i, n := range s.Pages {
		if n < 0 || n >= len(p.pages) || p.pages[n] != s || i > 0 && n <= s.Pages[i-1] {
			return fmt.Errorf("freeing page %d: it is not this sequence's, or listed twice", n)
		}
	}
	if has != len(s.Pages) {
		return fmt.Errorf("freeing %d pages of a sequence that has %d", len(s.Pages), has)
	}
	p.rings[s.Ring] = nil
	for _, n := range s.Pages {
		p.pages[n] = nil
	}
	p.freeRings++
	p.freePages += has
	return nil
}

// Held are the rings and pages that sequences have.
func (p *Places) Held() (rings, pages int) {
	return len(p.rings) - p.freeRings, len(p.pages) - p.freePages
}
