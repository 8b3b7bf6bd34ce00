package cli

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
	rt "github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
)

// memoryNeed is what a compiled model takes of a device's memory, in bytes.
type memoryNeed struct {
	Weights int64 `json:"weights_bytes"`
	Pools   int64 `json:"pools_bytes"`
	Arena   int64 `json:"arena_bytes"` // of the largest plan
	Code    int64 `json:"code_bytes"`
	// Graphs is an estimate: drivers do not say what a graph takes.
	Graphs int64 `json:"graphs_estimate_bytes"`
	Total  int64 `json:"total_bytes"`
	// ArenaEstimated: no plan was compiled for these sizes, so the arena is scaled
	// from those that were.
	ArenaEstimated bool `json:"arena_estimated"`
	Launches       int  `json:"launches"` // of all plans
	Nodes          int  `json:"nodes"`    // of their graphs: the launches, and what is around each step
	// Host is what loading the weights takes of the host's memory at most.
	Host int64 `json:"loading_host_bytes"`
}

// sizer computes the needs of a bundle's code for numbers of requests and of
// positions, also other ones than it was compiled for.
type sizer struct {
	path         string
	name         string // the path, with the target if the bundle has code for others, too
	set          bundle.Settings
	layout       engine.Layout
	maxPositions int
	code         *bundle.Code
	graphs       []*ir.Graph // one for each set of pools that an engine makes
	eager        bool        // launches are not replayed as graphs
	host         int64       // memoryNeed.Host
}

// newSizer reads the sizes of pools from the model's config, and refuses a bundle
// that has others.
func newSizer(path string, b *bundle.Bundle, code *bundle.Code) (*sizer, error) {
	c, err := dsv4.ParseConfig(b.Config, path+"/config.json")
	if err != nil {
		return nil, refuse(err, "")
	}
	t, err := target.Lookup(code.Module.Target)
	if err != nil {
		return nil, fmt.Errorf("%s: manifest.json: %w", path, err)
	}
	s := &sizer{path: path, name: path, set: b.Manifest.Settings, maxPositions: c.MaxPositions, code: code, eager: !t.GPU()}
	if len(b.Manifest.Targets) > 1 {
		s.name = fmt.Sprintf("%s for %s", path, code.Module.Target)
	}
	if s.set.Layers < 1 || s.set.Layers > c.Layers || len(s.set.Batch) == 0 {
		return nil, fmt.Errorf("%s: manifest.json: %d layers of %d, batch %v", path, s.set.Layers, c.Layers, s.set.Batch)
	}
	firstLayers(c, s.set.Layers)
	o := dsv4.DefaultOptions()
	o.Numerics, o.Taps, o.MaxDraft = dsv4.Numerics(s.set.Numerics), s.set.Taps, s.set.Speculate
	if o.Head, err = dsv4.ParseHead(s.set.Head); err != nil {
		return nil, fmt.Errorf("%s: manifest.json: %w", path, err)
	}
	for _, entry := range []dsv4.Entry{dsv4.Decode, dsv4.Draft} {
		if entry == dsv4.Draft && c.NextN == 0 {
			continue
		}
		g, err := dsv4.Build(c, entry, o)
		if err != nil {
			return nil, err
		}
		s.graphs = append(s.graphs, g)
	}
	if s.layout, err = engine.LayoutOf(s.graphs[0]); err != nil {
		return nil, err
	}
	pack, err := code.PackGraph()
	if err != nil {
		return nil, err
	}
	if s.host, err = rt.HostBytes(pack); err != nil {
		return nil, refuse(err, "")
	}
	var compiled int64
	for _, p := range code.Module.States {
		compiled += p.Bytes[0] + p.Bytes[1]
	}
	pools, err := s.pools(s.batch(), s.set.MaxSeq)
	if err == nil && pools != compiled {
		err = fmt.Errorf("%s: %s: the pools have %d bytes, those of the config %d: compile it again", path, code.Module.Target, compiled, pools)
	}
	return s, err
}

