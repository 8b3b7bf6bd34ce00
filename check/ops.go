package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
)

// OpsConfig says what Ops runs on what.
type OpsConfig struct {
	Compiler *codegen.Compiler
	Target   *target.Target // one that the device runs
	// Open opens a device for each library; nil: the host.
	Open func() (device.Device, error)
	// Spread lays out a module's plans before they run; nil leaves them.
	Spread func(*plan.Module) (*plan.Module, error)
	// Only, if not "", is the name of ops, or their loc, or the beginning of it. Those
	// are run by their decomposition as well.
	Only string
	// LimitOf is the limit of result i of an op; nil: the op table's, of the liberty that
	// a kernel takes which runs the op.
	LimitOf func(d *ir.OpDef, i int) ir.Limit
	// Disable are kernel forms that must not be chosen.
	Disable []string
	// Lowered, if set, sees each unit before it is compiled.
	Lowered func(*codegen.Unit)
}

// OpResult is how far one kind of op is from the evaluator, at worst. Shapes of it that
// kernels with a liberty run are a kind of their own.
type OpResult struct {
	Op           string  `json:"op"`
	Sites        int     `json:"sites"`  // places in the graph
	Shapes       int     `json:"shapes"` // different ones
	Values       int     `json:"values"` // elements compared
	Differ       int     `json:"differ"` // of them not equal, as the limit counts
	MaxAbs       float64 `json:"max_abs"`
	Cos          float64 `json:"one_minus_cos"`
	Refused      int     `json:"refused"` // made-up operands that are an error to the evaluator
	Flips        int     `json:"flips"`   // elements that a rounding inside of the op explains
	Worst        string  `json:"worst"`   // loc of the largest 1-cos or, without one, of the largest error
	Limit        string  `json:"limit"`
	More         string  `json:"limit_of_more_results,omitempty"`
	Liberty      *Taken  `json:"liberty,omitempty"` // the limits are those of it
	OK           bool    `json:"ok"`
	def          *ir.OpDef
	liberty      *ir.Liberty
	counts       []tally // of each result
	roundsInside bool
}

// Layer is the worst op of one layer on the values that the evaluator has
// there.
type Layer struct {
	Layer string  `json:"layer"`
	Cos   float64 `json:"one_minus_cos"`
	Op    string  `json:"op"`
	Loc   string  `json:"loc"`
}

// Decomposed is how far an op is from its decomposition, both on the device.
type Decomposed struct {
	Op     string  `json:"op"`
	Shapes int     `json:"shapes"`
	Values int     `json:"values"`
	Differ int     `json:"differ"`
	MaxAbs float64 `json:"max_abs"`
	Cos    float64 `json:"one_minus_cos"`
}

// OpsReport is what Ops found.
type OpsReport struct {
	Ops        []*OpResult   `json:"ops"`
	Layers     []*Layer      `json:"layers"`
	Decomposed []*Decomposed `json:"decomposed,omitempty"`
	Whole      *Whole        `json:"whole,omitempty"` // nil with Only, and with Generated
	Breaches   []Breach      `json:"breaches"`
	// Generated: the graph is too large for the evaluator, so that ops had made-up
	// operands only.
	Generated string `json:"generated,omitempty"`
}

// UnknownOp is an Only that names nothing in the graph.
type UnknownOp struct{ Only, Have string }

func (e *UnknownOp) Error() string {
	return fmt.Sprintf("no op and no loc %q in the graph: it has %s", e.Only, e.Have)
}

// Ops runs every op of the entry, after all passes, on the device, and compares
// it with the evaluator: first on the values that the evaluator has there, so that
// errors do not pile up and every choice is the reference's, then on operands of
// every Case. Then the whole entry runs as one plan and must equal its ops.
func Ops(ctx context.Context, s *Subject, c OpsConfig) (*OpsReport, error) {
	s.Module.Target = c.Target.ForPasses()
	list, err := s.versions()
	if err != nil {
		return nil, err
	}
	g := list[len(list)-1].graph
	k := &opsCheck{Subject: s, cfg: c, report: &OpsReport{Breaches: []Breach{}}, kinds: map[string]*OpResult{}, layers: map[string]*Layer{}}
	return k.report, k.run(ctx, g)
}

