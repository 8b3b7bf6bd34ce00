package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/kiln-project/kiln/ir"
)

// Sampling says how the next token is chosen. Temperature 0 is greedy: the
// largest logit, ties to the lowest id; the other fields must be zero then.
type Sampling struct {
	Temperature float64 // divides the logits
	TopK        int     // keep the K largest; 0: all
	TopP        float64 // keep the smallest set with this probability; 0 or 1: all
	Seed        uint64
}

// Check reports a field outside its range, or one that greedy would ignore.
func (s Sampling) Check() error {
	switch {
	case s.Temperature < 0 || math.IsNaN(s.Temperature) || math.IsInf(s.Temperature, 0):
		return fmt.Errorf("temperature is %v, want a finite number of at least 0", s.Temperature)
	case s.TopK < 0:
		return fmt.Errorf("top-k is %d, want at least 0", s.TopK)
	case s.TopP < 0 || s.TopP > 1 || math.IsNaN(s.TopP):
		return fmt.Errorf("top-p is %v, want 0..1", s.TopP)
	case s.Temperature == 0 && (s.TopK != 0 || s.TopP != 0 || s.Seed != 0):
		return fmt.Errorf("top-k, top-p and seed have no effect at temperature 0 (greedy)")
	}
	return nil
}

// String describes the sampling for reports.
func (s Sampling) String() string {
	if s.Temperature == 0 {
		return "greedy"
	}
	t := fmt.Sprintf("temperature %v", s.Temperature)
	if s.TopK > 0 {
		t += fmt.Sprintf(", top-k %d", s.TopK)
	}
	if s.TopP > 0 {
		t += fmt.Sprintf(", top-p %v", s.TopP)
	}
	return t + fmt.Sprintf(", seed %d", s.Seed)
}

// Sampler draws tokens; equal samplings draw equal tokens from equal logits.
type Sampler struct {
	s   Sampling
	rng *rand.Rand
}

// NewSampler checks s.
func NewSampler(s Sampling) (*Sampler, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	return &Sampler{s: s, rng: rand.New(rand.NewPCG(s.Seed, 0))}, nil
}

// Next chooses a token. NaN, +Inf, and logits that are all -Inf are errors:
// they come from a fault upstream, never from a model's opinion.
func (s *Sampler) Next(logits []float32) (int32, error) {
	if err := checkLogits(logits); err != nil {
		return 0, err
	}
	if s.s.Temperature == 0 {
		return Argmax(logits), nil
	}
	ids := make([]int, len(logits))
	for i := range ids {
		ids[i] = i
	}
	slices.SortStableFunc(ids, func(a, b int) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return 0
	})
	if s.s.TopK > 0 && s.s.TopK < len(ids) {
		ids = ids[:s.s.TopK]
	}
	top := float64(logits[ids[0]])
	p, total := make([]float64, len(ids)), 0.0
	for i, id := range ids {
		p[i] = math.Exp((float64(logits[id]) - top) / s.s.Temperature)
		total += p[i]
	}
	if s.s.TopP > 0 && s.s.TopP < 1 {
		kept := 0.0
		for i := range p {
			if kept += p[i]; kept >= s.s.TopP*total {
				p, total = p[:i+1], kept
				break
			}
		}
	}
	u := s.rng.Float64() * total
	last := 0
	for i, w := range p {
		if u -= w; u < 0 {
			return int32(ids[i]), nil
		}
		if w > 0 {
			last = i
		}
	}
	return int32(ids[last]), nil // rounding left u at 0 or above
}

// next chooses the token of the first row of a step's outputs; a greedy head has
// chosen it. What is an error of logits is one of its flags.
func (s *Sampler) next(out Tensors) (int32, error) {
	ids, flags := out[greedyIDs], out[greedyFlags]
	if ids == nil || s.s.Temperature != 0 {
		logits, err := logitsRow(out)
		if err != nil {
			return 0, err
		}
		return s.Next(logits)
	}
	if flags == nil {
		return 0, fmt.Errorf("the step has the output %s and no %s", greedyIDs, greedyFlags)
	}
	if f := flags.I[0]; f != 0 {
		return 0, &GreedyFault{f}
	}
	return int32(ids.I[0]), nil
}

// GreedyFault is a row of logits that a greedy head found no opinion in. Only logits
// say which token it is.
type GreedyFault struct {
	Flags int64 // of op argmax
}

func (f *GreedyFault) Error() string {
	what := fmt.Sprintf("the greedy head's flags are %#x", f.Flags)
	switch {
	case f.Flags&ir.ArgmaxAllNaN != 0:
		what = "every logit is NaN"
	case f.Flags&ir.ArgmaxNaN != 0:
		what = "a logit is NaN"
	case f.Flags&ir.ArgmaxHigh != 0:
		what = "a logit is +Inf"
	case f.Flags&ir.ArgmaxAllLow != 0:
		what = "all logits are -Inf"
	}
	return what + ": the model's output is not usable"
}

// Argmax is the index of the largest value; ties go to the lowest index.
func Argmax(v []float32) int32 {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return int32(best)
}

func checkLogits(v []float32) error {
	allLow := true
	for i, x := range v {
		if x != x || math.IsInf(float64(x), 1) {
			return fmt.Errorf("logit of token %d is %v: the model's output is not usable", i, x)
		}
		allLow = allLow && math.IsInf(float64(x), -1)
	}
	if allLow {
		return fmt.Errorf("all %d logits are -Inf: the model's output is not usable", len(v))
	}
	return nil
}
