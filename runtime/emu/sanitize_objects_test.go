package emu

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// foreignCases are the kernels of another compiler, with what a sanitized launch of
// them takes.
func foreignCases(t *testing.T, do func(t *testing.T, k *Kernel, launch func() (Launch, *Shadow, Buffer))) {
	list := foreignObjects(t)
	slices.SortStableFunc(list, func(a, b *foreignObject) int { return strings.Compare(a.name, b.name) })
	for _, o := range list {
		t.Run(o.name+"/"+o.chip, func(t *testing.T) {
			do(t, o.k, func() (Launch, *Shadow, Buffer) {
				l, blocks := o.launch(t)
				s := &Sanitize{Checks: CheckAll, Shadow: &Shadow{}}
				var output Buffer
				for _, arg := range slices.Sorted(maps.Keys(blocks)) {
					b := o.buffer(arg, blocks[arg])
					if b.Undefined {
						output = b
					}
					s.Buffers = append(s.Buffers, b)
				}
				l.Sanitize = s
				return l, s.Shadow, output
			})
		})
	}
}

// Kernels that are right raise no alarm, and define their outputs.
func TestSanitizersOnForeignObjects(t *testing.T) {
	foreignCases(t, func(t *testing.T, k *Kernel, launch func() (Launch, *Shadow, Buffer)) {
		l, shadow, output := launch()
		l.Shuffle = 3
		if _, err := k.Run(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if at, found := shadow.Undefined(output.Address, output.Bytes); found {
			t.Errorf("byte %d of %d of %s is undefined", at-output.Address, output.Bytes, output.Label)
		}
		// Half of the output is out of bounds.
		l, _, output = launch()
		for i := range l.Sanitize.Buffers {
			if b := &l.Sanitize.Buffers[i]; b.Label == output.Label {
				b.Bytes /= 2
			}
		}
		var found *SanitizerError
		if _, err := k.Run(t.Context(), l); !errors.As(err, &found) || found.Reports[0].Kind != "out of bounds" {
			t.Errorf("half an output: %v", err)
		}
	})
}

// redundantWaits are waits of the kernels for what an earlier wait, which is executed
// too, has seen done: LLVM has to think of the paths that go around that one.
var redundantWaits = []string{
	"add/gfx942+0x298", "add/gfx942+0x2b4", "add/gfx942+0x2d0", "add/gfx950+0x298", "add/gfx950+0x2b4", "add/gfx950+0x2d0",
	"matmul_bf16/gfx942+0x31c",
}

// Without one of its waits, a kernel is reported.
func TestRemovedWaits(t *testing.T) {
	var missed []string
	total := 0
	foreignCases(t, func(t *testing.T, k *Kernel, launch func() (Launch, *Shadow, Buffer)) {
		for _, in := range k.insts {
			if in.Op != "s_waitcnt" {
				continue
			}
			total++
			args := in.Args
			in.Args = nil
			l, _, _ := launch()
			l.Sanitize.Checks = CheckWaitcnt
			_, err := k.Run(t.Context(), l)
			in.Args = args
			var found *SanitizerError
			switch {
			case err == nil:
				_, name, _ := strings.Cut(t.Name(), "/")
				missed = append(missed, fmt.Sprintf("%s+0x%x", name, in.Offset))
			case !errors.As(err, &found):
				t.Error(err)
			}
		}
	})
	if d := cmp.Diff(redundantWaits, missed); total < 60 || d != "" {
		t.Errorf("%d waits; those that are not missed (-want +got):\n%s", total, d)
	}
}
