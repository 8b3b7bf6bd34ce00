package emu

import (
	"fmt"
	"io"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/kiln-project/kiln/codegen/object"
)

// Counters count what launches execute, by kernel. The zero value is ready; launches
// that run one after the other or at once may share it. The numbers do not depend on
// the order of groups.
type Counters struct {
	mu      sync.Mutex
	kernels map[string]*KernelCounters
}

// KernelCounters are the sums over the launches of one kernel. Instructions are those
// of waves.
type KernelCounters struct {
	Kernel   string `json:"kernel"`
	Launches int64  `json:"launches"`
	Groups   int64  `json:"groups"`
	Waves    int64  `json:"waves"`

	Instructions int64 `json:"instructions"`
	SALU         int64 `json:"salu"`
	VALU         int64 `json:"valu"` // without matrix instructions
	MFMA         int64 `json:"mfma"`
	SMEM         int64 `json:"smem"`
	Loads        int64 `json:"vmem_loads"` // into LDS too
	Stores       int64 `json:"vmem_stores"`
	Atomics      int64 `json:"vmem_atomics"`
	LDS          int64 `json:"lds"` // exchanges between lanes too
	Branches     int64 `json:"branches"`
	Barriers     int64 `json:"barriers"`
	Waits        int64 `json:"waits"`
	Other        int64 `json:"other"`

	ActiveLanes int64 `json:"valu_active_lanes"` // summed over VALU

	// Vector accesses of global memory: the bytes that the lanes ask for, the lines of
	// 128 bytes that an instruction touches, and its rows: runs of bytes next to each
	// other, one for each place that a gather reads from. New lines are those that the
	// wave's last few accesses did not touch: a cache has the others.
	RequestedBytes int64 `json:"vmem_requested_bytes"`
	Lines          int64 `json:"vmem_lines"`
	NewLines       int64 `json:"vmem_new_lines"`
	Rows           int64 `json:"vmem_rows"`

	// LDS cycles by the model of lds_banks.go, and how many of them are repeats because
	// lanes met in a bank.
	LDSCycles    int64 `json:"lds_modelled_cycles"`
	LDSConflicts int64 `json:"lds_modelled_conflicts"`

	// Occupancy is the waves that fit on a SIMD, with the LDS of the last launch; 0 if it
	// is not known.
	Occupancy int `json:"occupancy_waves_per_simd"`
}

// lineBytes is a line of the caches.
const lineBytes = 128

// recent is how many accesses of a wave NewLines looks back to: a cache near the SIMDs has
// 256 lines on gfx942, for all waves of a compute unit.
const recent = 8

// Coalescing is the part of the lines' bytes that was asked for. Lanes that ask for the
// same bytes can bring it above 1.
func (c *KernelCounters) Coalescing() float64 { return ratio(c.RequestedBytes, lineBytes*c.Lines) }

// LineUse is Coalescing of new lines: what several accesses ask of a line counts.
func (c *KernelCounters) LineUse() float64 { return ratio(c.RequestedBytes, lineBytes*c.NewLines) }

// Active is the mean part of the lanes that is on in VALU instructions.
func (c *KernelCounters) Active() float64 { return ratio(c.ActiveLanes, Lanes*c.VALU) }

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// Kernels are the counters of all kernels that were launched, by name.
func (c *Counters) Kernels() []KernelCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []KernelCounters
	for _, name := range slices.Sorted(maps.Keys(c.kernels)) {
		list = append(list, *c.kernels[name])
	}
	return list
}

// Table writes the counters as text, a line for each kernel.
func (c *Counters) Table(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	columns := []string{"launches", "groups", "instructions", "salu", "valu", "mfma", "smem", "load", "store", "atomic", "lds", "branch", "barrier", "wait",
		"active", "bytes", "coalesced", "line use", "rows", "lds conflicts (modelled)", "waves/SIMD"}
	fmt.Fprintf(t, "%s\t kernel\n", strings.Join(columns, "\t"))
	for _, k := range c.Kernels() {
		for _, n := range []int64{k.Launches, k.Groups, k.Instructions, k.SALU, k.VALU, k.MFMA, k.SMEM, k.Loads, k.Stores, k.Atomics, k.LDS, k.Branches, k.Barriers, k.Waits} {
			fmt.Fprintf(t, "%d\t", n)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%d\t%s\t%d\t %s\n", percent(k.Active(), k.VALU), k.RequestedBytes, percent(k.Coalescing(), k.Lines), percent(k.LineUse(), k.NewLines), k.Rows,
			percent(ratio(k.LDSConflicts, k.LDSCycles), k.LDSCycles), k.Occupancy, k.Kernel)
	}
	return t.Flush()
}

// percent is a ratio of something; of nothing it is a dash.
func percent(x float64, of int64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*x)
}

// add sums up, but for the names and the occupancy.
func (c *KernelCounters) add(o *KernelCounters) {
	for i, p := range c.sums() {
		*p += *o.sums()[i]
	}
}

func (c *KernelCounters) sums() []*int64 {
	return []*int64{
		&c.Launches, &c.Groups, &c.Waves, &c.Instructions, &c.SALU, &c.VALU, &c.MFMA, &c.SMEM, &c.Loads, &c.Stores, &c.Atomics, &c.LDS, &c.Branches, &c.Barriers,
		&c.Waits, &c.Other, &c.ActiveLanes, &c.RequestedBytes, &c.Lines, &c.NewLines, &c.Rows, &c.LDSCycles, &c.LDSConflicts,
	}
}

