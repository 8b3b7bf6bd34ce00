package golden

import (
	"fmt"
	"math"
	"slices"

	"github.com/kiln-project/kiln/ir/metric"
	"github.com/kiln-project/kiln/runtime/engine"
)

// Metric is one number by which a comparison is judged.
type Metric uint8

// The metrics. The first seven are fields of metric.Metrics.
const (
	MaxAbs Metric = iota
	Rel
	OneMinusCos
	Identical
	WithinULP
	WithinF32
	WithinTwo
	// FlipMargin is the largest margin that the golden logits have at a row where
	// the largest logit is another one; 0 if there is no such row. The margin is
	// the distance of the two largest logits.
	FlipMargin
	// GreedyMargin is the smallest golden margin up to and with the first step
	// where greedy generation chose another token; 0 if there is none.
	GreedyMargin
)

// metrics says how each metric is written and held to its bound.
var metrics = [...]struct{ name, relation string }{
	MaxAbs:       {"max abs", "<="},
	Rel:          {"rel", "<="},
	OneMinusCos:  {"1-cos", "<="},
	Identical:    {"identical share", ">="},
	WithinULP:    {"share within 1 bf16 ulp", ">="},
	WithinF32:    {"share within 1 bf16 ulp or 2e-6", ">="},
	WithinTwo:    {"share within 1 bf16 ulp or 1e-4", ">="},
	FlipMargin:   {"margin of a flipped argmax", "<="},
	GreedyMargin: {"least margin up to the first other token", "<"},
}

func (m Metric) String() string { return metrics[m].name }

// of returns the metric's value; FlipMargin and GreedyMargin come from logits
// and are not among the fields.
func (m Metric) of(x metric.Metrics) float64 {
	switch m {
	case MaxAbs:
		return x.MaxAbs
	case Rel:
		return x.Rel
	case OneMinusCos:
		return x.OneMinusCos
	case Identical:
		return x.Identical
	case WithinULP:
		return x.WithinULP
	case WithinF32:
		return x.WithinF32
	case WithinTwo:
		return x.WithinTwo
	}
	return math.NaN()
}

// Bound is the worst value a metric may have.
type Bound struct {
	Metric Metric
	Value  float64
}

// holds is false for NaN.
func (b Bound) holds(got float64) bool {
	switch metrics[b.Metric].relation {
	case "<=":
		return got <= b.Value
	case ">=":
		return got >= b.Value
	}
	return got < b.Value
}

func (b Bound) String() string {
	return fmt.Sprintf("%s %s %g", b.Metric, metrics[b.Metric].relation, b.Value)
}

// Limit is one rule of how far results may be from their reference.
type Limit struct {
	Name   string
	Bounds []Bound // all must hold
	Source string  // where the rule stands

	// Liberty, if not "", is that of the op table which a kernel takes that this is for,
	// in place of the rule For.
	Liberty string
	For     int
}

// section9 is where the limits come from; what follows is the line.
const section9 = `docs/dsv4.md section 9, "Recommended limits": `

// The rows of Limits.
const (
	exactLimit = iota
	f32Limit
	hcLimit
	bf16Limit
	ropeTableLimit
	attentionLimit
	layerLimit
	prefillLimit
	decodeLimit
	decodeMTPLimit
	argmaxLimit
	greedyLimit
	hcF32TwoLimit
	hcTwoLimit
	attentionOpBF16Limit
	layerBF16Limit
)

// The liberties of the op table that checks know.
const (
	twoWeights        = "two-bf16-weights"
	bf16Probabilities = "bf16-probabilities"
)

// LibertyTaker is an executor that tells which liberties of the op table the kernels take
// that it has run. One that does not takes none.
type LibertyTaker interface {
	Liberties() []string
}

// inPlaceOf is the row for what an executor computed: another one than limit if its
// kernels take a liberty that has its own.
func inPlaceOf(limit int, x engine.Executor) int {
	y, ok := x.(LibertyTaker)
	if !ok {
		return limit
	}
	taken := y.Liberties()
	for i, l := range Limits {
		if l.Liberty != "" && l.For == limit && slices.Contains(taken, l.Liberty) {
			return i
		}
	}
	return limit
}

