package engine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is taken and freed, nothing is anybody's twice, counts are those of what is
// held, what is free can be had, and in the end all of it is free.
func TestPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rings, pages := rapid.IntRange(1, 6).Draw(t, "rings"), rapid.IntRange(1, 24).Draw(t, "pages")
		p := NewPlaces(rings, pages)
		var held []*Seq
		count := 0
		for range rapid.IntRange(0, 60).Draw(t, "calls") {
			if len(held) > 0 && rapid.Bool().Draw(t, "free") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				s := held[i]
				if err := p.Free(s); err != nil {
					t.Fatal(err)
				}
				if p.Free(s) == nil {
					t.Fatal("a place was freed twice")
				}
				held = slices.Delete(held, i, i+1)
				count -= len(s.Pages)
			} else {
				n := rapid.IntRange(1, 8).Draw(t, "pages of one")
				fits := len(held) < rings && count+n <= pages
				if p.Fits(n) != fits {
					t.Fatalf("%d pages fit: %t, with %d rings and %d pages of %d and %d held", n, !fits, len(held), count, rings, pages)
				}
				s, err := p.Take(n)
				if (err == nil) != fits {
					t.Fatalf("taking %d pages that fit: %t, error %v", n, fits, err)
				}
				if err == nil {
					held, count = append(held, s), count+n
				}
			}
			if r, n := p.Held(); r != len(held) || n != count {
				t.Fatalf("%d rings and %d pages are held, want %d and %d", r, n, len(held), count)
			}
			seenRings, seenPages := map[int]bool{}, map[int]bool{}
			for _, s := range held {
				if seenRings[s.Ring] || s.Ring < 0 || s.Ring >= rings || !slices.IsSorted(s.Pages) {
					t.Fatalf("place %+v of %d rings: ring used twice, or none, or pages out of order", s, rings)
				}
				seenRings[s.Ring] = true
				for _, n := range s.Pages {
					if seenPages[n] || n < 0 || n >= pages {
						t.Fatalf("page %d of %d is used twice, or is none", n, pages)
					}
					seenPages[n] = true
				}
			}
		}
		for _, s := range held {
			if err := p.Free(s); err != nil {
				t.Fatal(err)
			}
		}
		if r, n := p.Held(); r != 0 || n != 0 {
			t.Fatalf("%d rings and %d pages are held by nobody", r, n)
		}
	})
}

// Places are given in ascending order, and taken back from their owner only.
func TestPlacesErrors(t *testing.T) {
	p := NewPlaces(2, 4)
	take := func(n int) *Seq {
		t.Helper()
		s, err := p.Take(n)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := take(1), take(2)
	if a.Ring != 0 || b.Ring != 1 || !slices.Equal(a.Pages, []int{0}) || !slices.Equal(b.Pages, []int{1, 2}) {
		t.Errorf("places %+v and %+v", a, b)
	}
	wantError(t, "no ring", func() error { _, err := p.Take(1); return err }, "a ring and 1 pages: 0 rings and 1 pages are free")
	wantError(t, "a copy", func() error { c := *a; return p.Free(&c) }, "freeing ring 0: it is not this sequence's")
	wantError(t, "no such ring", func() error { return p.Free(&Seq{Ring: 7}) }, "freeing ring 7: it is not this sequence's")
	for _, tc := range []struct {
		pages []int
		want  string
	}{
		{[]int{1, 1}, "freeing page 1: it is not this sequence's, or listed twice"},
		{[]int{0, 1}, "freeing page 0: it is not this sequence's, or listed twice"},
		{[]int{1, 9}, "freeing page 9: it is not this sequence's, or listed twice"},
		{[]int{1}, "freeing 1 pages of a sequence that has 2"},
	} {
		mine := b.Pages
		b.Pages = tc.pages
		wantError(t, "pages changed", func() error { return p.Free(b) }, tc.want)
		b.Pages = mine
	}
	if err := p.Free(a); err != nil {
		t.Fatal(err)
	}
	wantError(t, "twice", func() error { return p.Free(a) }, "freeing ring 0: it is not this sequence's")
	wantError(t, "pages", func() error { _, err := p.Take(3); return err }, "a ring and 3 pages: 1 rings and 2 pages are free")
	wantError(t, "no page", func() error { _, err := p.Take(0); return err }, "a ring and 0 pages: 1 rings and 2 pages are free")
	if c := take(2); c.Ring != 0 || !slices.Equal(c.Pages, []int{0, 3}) {
		t.Errorf("place %+v, want ring 0 and pages 0 and 3", c)
	}
}
