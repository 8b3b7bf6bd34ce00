package engine

import (
	"errors"
	"fmt"
	"math"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
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
	case s.TopK > math.MaxInt32:
		return fmt.Errorf("top-k is %d, want at most %d", s.TopK, math.MaxInt32)
	case s.TopP < 0 || s.TopP > 1 || math.IsNaN(s.TopP):
		return fmt.Errorf("top-p is %v, want 0..1", s.TopP)
	case s.Temperature > math.MaxFloat32 || s.Temperature > 0 && float32(s.Temperature) == 0:
		return fmt.Errorf("temperature is %v, which no f32 number is near", s.Temperature)
	case s.TopP > 0 && float32(s.TopP) == 0:
		return fmt.Errorf("top-p is %v, which no f32 number is near", s.TopP)
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

// draw is how op sample draws after the token at a position; Check has passed.
func (s Sampling) draw(pos int) eval.Draw {
	return eval.Draw{Temperature: float32(s.Temperature), TopK: int32(s.TopK), TopP: float32(s.TopP), Seed: s.Seed, Pos: int32(pos)}
}

// Token chooses what follows the token at a position, from the logits there. It is
// what op sample chooses: it depends on nothing else, and is the same on every device.
// NaN, +Inf, and logits that are all -Inf are errors: they come from a fault upstream,
// never from a model's opinion.
func (s Sampling) Token(logits []float32, pos int) (int32, error) {
	if err := s.Check(); err != nil {
		return 0, err
	}
	if err := checkLogits(logits); err != nil {
		return 0, err
	}
	id, flags := s.draw(pos).Choose(logits)
	if flags != 0 {
		return 0, &RowFault{flags}
	}
	return int32(id), nil
}

// samples reports why a model's heads do not choose by s.
func (l Layout) samples(s Sampling) error {
	if err := s.Check(); err != nil {
		return err
	}
	if l.Head == HeadGreedy && s.Temperature != 0 {
		return fmt.Errorf("sampling at temperature %v: %w", s.Temperature, errOnlyGreedy)
	}
	return nil
}

// Choice is the token of an output row of a step, or why it has none: a fault of that
// row alone.
type Choice struct {
	ID  int32
	Err error
}

// Choose gives the tokens of the wanted rows of a step, request after request, from
// its outputs; call it before Commit. Logits are chosen from here.
func Choose(feeds []Feed, out Tensors) ([]Choice, error) {
	var list []Choice
	for _, f := range feeds {
		for _, o := range f.Out {
			c, err := choose(out, len(list), f.Sampling, f.Seq.Len+o)
			if err != nil {
				return nil, err
			}
			list = append(list, c)
		}
	}
	return list, nil
}

// choose is the token that follows the one at a position, from a row of a step's
// outputs.
func choose(out Tensors, row int, s Sampling, pos int) (Choice, error) {
	for _, head := range []struct{ ids, flags string }{{sampleIDs, sampleFlags}, {greedyIDs, greedyFlags}} {
		ids, flags := out[head.ids], out[head.flags]
		switch {
		case ids == nil:
			continue
		case flags == nil:
			return Choice{}, fmt.Errorf("the step has the output %s and no %s", head.ids, head.flags)
		case row >= len(ids.I):
			return Choice{}, fmt.Errorf("output row %d of a step with %d", row, len(ids.I))
		case head.ids == greedyIDs && s.Temperature != 0:
			return Choice{}, errOnlyGreedy
		}
		if f := flags.I[row]; f != 0 {
			return Choice{Err: &RowFault{f}}, nil
		}
		return Choice{ID: int32(ids.I[row])}, nil
	}
	logits, err := logitsRow(out, row)
	if err != nil {
		return Choice{}, err
	}
	id, err := s.Token(logits, pos)
	return Choice{id, err}, nil
}

// ErrUnusable is what errors of NaN, +Inf and nothing but -Inf in logits are: a fault of
// the weights or of a device.
var ErrUnusable = errors.New("the model's output is not usable")

// RowFault is a row of logits that a head found no opinion in. Only logits say which
// token it is.
type RowFault struct {
	Flags int64 // of op argmax or sample
}

func (f *RowFault) Error() string {
	what := fmt.Sprintf("the head's flags are %#x", f.Flags)
	switch {
	case f.Flags&ir.ArgmaxAllNaN != 0:
		what = "every logit is NaN"
	case f.Flags&ir.ArgmaxNaN != 0:
		what = "a logit is NaN"
	case f.Flags&ir.ArgmaxHigh != 0:
		what = "a logit is +Inf"
	case f.Flags&ir.ArgmaxAllLow != 0:
		what = "all logits are -Inf"
	case f.Flags&ir.SampleRange != 0:
		return "a parameter of the sampling is outside of its range"
	}
	return what + ": " + ErrUnusable.Error()
}

// Is makes a fault an ErrUnusable, unless it is the request's.
func (f *RowFault) Is(target error) bool {
	return target == ErrUnusable && f.Flags&ir.SampleRange == 0
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
			return fmt.Errorf("logit of token %d is %v: %w", i, x, ErrUnusable)
		}
		allLow = allLow && math.IsInf(float64(x), -1)
	}
	if allLow {
		return fmt.Errorf("all %d logits are -Inf: %w", len(v), ErrUnusable)
	}
	return nil
}