// Limits is every limit that a check is held to.
var Limits = [...]Limit{
	exactLimit: {Name: "exact", Bounds: []Bound{{Identical, 1}},
		Source: section9 + "integer and format tests: exact; and what section 8 asks to be compared bit for bit"},
	f32Limit: {Name: "f32", Bounds: []Bound{{MaxAbs, metric.F32Noise}},
		Source: section9 + "hc, sinkhorn, gate weights in f32: abs 2e-6"},
	hcLimit: {Name: "hc", Bounds: []Bound{{Identical, 0.995}, {WithinF32, 1}},
		Source: section9 + "hc in f32: abs 2e-6; single bf16 operators: at least 99.5% identical, the rest within one bf16 ulp; both, since hc sums cancel"},
	bf16Limit: {Name: "bf16", Bounds: []Bound{{Identical, 0.995}, {WithinULP, 1}},
		Source: section9 + "single bf16 operators: at least 99.5% identical, the rest within one bf16 ulp"},
	ropeTableLimit: {Name: "rope-table", Bounds: []Bound{{MaxAbs, 1e-5}},
		Source: "op table, freqs_cis: section 9 measures 3.8e-6 against a table two of whose frequencies are one ulp off, and recommends no limit"},
	attentionLimit: {Name: "attention", Bounds: []Bound{{OneMinusCos, 5e-5}, {Rel, 2e-2}},
		Source: section9 + "attention operator, each variant against its own goldens: 1-cos <= 5e-5 and rel <= 2e-2"},
	layerLimit: {Name: "layer", Bounds: []Bound{{OneMinusCos, 5e-5}},
		Source: section9 + "one layer on golden inputs, own goldens: 1-cos <= 5e-5"},
	prefillLimit: {Name: "free-prefill", Bounds: []Bound{{OneMinusCos, 2e-3}},
		Source: section9 + "free run: prefill logits 1-cos <= 2e-3"},
	decodeLimit: {Name: "free-decode", Bounds: []Bound{{OneMinusCos, 5e-3}},
		Source: section9 + "free run: decode logits <= 5e-3"},
	decodeMTPLimit: {Name: "free-decode-mtp", Bounds: []Bound{{OneMinusCos, 9e-3}},
		Source: section9 + "Kiln's own: MTP logits of decode steps to 9e-3, the limit of decode logits times 1.8 for the block more that they go through"},
	argmaxLimit: {Name: "argmax", Bounds: []Bound{{FlipMargin, 0.5}},
		Source: section9 + "free run: argmax must agree wherever the golden margin exceeds 0.5"},
	greedyLimit: {Name: "greedy", Bounds: []Bound{{GreedyMargin, 0.5}},
		Source: section9 + "free run: greedy ids must agree up to the first step with margin below 0.5"},
	hcF32TwoLimit: {Name: "hc-f32-two", Bounds: []Bound{{MaxAbs, metric.TwoWeightsNoise}}, Liberty: twoWeights, For: f32Limit,
		Source: section9 + "with the op table's liberties: hc's f32 results to 1e-4"},
	hcTwoLimit: {Name: "hc-two", Bounds: []Bound{{Identical, 0.99}, {WithinTwo, 1}}, Liberty: twoWeights, For: hcLimit,
		Source: section9 + "with the op table's liberties: hc's bf16 results at least 99% identical, the rest within one bf16 ulp or 1e-4"},
	attentionOpBF16Limit: {Name: "sparse-attention-bf16", Bounds: []Bound{{OneMinusCos, 5e-4}}, Liberty: bf16Probabilities, For: bf16Limit,
		Source: section9 + "attention operator, with bf16 probabilities 5e-4"},
	layerBF16Limit: {Name: "layer-bf16", Bounds: []Bound{{OneMinusCos, 5e-4}}, Liberty: bf16Probabilities, For: layerLimit,
		Source: section9 + "with the op table's liberties: one layer with bf16 probabilities to 5e-4, as its attention operator"},
}

// Result is one number held to one bound.
type Result struct {
	Check string // name of the check
	What  string // which of the check's tensors
	Limit *Limit // the row of Limits
	Bound Bound  // one of its bounds
	Got   float64
	Note  string // where it is worst, or ""
}

// OK reports whether the bound holds; a NaN never does.
func (r Result) OK() bool { return r.Bound.holds(r.Got) }

func (r Result) String() string {
	note := ""
	if r.Note != "" {
		note = " (" + r.Note + ")"
	}
	return fmt.Sprintf("%s: %s: %s is %.6g, limit %s%s", r.Check, r.What, r.Bound.Metric, r.Got, r.Bound, note)
}

// Miss is the error of a result beyond its limit.
type Miss struct{ Result }

func (m *Miss) Error() string { return m.String() + " [" + m.Limit.Source + "]" }
