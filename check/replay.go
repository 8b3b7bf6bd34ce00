package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/cuda"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
)

const (
	// replaySteps are decode steps of one request: each reads what the one before wrote.
	replaySteps = 4
	// replayPools is how large pools may be to be compared whole; larger ones show in the
	// outputs of later steps only.
	replayPools = 256 << 20
)

// Replays runs the smallest decode step of an executor several times as a graph and
// several times launch by launch, over pools of its own, and says where they differ in a
// bit, or how replays fail, or "". Without graphs there is nothing to compare.
func Replays(ctx context.Context, x *device.Executor, l engine.Layout) (why string, err error) {
	r := x.Replayer()
	if r == nil || !r.Graphs() {
		return "", nil
	}
	graph, err := decodeSteps(ctx, x, l)
	if fault, ok := beside(ctx, err); ok {
		return "replayed as a graph, a decode step fails: " + fault, nil
	}
	if err != nil {
		return "", fmt.Errorf("as a graph: %w", err)
	}
	r.SetGraphs(false)
	defer r.SetGraphs(true)
	eager, err := decodeSteps(ctx, x, l)
	if err != nil {
		return "", fmt.Errorf("launch by launch: %w", err)
	}
	for i := range eager {
		for _, name := range slices.Sorted(maps.Keys(eager[i])) {
			if !eager[i][name].SameBits(graph[i][name]) {
				return fmt.Sprintf("decode step %d: %s differs from that of the same launches one by one", i, name), nil
			}
		}
	}
	return "", nil
}

// beside tells of an error that the device has outlived, which another way to run may
// not have.
func beside(ctx context.Context, err error) (fault string, ok bool) {
	if err == nil || ctx.Err() != nil || errors.Is(err, cuda.ErrDeviceLost) || errors.Is(err, cuda.ErrStuck) || errors.Is(err, cuda.ErrOutOfMemory) { // HIP's are the same
		return "", false
	}
	return err.Error(), true
}

// decodeSteps are the outputs of the steps, and with the last one the pools.
func decodeSteps(ctx context.Context, x *device.Executor, l engine.Layout) (steps []map[string]*eval.Tensor, err error) {
	shape, bind, err := x.Smallest("decode")
	if err != nil {
		return nil, err
	}
	made, err := x.NewState("decode", bind)
	if err != nil {
		return nil, err
	}
	state := made.(*device.State)
	defer func() { err = errors.Join(err, state.Close()) }()
	seq := &engine.Seq{Pages: make([]int, l.Pages(replaySteps))}
	for i := range seq.Pages {
		seq.Pages[i] = i
	}
	for i := range min(replaySteps, l.MaxPositions) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		in, err := engine.Metadata(l, []engine.Feed{{Seq: seq, IDs: []int32{int32((i + 1) % l.Vocab)}, Out: []int{0}}}, shape)
		if err != nil {
			return nil, err
		}
		out, err := x.Run("decode", bind, in, state)
		if err != nil {
			return nil, err
		}
		steps = append(steps, out)
		seq.Len++
	}
	if state.Size() <= replayPools {
		for _, name := range state.Names() {
			pool, err := state.Pool(name)
			if err != nil {
				return nil, err
			}
			steps[len(steps)-1]["pool "+name] = pool
		}
	}
	return steps, nil
}
