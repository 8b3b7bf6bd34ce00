package engine

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// Job makes a part of a weight: it copies bytes of the checkpoint, or evaluates rows.
// Jobs are independent of each other and may run concurrently, but for those that are
// Alone.
type Job struct {
	// At is where the first byte that it reads lies in the checkpoint: jobs in the
	// order of At read it from front to back.
	At int64

	// Base is where what it makes begins in the data and in the scales, Size how many
	// bytes of each it makes.
	Base, Size [2]int64
	// Copy is those bytes.
	Copy [2][]byte
	// Make evaluates them instead, if it is not nil, and takes Host bytes of this
	// process's memory until the result is dropped.
	Make func() (*eval.Tensor, error)
	Host int64
	// Whole says why it makes all of a packed weight, nil otherwise.
	Whole error
	// Alone: it asks a source that does not tell where its bytes lie for a tensor,
	// however large, and such a source need not be safe for concurrent use.
	Alone bool

	source StoredSource // of what it reads; nil: not of a checkpoint
	reads  [][]byte     // besides Copy
}

// Ahead says that the job will run soon, Behind that it has run.
func (j *Job) Ahead() {
	j.each(StoredSource.Ahead)
}

// Behind is Ahead's end.
func (j *Job) Behind() {
	j.each(StoredSource.Behind)
}

func (j *Job) each(tell func(StoredSource, []byte)) {
	if j.source == nil {
		return
	}
	for _, list := range [][][]byte{j.Copy[:], j.reads} {
		for _, b := range list {
			if len(b) > 0 {
				tell(j.source, b)
			}
		}
	}
}

// Jobs cuts a weight into jobs. Copies have at most that many bytes.
func Jobs(src eval.WeightSource, name string, t ir.Type, most int64) ([]Job, error) {
	packed, ok := src.(*Packed)
	if !ok {
		return jobs(src, name, t, most)
	}
	v, ok := packed.values[name]
	if !ok {
		return jobs(packed.base, name, t, most)
	}
	if !v.Type.Equal(t) {
		return nil, fmt.Errorf("%s, the plans want %s", v.Type, t)
	}
	return packed.jobs(v, most)
}

// jobs are those of a weight that is not packed.
func jobs(src eval.WeightSource, name string, t ir.Type, most int64) ([]Job, error) {
	if src == nil {
		return nil, fmt.Errorf("no weights are bound")
	}
	stored, ok := src.(StoredSource)
	if !ok {
		return asked(t, func() (*eval.Tensor, error) { return src.Weight(name, t) }), nil
	}
	s, err := stored.Stored(name, t)
	if err != nil {
		return nil, err
	}
	return copies(stored, s, [2]int64{}, most), nil
}

// asked is one job that asks a source for all of a weight, or of what packs it.
func asked(t ir.Type, f func() (*eval.Tensor, error)) []Job {
	list := whole(t, 0, f)
	list[0].Alone = true
	return list
}

// whole is one job that makes all of a weight.
func whole(t ir.Type, host int64, f func() (*eval.Tensor, error)) []Job {
	j := Job{Host: host, Make: func() (*eval.Tensor, error) {
		x, err := f()
		if err == nil && !x.Type().Equal(t) {
			err = fmt.Errorf("%s, the plans want %s", x.Type(), t)
		}
		if err == nil {
			err = x.Check()
		}
		return x, err
	}}
	j.Size[0], j.Size[1], _ = t.Bytes()
	return []Job{j}
}

// copies are jobs that copy a stored weight to base.
func copies(source StoredSource, s *Stored, base [2]int64, most int64) []Job {
	var list []Job
	for part, runs := range s.Parts {
		at := base[part]
		for _, r := range runs {
			for from := int64(0); from < int64(len(r.Bytes)); from += most {
				b := r.Bytes[from:min(from+most, int64(len(r.Bytes)))]
				j := Job{At: r.At + from, source: source}
				j.Base[part], j.Size[part], j.Copy[part] = at, int64(len(b)), b
				list = append(list, j)
				at += int64(len(b))
			}
		}
	}
	return list
}

// jobs are those of a packed weight.
func (s *Packed) jobs(v *ir.Value, most int64) ([]Job, error) {
	if s.stored == nil {
		return asked(v.Type, func() (*eval.Tensor, error) { return evaluate(v, s.base) }), nil
	}
	stored, err := s.find(v)
	if err != nil {
		return nil, err
	}
	if copied(v) {
		return s.copies(v, stored, [2]int64{}, most), nil
	}
	c, host, why, err := packing(v)
	if err != nil {
		return nil, err
	}
	if why == nil {
		return c.jobs(s.stored, stored)
	}
	list := whole(v.Type, host, func() (*eval.Tensor, error) { return evaluate(v, s.base) })
	list[0].source, list[0].Whole = s.stored, why
	for _, w := range weightsIn(v) {
		list[0].add(stored[w], 0, rowsOf(w.Type))
	}
	return list, nil
}

