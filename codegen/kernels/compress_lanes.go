package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// compress on GPUs. A lane has four channels of some members of an entry; what the lanes
// of a channel find, its largest g and their sums, they put together in shared memory.
// All rows are loaded at once, and none of an entry without members, as are all in most
// steps: a group of positions closes once in as many steps.

const (
	compressRun     = 4  // channels of a lane: 16 bytes
	compressWidth   = 32 // the most lanes beside each other over the channels
	compressAtATime = 8  // members whose rows a lane waits for together
)

// compressLanes is how many lanes go over the channels of a group, a power of two, or 0
// if rows do not lie in pieces of lanes.
func compressLanes(w, d int) int {
	if d%compressRun != 0 || w%compressRun != 0 {
		return 0
	}
	n := 1
	for n < compressWidth && d%(2*n*compressRun) == 0 {
		n *= 2
	}
	return n
}

// newCompressGroup is a group whose first operands are those of compress, with so many
// lanes over the channels from one on.
func newCompressGroup(k *kernel.K, b []*kernel.Buf, w, d, s, lanes int, overlap bool, entry, channel kernel.V) *compressGroup {
	c := &compressGroup{K: k, b: b, w: w, s: s, lanes: lanes, teams: k.T.Lanes / lanes}
	if overlap {
		c.half = d
	}
	c.sub, c.team = k.URem(k.Lane(), k.Int(lanes)), k.UDiv(k.Lane(), k.Int(lanes))
	c.channel = k.Add(channel, k.Mul(c.sub, k.Int(compressRun)))
	c.old, c.own = b[4].At(k.Mul(entry, k.Int(s))), b[5].At(k.Mul(entry, k.Int(s)))
	return c
}

// lowerCompressLanes: one group per entry and run of channels.
func lowerCompressLanes(l Lowering, o *ir.Op) {
	w, es := dims(o.Args[0])[1], dims(o.Args[4])
	e, s, d := es[0], es[1], dims(o.Results[0])[1]
	overlap, lanes := o.Bool("overlap"), compressLanes(w, d)
	pieces := d / (lanes * compressRun)
	in := make([]Ref, len(o.Args))
	for i, a := range o.Args {
		in[i] = l.Buf(a)
	}
	l.Launch(Launch{
		Name: "compress_lanes", Spec: fmt.Sprintf("w%d d%d s%d overlap%v", w, d, s, overlap), Grid: e * pieces, Work: int64(e * s * d * 16),
		In: in, Out: []Ref{l.Buf(o.Results[0])}, Touched: map[Ref]int64{in[0]: int64(e * s * d * 4), in[1]: int64(e * s * d * 4)},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			entry, piece := k.UDiv(k.Group(), k.Int(pieces)), k.URem(k.Group(), k.Int(pieces))
			channel := k.Mul(piece, k.Int(lanes*compressRun))
			c := newCompressGroup(k, b, w, d, s, lanes, overlap, entry, channel)
			c.run(b[6].At(k.Add(k.Mul(entry, k.Int(d)), channel)).Store)
		},
	})
}

// compressGroup is one group: teams of lanes, each with members of its own.
type compressGroup struct {
	*kernel.K
	b                  []*kernel.Buf
	w, s, half         int // half: columns before those of the second half of the members
	lanes, teams       int
	sub, team, channel kernel.V
	old, own           *kernel.Buf
}

