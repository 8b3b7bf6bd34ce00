package host

import (
	"runtime"
	"sync"

	"github.com/ebitengine/purego"
)

// splitWork is the number of element operations below which waking another
// core costs more than it saves.
const splitWork = 1 << 15

// team runs grids on all cores: the caller takes a share itself.
type team struct {
	jobs chan job
	n    int // helpers
	wg   sync.WaitGroup
}

type job struct {
	kernel, args uintptr
	from, to     int
	done         *sync.WaitGroup
}

func newTeam() *team {
	t := &team{n: runtime.GOMAXPROCS(0) - 1}
	t.jobs = make(chan job, t.n)
	for range t.n {
		t.wg.Go(func() {
			for j := range t.jobs {
				call(j.kernel, j.args, j.from, j.to)
				j.done.Done()
			}
		})
	}
	return t
}

func (t *team) close() {
	close(t.jobs)
	t.wg.Wait()
}

func call(kernel, args uintptr, from, to int) {
	purego.SyscallN(kernel, args, uintptr(from), uintptr(to))
}

// run executes groups 0..grid-1. A group's result does not depend on who runs it.
func (t *team) run(kernel, args uintptr, grid int, work int64) {
	shares := min(t.n+1, grid)
	if shares < 2 || work < splitWork {
		call(kernel, args, 0, grid)
		return
	}
	var done sync.WaitGroup
	done.Add(shares - 1)
	for i := 1; i < shares; i++ {
		t.jobs <- job{kernel, args, grid * i / shares, grid * (i + 1) / shares, &done}
	}
	call(kernel, args, 0, grid/shares)
	done.Wait()
}