// of is where instructions of a class are counted.
func (c *KernelCounters) of(class class) *int64 {
	switch class {
	case classSALU:
		return &c.SALU
	case classVALU:
		return &c.VALU
	case classMFMA:
		return &c.MFMA
	case classSMEM:
		return &c.SMEM
	case classLoad, classLoadLDS:
		return &c.Loads
	case classStore:
		return &c.Stores
	case classAtomic:
		return &c.Atomics
	case classLDS, classPermute:
		return &c.LDS
	case classBranch:
		return &c.Branches
	case classBarrier:
		return &c.Barriers
	case classWait, classCache:
		return &c.Waits
	}
	return &c.Other
}

// launchCounters are those of one launch.
type launchCounters struct {
	to    *Counters
	mu    sync.Mutex
	total KernelCounters
}

func (c *Counters) observer(k *Kernel, l *Launch) observer {
	x := &launchCounters{to: c, total: KernelCounters{Kernel: k.Meta.Name, Launches: 1}}
	d := k.Meta.Descriptor
	waves, ok := object.Occupancy(k.chip, object.Resources{
		VGPRs: 8 * d.VGPRGranules(), SGPRs: k.Meta.SGPRs, LDSBytes: k.Meta.LDSBytes + l.LDS, Workgroup: l.Block[0] * l.Block[1] * l.Block[2],
	})
	if ok {
		x.total.Occupancy = waves
	}
	return x
}

func (x *launchCounters) watch(*group) watcher { return &counting{to: x} }

// finish adds the launch to the kernel's counters.
func (x *launchCounters) finish(bool) {
	x.to.mu.Lock()
	defer x.to.mu.Unlock()
	if x.to.kernels == nil {
		x.to.kernels = map[string]*KernelCounters{}
	}
	sum := x.to.kernels[x.total.Kernel]
	if sum == nil {
		sum = &KernelCounters{Kernel: x.total.Kernel}
		x.to.kernels[x.total.Kernel] = sum
	}
	sum.add(&x.total)
	sum.Occupancy = x.total.Occupancy
}

// counting counts for one group.
type counting struct {
	blind
	to    *launchCounters
	n     KernelCounters
	lanes []laneAccess // of the instruction, in global memory
	banks [2]ldsAccess // of the instruction's one or two accesses, by lane
	seen  uint64       // lanes with an LDS access
	waves []lineWindow // by wave
}

// lineWindow are the lines of a wave's last accesses of global memory.
type lineWindow struct {
	lines [recent][]uint64
	next  int
}

// has reports whether one of them touched a line.
func (w *lineWindow) has(line uint64) bool {
	for _, list := range w.lines {
		if _, ok := slices.BinarySearch(list, line); ok {
			return true
		}
	}
	return false
}

type laneAccess struct{ address, size uint64 }

func (x *counting) start(g *group) {
	x.n = KernelCounters{Groups: 1, Waves: int64(len(g.waves))}
	x.waves = make([]lineWindow, len(g.waves))
}

func (x *counting) end(*group) {
	x.to.mu.Lock()
	defer x.to.mu.Unlock()
	x.to.total.add(&x.n)
}

func (x *counting) before(w *wave, at int) {
	c := w.group.k.uses[at].class
	x.n.Instructions++
	*x.n.of(c)++
	if c == classVALU {
		x.n.ActiveLanes += int64(bits.OnesCount64(w.exec()))
	}
	x.lanes, x.seen = x.lanes[:0], 0
	x.banks[0].lanes, x.banks[1].lanes = 0, 0
}

func (x *counting) access(_ *wave, _ *Inst, lane int, address, size uint64, _ accessKind) {
	if lane >= 0 {
		x.lanes = append(x.lanes, laneAccess{address, size})
	}
}

func (x *counting) lds(_ *wave, _ *Inst, lane int, offset, size uint32, kind accessKind) {
	b := &x.banks[x.seen>>lane&1]
	x.seen |= 1 << lane
	b.lanes |= 1 << lane
	b.offset[lane], b.size, b.write = offset, size, kind != accessRead
}

func (x *counting) after(w *wave, _ int) {
	if len(x.lanes) > 0 {
		x.coalesce(&x.waves[w.id])
	}
	for i := range x.banks {
		if b := &x.banks[i]; b.lanes != 0 {
			cycles, conflicts := b.cycles()
			x.n.LDSCycles += int64(cycles)
			x.n.LDSConflicts += int64(conflicts)
		}
	}
}

// coalesce counts the lines and rows of an instruction's accesses.
func (x *counting) coalesce(w *lineWindow) {
	slices.SortFunc(x.lanes, func(a, b laneAccess) int {
		switch {
		case a.address < b.address:
			return -1
		case a.address > b.address:
			return 1
		}
		return int(a.size) - int(b.size)
	})
	end, nextLine := uint64(0), uint64(0) // of what has been counted
	touched := make([]uint64, 0, len(x.lanes))
	for i, a := range x.lanes {
		x.n.RequestedBytes += int64(a.size)
		if i == 0 || a.address > end {
			x.n.Rows++
		}
		end = max(end, a.address+a.size)
		first, last := a.address/lineBytes, (a.address+a.size-1)/lineBytes
		if i > 0 {
			first = max(first, nextLine)
		}
		for line := first; line <= last; line++ {
			x.n.Lines++
			if !w.has(line) {
				x.n.NewLines++
			}
			touched, nextLine = append(touched, line), line+1
		}
	}
	w.lines[w.next%recent] = touched
	w.next++
}
