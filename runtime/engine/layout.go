package engine

import "fmt"

// Layout is what the engine must know about a model's state: the sizes that
// turn positions into pool rows.
type Layout struct {
	Vocab        int
	MaxPositions int     // positions are below this
	Window       int     // window ring rows per request
	PageTokens   int     // positions per page of the compressed pools
	Groups       []Group // one per compression ratio in use
	DraftWindow  bool    // there is a draft entry
}

// Group is one compression ratio.
type Group struct {
	Ratio int // tokens per compressed entry
	Ring  int // compressor state rows per request
}

func (l Layout) check() error {
	if l.Vocab < 1 || l.MaxPositions < 1 || l.Window < 1 {
		return fmt.Errorf("layout: vocab %d, max positions %d and window %d must be at least 1", l.Vocab, l.MaxPositions, l.Window)
	}
	for _, g := range l.Groups {
		if g.Ratio < 1 || g.Ring < 1 || l.PageTokens < 1 || l.PageTokens%g.Ratio != 0 {
			return fmt.Errorf("layout: ratio %d with ring %d does not fit pages of %d tokens", g.Ratio, g.Ring, l.PageTokens)
		}
	}
	return nil
}

// Pages is the number of pages that hold n positions, at least one.
func (l Layout) Pages(n int) int { return max(1, (n+l.PageTokens-1)/l.PageTokens) }
