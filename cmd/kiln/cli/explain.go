package cli

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
)

const explainHelp = `Says for one step of a model what the passes did to each layer, what they did not
and why, and what that saves: launches, bytes read and written, and the floor time
(what the chip cannot beat), beside those of the required passes alone. It needs
config.json only, and no LLVM.

Layers with equal launches, before and after, are one row; in places, N stands for
the layer and * for another that is not next to it. Floor times are of AMD GPUs only.

Symbols: T token rows, B requests, O output rows, K drafts per request, R rings,
P pages per request, N pages. Without --bind it is one request, and its positions
are max_position_embeddings, at most 8192.`

// explanation is the JSON of explain.
type explanation struct {
	Target string         `json:"target"`
	Card   *string        `json:"card"` // whose rates the floor times are of
	Entry  string         `json:"entry"`
	Bind   map[string]int `json:"bind"`
	Passes *bundle.Passes `json:"passes,omitempty"` // as of a bundle; nil: the default
	Kinds  []layerKind    `json:"kinds"`
	Total  beforeAfter    `json:"total"`
	card   *target.Chip
	op     string // shows the launches of these ops
}

// layerKind is a group of layers with equal launches; the numbers are of one.
type layerKind struct {
	Name    string        `json:"name"` // layers, mtp, or the place outside of the layers
	Layers  []int         `json:"layers,omitempty"`
	Ratio   *int          `json:"ratio,omitempty"`
	Cost    beforeAfter   `json:"cost"`
	Remarks []layerRemark `json:"remarks"`
	// Of --op:
	Before []launchRow `json:"before,omitempty"`
	After  []launchRow `json:"after,omitempty"`
}

// beforeAfter has the sums of launches with the required passes only and with
// those of the flags.
type beforeAfter struct {
	Before launchSum `json:"before"`
	After  launchSum `json:"after"`
}

type launchSum struct {
	Launches int      `json:"launches"`
	Bytes    int64    `json:"bytes"`
	Flops    int64    `json:"flops"`
	FloorUS  *float64 `json:"floor_us"`
}

// layerRemark is a remark with how many ops of the kind have it.
type layerRemark struct {
	Pass  string            `json:"pass"`
	Kind  passes.RemarkKind `json:"kind"`
	At    string            `json:"at"`
	Op    string            `json:"op"`
	Text  string            `json:"text"`
	Count int               `json:"count"`
}

type launchRow struct {
	Op      string   `json:"op"`
	Loc     string   `json:"loc"`
	Form    string   `json:"form"`
	Grid    int      `json:"grid"`
	Bytes   int64    `json:"bytes"`
	Flops   int64    `json:"flops"`
	FloorUS *float64 `json:"floor_us"`
}

// lowered is a step with all that explain compares.
type lowered struct {
	unit    *codegen.Unit
	plan    *plan.Plan
	remarks []passes.Remark
}

func runExplain(e *env, f *flags, _ []string) error {
	config, err := passConfig(f)
	if err != nil {
		return err
	}
	disabled, err := disabledKernels(f)
	if err != nil {
		return err
	}
	targets, err := compileTargets(f.text("target"))
	if err != nil {
		return err
	}
	if len(targets) != 1 {
		return usagef("--target gfx950", "%s: explain takes one target", f.origins("target"))
	}
	bind, err := bindings(f)
	if err != nil {
		return err
	}
	o, err := options(f, false)
	if err != nil {
		return err
	}
	c, err := loadConfig(f.text("model"))
	if err != nil {
		return err
	}
	entry := dsv4.Entry(f.text("entry"))
	drafts, err := draftsOfEntry(f, c, string(entry), &o)
	if err != nil {
		return err
	}
	if !slices.Contains(dsv4.Entries, entry) && len(drafts) == 0 {
		return usagef("kiln explain --help", "--entry: unknown entry %q: want one of %s", entry, entryNames)
	}
	if entry == dsv4.Draft && c.NextN == 0 {
		return noGraph(f, string(entry))
	}
	if err := completeBinding(f, c, o, entry, bind); err != nil {
		return err
	}
	x := &explanation{Target: targets[0].Name, Entry: string(entry), Bind: bind, Passes: passSettings(config, disabled), Kinds: []layerKind{}, card: target.ChipOf(targets[0].CPU), op: f.text("op")}
	if x.card != nil {
		x.Card = &x.card.Card
	}
	e.tellPasses(x.Passes)
	before, err := lowerStep(c, o, targets[0], passes.Config{Pipeline: "required"}, disabled, entry, bind)
	if err != nil {
		return err
	}
	after, err := lowerStep(c, o, targets[0], config, disabled, entry, bind)
	if err != nil {
		return err
	}
	x.compare(c, before, after)
	if x.op != "" {
		x.Kinds = slices.DeleteFunc(x.Kinds, func(k layerKind) bool { return len(k.Before)+len(k.After)+len(k.Remarks) == 0 })
		if len(x.Kinds) == 0 {
			return usagef("kiln dump --model "+f.text("model")+" --entry "+string(entry), "%s %s: no op of @%s is there", f.origins("op"), x.op, entry)
		}
	}
	if f.boolean("json") {
		return printJSON(e.stdout, x)
	}
	return x.print(e.stdout)
}

