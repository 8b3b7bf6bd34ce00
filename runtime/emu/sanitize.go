package emu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Checks is a set of sanitizers.
type Checks uint8

// The sanitizers. What each of them finds stands at the top of its file.
const (
	CheckMemory  Checks = 1 << iota // sanitize_memory.go
	CheckRace                       // sanitize_race.go
	CheckUninit                     // sanitize_uninit.go
	CheckWaitcnt                    // sanitize_waitcnt.go

	CheckAll = CheckMemory | CheckRace | CheckUninit | CheckWaitcnt
)

var checkNames = []string{"memory", "race", "uninit", "waitcnt"}

// ParseChecks parses a list such as "memory,race"; "all" is all of them.
func ParseChecks(list string) (Checks, error) {
	set := Checks(0)
	for name := range strings.SplitSeq(list, ",") {
		i := slices.Index(checkNames, name)
		switch {
		case name == "all":
			set = CheckAll
		case i >= 0:
			set |= 1 << i
		default:
			return 0, fmt.Errorf("unknown sanitizer %q: there are %s and all", name, strings.Join(checkNames, ", "))
		}
	}
	return set, nil
}

func (c Checks) String() string {
	var names []string
	for i, name := range checkNames {
		if c>>i&1 != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// Mode is what a launch does with a buffer.
type Mode uint8

// The modes; they can be joined.
const (
	ModeRead Mode = 1 << iota
	// ModeWrite allows writes and atomics. Without ModeRead what the launch has written
	// may be read.
	ModeWrite
)

// Buffer is memory that is meant for a launch.
type Buffer struct {
	Address, Bytes uint64
	Mode           Mode
	Label          string // names it in reports: a slice, an argument
	// Undefined says that what the buffer holds when the launch starts means nothing.
	Undefined bool
}

// Sanitize asks a launch for checks. With any of them registers, LDS and scratch
// memory start as poison, so that results change when they are used as they are.
type Sanitize struct {
	Checks Checks
	// Buffers are all that the launch may touch, beside its arguments and its code.
	// They may overlap: an access is fine if one of them allows it. Between buffers the
	// caller leaves red zones. nil allows all memory of the launch.
	Buffers []Buffer
	// Shadow knows what of the memory is undefined, from launch to launch. nil is a new
	// one: all memory is defined but the buffers that are marked.
	Shadow *Shadow
	// Limit is how many reports an error carries; 0 is 20.
	Limit int
	// Op and Layer name the launch in reports.
	Op, Layer string
}

// poison is what registers and LDS hold at first: a NaN as f32 and in both halves as
// bf16, no address, and a large integer.
const poison = 0x7fd5ffd5

// Report is a defect that a sanitizer found. There is one for each instruction of a
// kernel and kind: that of the first work-group by index, at its first occurrence.
type Report struct {
	Check   Checks
	Kind    string // of the defect, such as "out of bounds"
	Kernel  string // "" if it is the host that reads
	Offset  uint64 // of the instruction, from the kernel's first byte
	Text    string // of the instruction
	Group   [3]int // work-group
	Wave    int
	Lane    int    // -1: the scalar unit, or no one lane
	Address uint64 // device address, or offset in LDS or scratch memory; 0 if none is concerned
	Detail  string
	Op      string // as Sanitize names the launch
	Layer   string
	Count   int // occurrences in the launch, by lane where a lane is named
}

func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %s: ", r.Check, r.Kind)
	if r.Kernel == "" {
		return b.String() + r.Detail
	}
	fmt.Fprintf(&b, "kernel %s+0x%x: %s: work-group %v, wave %d", r.Kernel, r.Offset, r.Text, r.Group, r.Wave)
	if r.Lane >= 0 {
		fmt.Fprintf(&b, ", lane %d", r.Lane)
	}
	fmt.Fprintf(&b, ": %s", r.Detail)
	if r.Op != "" {
		fmt.Fprintf(&b, "; op %s", r.Op)
	}
	if r.Layer != "" {
		fmt.Fprintf(&b, "; layer %s", r.Layer)
	}
	if r.Count > 1 {
		fmt.Fprintf(&b, " (%d times)", r.Count)
	}
	return b.String()
}

// SanitizerError is the error of a launch with reports. They are ordered by the
// instruction's offset and by kind.
type SanitizerError struct {
	Reports []Report
	Omitted int // reports over the limit
}

func (e *SanitizerError) Error() string {
	var b strings.Builder
	for i, r := range e.Reports {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(r.String())
	}
	if e.Omitted > 0 {
		fmt.Fprintf(&b, "\n%d more reports", e.Omitted)
	}
	return b.String()
}

// collector gathers the reports of a launch.
type collector struct {
	k  *Kernel
	l  *Launch
	mu sync.Mutex
	// finishing is set once all groups have ended.
	finishing bool
	reports   map[reportKey]*collected
}

type reportKey struct {
	at   int
	kind string
}

type collected struct {
	Report
	group int64
}

// report adds a defect at an instruction that a wave is about to execute.
func (c *collector) report(check Checks, kind string, w *wave, at, lane int, address uint64, format string, args ...any) {
	c.reportAt(check, kind, site{w.group.index(), w.group.id, w.id, at, lane}, address, format, args...)
}

// site is who executes an instruction: at is its index.
type site struct {
	group          int64
	id             [3]int
	wave, at, lane int
}

// reportAt adds a defect. Of those with the same instruction and kind the one with
// the lowest group stays, then that with the lowest wave, lane and address if they
// come from finish, else the first.
func (c *collector) reportAt(check Checks, kind string, p site, address uint64, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := reportKey{p.at, kind}
	r, count := c.reports[key], 1
	if r != nil {
		if r.group < p.group || r.group == p.group && (!c.finishing || !p.before(address, r)) {
			r.Count++
			return
		}
		count += r.Count
	}
	in := c.k.insts[p.at]
	c.reports[key] = &collected{Report{
		Check: check, Kind: kind, Kernel: c.k.Meta.Name, Offset: in.Offset, Text: in.Text, Group: p.id, Wave: p.wave, Lane: p.lane, Address: address,
		Detail: fmt.Sprintf(format, args...), Op: c.l.Sanitize.Op, Layer: c.l.Sanitize.Layer, Count: count,
	}, p.group}
}

// before orders reports of one group that are found in no order.
func (p site) before(address uint64, r *collected) bool {
	return cmp.Or(cmp.Compare(p.wave, r.Wave), cmp.Compare(p.lane, r.Lane), cmp.Compare(address, r.Address)) < 0
}

// err is nil if there are no reports.
func (c *collector) err() error {
	if len(c.reports) == 0 {
		return nil
	}
	e := &SanitizerError{}
	for _, r := range c.reports {
		e.Reports = append(e.Reports, r.Report)
	}
	slices.SortFunc(e.Reports, func(a, b Report) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Check, b.Check), cmp.Compare(a.Kind, b.Kind))
	})
	limit := c.l.Sanitize.Limit
	if limit <= 0 {
		limit = 20
	}
	if n := len(e.Reports); n > limit {
		e.Reports, e.Omitted = e.Reports[:limit], n-limit
	}
	return e
}

// observers are the sanitizers asked for.
func (s *Sanitize) observers(k *Kernel, l *Launch) []observer {
	l.reports = &collector{k: k, l: l, reports: map[reportKey]*collected{}}
	var all []observer
	if s.Checks&CheckMemory != 0 {
		all = append(all, newMemorySanitizer(l.reports, s))
	}
	if s.Checks&CheckRace != 0 {
		all = append(all, newRaceSanitizer(l.reports, s))
	}
	if s.Checks&CheckUninit != 0 {
		all = append(all, newUninitSanitizer(l.reports, s))
	}
	if s.Checks&CheckWaitcnt != 0 {
		all = append(all, &waitSanitizer{l.reports})
	}
	return all
}

// index is the group's place in the grid.
func (g *group) index() int64 {
	x, y := int64(g.launch.Grid[0]), int64(g.launch.Grid[1])
	return int64(g.id[0]) + x*(int64(g.id[1])+y*int64(g.id[2]))
}
