package golden

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/metric"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/weights"
)

// Maker makes the executor under test: graphs after the passes, with the pack
// graph that holds their packed weights (nil if nothing is packed). Each check
// of an operator or of a part of the model asks for an executor of its own small
// graph; the end-to-end checks share one of the entries prefill, decode and
// draft.
type Maker func(entries []*ir.Graph, pack *ir.Graph, w eval.WeightSource) (engine.Executor, error)

// Config says what is checked against what.
type Config struct {
	Model    string        // model folder
	Golden   string        // folder with ops.safetensors, e2e.safetensors and index.json
	Numerics dsv4.Numerics // the variant that the golden folder was made with
	Passes   passes.Config // of the graphs that the executor gets; it lowers by them too
	Target   passes.Target // of the executor; the zero Target: none in particular
	Executor Maker         // nil: the oracle
	Observe  func(Result)  // hears every comparison, also those within their limit; may be nil
}

// Check is one named check. Run returns nil, or an error that says which
// comparison is beyond its limit and by how much: every such comparison is a
// *Miss in the error's tree, anything else failed before there was a result.
type Check struct {
	Name string
	Run  func() error
}

// Suite is a set of checks over one model and one golden folder. It computes
// what several checks need once. It is not safe for concurrent use.
type Suite struct {
	cfg   Config
	model *dsv4.Config
	ckpt  *weights.Checkpoint
	ops   *file
	e2e   *file
	cases []caseInfo
	memo  map[string]memoized
}

// caseInfo is one end-to-end case of index.json.
type caseInfo struct {
	Name    string `json:"name"`
	Prefill int    `json:"prefill"`      // prompt tokens
	Steps   int    `json:"decode_steps"` // tokens after them
}

type memoized struct {
	value any
	err   error
}

// Open opens a suite. The golden folder must have been made with the model's
// own config.
func Open(cfg Config) (*Suite, error) {
	if _, err := dsv4.ParseNumerics(string(cfg.Numerics)); err != nil {
		return nil, err
	}
	if cfg.Executor == nil {
		cfg.Executor = oracle
	}
	s := &Suite{cfg: cfg, memo: map[string]memoized{}}
	err := s.open()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Suite) open() (err error) {
	if s.model, err = dsv4.LoadConfig(s.cfg.Model); err != nil {
		return err
	}
	if err := s.readIndex(filepath.Join(s.cfg.Golden, "index.json")); err != nil {
		return err
	}
	if s.ckpt, err = weights.Open(s.cfg.Model); err != nil {
		return err
	}
	if s.ops, err = openFile(filepath.Join(s.cfg.Golden, "ops.safetensors")); err != nil {
		return err
	}
	s.e2e, err = openFile(filepath.Join(s.cfg.Golden, "e2e.safetensors"))
	return err
}

// oracle is the default Maker.
func oracle(entries []*ir.Graph, pack *ir.Graph, w eval.WeightSource) (engine.Executor, error) {
	return engine.NewRef(entries, pack, w)
}