type opsCheck struct {
	*Subject
	cfg        OpsConfig
	report     *OpsReport
	kinds      map[string]*OpResult
	layers     map[string]*Layer
	device     *machine
	decomposed *machine
}

// selected reports whether Only names an op.
func (k *opsCheck) selected(op *ir.Op) bool {
	only := k.cfg.Only
	return only == "" || op.Def.Name == only || op.Loc == only || strings.HasPrefix(op.Loc, only+".")
}

// skipped are ops that no kernel runs: constants are immediates.
func skipped(op *ir.Op) bool { return op.Def.Name == "const" }

func (k *opsCheck) run(ctx context.Context, g *ir.Graph) error {
	tooLarge := fitsEvaluator(g)
	if tooLarge != nil && k.cfg.Only == "" {
		return tooLarge
	}
	var chosen oneOps
	var sites []*site
	for _, op := range g.Ops {
		if skipped(op) || !k.selected(op) {
			continue
		}
		one, err := chosen.of(op)
		if err != nil {
			return err
		}
		sites = append(sites, &site{op, one})
	}
	if len(sites) == 0 {
		return &UnknownOp{k.cfg.Only, namesOf(g)}
	}
	k.say("compiling %d ops", len(chosen.list))
	var err error
	if k.device, err = openDevice(ctx, &k.cfg, chosen.list, k.cfg.Disable); err != nil {
		return err
	}
	defer k.device.close()
	for _, o := range chosen.list {
		r := k.kind(o)
		r.Shapes++
		r.roundsInside = r.roundsInside || o.roundsInside
	}
	for _, s := range sites {
		k.kind(s.one).Sites++
	}
	if err := k.openDecomposed(ctx, chosen.list); err != nil {
		return err
	}
	if k.decomposed != nil {
		defer k.decomposed.close()
	}
	var weights eval.WeightSource // of the entry, for what runs it
	if tooLarge != nil {
		k.report.Generated = tooLarge.Error()
	} else {
		if weights, err = k.entryWeights(g); err != nil {
			return err
		}
		if err := k.chain(ctx, g, sites, weights); err != nil {
			return err
		}
	}
	if err := k.generated(ctx, chosen.list, sites); err != nil {
		return err
	}
	if k.cfg.Only == "" { // tooLarge was returned
		if err := k.whole(ctx, g, sites, weights); err != nil {
			return err
		}
	}
	k.finish()
	return nil
}

// openDecomposed compiles the decompositions of the ops that were asked for, but
// of those that make a table: tables are packed, no device makes them.
func (k *opsCheck) openDecomposed(ctx context.Context, list []*oneOp) error {
	var composites []*oneOp
	disable := slices.Clone(k.cfg.Disable)
	for _, o := range list {
		if o.def.Primitive() || o.makesTable() {
			continue
		}
		composites = append(composites, o)
		for _, f := range kernels.For(o.def.Name) {
			disable = append(disable, f.Name)
		}
	}
	if k.cfg.Only == "" || len(composites) == 0 {
		return nil
	}
	k.say("compiling %d decompositions", len(composites))
	var err error
	k.decomposed, err = openDevice(ctx, &k.cfg, composites, disable)
	return err
}

// kind is the result that an op counts for: of its name, and of the liberty that the
// kernels take which run it.
func (k *opsCheck) kind(o *oneOp) *OpResult {
	y, forms := libertyOf(o.def, k.device.forms[o])
	key := o.def.Name
	if y != nil {
		key += " " + y.Name
	}
	r, ok := k.kinds[key]
	if !ok {
		r = &OpResult{Op: o.def.Name, OK: true, def: o.def, liberty: y, counts: make([]tally, len(o.def.Results))}
		if y != nil {
			r.Liberty = &Taken{Name: y.Name}
		}
		limits := []string{k.limit(r, 0).String()}
		for i := 1; i < len(o.def.Results); i++ {
			if text := k.limit(r, i).String(); text != limits[len(limits)-1] {
				limits = append(limits, text)
			}
		}
		r.Limit, r.More = limits[0], strings.Join(limits[1:], ", then ")
		k.kinds[key] = r
		k.report.Ops = append(k.report.Ops, r)
	}
	for _, f := range forms {
		if !slices.Contains(r.Liberty.Forms, f) {
			r.Liberty.Forms = append(r.Liberty.Forms, f)
		}
	}
	return r
}

