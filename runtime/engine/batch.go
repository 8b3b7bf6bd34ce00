package engine

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// Seq is one request's place in the state pools.
type Seq struct {
	Ring  int   // its ring in the window and compressor pools
	Pages []int // its pages in the compressed pools, in position order
	Len   int   // committed positions: the next token is at position Len
}

// check refuses the negative numbers that would count as padding.
func (s *Seq) check() error {
	if s.Ring < 0 || s.Len < 0 {
		return fmt.Errorf("ring %d and length %d must be at least 0", s.Ring, s.Len)
	}
	for i, p := range s.Pages {
		if p < 0 {
			return fmt.Errorf("page %d of its table is %d, want at least 0", i, p)
		}
	}
	return nil
}

// Feed is what one request contributes to a step: tokens at positions Seq.Len,
// Seq.Len+1, ..., which of them (offsets into IDs) want logits or a token, and by
// what Sampling. With Rows it takes so many token rows: what it has no tokens for, and
// as many output rows, is padding before the next request.
type Feed struct {
	Seq      *Seq
	IDs      []int32
	Out      []int
	Sampling Sampling
	Rows     int // 0: as many as there are tokens
}

// padding is how many rows of a feed have no token.
func (f Feed) padding() int { return max(f.Rows-len(f.IDs), 0) }

// Shape is the size of a step: token rows, requests, output rows and pages per
// request. Rows beyond the feeds are padding.
type Shape struct{ T, B, O, P int }

// ShapeOf is the smallest shape that holds the feeds.
func ShapeOf(feeds []Feed) Shape {
	s := Shape{B: len(feeds), P: 1}
	for _, f := range feeds {
		s.T += len(f.IDs) + f.padding()
		s.O += len(f.Out) + f.padding()
		s.P = max(s.P, len(f.Seq.Pages))
	}
	s.O = max(s.O, 1)
	return s
}

// noRow marks padding: it reads nothing and writes nothing.
const noRow = -1

