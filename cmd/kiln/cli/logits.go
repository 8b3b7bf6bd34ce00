package cli

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/models/dsv4"
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

A bundle must have been compiled with --taps hidden.

n ids give n - prefill decode steps; the MTP block needs one id more.`

func runLogits(e *env, f *flags, _ []string) error {
	out := f.text("out")
	if err := checkOut(out); err != nil {
		return err
	}
	ids, err := readIDs(f, "ids")
	if err != nil {
		return err
	}
	prefill, mtp := f.number("prefill"), f.boolean("mtp")
	if prefill < 1 || prefill > len(ids) {
		return usagef("kiln logits --help", "--prefill is %d, want 1..%d (the number of ids)", prefill, len(ids))
	}
	if mtp && prefill == len(ids) {
		return usagef("leave --mtp out", "--mtp needs the id after the last prompt position: give more than %d ids", prefill)
	}
	progress := newProgress(e, f)
	defer progress.close()
	progress.say("loading %s", f.text("model"))
	s, place, err := openModel(e, f, true, dsv4.HeadLogits, progress)
	if err != nil {
		return err
	}
	defer func() { s.close() }()
	if err := checkVocabulary(f, ids, s.layout.Vocab, f.origins("ids")); err != nil {
		return err
	}
	if mtp && s.config.NextN == 0 {
		return refuse(fmt.Errorf("--mtp: the model has no MTP block"), "")
	}
	if len(ids) > s.layout.MaxPositions {
		return refuse(fmt.Errorf("--ids: %d ids, max_position_embeddings is %d", len(ids), s.layout.MaxPositions), fmt.Sprintf("at most %d ids", s.layout.MaxPositions))
	}
	seq, err := place(prefill, len(ids), beside{mtp: mtp})
	if err != nil {
		return err
	}
	progress.say("running %d ids", len(ids))
	r, err := s.engine.Force(e.ctx, seq, ids, prefill, 0, s.config.Layers, true, mtp)
	if err != nil {
		return err
	}
	progress.clear()
	if err := s.device.tellCounters(e.stderr); err != nil {
		return err
	}
	tensors := forcedTensors(r)
	if err := weights.Write(out, tensors, map[string]string{"numerics": string(s.numerics), "device": s.device.name}); err != nil {
		return err
	}
	err = checkWritten(out, tensors)
	if err == nil {
		return nil
	}
	// Either the device is wrong, or the weights are.
	hint := fmt.Sprintf("kiln logits --model %s --ids %s --prefill %d --device ref --out OTHER.safetensors, then kiln compare %s OTHER.safetensors", f.text("model"), f.text("ids"), prefill, out)
	if s.device.name == "ref" {
		hint = fmt.Sprintf("kiln compare %s DIR: the weights with those of another copy", f.text("model"))
	}
	return &codedError{exitFailed, err, hint}
}

// checkOut finds a file name that cannot be written before the model runs.
func checkOut(path string) error {
	if !strings.HasSuffix(path, ".safetensors") {
		return usagef("--out logits.safetensors", "--out %s: the name must end in .safetensors", path)
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return fmt.Errorf("--out %s: %w", path, err)
	}
	return nil
}

// checkWritten reports the first NaN or +Inf of the logits. The file stays, to
// look for the cause in.
func checkWritten(path string, tensors []weights.Tensor) error {
	for _, t := range tensors {
		if !strings.HasSuffix(t.Name, "logits") {
			continue
		}
		v, err := t.Float32s()
		if err != nil {
			return err
		}
		vocab := t.Shape[len(t.Shape)-1]
		for i, x := range v {
			if x != x || math.IsInf(float64(x), 1) {
				return fmt.Errorf("%s: tensor %s: row %d: logit of token %d is %v: %w", path, t.Name, i/vocab, i%vocab, x, engine.ErrUnusable)
			}
		}
	}
	return nil
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