// completeBinding gives the entry's symbols that --bind leaves out those of one
// request.
func completeBinding(f *flags, c *dsv4.Config, o dsv4.Options, entry dsv4.Entry, bind map[string]int) error {
	g, err := buildEntry(c, entry, o)
	if err != nil {
		return err
	}
	for _, sym := range slices.Sorted(maps.Keys(bind)) {
		if !slices.Contains(g.Syms, sym) {
			return usagef("kiln explain --help", "%s: @%s has no symbol %s: it has %s", f.origins("bind"), entry, sym, strings.Join(g.Syms, ", "))
		}
	}
	set := func(sym string, n int) {
		if _, given := bind[sym]; !given && slices.Contains(g.Syms, sym) {
			bind[sym] = n
		}
	}
	set("B", 1)
	set("T", bind["B"])
	set("O", bind["B"])
	set("K", 1)
	set("R", bind["B"])
	decode := g
	if entry == dsv4.Draft { // LayoutOf reads an entry with the pools of all layers
		if decode, err = dsv4.Build(c, dsv4.Decode, o); err != nil {
			return err
		}
	}
	layout, err := engine.LayoutOf(decode)
	if err != nil {
		return err
	}
	set("P", layout.Pages(min(c.MaxPositions, defaultMaxSeq)))
	set("N", bind["R"]*bind["P"])
	return nil
}

// lowerStep builds one entry, runs the passes and chooses kernels.
func lowerStep(c *dsv4.Config, o dsv4.Options, t *target.Target, config passes.Config, disabled []string, entry dsv4.Entry, bind map[string]int) (*lowered, error) {
	g, err := buildEntry(c, entry, o)
	if err != nil {
		return nil, err
	}
	m := &passes.Module{Target: t.ForPasses(), Config: config}
	m.Entries = append(m.Entries, g)
	if err := passes.Run(m); err != nil {
		return nil, err
	}
	u := codegen.NewUnit(t)
	for _, form := range disabled {
		u.Disable[form] = true
	}
	if err := passes.Lower(m, []passes.Bucket{{Entry: string(entry), Bind: bind}}, u); err != nil {
		return nil, err
	}
	return &lowered{u, u.Module.Plans[0], m.Remarks}, nil
}

// layerForm finds layer numbers in places and messages.
var layerForm = regexp.MustCompile(`\b(layers|mtp)\.(\d+)\b`)

// layerOf is the part of the model that a place belongs to: layers.3, mtp.0, or
// its first element. The layer is -1 outside of the layers.
func layerOf(loc string) (name string, layer int) {
	if m := layerForm.FindStringSubmatch(loc); m != nil && strings.HasPrefix(loc, m[0]) {
		n, err := strconv.Atoi(m[2])
		if err == nil {
			return m[1], n
		}
	}
	first, _, _ := strings.Cut(loc, ".")
	return cmp.Or(first, "no place"), -1
}

// relative is a text with its layer numbers relative to a layer: layers.N, its
// neighbours layers.N-1 and layers.N+1, and layers.* for others, so that what is
// alike in many layers has one text.
func relative(text string, layer int) string {
	if layer < 0 {
		return text
	}
	return layerForm.ReplaceAllStringFunc(text, func(s string) string {
		name, number, _ := strings.Cut(s, ".")
		n, err := strconv.Atoi(number)
		switch d := n - layer; {
		case err != nil:
			return s
		case d == 0:
			return name + ".N"
		case d == 1 || d == -1:
			return fmt.Sprintf("%s.N%+d", name, d)
		}
		return name + ".*"
	})
}

// part is one layer, or a place outside of the layers.
type part struct {
	name          string
	layer         int
	before, after []launchRow
	remarks       []layerRemark
}

