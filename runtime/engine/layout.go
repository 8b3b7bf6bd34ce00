package engine

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/kiln-project/kiln/ir"
)

// Layout is what the engine must know about a model's state: the sizes that
// turn positions into pool rows.
type Layout struct {
	Vocab        int
	MaxPositions int     // positions are below this
	Window       int     // window ring rows per request
	MaxDraft     int     // rejected tokens of one step that the rings have room for
	PageTokens   int     // positions per page of the compressed pools
	Groups       []Group // one per compression ratio in use
	Head         Head    // what the heads give
}

// Head is what a model's heads give of an output row.
type Head uint8

// The heads.
const (
	HeadLogits Head = iota // logits, of which the engine chooses
	HeadSample             // a token, by the row's own Sampling
	HeadGreedy             // the greedy token
)

// Group is one compression ratio.
type Group struct {
	Ratio int // tokens per compressed entry
	Ring  int // compressor state rows per request
}

// LayoutOf reads the layout from a main entry's attributes and inputs.
func LayoutOf(g *ir.Graph) (Layout, error) {
	var l Layout
	var err error
	number := func(key string) int {
		n, e := strconv.Atoi(g.Get(key))
		if e != nil && err == nil {
			err = fmt.Errorf("graph @%s: attribute %s is %q, want a number", g.Name, key, g.Get(key))
		}
		return n
	}
	l.Vocab, l.MaxPositions = number("vocab"), number("max_positions")
	l.Window, l.PageTokens = number("window_ring"), number("page_tokens")
	l.MaxDraft = number("max_draft")
	gives := func(name string) bool {
		return slices.ContainsFunc(g.Outputs, func(o ir.Output) bool { return o.Name == name })
	}
	switch {
	case gives(sampleIDs):
		l.Head = HeadSample
	case gives(greedyIDs):
		l.Head = HeadGreedy
	}
	for _, in := range g.Inputs {
		var ratio int
		if n, _ := fmt.Sscanf(in.Name, "c%d_close", &ratio); n == 1 && in.Name == fmt.Sprintf("c%d_close", ratio) {
			l.Groups = append(l.Groups, Group{Ratio: ratio, Ring: number(fmt.Sprintf("c%d_ring", ratio))})
		}
	}
	if err != nil {
		return l, err
	}
	return l, l.check()
}

// Draft is the layout of the MTP step, which has no compressed pools.
func (l Layout) Draft() Layout {
	return Layout{Vocab: l.Vocab, MaxPositions: l.MaxPositions, Window: l.Window, Head: l.Head}
}

func (l Layout) check() error {
	if l.Vocab < 1 || l.MaxPositions < 1 || l.Window < 1 {
		return fmt.Errorf("layout: vocab %d, max positions %d and window %d must be at least 1", l.Vocab, l.MaxPositions, l.Window)
	}
	if l.MaxDraft < 0 {
		return fmt.Errorf("layout: max draft %d must be at least 0", l.MaxDraft)
	}
	for _, g := range l.Groups {
		if g.Ratio < 1 || g.Ring < 1 || l.PageTokens < 1 || l.PageTokens%g.Ratio != 0 {
			return fmt.Errorf("layout: ratio %d with ring %d does not fit pages of %d tokens", g.Ratio, g.Ring, l.PageTokens)
		}
	}
	return nil
}

// Pages is the number of pages that hold n positions, at least one. A model
// without compressed pools needs no second one.
func (l Layout) Pages(n int) int {
	if len(l.Groups) == 0 {
		return 1
	}
	return max(1, (n+l.PageTokens-1)/l.PageTokens)
}