// limit is the limit of result i of a kind of op.
func (k *opsCheck) limit(r *OpResult, i int) ir.Limit {
	if k.cfg.LimitOf != nil {
		return k.cfg.LimitOf(r.def, i)
	}
	return limitOf(r.def, r.liberty, i)
}

// namesOf lists what --op can name, for a message.
func namesOf(g *ir.Graph) string {
	var names, layers []string
	for _, op := range g.Ops {
		if !skipped(op) && !slices.Contains(names, op.Def.Name) {
			names = append(names, op.Def.Name)
		}
		if l := layerOf(op.Loc); !slices.Contains(layers, l) && l != outside {
			layers = append(layers, l)
		}
	}
	slices.Sort(names)
	text := strings.Join(names, ", ")
	if len(layers) > 0 {
		text += "; " + layers[0] + " to " + layers[len(layers)-1]
	}
	return text
}

// entryWeights has the weights that g reads, packed where they are.
func (k *opsCheck) entryWeights(g *ir.Graph) (eval.WeightSource, error) {
	read := map[string]bool{}
	for _, w := range g.Weights {
		read[w.Name] = true
	}
	return engine.BindPack(only(k.Module.Pack, read), k.Weights)
}

// chain evaluates the graph op by op and runs the sites on the way. It does what
// the sites need only.
func (k *opsCheck) chain(ctx context.Context, g *ir.Graph, sites []*site, weights eval.WeightSource) error {
	at := map[*ir.Op]*site{}
	for _, s := range sites {
		at[s.op] = s
	}
	ops := needed(g, at)
	var rest oneOps
	for seed := range k.Seeds {
		in, err := k.Make(g, &Cases[0], uint64(seed))
		if err != nil {
			return err
		}
		v := newValues(g, ops, in, weights)
		for i, op := range ops {
			if err := ctx.Err(); err != nil {
				return err
			}
			if skipped(op) {
				continue
			}
			k.say("seed %d: op %d of %d", seed, i+1, len(ops))
			s := at[op]
			if s == nil {
				one, err := rest.of(op)
				if err != nil {
					return err
				}
				s = &site{op, one}
			}
			args, err := v.args(op)
			if err != nil {
				return err
			}
			want, err := s.one.evaluate(args)
			if err != nil {
				return fmt.Errorf("seed %d: %s: %s: %w", seed, op.Where(), op.Def.Name, err)
			}
			if at[op] != nil {
				if err := k.compare(s.one, op.Loc, args, want, seed, Cases[0].Name, true); err != nil {
					return err
				}
			}
			v.set(op, want, i)
		}
	}
	return nil
}

