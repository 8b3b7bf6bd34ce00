package codegen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/target"
)

// Version enters every cache key: raise it when equal IR may compile
// differently.
const Version = "3"

// Compiled is a unit's code object.
type Compiled struct {
	Object []byte // a shared object for the host, an HSA code object for an AMD GPU, PTX text; empty without kernels
	Stats  Stats
}

// Stats say what compiling cost.
type Stats struct {
	Plans    int
	Kernels  int
	Cached   int           // taken from the cache
	Passes   time.Duration // those on graphs, if BuildFrom ran them
	Lowering time.Duration // the passes on steps: selection, LLVM IR, memory
	LLVM     time.Duration
	Link     time.Duration
	Sides    time.Duration // what is beside the plans, but for what was done while LLVM was at work on those
	WholeHit bool          // the plans too
	// Choices of the plans, and how many of them the target's table did not make.
	Choices, Modelled int
}

// CodeObjectVersions are the versions that code objects can have, the default
// first: 6 needs a recent ROCm.
var CodeObjectVersions = []int{llvm.CodeObjectV5 / 100, llvm.CodeObjectV6 / 100}

// Compiler turns units into code objects.
type Compiler struct {
	Tools *llvm.Toolchain
	LLVM  llvm.Compiler
	Cache *Cache // nil: none
	// CodeObjectVersion is that of AMDGPU code objects, one of CodeObjectVersions;
	// 0 is the first of them. Other targets have none.
	CodeObjectVersion int
	// Disable are kernel forms that must not be chosen.
	Disable []string
	// Sides are what Build compiles beside the plans.
	Sides Sides
	// Seed, if not 0, has kernels compiled in a random order by a random number of
	// workers: the code must not depend on it.
	Seed uint64
	// Progress, if set, hears how many of how many kernels are done.
	Progress func(done, total int)

	ahead *ahead // of a build: objects that were begun before their unit was complete
}

// optPasses is the pass pipeline: kernels keep their variables in memory and
// rely on it to make registers of them.
const optPasses = "default<O3>"