// each calls f for the rows of the team's members, some at a time: four numbers of each
// row, and whether the member is there.
func (c *compressGroup) each(values bool, f func(there, k, g []kernel.V)) {
	rounds := ceilDiv(c.s, c.teams)
	batch := min(rounds, compressAtATime)
	body := func(first kernel.V, n int) {
		there := make([]kernel.V, n)
		ks, gs := make([]kernel.Vec, n), make([]kernel.Vec, n)
		for i := range n {
			m := c.Add(c.Mul(c.Add(first, c.Int(i)), c.Int(c.teams)), c.team)
			in := c.Cmp(kernel.LT, m, c.Int(c.s))
			at := c.Select(in, m, c.Int(0))
			mine, theirs := c.own.Load(at), c.old.Load(at)
			isOwn := c.Cmp(kernel.GE, mine, c.Int32(0))
			there[i] = c.And(in, c.Or(isOwn, c.Cmp(kernel.GE, theirs, c.Int32(0))))
			row := c.Select(there[i], c.Select(isOwn, mine, theirs), c.Int32(0))
			col := c.channel
			if c.half > 0 {
				col = c.Select(c.Cmp(kernel.GE, m, c.Int(c.s/2)), c.Add(col, c.Int(c.half)), col)
			}
			col = c.Add(col, c.Mul(c.Convert(row, kernel.I64), c.Int(c.w)))
			load := func(pool, step *kernel.Buf) kernel.Vec {
				from := c.Select(isOwn, step.Address(col), pool.Address(col))
				// Of what is not there: a row that is.
				from = c.Select(there[i], from, pool.Address(c.channel))
				return c.AsF32(c.ReadAt(from, ir.F32).LoadVec(c.Int(0), compressRun))
			}
			gs[i] = load(c.b[1], c.b[3])
			if values {
				ks[i] = load(c.b[0], c.b[2])
			}
		}
		for i := range n {
			var kv, gv []kernel.V
			for j := range compressRun {
				gv = append(gv, c.At(gs[i], j))
				if values {
					kv = append(kv, c.At(ks[i], j))
				}
			}
			f(there[i:i+1], kv, gv)
		}
	}
	if rounds <= batch {
		body(c.Int(0), rounds)
		return
	}
	c.For(c.Int(0), c.Int(rounds/batch*batch), batch, func(first kernel.V) { body(first, batch) })
	if rest := rounds % batch; rest > 0 {
		body(c.Int(rounds/batch*batch), rest)
	}
}

// run gives the entry's channels of the group to store.
func (c *compressGroup) run(store func(i, v kernel.V)) {
	some := c.Var(c.Int32(0))
	c.Lanes(c.Int(c.s), func(i kernel.V) {
		either := c.Or(c.Cmp(kernel.GE, c.own.Load(i), c.Int32(0)), c.Cmp(kernel.GE, c.old.Load(i), c.Int32(0)))
		some.Set(c.Or(some.Get(), c.Convert(either, kernel.I32)))
	})
	width := c.lanes * compressRun
	none := c.Cmp(kernel.EQ, c.Reduce(some.Get(), c.Or), c.Int32(0))
	c.If(none, func() { c.Lanes(c.Int(width), func(i kernel.V) { store(i, c.Float(0)) }) })
	c.If(c.Not(none), func() {
		tops, dens, nums := c.Shared(ir.F32, c.teams*width), c.Shared(ir.F32, c.teams*width), c.Shared(ir.F32, c.teams*width)
		at := c.Mul(c.Add(c.Mul(c.team, c.Int(c.lanes)), c.sub), c.Int(compressRun))
		top := c.vars(math.Inf(-1))
		c.each(false, func(there, _, g []kernel.V) {
			for j, x := range g {
				top[j].Set(c.Max(c.Select(there[0], x, c.Float(math.Inf(-1))), top[j].Get()))
			}
		})
		c.keep(tops, at, top)
		c.Barrier()
		best := make([]kernel.V, compressRun)
		for j := range best {
			best[j] = c.Float(math.Inf(-1))
			for t := range c.teams {
				best[j] = c.Max(tops.Load(c.Add(c.Mul(c.sub, c.Int(compressRun)), c.Int(t*width+j))), best[j])
			}
		}
		den, num := c.vars(0), c.vars(0)
		c.each(true, func(there, kv, g []kernel.V) {
			for j := range g {
				e := c.Select(there[0], c.Exp(c.Sub(g[j], best[j])), c.Float(0))
				den[j].Set(c.Add(den[j].Get(), e))
				num[j].Set(c.FMA(e, c.Select(there[0], kv[j], c.Float(0)), num[j].Get()))
			}
		})
		c.keep(dens, at, den)
		c.keep(nums, at, num)
		c.Barrier()
		c.Lanes(c.Int(width), func(i kernel.V) {
			den, num := c.Float(0), c.Float(0)
			for t := range c.teams {
				den = c.Add(den, dens.Load(c.Add(i, c.Int(t*width))))
				num = c.Add(num, nums.Load(c.Add(i, c.Int(t*width))))
			}
			store(i, c.Select(c.Cmp(kernel.EQ, den, c.Float(0)), c.Float(0), c.Div(num, den)))
		})
	})
}

// vars are variables of the lane's channels.
func (c *compressGroup) vars(init float64) []*kernel.Var {
	out := make([]*kernel.Var, compressRun)
	for i := range out {
		out[i] = c.Var(c.Float(init))
	}
	return out
}

// keep stores the lane's variables at a place.
func (c *compressGroup) keep(to *kernel.Buf, at kernel.V, v []*kernel.Var) {
	for i, x := range v {
		to.Store(c.Add(at, c.Int(i)), x.Get())
	}
}