// Metadata builds every index input of a step (see dsv4.Build), in full. It
// refuses what the pools cannot hold.
func Metadata(l Layout, feeds []Feed, s Shape) (Tensors, error) {
	need := ShapeOf(feeds)
	if len(feeds) == 0 || need.T == 0 {
		return nil, fmt.Errorf("a step needs at least one token")
	}
	if s.T < need.T || s.B < need.B || s.O < need.O || s.P < need.P {
		return nil, fmt.Errorf("step shape %+v is too small for %+v", s, need)
	}
	ids := filled(s.T, 0)
	pos, req, window := filled(s.T, noRow), filled(s.T, noRow), filled(s.T, noRow)
	out, ring, pages := filled(s.O, noRow), filled(s.B, noRow), filled(s.B*s.P, noRow)
	groups := make([]groupRows, len(l.Groups))
	for i, g := range l.Groups {
		closed := s.T/g.Ratio + s.B
		groups[i] = groupRows{Group: g, slots: filled(s.T, noRow), close: filled(closed, noRow), entry: filled(closed, noRow)}
	}

	draws := make([]eval.Draw, s.O) // of padding: greedy
	row, wanted := 0, 0
	rings := map[int]bool{}
	for b, f := range feeds {
		if len(f.IDs) == 0 {
			return nil, fmt.Errorf("request %d: no tokens", b)
		}
		if err := f.Seq.check(); err != nil {
			return nil, fmt.Errorf("request %d: %w", b, err)
		}
		end := f.Seq.Len + len(f.IDs)
		if end > l.MaxPositions {
			return nil, fmt.Errorf("request %d: position %d is beyond max_position_embeddings %d", b, end-1, l.MaxPositions)
		}
		if len(l.Groups) > 0 && end > len(f.Seq.Pages)*l.PageTokens {
			return nil, fmt.Errorf("request %d: position %d is beyond its %d pages of %d tokens", b, end-1, len(f.Seq.Pages), l.PageTokens)
		}
		if rings[f.Seq.Ring] {
			return nil, fmt.Errorf("request %d: ring %d is used by two requests of the step", b, f.Seq.Ring)
		}
		rings[f.Seq.Ring] = true
		if err := l.samples(f.Sampling); err != nil {
			return nil, fmt.Errorf("request %d: %w", b, err)
		}
		ring[b] = int32(f.Seq.Ring)
		for i, p := range f.Seq.Pages {
			pages[b*s.P+i] = int32(p)
		}
		for _, o := range f.Out {
			if o < 0 || o >= len(f.IDs) {
				return nil, fmt.Errorf("request %d: output row %d is outside its %d tokens", b, o, len(f.IDs))
			}
			out[wanted] = int32(row + o)
			draws[wanted] = f.Sampling.draw(f.Seq.Len + o)
			wanted++
		}
		for i, id := range f.IDs {
			if id < 0 || int(id) >= l.Vocab {
				return nil, fmt.Errorf("request %d: token %d: id %d is out of vocabulary (%d)", b, i, id, l.Vocab)
			}
			p := f.Seq.Len + i
			ids[row], pos[row], req[row] = id, int32(p), int32(b)
			window[row] = ringSlot(f.Seq.Ring, l.Window, p, end)
			for g := range groups {
				groups[g].token(f.Seq, l.PageTokens, row, p, end)
			}
			row++
		}
		row, wanted = row+f.padding(), wanted+f.padding()
	}

	in := Tensors{}
	put := func(name string, v []int32, shape ...int) error {
		t, err := eval.FromI32(v, shape...)
		in[name] = t
		return err
	}
	errs := []error{
		put("ids", ids, s.T), put("pos", pos, s.T), put("req", req, s.T),
		put("out", out, s.O), put("ring", ring, s.B), put("window_slots", window, s.T),
	}
	if len(groups) > 0 {
		errs = append(errs, put("pages", pages, s.B, s.P))
	}
	if l.Head == HeadSample {
		putDraws(in, draws)
	}
	for _, g := range groups {
		name := fmt.Sprintf("c%d_", g.Ratio)
		errs = append(errs, put(name+"slots", g.slots, s.T), put(name+"close", g.close, len(g.close)), put(name+"entry_slots", g.entry, len(g.entry)))
	}
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return in, nil
}

// putDraws adds the inputs of a head that samples.
func putDraws(in Tensors, draws []eval.Draw) {
	rows := []int{len(draws)}
	temperature, topK := &eval.Tensor{DType: ir.F32, Shape: rows}, &eval.Tensor{DType: ir.I32, Shape: rows}
	topP, seed, pos := &eval.Tensor{DType: ir.F32, Shape: rows}, &eval.Tensor{DType: ir.I64, Shape: rows}, &eval.Tensor{DType: ir.I32, Shape: rows}
	for _, d := range draws {
		temperature.F, topK.I = append(temperature.F, d.Temperature), append(topK.I, int64(d.TopK))
		topP.F, seed.I, pos.I = append(topP.F, d.TopP), append(seed.I, int64(d.Seed)), append(pos.I, int64(d.Pos))
	}
	in["sample_temperature"], in["sample_top_k"], in["sample_top_p"] = temperature, topK, topP
	in["sample_seed"], in["sample_pos"] = seed, pos
}

func filled(n int, v int32) []int32 {
	s := make([]int32, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// ringSlot is the pool row of position p, or noRow if a later token of the same
// step, which ends at position end, takes that row: two writes of one row would
// have no order.
func ringSlot(ring, size, p, end int) int32 {
	if p+size < end {
		return noRow
	}
	return int32(ring*size + p%size)
}

// groupRows are the inputs of one compression ratio.
type groupRows struct {
	Group
	slots, close, entry []int32
	closed              int
}

func (g *groupRows) token(s *Seq, pageTokens, row, p, end int) {
	g.slots[row] = ringSlot(s.Ring, g.Ring, p, end)
	if (p+1)%g.Ratio != 0 {
		return
	}
	e, perPage := p/g.Ratio, pageTokens/g.Ratio
	g.close[g.closed] = int32(row)
	g.entry[g.closed] = int32(s.Pages[e/perPage]*perPage + e%perPage)
	g.closed++
}