// Compile compiles and links every kernel of u. For a GPU it adds those around the
// launches of a step.
func (c *Compiler) Compile(ctx context.Context, u *Unit) (*Compiled, error) {
	err := u.AddAround()
	if err == nil {
		err = u.settleAll()
	}
	if err != nil {
		return nil, err
	}
	t := u.Target
	out := &Compiled{Stats: Stats{Kernels: len(u.Kernels)}}
	if len(u.Kernels) == 0 { // a graph that only passes its inputs on
		return out, nil
	}
	version := c.version(t)
	keys := make([]string, len(u.Kernels))
	all := []string{"link", Version, c.Tools.ID(), t.Name, strconv.Itoa(version)}
	for i, k := range u.Kernels {
		keys[i] = c.kernelKey(t, version, k)
		all = append(all, keys[i])
	}
	linkKey := cacheKey(all...)
	if obj, ok := c.Cache.Get(linkKey); ok {
		out.Object, out.Stats.Cached = obj, len(u.Kernels)
		return out, nil
	}
	start := time.Now()
	objs, cached, err := c.objects(ctx, u, llvm.Object, version, keys)
	if err != nil {
		return nil, err
	}
	out.Stats.Cached, out.Stats.LLVM = cached, time.Since(start)
	start = time.Now()
	switch t.Kind {
	case target.NVPTX: // text, which the driver compiles
		if out.Object, err = object.JoinPTX(objs); err == nil {
			err = checkPTX(out.Object, u)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
	default:
		if out.Object, err = c.Tools.Link(ctx, t.Name, objs); err != nil {
			return nil, err
		}
	}
	if t.Kind == target.AMDGPU {
		if out.Object, err = readBack(out.Object, t.ID, version); err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
	}
	out.Stats.Link = time.Since(start)
	return out, c.Cache.Put(linkKey, out.Object)
}

// kernelKey is the key of a kernel's object in the cache.
func (c *Compiler) kernelKey(t *target.Target, version int, k *Kernel) string {
	return cacheKey("kernel", Version, c.Tools.ID(), t.Triple, t.CPU, t.Features, strconv.Itoa(version), optPasses, k.IR)
}

// version is the code object version for a target, 0 where there is none.
func (c *Compiler) version(t *target.Target) int {
	if t.Kind != target.AMDGPU {
		return 0
	}
	return cmp.Or(c.CodeObjectVersion, CodeObjectVersions[0])
}

// readBack gives a linked code object its one metadata note and looks for what
// a loader or the hardware would stumble over. A loader takes an object whose
// features are not the device's for none at all, so header and metadata must both
// say exactly what was asked for.
func readBack(code []byte, want object.TargetID, version int) ([]byte, error) {
	merged, err := object.MergeNotes(code)
	if err != nil {
		return nil, err
	}
	f, err := object.Read(merged)
	if err != nil {
		return nil, err
	}
	for _, o := range f.Objects() {
		if o.Target != want {
			return nil, fmt.Errorf("the code object's ELF header is for %s, want %s", o.Target, want)
		}
		if o.MetadataTarget != want.Triple() {
			return nil, fmt.Errorf("the code object's metadata is for %s, want %s", o.MetadataTarget, want.Triple())
		}
		if o.Version != version {
			return nil, fmt.Errorf("the code object is of version %d, want %d", o.Version, version)
		}
		if len(o.Problems) > 0 {
			return nil, fmt.Errorf("the code object has a problem: %s", o.Problems[0])
		}
		if len(o.Undefined) > 0 {
			return nil, fmt.Errorf("undefined symbol %s", o.Undefined[0])
		}
		for _, k := range o.Kernels {
			if hidden := k.HiddenArgs(); len(hidden) > 0 {
				return nil, fmt.Errorf("kernel %s has hidden argument %s", k.Name, hidden[0].ValueKind)
			}
		}
	}
	return merged, nil
}

// How much shared memory a kernel can declare, and how much it can have with what a
// launch gives (CUDA programming guide, "Compute Capabilities").
const (
	maxStaticShared = 48 << 10
	maxShared       = 227 << 10 // of 9.0
)

// checkPTX compares PTX text with the kernels that it was made of: what the driver
// would not load, or would run with other arguments.
func checkPTX(text []byte, u *Unit) error {
	p, err := object.ReadPTX(text)
	if err != nil {
		return err
	}
	if p.Target != u.Target.CPU {
		return fmt.Errorf("the PTX is for %s, want %s", p.Target, u.Target.CPU)
	}
	if len(p.Undefined) > 0 {
		return fmt.Errorf("the PTX leaves %s undefined", p.Undefined[0])
	}
	for _, k := range u.Module.Kernels {
		e, err := p.Entry(k.Symbol)
		if err != nil {
			return err
		}
		if e.Block != u.Target.Block() {
			return fmt.Errorf("kernel %s is for groups of %d work-items, want %d", k.Symbol, e.Block, u.Target.Block())
		}
		if e.Shared > maxStaticShared {
			return fmt.Errorf("kernel %s declares %d bytes of shared memory, PTX allows %d", k.Symbol, e.Shared, maxStaticShared)
		}
		declared := (e.Shared + kernel.PoolAlign - 1) / kernel.PoolAlign * kernel.PoolAlign
		if e.Pool != (k.Shared > 0) || e.Pool && declared+k.Shared > maxShared {
			return fmt.Errorf("kernel %s has %d bytes of shared memory from the launch (it uses such: %v) and declares %d, a group has %d",
				k.Symbol, k.Shared, e.Pool, e.Shared, maxShared)
		}
		if len(e.Params) != len(k.Params) {
			return fmt.Errorf("kernel %s has %d parameters, want %d", k.Symbol, len(e.Params), len(k.Params))
		}
		for i, have := range e.Params {
			if want := (object.PTXParam{Bytes: 8, Pointer: k.Params[i] != "int"}); have != want {
				return fmt.Errorf("kernel %s: parameter %d has %d bytes (address %v), want %s", k.Symbol, i, have.Bytes, have.Pointer, k.Params[i])
			}
		}
	}
	return nil
}

// objects compiles the kernels, as many at a time as there are cores. The first
// error in kernel order is reported.
func (c *Compiler) objects(parent context.Context, u *Unit, as llvm.Output, version int, keys []string) ([][]byte, int, error) {
	objs, errs := make([][]byte, len(keys)), make([]error, len(keys))
	var mu sync.Mutex
	done, cached := 0, 0
	order, workers := c.schedule(u.Kernels)
	next := make(chan int)
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(parent) // at the first error: what else was begun is of no use
	defer stop()
	for range workers {
		wg.Go(func() {
			for i := range next {
				if ctx.Err() != nil {
					continue
				}
				hit := false
				objs[i], hit, errs[i] = c.object(ctx, u.Target, u.Kernels[i], as, version, keys[i])
				if errs[i] != nil {
					stop()
				}
				mu.Lock()
				done++
				if hit {
					cached++
				}
				if c.Progress != nil {
					c.Progress(done, len(keys))
				}
				mu.Unlock()
			}
		})
	}
	for _, i := range order {
		next <- i
	}
	close(next)
	wg.Wait()
	if err := parent.Err(); err != nil {
		return nil, 0, err
	}
	for i, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, 0, fmt.Errorf("kernel %s (%s): %w", u.Kernels[i].Symbol, u.Kernels[i].Spec, err)
		}
	}
	return objs, cached, nil
}

// schedule says in which order kernels are compiled, and how many at a time: the largest
// first, so that none of them is left alone at the end.
func (c *Compiler) schedule(list []*Kernel) (order []int, workers int) {
	n := len(list)
	workers = min(runtime.GOMAXPROCS(0), n)
	if c.Seed != 0 {
		r := rand.New(rand.NewPCG(c.Seed, 0))
		return r.Perm(n), 1 + r.IntN(2*workers)
	}
	for i := range n {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(list[b].IR) - len(list[a].IR) })
	return order, workers
}

func (c *Compiler) object(ctx context.Context, t *target.Target, k *Kernel, as llvm.Output, version int, key string) ([]byte, bool, error) {
	if o := c.ahead.find(key); o != nil {
		<-o.done
		return o.code, o.cached, o.err
	}
	if obj, ok := c.Cache.Get(key); ok {
		return obj, true, nil
	}
	job := llvm.Job{
		Name: k.Symbol, IR: []byte(k.IR), Triple: t.Triple, CPU: t.CPU, Features: t.Features,
		OptPasses: optPasses, PIC: t.Kind == target.Host, Output: as, CodeObjectVersion: 100 * version,
	}
	if t.Kind == target.NVPTX {
		job.Output = llvm.Asm
	}
	r, err := c.LLVM.Compile(ctx, job)
	if err != nil {
		return nil, false, err
	}
	return r.Output, false, c.Cache.Put(key, r.Output)
}
