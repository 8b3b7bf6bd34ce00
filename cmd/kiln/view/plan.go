package view

import (
	"math"
	"strings"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
)

// planData is the plan. Texts are numbers of the table but for code.
type planData struct {
	Card     string       `json:"card"` // whose rates floor times are of; "" if they are not known
	Arena    int64        `json:"arena"`
	Weights  int64        `json:"weights"` // bytes of those that the launches read
	Pools    int64        `json:"pools"`
	Groups   []int        `json:"groups"` // names, in the order of their first launches
	Launches []launchData `json:"launches"`
	Buffers  []bufferData `json:"buffers"` // of the arena
	Kernels  []kernelData `json:"kernels"` // that the plan launches, in the order of first use
	// Decomposed composites of the module, which no kernel form took.
	Decomposed []string `json:"decomposed"`
}

type launchData struct {
	Op     int     `json:"op"`
	Loc    int     `json:"loc"`
	Group  int     `json:"group"`
	Kernel int     `json:"kernel"`
	Grid   int     `json:"grid"`
	Bytes  int64   `json:"bytes"`
	Flops  int64   `json:"flops"`
	Floor  float64 `json:"floor"` // microseconds; -1: not known
	Bound  string  `json:"bound"` // what takes that long: bytes or flops
	Args   []int   `json:"args"`
}

// kindOf says who needs a value besides the launches.
func kindOf(v plan.Value, p *plan.Plan) string {
	switch {
	case v.First < 0:
		return "input"
	case v.Last == len(p.Launches):
		return "output"
	}
	return "scratch"
}

// bufferData is a piece of the arena from its first to its last use: launches,
// -1 before all of them, their number after all.
type bufferData struct {
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	First  int    `json:"first"`
	Last   int    `json:"last"`
	Kind   string `json:"kind"` // input, output or scratch
	Name   int    `json:"name"`
}

type kernelData struct {
	Symbol    string          `json:"symbol"`
	Form      string          `json:"form"`
	Spec      string          `json:"spec"`
	Rejected  []plan.Rejected `json:"rejected"`
	Resources []Fact          `json:"resources"`
	IR        string          `json:"ir"`
	ISA       string          `json:"isa"`
}

func (t *table) plan(p *Plan) *planData {
	d := &planData{
		Arena: p.Plan.Arena, Groups: []int{}, Launches: []launchData{},
		Buffers: []bufferData{}, Kernels: []kernelData{}, Decomposed: []string{},
	}
	if p.Chip != nil {
		d.Card = p.Chip.Card
	}
	for _, i := range p.Plan.States {
		d.Pools += p.Module.States[i].Bytes[0] + p.Module.States[i].Bytes[1]
	}
	kernels, groups, weights := map[int]int{}, map[string]int{}, map[int]bool{}
	for _, l := range p.Plan.Launches {
		k, ok := kernels[l.Kernel]
		if !ok {
			k = len(d.Kernels)
			kernels[l.Kernel] = k
			d.Kernels = append(d.Kernels, p.kernel(l.Kernel))
		}
		g, ok := groups[groupOf(l.Loc)]
		if !ok {
			g = len(d.Groups)
			groups[groupOf(l.Loc)] = g
			d.Groups = append(d.Groups, t.add(groupOf(l.Loc)))
		}
		x := launchData{Op: t.add(l.Op), Loc: t.add(l.Loc), Group: g, Kernel: k, Grid: l.Grid, Bytes: l.Bytes, Flops: l.Flops, Floor: -1, Bound: "-", Args: []int{}}
		x.floor(p.Chip, target.Rate(l.Rate))
		for _, a := range l.Args {
			x.Args = append(x.Args, t.add(p.argument(a)))
			if s := a.Buf; a.Mode != "" && s.Space == plan.Weight && !weights[s.Index] {
				weights[s.Index] = true
				d.Weights += p.Module.Weights[s.Index].Bytes[0] + p.Module.Weights[s.Index].Bytes[1]
			}
		}
		d.Launches = append(d.Launches, x)
	}
	for _, v := range p.Plan.Values {
		d.Buffers = append(d.Buffers, bufferData{v.Offset, v.Bytes, v.First, v.Last, kindOf(v, p.Plan), t.add(v.Name)})
	}
	for _, c := range p.Module.Decomposed {
		d.Decomposed = append(d.Decomposed, decomposedText(c))
	}
	return d
}

// floor fills in the least time that a chip needs.
func (x *launchData) floor(c *target.Chip, r target.Rate) {
	if c == nil {
		return
	}
	us := c.Floor(x.Bytes, x.Flops, r)
	x.Floor, x.Bound = math.Round(us*1e4)/1e4, "bytes"
	if us > c.Floor(x.Bytes, 0, r) {
		x.Bound = "flops"
	}
}

func (p *Plan) kernel(i int) kernelData {
	k := p.Module.Kernels[i]
	code := p.Code[k.Symbol]
	return kernelData{
		Symbol: k.Symbol, Form: k.Form, Spec: k.Spec, Rejected: append([]plan.Rejected{}, k.Rejected...),
		Resources: append([]Fact{}, code.Resources...), IR: code.IR, ISA: code.ISA,
	}
}

// argument is the text of a launch's argument, pools and weights by name.
func (p *Plan) argument(a plan.Arg) string {
	text, _ := a.MarshalText() // which does not fail
	var name string
	switch {
	case a.Mode == "":
		return string(text)
	case a.Buf.Space == plan.State:
		name = "!" + p.Module.States[a.Buf.Index].Name
	case a.Buf.Space == plan.Weight:
		name = "@" + p.Module.Weights[a.Buf.Index].Name
	default:
		return string(text)
	}
	if a.Buf.Part == 1 {
		name += " scales"
	}
	return string(a.Mode) + " " + name
}

func decomposedText(c plan.Decomposed) string {
	var b strings.Builder
	b.WriteString(c.Op + ", first at " + c.Loc)
	for i, r := range c.Rejected {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		b.WriteString(sep + r.Form + ": " + r.Reason)
	}
	return b.String()
}
