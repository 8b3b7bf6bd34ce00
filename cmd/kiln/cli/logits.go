package cli

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/weights"
)

const logitsHelp = `Feeds given ids and writes what the model says after each, as f32 tensors:

  prefill.logits [V]              after the last prompt token
  decode.logits [steps,V]         step p feeds ids[p] at position p
  prefill.hidden.LAYER [rows,C,D] residual streams after each layer: all rows of a
                                  prompt of up to 64 ids, the last 8 of a longer one
  prefill.mtp_logits [V]          with --mtp: the MTP block's prediction from the
  decode.mtp_logits [steps-1,V]   same positions and the id that follows

n ids give n - prefill decode steps; the MTP block needs one id more.`

func runLogits(e *env, f *flags, _ []string) error {
	ids, err := readIDs(f.text("ids"))
	if err != nil {
		return usagef("kiln logits --ids 1,2,3", "--ids: %v", err)
	}
	prefill, mtp := f.number("prefill"), f.boolean("mtp")
	if prefill < 1 || prefill > len(ids) {
		return usagef("kiln logits --help", "--prefill is %d, want 1..%d (the number of ids)", prefill, len(ids))
	}
	if mtp && prefill == len(ids) {
		return usagef("", "--mtp needs the id after the last prompt position: give more than %d ids", prefill)
	}
	s, place, err := openModel(f, true)
	if err != nil {
		return err
	}
	defer s.close()
	if err := checkVocabulary(ids, s.layout.Vocab, "--ids"); err != nil {
		return err
	}
	if mtp && s.config.NextN == 0 {
		return refuse(fmt.Errorf("--mtp: the model has no MTP block"), "")
	}
	if len(ids) > s.layout.MaxPositions {
		return refuse(fmt.Errorf("--ids: %d ids, max_position_embeddings is %d", len(ids), s.layout.MaxPositions), "")
	}
	seq, err := place(len(ids))
	if err != nil {
		return err
	}
	r, err := s.engine.Force(e.ctx, seq, ids, prefill, engine.Chunk, s.config.Layers, true, mtp)
	if err != nil {
		return err
	}
	return weights.Write(f.text("out"), forcedTensors(r), map[string]string{
		"numerics": f.text("numerics"), "device": s.device,
	})
}

// forcedTensors names the results as the golden files do.
func forcedTensors(r *engine.Forced) []weights.Tensor {
	var out []weights.Tensor
	add := func(name string, shape []int, data []float32) {
		out = append(out, weights.Float32Tensor(name, shape, data))
	}
	rows := func(name string, v [][]float32) {
		if len(v) > 0 {
			add(name, []int{len(v), len(v[0])}, slices.Concat(v...))
		}
	}
	add("prefill.logits", []int{len(r.PrefillLogits)}, r.PrefillLogits)
	rows("decode.logits", r.DecodeLogits)
	for l, h := range r.Hidden {
		add(fmt.Sprintf("prefill.hidden.%d", l), r.HiddenShape, h)
	}
	if r.PrefillMTP != nil {
		add("prefill.mtp_logits", []int{len(r.PrefillMTP)}, r.PrefillMTP)
	}
	rows("decode.mtp_logits", r.DecodeMTP)
	return out
}