// readIndex reads the case list and compares the golden run's config with the
// model's.
func (s *Suite) readIndex(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var index struct {
		Config json.RawMessage `json:"config"`
		Cases  []caseInfo      `json:"cases"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&index); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	made, err := dsv4.ParseConfig(index.Config, path)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(made, s.model) {
		return fmt.Errorf("%s: the goldens were made with another config than that of %s", path, s.cfg.Model)
	}
	if len(index.Cases) == 0 {
		return fmt.Errorf("%s: lists no cases", path)
	}
	seen := map[string]bool{}
	for _, c := range index.Cases {
		if c.Name == "" || seen[c.Name] || c.Prefill < 1 || c.Steps < 1 {
			return fmt.Errorf("%s: case %+v: want a name of its own, prefill >= 1 and decode_steps >= 1", path, c)
		}
		seen[c.Name] = true
	}
	s.cases = index.Cases
	return nil
}

// Close unmaps the files.
func (s *Suite) Close() error {
	var errs []error
	if s.ckpt != nil {
		errs = append(errs, s.ckpt.Close())
	}
	for _, f := range []*file{s.ops, s.e2e} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// Checks lists the suite's checks: operators, hand-made cases, parts of the
// model, single layers, then end to end. The order is fixed, and each check
// runs on its own.
func (s *Suite) Checks() []Check {
	var list []Check
	list = append(list, s.opChecks()...)
	list = append(list, s.exactChecks()...)
	list = append(list, s.partChecks()...)
	list = append(list, s.localChecks()...)
	return append(list, s.freeChecks()...)
}

// Unread lists the golden tensors that no check has read so far, as FILE: NAME.
func (s *Suite) Unread() []string {
	var out []string
	for _, n := range s.ops.unread() {
		out = append(out, "ops: "+n)
	}
	for _, n := range s.e2e.unread() {
		out = append(out, "e2e: "+n)
	}
	return out
}

// once computes a value that several checks need.
func once[V any](s *Suite, key string, f func() (V, error)) (V, error) {
	m, ok := s.memo[key]
	if !ok {
		v, err := f()
		m = memoized{v, err}
		s.memo[key] = m
	}
	v, _ := m.value.(V) // keys are not shared between types
	return v, m.err
}

// executor runs the passes over graphs and makes an executor of the result. own
// are weights that are not in the checkpoint.
func (s *Suite) executor(own ownWeights, graphs ...*ir.Graph) (engine.Executor, error) {
	m := &passes.Module{Entries: graphs, Target: s.cfg.Target, Config: s.cfg.Passes}
	if err := passes.Run(m); err != nil {
		return nil, err
	}
	return s.cfg.Executor(m.Entries, m.Pack, layered{own, engine.CheckpointSource{File: s.ckpt}})
}

// options are the graph options of the suite's variant.
func (s *Suite) options() dsv4.Options {
	o := dsv4.DefaultOptions()
	o.Numerics, o.Taps = s.cfg.Numerics, true
	return o
}

// ownWeights are a check's own weights, before the checkpoint's.
type ownWeights map[string]*eval.Tensor

type layered struct {
	own  ownWeights
	base eval.WeightSource
}

func (l layered) Weight(name string, t ir.Type) (*eval.Tensor, error) {
	if w, ok := l.own[name]; ok {
		return w, nil
	}
	return l.base.Weight(name, t)
}

// verdict collects the results of one check.
type verdict struct {
	check   string
	observe func(Result)
	errs    []error
}

func (s *Suite) verdict(check string) *verdict {
	return &verdict{check: check, observe: s.cfg.Observe}
}

// err is the check's outcome.
func (v *verdict) err() error { return errors.Join(v.errs...) }

// compare holds got to a row of Limits.
func (v *verdict) compare(what string, got, want []float32, limit int) {
	v.judge(what, metric.Measure(got, want), limit, "")
}

func (v *verdict) judge(what string, m metric.Metrics, limit int, note string) {
	if note == "" && m.MaxAbs != 0 {
		note = fmt.Sprintf("largest difference at element %d of %d", m.At, m.Count)
	}
	if m.NaN > 0 || m.Missing > 0 {
		note = fmt.Sprintf("%d NaN and %d missing of %d elements, first at %d", m.NaN, m.Missing, m.Count, m.At)
	}
	for _, b := range Limits[limit].Bounds {
		v.number(what, b, b.Metric.of(m), limit, note)
	}
}

func (v *verdict) number(what string, b Bound, got float64, limit int, note string) {
	r := Result{Check: v.check, What: what, Limit: &Limits[limit], Bound: b, Got: got, Note: note}
	if v.observe != nil {
		v.observe(r)
	}
	if !r.OK() {
		v.errs = append(v.errs, &Miss{r})
	}
}