// find looks up the weights in a value.
func (s *Packed) find(v *ir.Value) (map[*ir.Value]*Stored, error) {
	stored := map[*ir.Value]*Stored{}
	for _, w := range weightsIn(v) {
		var err error
		if stored[w], err = s.stored.Stored(w.Name, w.Type); err != nil {
			return nil, fmt.Errorf("weight %s: %w", w, err)
		}
	}
	return stored, nil
}

// weightsIn lists the weights in a weight-only value, in the order of their first use.
func weightsIn(v *ir.Value) []*ir.Value {
	var list []*ir.Value
	seen := map[*ir.Value]bool{}
	var visit func(v *ir.Value)
	visit = func(v *ir.Value) {
		if seen[v] {
			return
		}
		seen[v] = true
		if v.Kind != ir.OpResult {
			list = append(list, v)
			return
		}
		for _, a := range v.Op.Args {
			visit(a)
		}
	}
	visit(v)
	return list
}

// copied tells whether a value is weights, one after the other or under another shape:
// the bytes of the checkpoint.
func copied(v *ir.Value) bool {
	if v.Kind != ir.OpResult {
		return true
	}
	name := v.Op.Def.Name
	return (name == "reshape" || name == "concat" && v.Op.Int("axis") == 0) && !slices.ContainsFunc(v.Op.Args, func(a *ir.Value) bool { return !copied(a) })
}

// copies are the jobs of a value that is copied.
func (s *Packed) copies(v *ir.Value, stored map[*ir.Value]*Stored, base [2]int64, most int64) []Job {
	if v.Kind != ir.OpResult {
		return copies(s.stored, stored[v], base, most)
	}
	var list []Job
	for _, a := range v.Op.Args {
		list = append(list, s.copies(a, stored, base, most)...)
		data, scales, _ := a.Type.Bytes()
		base[0], base[1] = base[0]+data, base[1]+scales
	}
	return list
}

// packing says how a packed weight is evaluated and what a job of it takes of this
// process's memory. why is what prevents that it is cut.
func packing(v *ir.Value) (c *cut, host int64, why, err error) {
	// The rows of a reshape are of no interest, only the elements are.
	from := v
	for from.Kind == ir.OpResult && from.Op.Def.Name == "reshape" && from.Type.Quant == nil {
		from = from.Op.Args[0]
	}
	if c, why = newCut(from); why != nil {
		host, err = heldWhole(v)
		return nil, host, why, err
	}
	g, _, err := c.graph(0, c.step())
	if err == nil {
		host, err = held(g)
	}
	return c, host, nil, err
}

// heldWhole is what evaluating a value whole takes.
func heldWhole(v *ir.Value) (int64, error) {
	g, err := graphOf(v)
	if err != nil {
		return 0, err
	}
	return held(g)
}

// jobs evaluate rows.
func (c *cut) jobs(source StoredSource, stored map[*ir.Value]*Stored) ([]Job, error) {
	var list []Job
	all := rowsOf(c.value.Type)
	step := c.step()
	for lo := 0; lo < all; lo += step {
		n := min(step, all-lo)
		g, feeds, err := c.graph(lo, n)
		if err != nil {
			return nil, err
		}
		j := Job{source: source, Base: offsets(c.value.Type, lo), Make: func() (*eval.Tensor, error) { return c.evaluate(lo, n, stored) }}
		j.Size[0], j.Size[1], _ = withRows(c.value.Type, n).Bytes()
		if j.Host, err = held(g); err != nil {
			return nil, err
		}
		for _, f := range feeds {
			j.add(stored[f.weight], f.lo, f.n)
		}
		list = append(list, j)
	}
	return list, nil
}

// add adds rows of a weight to what a job reads.
func (j *Job) add(w *Stored, lo, n int) {
	from, to := offsets(w.Type, lo), offsets(w.Type, lo+n)
	for part, runs := range w.Parts {
		for _, r := range within(runs, from[part], to[part]) {
			if len(j.reads) == 0 || r.At < j.At {
				j.At = r.At
			}
			j.reads = append(j.reads, r.Bytes)
		}
	}
}

// Packing is what evaluating a packed weight takes.
type Packing struct {
	Name string
	Host int64 // bytes of this process's memory, for each job at a time
	// Whole says why it is evaluated whole; nil: some rows at a time.
	Whole error
}

// Packings says what evaluating each packed weight takes, from the graph alone. Those
// that are copied are not listed.
func Packings(pack *ir.Graph) ([]Packing, error) {
	s, err := newPacked(pack, nil)
	if err != nil {
		return nil, err
	}
	var list []Packing
	for _, name := range s.names {
		v := s.values[name]
		if copied(v) {
			continue
		}
		_, host, why, err := packing(v)
		if err != nil {
			return nil, err
		}
		list = append(list, Packing{name, host, why})
	}
	return list, nil
}
