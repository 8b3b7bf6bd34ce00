package device

import (
	"context"
	"fmt"
	"runtime"

	"github.com/kiln-project/kiln/ir/eval"
)

// filler does the jobs of a batch.
type filler struct {
	l    *loader
	ctx  context.Context
	slot int // being filled; -1: none
	used int64
	out  filled
}

// job does a job. Pages of a mapped file that cannot be read are an error, not the end
// of the process.
func (w *filler) job(j *loadJob) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			err = fmt.Errorf("the checkpoint cannot be read any more: it was cut short, or its disk failed (%w)", r)
		default:
			panic(r)
		}
	}()
	var t *eval.Tensor
	if j.Make != nil {
		if !w.l.budget.take(w.ctx, j.Host) {
			return errStopped
		}
		defer w.l.budget.give(j.Host)
		if t, err = j.Make(); err != nil {
			return err
		}
	}
	to := &w.l.weights[j.weight]
	for part, size := range j.Size {
		for at := int64(0); at < size; {
			dst, err := w.room(to, part, j.Base[part]+at, size-at)
			if err != nil {
				return err
			}
			n := int64(len(dst))
			switch {
			case t == nil:
				copy(dst, j.Copy[part][at:])
			case part == 1:
				copy(dst, t.Scales[at:])
			default:
				per := t.DType.Bits()
				if err := t.Part(int(at*8)/per, int((at+n)*8)/per).Encode(dst); err != nil {
					return err
				}
			}
			if err := finite(to.memory.typ, part, j.Base[part]+at, dst); err != nil {
				return err
			}
			at += n
		}
	}
	j.Behind()
	return nil
}

// room is where the next bytes of a weight go, up to n: its memory, or a slot. All but
// the last of a job are a multiple of transferAlign.
func (w *filler) room(to *loading, part int, offset, n int64) ([]byte, error) {
	if err := w.ctx.Err(); err != nil {
		return nil, errStopped
	}
	if w.l.ring == nil {
		n = min(n, slotBytes)
		w.out.bytes += n
		return to.direct[part][offset:][:n], nil
	}
	if w.slot >= 0 && int64(len(w.l.ring.Slot(w.slot)))-w.used < min(n, transferAlign) {
		w.flush()
	}
	if w.slot < 0 {
		select {
		case w.slot = <-w.l.free:
		case <-w.ctx.Done():
			return nil, errStopped
		}
	}
	slot := w.l.ring.Slot(w.slot)
	from := w.used
	if left := int64(len(slot)) - from; left < n {
		n = left / transferAlign * transferAlign
	}
	w.used = (from + n + transferAlign - 1) / transferAlign * transferAlign
	w.out.list = append(w.out.list, Transfer{To: to.memory.parts[part], Offset: offset, From: from, Bytes: n})
	w.out.bytes += n
	return slot[from:][:n], nil
}

// flush passes on what is done.
func (w *filler) flush() {
	if w.out.bytes > 0 || w.slot >= 0 {
		w.out.slot = w.slot
		w.l.filled <- w.out
	}
	w.slot, w.used, w.out = -1, 0, filled{}
}

// abandon forgets what is not done.
func (w *filler) abandon() { w.out = filled{} }
