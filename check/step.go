package check

import (
	"fmt"
	"math/rand/v2"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/engine"
)

// Values are what a graph is run on.
type Values struct{ Inputs, States map[string]*eval.Tensor }

// Maker makes the values of a bound graph. Equal seeds give equal values.
type Maker func(g *ir.Graph, c *Case, seed uint64) (Values, error)

// Fill is the Maker for any graph: indices are chosen by what they index.
func Fill(g *ir.Graph, c *Case, seed uint64) (Values, error) {
	v := Values{map[string]*eval.Tensor{}, map[string]*eval.Tensor{}}
	spans, packs := spansOf(g), packsOf(g)
	for _, l := range []struct {
		what string
		list []*ir.Value
		into map[string]*eval.Tensor
	}{{"input", g.Inputs, v.Inputs}, {"state", g.States, v.States}} {
		for _, x := range l.list {
			t, err := c.value(source(seed, l.what, x.Name), x, spans, packs)
			if err != nil {
				return v, fmt.Errorf("%s %s: %w", l.what, x, err)
			}
			l.into[x.Name] = t
		}
	}
	return v, nil
}

// Step is the Maker for the entries of a model that the engine runs: its index
// inputs are those of a step of some requests at random positions.
func Step(l engine.Layout, bind map[string]int) Maker {
	return func(g *ir.Graph, c *Case, seed uint64) (Values, error) {
		v, err := Fill(g, c, seed)
		if err != nil {
			return v, err
		}
		in, err := metadata(l, g.Name, bind, source(seed, "step", g.Name))
		if err != nil {
			return v, err
		}
		for name := range v.Inputs {
			t, ok := in[name]
			if !ok {
				continue // activations
			}
			v.Inputs[name] = t
			if c.none && name != "ids" {
				for i := range t.I {
					t.I[i] = -1
				}
			}
		}
		return v, nil
	}
}

// metadata makes the index inputs of a step with the extents that are bound.
func metadata(l engine.Layout, entry string, bind map[string]int, r *rand.Rand) (engine.Tensors, error) {
	drafts := engine.DraftsOf(entry)
	shape := engine.Shape{T: bind["T"], B: bind["B"], O: bind["O"], P: max(1, bind["P"])}
	switch {
	case entry == "decode":
		shape.T, shape.O = shape.B, shape.B
	case entry == "verify":
		shape.T = shape.B * (bind["K"] + 1)
		shape.O = shape.T
	case entry == "draft":
		l = l.Draft()
	case drafts > 0:
		shape.T = shape.B * (drafts + 1)
		shape.O = shape.T
	}
	if shape.T < shape.B {
		return nil, fmt.Errorf("entry %s: %d tokens cannot be those of %d requests: bind T to at least B", entry, shape.T, shape.B)
	}
	requests, pages, positions := min(shape.B, bind["R"]), shape.P, l.MaxPositions
	if len(l.Groups) > 0 {
		requests = min(requests, bind["N"])
		pages = min(pages, bind["N"]/requests)
		positions = min(positions, pages*l.PageTokens)
	}
	each := shape.T / shape.B
	if each > positions {
		return nil, fmt.Errorf("entry %s: %d tokens do not fit the %d positions of a request: bind P and N to more pages", entry, each, positions)
	}
	if requests > 1 {
		requests -= r.IntN(2) // rows of the last one are padding
	}
	var feeds []engine.Feed
	out := shape.O
	for i := range requests {
		n := each
		if free := shape.T - each*shape.B; i == 0 && entry != "verify" && n+free <= positions {
			n += free
		}
		f := engine.Feed{Seq: &engine.Seq{Ring: i, Len: r.IntN(positions - n + 1)}}
		for p := range pages {
			f.Seq.Pages = append(f.Seq.Pages, i*pages+p)
		}
		for j := range n {
			f.IDs = append(f.IDs, int32(r.IntN(l.Vocab)))
			if out > 0 {
				f.Out = append(f.Out, j)
				out--
			}
		}
		if l.Head == engine.HeadSample && i%3 > 0 { // greedy rows among others
			f.Sampling = engine.Sampling{Temperature: 0.5 + r.Float64(), TopK: r.IntN(2) * (1 + r.IntN(l.Vocab)), TopP: float64(r.IntN(2)) * r.Float64(), Seed: r.Uint64()}
		}
		feeds = append(feeds, f)
	}
	if drafts > 0 {
		return engine.SpeculateMetadata(l, feeds, drafts, shape)
	}
	return engine.Metadata(l, feeds, shape)
}
