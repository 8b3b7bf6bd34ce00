package main

import (
	"fmt"
	"io"
	"math"

	"github.com/kiln-project/kiln/runtime/engine"
)

// limit is how far logits of a device may lie from the evaluator's, as a part of
// the largest one: about one bf16 unit in the last place. Kernels add in another
// order, for which the op table (docs/ops.md) lets one bf16 value in 200 be off by
// a unit. That is a quarter of the noise that rounding to bf16 itself makes, by
// variance: 1/200 against 1/12; and that noise is two limits here (model_test.go).
// A wrong rule, such as attention that sees the future, is about a hundred.
const limit = 0x1p-7

// compare writes n tokens greedily on a device, feeds the evaluator the same
// tokens, and holds the logits of every step against each other.
func compare(w io.Writer, device, oracle engine.Executor, prompt string, n int) error {
	text, err := NewSession(device)
	if err != nil {
		return err
	}
	check, err := NewSession(oracle)
	if err != nil {
		return err
	}
	feed := make([]int32, len(prompt))
	for i := range prompt {
		feed[i] = int32(prompt[i])
	}
	var written []int32
	var worst float64
	for range n {
		got, err := text.Feed(feed...)
		if err != nil {
			return fmt.Errorf("%s: %w", device.Device(), err)
		}
		want, err := check.Feed(feed...)
		if err != nil {
			return fmt.Errorf("%s: %w", oracle.Device(), err)
		}
		d := difference(got, want)
		if !(d <= limit) { // NaN is beyond it too
			return fmt.Errorf("position %d: logits of %s and %s differ by %.2g of the largest, allowed %.2g",
				text.len-1, device.Device(), oracle.Device(), d, limit)
		}
		worst = max(worst, d)
		feed = []int32{engine.Argmax(got)}
		written = append(written, feed[0])
	}
	fmt.Fprintf(w, "%s after %q: tokens %v\n", device.Device(), prompt, written)
	fmt.Fprintf(w, "%s against the evaluator: logits differ by at most %.2g of the largest, allowed %.2g\n", device.Device(), worst, limit)
	return nil
}

// difference is the largest difference of two rows, as a part of b's largest value.
func difference(a, b []float32) float64 {
	var diff, size float64
	for i := range b {
		diff = max(diff, math.Abs(float64(a[i])-float64(b[i])))
		size = max(size, math.Abs(float64(b[i])))
	}
	return diff / size
}