// batch is the largest number of requests that plans were compiled for.
func (s *sizer) batch() int { return slices.Max(s.set.Batch) }

// pools are the bytes of all pools for some requests of some positions each.
func (s *sizer) pools(batch, maxSeq int) (int64, error) {
	bind := map[string]ir.Dim{"R": ir.Int(batch), "N": ir.Int(batch * s.layout.Pages(maxSeq))}
	var total int64
	for _, g := range s.graphs {
		for _, v := range g.States {
			n := int64(1)
			for _, d := range v.Type.Dims {
				k, ok := d.Subst(bind).Const()
				if !ok {
					return 0, fmt.Errorf("graph @%s: state %s: %s is not known", g.Name, v, d)
				}
				n *= int64(k)
			}
			total += v.Type.DType.Bytes(int(n))
		}
	}
	return total, nil
}

// graphNode is an estimate of the device memory of a launch with so many arguments in a
// graph: a packet of 64 bytes and an argument block with 256 bytes of hidden arguments,
// rounded up to 64 bytes (AMDGPU code object version 5).
func graphNode(args int) int64 {
	return 64 + (256+8*int64(args)+63)/64*64
}

// need is what the code takes for some requests of some positions each.
func (s *sizer) need(batch, maxSeq int) (memoryNeed, error) {
	return s.needOf(s.code.Module, int64(len(s.code.Object)), batch, maxSeq)
}

// unfused is what the plans without fused kernels take in place of the others: the total,
// with the code of both, or what they take beside the others while they replace them,
// when there are no pools yet.
func (s *sizer) unfused(side *bundle.Side, batch, maxSeq int) (int64, error) {
	fused, err := s.need(batch, maxSeq)
	if err != nil {
		return 0, err
	}
	n, err := s.needOf(side.Module, int64(len(s.code.Object)+len(side.Object)), batch, maxSeq)
	return max(n.Total, fused.Total-fused.Pools+n.Code-fused.Code+n.Arena), err
}

// checks are what the probes of the start-up checks take at most, beside weights, code
// and arena and before there are pools: code, the arena of the largest one and, while it
// is made, one that was smaller. Their graphs are an estimate.
func (s *sizer) checks() int64 {
	p := s.code.Probes
	if p == nil {
		return 0
	}
	n := int64(len(p.Object))
	var arena int64
	for _, q := range p.Module.Plans {
		arena = max(arena, q.Arena)
		n += s.graph(p.Module, q)
	}
	return n + 2*arena
}

// noRoom says why the start-up checks do not fit what was free of the device's memory,
// or "".
func (s *sizer) noRoom(n memoryNeed, memory int64) string {
	need := n.Total - n.Pools + s.checks()
	if need <= memory {
		return ""
	}
	return fmt.Sprintf("with the start-up checks %s needs %s, before it has pools, of %s that are free", s.path, binarySize(need), binarySize(memory))
}

// graph is an estimate of what the graph of a plan takes; 0 without graphs.
func (s *sizer) graph(m *plan.Module, p *plan.Plan) int64 {
	if s.eager {
		return 0
	}
	n := int64(m.Around()) * graphNode(len(m.StepParams()))
	for i := range p.Launches {
		n += graphNode(len(p.Launches[i].Args))
	}
	return n
}

// needOf is what plans take with the weights of the code. An arena grows at most with
// either number.
func (s *sizer) needOf(m *plan.Module, code int64, batch, maxSeq int) (memoryNeed, error) {
	n := memoryNeed{Code: code, Host: s.host}
	for _, w := range s.code.Module.Weights {
		n.Weights += w.Bytes[0] + w.Bytes[1]
	}
	limit := s.batch()
	for _, b := range s.set.Batch {
		if b >= batch {
			limit = min(limit, b)
		}
	}
	for _, p := range m.Plans {
		if p.Symbol("B") > limit {
			continue
		}
		n.Arena = max(n.Arena, p.Arena)
		n.Launches += len(p.Launches)
		n.Nodes += len(p.Launches) + m.Around()
		n.Graphs += s.graph(m, p)
	}
	pages, compiled := int64(s.layout.Pages(maxSeq)), int64(s.layout.Pages(s.set.MaxSeq))
	n.ArenaEstimated = batch != limit || pages != compiled
	if batch > limit {
		n.Arena = scaled(n.Arena, int64(batch), int64(limit))
	}
	if pages > compiled {
		n.Arena = scaled(n.Arena, pages, compiled)
	}
	var err error
	n.Pools, err = s.pools(batch, maxSeq)
	n.Total = n.Weights + n.Pools + n.Arena + n.Code + n.Graphs
	return n, err
}

