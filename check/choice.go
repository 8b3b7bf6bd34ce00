package check

import (
	"fmt"
	"math"
	"slices"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/metric"
)

// chooses lists the primitives whose results are choices.
var chooses = map[string]bool{"topk": true, "argmax": true}

// choice judges the ids that a device chose where they are not the evaluator's,
// and evaluates the op's other results for the device's choice. It returns why the
// choice is not valid, or "".
func (o *oneOp) choice(args []*eval.Tensor, got *eval.Tensor) (forced []*eval.Tensor, why string, err error) {
	e, err := ir.Expand(o.graph)
	if err != nil {
		return nil, "", err
	}
	var top *ir.Op
	for _, op := range e.Ops {
		if chooses[op.Def.Name] {
			if top != nil {
				return nil, "", fmt.Errorf("%s chooses twice: its choice cannot be judged", o.def.Name)
			}
			top = op
		}
	}
	if top == nil {
		return nil, "", fmt.Errorf("%s has the limit %q and no topk or argmax in its decomposition", o.def.Name, ir.Limit{Kind: ir.ByChoice})
	}
	tolerance := metric.F32Noise
	if o.def == top.Def { // the scores are operands, not computed
		tolerance = 0
	}
	e.Outputs = append(e.Outputs, ir.Output{Name: "scores", Value: top.Args[0]})
	in := o.values(args)
	scores, err := runGraph(e, in)
	if err != nil {
		return nil, "", err
	}
	judged, score := got, scores["scores"]
	if top.Def.Name == "argmax" {
		score = firstColumns(score, top.Columns(score.Shape[1]))
		judged = asTop1(score, got)
	}
	if why = valid(score, judged, tolerance); why != "" {
		return nil, why, nil
	}
	// The rest of the decomposition, with the choice as an input. Results beside the
	// choice do not depend on it: a copy of the op makes them.
	at := slices.Index(e.Ops, top)
	e.Ops = slices.Delete(slices.Clone(e.Ops), at, at+1)
	if len(top.Results) > 1 {
		rest := *top
		rest.Results = slices.Clone(top.Results)
		rest.Results[0] = &ir.Value{Kind: ir.OpResult, Type: top.Results[0].Type, Op: &rest}
		for _, r := range rest.Results[1:] {
			r.Op = &rest
		}
		e.Ops = slices.Insert(e.Ops, at, &rest)
	}
	chosen := top.Results[0]
	chosen.Kind, chosen.Name, chosen.Op, chosen.Index = ir.InputValue, "chosen", nil, 0
	e.Inputs = append(e.Inputs, chosen)
	in.Inputs["chosen"] = got
	out, err := runGraph(e, in)
	if err != nil {
		return nil, "", err
	}
	return o.results(out, nil), "", nil
}

// firstColumns is a matrix without the columns that pad it.
func firstColumns(x *eval.Tensor, n int) *eval.Tensor {
	rows, extent := x.Shape[0], x.Shape[1]
	if n == extent {
		return x
	}
	out := &eval.Tensor{DType: x.DType, Shape: []int{rows, n}}
	for row := range rows {
		out.F = append(out.F, x.F[row*extent:][:n]...)
	}
	return out
}

// asTop1 is a choice of argmax as that of topk with k = 1: id 0 of a row in which
// nothing can be chosen is no choice.
func asTop1(scores, ids *eval.Tensor) *eval.Tensor {
	top := ids.Clone()
	top.Shape = append(slices.Clone(ids.Shape), 1)
	n := scores.Shape[1]
	for row, id := range ids.I {
		if id == 0 && !slices.ContainsFunc(scores.F[row*n:(row+1)*n], canBeChosen) {
			top.I[row] = -1
		}
	}
	return top
}

// canBeChosen reports whether a score is a number above -Inf.
func canBeChosen(x float32) bool { return x == x && !math.IsInf(float64(x), -1) }

func runGraph(g *ir.Graph, in Values) (map[string]*eval.Tensor, error) {
	p, err := eval.Compile(g, eval.NewConsts(nil))
	if err != nil {
		return nil, err
	}
	return p.Run(in.Inputs, in.States)
}

// valid says what is wrong with a choice of the largest scores along the last
// axis, or "": every chosen score is at least the best rejected one, and one chosen
// before another at least that one, both less the tolerance; equal scores go to the
// lower id; -inf and NaN are never chosen.
func valid(scores, ids *eval.Tensor, tolerance float64) string {
	n, k := scores.Shape[len(scores.Shape)-1], ids.Shape[len(ids.Shape)-1]
	for row := range len(ids.I) / k {
		s, chosen := scores.F[row*n:(row+1)*n], ids.I[row*k:(row+1)*k]
		if why := validRow(s, chosen, tolerance); why != "" {
			return fmt.Sprintf("row %d chooses %v: %s", row, chosen, why)
		}
	}
	return ""
}

func validRow(s []float32, chosen []int64, tolerance float64) string {
	// after reports whether id b may come after id a.
	after := func(a, b int) bool {
		if s[a] == s[b] {
			return a < b
		}
		return float64(s[a]) >= float64(s[b])-tolerance*max(1, math.Abs(float64(s[b])))
	}
	free := 0
	for _, x := range s {
		if canBeChosen(x) {
			free++
		}
	}
	taken := map[int]bool{}
	for i, id := range chosen {
		switch {
		case id == -1 && i < min(free, len(chosen)):
			return fmt.Sprintf("place %d is empty, %d scores can be chosen", i, free)
		case id == -1:
			continue
		case id < 0 || int(id) >= len(s) || taken[int(id)]:
			return fmt.Sprintf("id %d is outside of the %d scores, or there twice", id, len(s))
		case !canBeChosen(s[id]):
			return fmt.Sprintf("the score of id %d is %v", id, s[id])
		case i > 0 && !after(int(chosen[i-1]), int(id)):
			return fmt.Sprintf("id %d (score %v) comes before id %d (score %v)", chosen[i-1], s[chosen[i-1]], id, s[id])
		}
		taken[int(id)] = true
	}
	for id, x := range s {
		if taken[id] || !canBeChosen(x) {
			continue
		}
		for _, c := range chosen {
			if c >= 0 && !after(int(c), id) {
				return fmt.Sprintf("id %d (score %v) is chosen before id %d (score %v)", c, s[c], id, x)
			}
		}
	}
	return ""
}
