package golden

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/engine"
)

// localChecks feed every layer, the head and the MTP step the golden streams of
// the layer before, so that errors do not pile up. The golden file has the
// streams of every token only for short prompts.
func (s *Suite) localChecks() []Check {
	var list []Check
	add := func(name string, f func(v *verdict) error) {
		list = append(list, Check{name, func() error {
			v := s.verdict(name)
			if err := f(v); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return v.err()
		}})
	}
	for _, c := range s.cases {
		if c.Prefill > wholeHidden {
			continue
		}
		for l := range s.model.Layers {
			add(fmt.Sprintf("local/%s/layer.%d", c.Name, l), func(v *verdict) error { return s.localLayer(v, c, l) })
		}
		add(fmt.Sprintf("local/%s/head", c.Name), func(v *verdict) error { return s.localHead(v, c) })
		add(fmt.Sprintf("local/%s/mtp", c.Name), func(v *verdict) error { return s.localMTP(v, c) })
	}
	return list
}

// wholeHidden is the longest prompt whose streams the golden file has for every
// token; of longer ones it has those that engine.Force keeps.
const wholeHidden = 64

// ids are a case's token ids: the prompt, a token per step, and one more, which
// the last MTP step looks at.
func (s *Suite) ids(c caseInfo) ([]int32, error) {
	ids, err := s.e2e.i32s(c.Name + ".ids")
	if err == nil && len(ids) != c.Prefill+c.Steps+1 {
		err = fmt.Errorf("e2e: case %s has %d ids, want %d", c.Name, len(ids), c.Prefill+c.Steps+1)
	}
	return ids, err
}

// hidden are the golden streams after a layer; layer -1 is the embedding,
// repeated for every stream.
func (s *Suite) hidden(c caseInfo, layer int) ([]float32, error) {
	if layer >= 0 {
		return s.e2e.floats(fmt.Sprintf("%s.prefill.hidden.%d", c.Name, layer))
	}
	m := s.model
	ids, err := s.ids(c)
	if err != nil {
		return nil, err
	}
	table, err := once(s, "embed", func() (*eval.Tensor, error) {
		return engine.CheckpointSource{File: s.ckpt}.Weight("embed", ir.T(ir.BF16, ir.Int(m.Vocab), ir.Int(m.Hidden)))
	})
	if err != nil {
		return nil, err
	}
	var h []float32
	for _, id := range ids[:c.Prefill] {
		if id < 0 || int(id) >= m.Vocab {
			return nil, fmt.Errorf("e2e: case %s: id %d is out of vocabulary (%d)", c.Name, id, m.Vocab)
		}
		for range m.HC {
			h = append(h, table.F[int(id)*m.Hidden:][:m.Hidden]...)
		}
	}
	return h, nil
}

func (s *Suite) localLayer(v *verdict, c caseInfo, layer int) error {
	ids, err := s.ids(c)
	if err != nil {
		return err
	}
	h, err := s.hidden(c, layer-1)
	if err != nil {
		return err
	}
	want, err := s.hidden(c, layer)
	if err != nil {
		return err
	}
	p, err := s.part(dsv4.BlockPart, layer)
	if err != nil {
		return err
	}
	run, err := p.start(c.Prefill)
	if err != nil {
		return err
	}
	got, err := run.feed(ids[:c.Prefill], h, chunk)
	if err != nil {
		return err
	}
	v.compare("streams", got, want, inPlaceOf(layerLimit, p.exec))
	return nil
}

func (s *Suite) localHead(v *verdict, c caseInfo) error {
	h, err := s.hidden(c, s.model.Layers-1)
	if err != nil {
		return err
	}
	want, err := s.e2e.floats(c.Name + ".prefill.logits")
	if err != nil {
		return err
	}
	p, err := s.part(dsv4.HeadPart, 0)
	if err != nil {
		return err
	}
	run, err := p.start(1)
	if err != nil {
		return err
	}
	w := p.width()
	if len(h) < w {
		return fmt.Errorf("e2e: case %s has no streams", c.Name)
	}
	got, err := run.feed([]int32{0}, h[len(h)-w:], 1) // the head does not look at ids
	if err != nil {
		return err
	}
	v.compare("logits", got, want, layerLimit)
	return nil
}

// localMTP runs the whole MTP step, its window filled from the golden streams.
func (s *Suite) localMTP(v *verdict, c caseInfo) error {
	m := s.model
	ids, err := s.ids(c)
	if err != nil {
		return err
	}
	h, err := s.hidden(c, m.Layers-1)
	if err != nil {
		return err
	}
	want, err := s.e2e.floats(c.Name + ".prefill.mtp_logits")
	if err != nil {
		return err
	}
	e, seq, err := s.engine(len(ids))
	if err != nil {
		return err
	}
	row := m.HC * m.Hidden
	if len(h) != c.Prefill*row {
		return fmt.Errorf("e2e: case %s has %d stream values, want %d", c.Name, len(h), c.Prefill*row)
	}
	var got []float32
	for from := 0; from < c.Prefill; from += chunk {
		to := min(from+chunk, c.Prefill)
		part, err := eval.FromF32(ir.BF16, h[from*row:to*row], to-from, m.HC, m.Hidden)
		if err != nil {
			return err
		}
		f := []engine.Feed{{Seq: seq, IDs: ids[from+1 : to+1], Out: []int{to - from - 1}}}
		out, err := e.Draft(f, engine.ShapeOf(f), part)
		if err != nil {
			return err
		}
		engine.Commit(f)
		t, ok := out["logits"]
		if !ok {
			return fmt.Errorf("the draft step did not return output logits")
		}
		got = t.F
	}
	v.compare("logits", got, want, layerLimit)
	return nil
}