// scaled is n times a/b, rounded up.
func scaled(n, a, b int64) int64 { return (n*a + b - 1) / b }

// longest is the largest number of positions for which some requests fit memory, 0
// if there is none.
func (s *sizer) longest(batch int, memory int64) (int, error) {
	var failed error
	positions := func(pages int) int { return min(pages*s.layout.PageTokens, s.maxPositions) }
	if len(s.layout.Groups) == 0 { // pools are rings only
		positions = func(int) int { return s.maxPositions }
	}
	over := sort.Search(s.layout.Pages(s.maxPositions), func(i int) bool {
		n, err := s.need(batch, positions(i+1))
		failed = errors.Join(failed, err)
		return n.Total > memory
	})
	if over == 0 || failed != nil {
		return 0, failed
	}
	return positions(over), nil
}

// fit is a number of requests with the positions that each can have.
type fit struct {
	Batch  int `json:"batch"`
	MaxSeq int `json:"max_seq"` // 0: not a single page of positions
}

// fitting lists what fits memory for the compiled batches.
func (s *sizer) fitting(memory int64) ([]fit, error) {
	var list []fit
	for _, b := range s.set.Batch {
		n, err := s.longest(b, memory)
		if err != nil {
			return nil, err
		}
		list = append(list, fit{b, n})
	}
	return list, nil
}

// instead is the command that compiles what fits memory in place of some requests of
// some positions: as many requests, or else fewer positions for one.
func (s *sizer) instead(batch, maxSeq int, memory int64, dir string) (string, error) {
	list, err := s.fitting(memory)
	if err != nil {
		return "", err
	}
	if dir == "" {
		dir = "DIR"
	}
	var batches []int
	for _, x := range list {
		if x.Batch <= batch && x.MaxSeq >= maxSeq {
			batches = append(batches, x.Batch)
		}
	}
	if len(batches) == 0 {
		if list[0].MaxSeq == 0 {
			least, err := s.need(list[0].Batch, 1)
			return fmt.Sprintf("a device with more memory: batch %d with the shortest --max-seq needs %s", list[0].Batch, binarySize(least.Total)), err
		}
		batches, maxSeq = []int{list[0].Batch}, list[0].MaxSeq
	}
	return fmt.Sprintf("kiln compile --model %s --target %s --batch %s --max-seq %d -o OTHER.kiln", dir, s.code.Module.Target, joinInts(batches), maxSeq), nil
}

// tooLarge refuses what does not fit memory, naming what does.
func (s *sizer) tooLarge(n memoryNeed, batch, maxSeq int, memory int64, where, dir string) error {
	if n.Total <= memory {
		return nil
	}
	hint, err := s.instead(batch, maxSeq, memory, dir)
	if err != nil {
		return err
	}
	return refuse(fmt.Errorf("%s needs %s for batch %d and max-seq %d (weights %s, pools %s, arena %s, graphs about %s), %s %s",
		s.name, binarySize(n.Total), batch, maxSeq, binarySize(n.Weights), binarySize(n.Pools), binarySize(n.Arena), binarySize(n.Graphs), where, binarySize(memory)), hint)
}

// binarySize is a number of bytes in the units that memory is sold in.
func binarySize(n int64) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n >= 1<<u.shift || n <= -1<<u.shift {
			return fmt.Sprintf("%.2f %s", float64(n)/float64(int64(1)<<u.shift), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