// key tells the launches of a layer from those of another kind.
func (p *part) key() string {
	var b strings.Builder
	b.WriteString(p.name)
	for _, list := range [][]launchRow{p.before, p.after} {
		b.WriteString("\n--")
		for _, l := range list {
			fmt.Fprintf(&b, "\n%s %s %s %d %d %d", l.Op, relative(l.Loc, p.layer), l.Form, l.Grid, l.Bytes, l.Flops)
		}
	}
	return b.String()
}

// compare fills in the kinds and the totals.
func (x *explanation) compare(c *dsv4.Config, before, after *lowered) {
	var parts []*part
	at := map[string]*part{}
	get := func(loc string) *part {
		name, layer := layerOf(loc)
		key := fmt.Sprintf("%s.%d", name, layer)
		if at[key] == nil {
			at[key] = &part{name: name, layer: layer}
			parts = append(parts, at[key])
		}
		return at[key]
	}
	for _, l := range x.rows(before) {
		p := get(l.Loc)
		p.before = append(p.before, l)
	}
	for _, l := range x.rows(after) {
		p := get(l.Loc)
		p.after = append(p.after, l)
	}
	for _, r := range after.remarks {
		p := get(r.Loc)
		p.remarks = append(p.remarks, layerRemark{r.Pass, r.Kind, relative(r.Loc, p.layer), r.Op, relative(r.Text, p.layer), 1})
	}
	index := map[string]int{}
	for _, p := range parts {
		x.Total.Before.add(x.sum(p.before))
		x.Total.After.add(x.sum(p.after))
		key := p.key()
		i, ok := index[key]
		if !ok {
			i = len(x.Kinds)
			index[key] = i
			k := layerKind{Name: p.name, Cost: beforeAfter{x.sum(p.before), x.sum(p.after)}, Remarks: []layerRemark{}}
			k.Before, k.After = x.ofOp(p.before), x.ofOp(p.after)
			x.Kinds = append(x.Kinds, k)
		}
		k := &x.Kinds[i]
		if p.layer >= 0 {
			k.Layers = append(k.Layers, p.layer)
		}
		if p.name == "layers" && p.layer < len(c.Ratios) {
			if r := c.Ratios[p.layer]; len(k.Layers) == 1 {
				k.Ratio = &r
			} else if k.Ratio != nil && *k.Ratio != r {
				k.Ratio = nil
			}
		}
		for _, r := range p.remarks {
			if x.op != "" && !x.isOp(strings.ReplaceAll(r.At, ".N", "."+strconv.Itoa(p.layer))) {
				continue
			}
			k.remark(r)
		}
	}
}

// remark adds a remark, or counts it to its like.
func (k *layerKind) remark(r layerRemark) {
	for i := range k.Remarks {
		have := k.Remarks[i]
		have.Count = r.Count
		if have == r {
			k.Remarks[i].Count++
			return
		}
	}
	k.Remarks = append(k.Remarks, r)
}

// isOp reports whether a place is the one of --op, or inside of it.
func (x *explanation) isOp(loc string) bool { return loc == x.op || strings.HasPrefix(loc, x.op+".") }

func (x *explanation) ofOp(list []launchRow) []launchRow {
	if x.op == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(list), func(l launchRow) bool { return !x.isOp(l.Loc) })
}

func (x *explanation) rows(l *lowered) []launchRow {
	var out []launchRow
	for _, p := range l.plan.Launches {
		r := launchRow{Op: p.Op, Loc: p.Loc, Form: l.unit.Module.Kernels[p.Kernel].Form, Grid: p.Grid, Bytes: p.Bytes, Flops: p.Flops}
		if x.card != nil {
			r.FloorUS = ptrTo(x.card.Floor(p.Bytes, p.Flops, target.Rate(p.Rate)))
		}
		out = append(out, r)
	}
	return out
}

func (x *explanation) sum(list []launchRow) launchSum {
	s := launchSum{}
	if x.card != nil {
		s.FloorUS = ptrTo(0.0)
	}
	for _, l := range list {
		s.add(launchSum{1, l.Bytes, l.Flops, l.FloorUS})
	}
	return s
}

func (s *launchSum) add(o launchSum) {
	s.Launches += o.Launches
	s.Bytes += o.Bytes
	s.Flops += o.Flops
	if o.FloorUS != nil {
		if s.FloorUS == nil {
			s.FloorUS = ptrTo(0.0)
		}
		*s.FloorUS += *o.FloorUS
	}
}