// generated runs each different op once per case.
func (k *opsCheck) generated(ctx context.Context, list []*oneOp, sites []*site) error {
	locs := map[*oneOp]string{}
	for _, s := range sites {
		if _, ok := locs[s.one]; !ok {
			locs[s.one] = s.op.Loc
		}
	}
	for i, o := range list {
		k.say("op %d of %d (%s) on made-up operands", i+1, len(list), o.def.Name)
		for c := range Cases {
			for seed := range k.Seeds {
				if c > 0 && seed > 0 || !fair(o.def, &Cases[c]) {
					break
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				args, err := o.operands(&Cases[c], uint64(seed))
				if err != nil {
					return err
				}
				want, err := o.evaluate(args)
				if err != nil { // what the op documents as one, such as an integer division by zero
					k.kind(o).Refused++
					continue
				}
				if err := k.compare(o, locs[o], args, want, seed, Cases[c].Name+", made-up operands", false); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// compare runs an op on the device and holds it to its limits.
func (k *opsCheck) compare(o *oneOp, loc string, args, want []*eval.Tensor, seed int, in string, layer bool) error {
	got, err := k.device.run(o, args)
	if err != nil {
		return err
	}
	if err := k.compareDecomposed(o, args, got); err != nil {
		return err
	}
	if o.def.Rest != nil && len(want) > 1 {
		if want, err = o.rest(args, want, got); err != nil {
			return err
		}
	}
	if want, err = numbers(o.op(), want); err != nil {
		return err
	}
	if got, err = numbers(o.op(), got); err != nil {
		return err
	}
	r := k.kind(o)
	breach := func(i int, text string) {
		r.OK = false
		k.report.Breaches = append(k.report.Breaches, Breach{o.def.Name, loc, o.def.Results[i], seed, in, text})
	}
	for i := range want {
		l := k.limit(r, i)
		if l.Kind == ir.ByChoice {
			l = ir.Limit{}
			if !slices.Equal(want[i].I, got[i].I) {
				forced, why, err := o.choice(args, got[i])
				if err != nil {
					return err
				}
				if why != "" {
					breach(i, why)
					return nil // of another choice than the evaluator's there is nothing to compare
				}
				want = forced
			}
		}
		w := want[i]
		if k.cfg.Target.FNUZ && o.ofCodes[i] {
			w = withoutMinusZero(w, got[i])
		}
		d := compare(w, got[i], l, l.Block(o.op()), o.roundsInside)
		r.add(d, i, loc)
		if layer {
			k.layer(loc, o.def.Name, d)
		}
		if d.beyond != "" {
			breach(i, d.beyond)
		}
	}
	return nil
}

func (k *opsCheck) compareDecomposed(o *oneOp, args, got []*eval.Tensor) error {
	if k.decomposed == nil || k.decomposed.programs[o] == nil {
		return nil
	}
	want, err := k.decomposed.run(o, args)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(k.report.Decomposed, func(d *Decomposed) bool { return d.Op == o.def.Name })
	if i < 0 {
		i = len(k.report.Decomposed)
		shapes := 0
		for other := range k.decomposed.programs {
			if other.def == o.def {
				shapes++
			}
		}
		k.report.Decomposed = append(k.report.Decomposed, &Decomposed{Op: o.def.Name, Shapes: shapes})
	}
	r := k.report.Decomposed[i]
	for i := range want {
		d := compare(want[i], got[i], ir.Limit{}, 0, false)
		r.Values += want[i].Len()
		r.Differ += want[i].Len() - identical(want[i], got[i])
		r.MaxAbs, r.Cos = max(r.MaxAbs, finite(d.MaxAbs)), max(r.Cos, finite(d.OneMinusCos))
	}
	return nil
}

// add keeps what is worst.
func (r *OpResult) add(d difference, result int, loc string) {
	r.Values += d.Count
	r.Differ += d.different
	r.Flips += d.flips
	r.counts[result].add(d)
	cos, abs := finite(d.OneMinusCos), finite(d.MaxAbs)
	if r.Worst == "" || cos > r.Cos || r.Cos == 0 && abs > r.MaxAbs {
		r.Worst = loc
	}
	r.Cos, r.MaxAbs = max(r.Cos, cos), max(r.MaxAbs, abs)
}

// outside is the layer of ops that are in none.
const outside = "outside"

// layerOf is the layer that a loc is in.
func layerOf(loc string) string {
	parts := strings.Split(loc, ".")
	if len(parts) < 2 || parts[0] != "layers" && parts[0] != "mtp" {
		return outside
	}
	return parts[0] + "." + parts[1]
}

func (k *opsCheck) layer(loc, op string, d difference) {
	name := layerOf(loc)
	l, ok := k.layers[name]
	if !ok {
		l = &Layer{Layer: name, Op: op, Loc: loc}
		k.layers[name] = l
		k.report.Layers = append(k.report.Layers, l)
	}
	if cos := finite(d.OneMinusCos); cos > l.Cos {
		l.Cos, l.Op, l.Loc = cos, op, loc
	}
}

// finish holds the shares of identical elements, over all runs of a kind of op;
// those of a kind with an element beyond its limit say nothing more.
func (k *opsCheck) finish() {
	slices.SortStableFunc(k.report.Ops, func(a, b *OpResult) int { return strings.Compare(a.Op, b.Op) })
	for _, r := range k.report.Ops {
		for i, of := range r.def.Results {
			text := r.counts[i].breach(k.limit(r, i), r.roundsInside)
			if text != "" && r.OK {
				r.OK = false
				k.report.Breaches = append(k.report.Breaches, Breach{r.Op, r.Worst, of, k.Seeds - 1, "all", text})
			}
		}
	}
}
