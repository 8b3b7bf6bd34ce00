package codegen

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/passes"
)

// A launch of little work takes as long as the way to the chip and back, and a product
// of few rows ends while most of the chip waits for the last of its weights. Several that
// do not need each other's results are one launch, with a part of the grid for each:
// every group runs the code of its part, so results have the bits that they have apart.

const (
	// maxJoined bounds the groups of a joined launch: about as many as a chip holds at a
	// time, so that no part waits for another.
	maxJoined = 1024
	// maxParts bounds its parts, and so the kernel's parameters.
	maxParts = 8
	// maxJoinedRows is the largest bucket that is joined: with more rows launches are too
	// long for it to count, and what fits together differs from bucket to bucket, so that
	// each would have kernels of its own.
	maxJoinedRows = 8
)

// JoinLaunches implements passes.Backend.
func (u *Unit) JoinLaunches(s *passes.Step) error {
	l := u.steps[s]
	if l == nil {
		return fmt.Errorf("graph @%s: no kernels are selected", s.Graph.Name)
	}
	if u.Target.GPU() && rowsOf(s) <= maxJoinedRows { // a host's launches cost a call
		l.join()
	}
	return nil
}

// joining says with which launches one can be joined.
type joining uint8

const (
	apart    joining = iota
	products         // with other products: NVIDIA's, which have their groups' memory to themselves
	little           // with others of little work
)

func (l *lowerer) joining(i int) joining {
	switch e := &l.emitted[i]; {
	case e.form.Joins || e.Joins:
		return little
	case e.Flops > 0 && l.u.Target.Kind == target.NVPTX:
		return products
	}
	return apart
}

// join puts each launch that can be joined into the first one behind all that it needs.
func (l *lowerer) join() {
	l.reorder()
	var list [][]int                                                              // launches, by their parts
	wrote, used := make(map[int]int, len(l.bufs)), make(map[int]int, len(l.bufs)) // by buffer: the last of list that did
	for i := range l.launches {
		first := 0 // of list, that the launch can be part of
		for _, a := range l.args[i] {
			if a.buf < 0 {
				continue
			}
			before := wrote
			if a.mode != plan.Read {
				before = used
			}
			if at, ok := before[a.buf]; ok {
				first = max(first, at+1)
			}
		}
		at := len(list)
		for j := first; j < len(list) && l.joining(i) != apart; j++ {
			if l.fits(list[j], []int{i}) {
				at = j
				break
			}
		}
		if at == len(list) {
			list = append(list, nil)
		}
		list[at] = append(list[at], i)
		for _, a := range l.args[i] {
			if a.buf < 0 {
				continue
			}
			used[a.buf] = max(used[a.buf], at)
			if a.mode != plan.Read {
				wrote[a.buf] = max(wrote[a.buf], at)
			}
		}
	}
	l.regroup(l.delay(list))
}

// maxDelay bounds how many launches later a part runs than it could: what it reads is
// kept until then.
const maxDelay = 12

// delay has launches of little work that nothing waits for be part of a later one.
func (l *lowerer) delay(list [][]int) [][]int {
	entry := make([]int, len(l.launches)) // where of list each is
	for at, parts := range list {
		for _, p := range parts {
			entry[p] = at
		}
	}
	waiting := make([][]int, len(l.launches))
	for i, before := range l.needs() {
		for _, j := range before {
			waiting[j] = append(waiting[j], i)
		}
	}
	for at := len(list) - 1; at >= 0; at-- {
		parts, end := list[at], min(len(list), at+1+maxDelay)
		if l.joining(parts[0]) != little {
			continue
		}
		for _, p := range parts {
			for _, q := range waiting[p] {
				end = min(end, entry[q])
			}
		}
		for to := at + 1; to < end; to++ {
			if len(list[to]) > 0 && l.fits(list[to], parts) {
				for _, p := range parts {
					entry[p] = to
				}
				list[to], list[at] = append(list[to], parts...), nil
				break
			}
		}
	}
	return slices.DeleteFunc(list, func(parts []int) bool { return len(parts) == 0 })
}

// reorder has every launch that is not of little work run as early as it can, so that
// what follows from several of them comes together.
func (l *lowerer) reorder() {
	waits := make([]int, len(l.launches)) // for so many launches
	next := make([][]int, len(l.launches))
	for i, before := range l.needs() {
		waits[i] = len(before)
		for _, j := range before {
			next[j] = append(next[j], i)
		}
	}
	var ready [2][]int // those of little work, and others, in ascending order
	add := func(i int) {
		kind := 1
		if l.joining(i) == little {
			kind = 0
		}
		at, _ := slices.BinarySearch(ready[kind], i)
		ready[kind] = slices.Insert(ready[kind], at, i)
	}
	for i, n := range waits {
		if n == 0 {
			add(i)
		}
	}
	var list [][]int
	for len(ready[0])+len(ready[1]) > 0 {
		kind := 1
		if len(ready[1]) == 0 {
			kind = 0
		}
		i := ready[kind][0]
		ready[kind] = ready[kind][1:]
		list = append(list, []int{i})
		for _, j := range next[i] {
			if waits[j]--; waits[j] == 0 {
				add(j)
			}
		}
	}
	l.regroup(list)
}

// needs lists of each launch those before it that it must come after: what wrote that it
// reads or writes, and what read that it writes.
func (l *lowerer) needs() [][]int {
	wrote, read := make(map[int]int, len(l.bufs)), make(map[int][]int, len(l.bufs)) // by buffer: the last writer, and who read since
	out := make([][]int, len(l.launches))
	for i := range l.launches {
		need := func(j int) {
			if j != i && !slices.Contains(out[i], j) {
				out[i] = append(out[i], j)
			}
		}
		for _, a := range l.args[i] {
			if a.buf < 0 {
				continue
			}
			if j, ok := wrote[a.buf]; ok {
				need(j)
			}
			if a.mode != plan.Read {
				for _, j := range read[a.buf] {
					need(j)
				}
			}
		}
		for _, a := range l.args[i] {
			switch {
			case a.buf < 0:
			case a.mode == plan.Read:
				read[a.buf] = append(read[a.buf], i)
			default:
				wrote[a.buf], read[a.buf] = i, nil
			}
		}
	}
	return out
}

// fits reports whether a launch, or several of one, can become parts of one with those
// parts. One that gives shared memory and one whose kernel declares it do not fit: a group
// of the joined launch would have both.
func (l *lowerer) fits(parts, more []int) bool {
	groups := 0
	for _, list := range [][]int{parts, more} {
		for _, p := range list {
			if l.joining(p) != l.joining(more[0]) || l.emitted[p].Pooled != l.emitted[more[0]].Pooled {
				return false
			}
			groups += l.launches[p].Grid
		}
	}
	return len(parts)+len(more) <= maxParts && groups <= maxJoined
}

// regroup replaces the launches by those of list.
func (l *lowerer) regroup(list [][]int) {
	launches, args, out := make([]plan.Launch, len(list)), make([][]argRef, len(list)), make([]emitted, len(list))
	for i := range l.bufs {
		if b := &l.bufs[i]; b.last >= b.first {
			b.first, b.last = math.MaxInt, -1
		}
	}
	for at, parts := range list {
		launches[at], args[at], out[at] = l.launches[parts[0]], l.args[parts[0]], l.emitted[parts[0]]
		if len(parts) > 1 {
			launches[at], args[at], out[at] = l.joined(parts)
		}
		for _, a := range args[at] {
			if a.buf >= 0 {
				b := &l.bufs[a.buf]
				b.first, b.last = min(b.first, at), at
			}
		}
	}
	l.launches, l.args, l.emitted = launches, args, out
}

// joinedForm is that of launches with several parts.
var joinedForm = &kernels.Form{Name: "joined"}

// joined makes one launch of several.
func (l *lowerer) joined(parts []int) (plan.Launch, []argRef, emitted) {
	p := plan.Launch{Loc: l.launches[parts[0]].Loc}
	e := emitted{form: joinedForm}
	var specs []byte
	var ops []string
	bodies := make([]kernels.Launch, len(parts))
	n, ints := 0, len(parts)+1
	for _, part := range parts {
		n += len(l.args[part])
	}
	in, inArgs := l.refs.take(n+ints), l.planArgs.take(n+ints)
	var out, own []argRef
	var outArgs, ownArgs []plan.Arg
	for i, part := range parts {
		k, q := l.emitted[part], &l.launches[part]
		bodies[i] = k.Launch
		e.In, e.Out, e.Ints = append(e.In, k.In...), append(e.Out, k.Out...), append(e.Ints, k.Ints...)
		e.rejected = merge(e.rejected, k.rejected)
		a, b := len(k.In), len(k.In)+len(k.Out)
		refs := l.args[part]
		in, out, own = append(in, refs[:a]...), append(out, refs[a:b]...), append(own, refs[b:]...)
		inArgs, outArgs, ownArgs = append(inArgs, q.Args[:a]...), append(outArgs, q.Args[a:b]...), append(ownArgs, q.Args[b:]...)
		if i > 0 {
			specs = append(specs, "; "...)
		}
		specs = appendSpec(specs, k.form.Name, &k.Launch)
		ops = append(ops, q.Op)
		for _, c := range q.Choices {
			if !slices.Contains(p.Choices, c) {
				p.Choices = append(p.Choices, c)
			}
		}
		p.Grid, p.Work, p.Flops, p.Bytes = p.Grid+q.Grid, p.Work+q.Work, p.Flops+q.Flops, p.Bytes+q.Bytes
		if p.Rate == "" {
			p.Rate = q.Rate
		}
	}
	p.Op = strings.Join(ops, " & ")
	e.Name, e.Spec, e.Grid = "joined", string(specs), p.Grid
	// Behind the parts' integers stand their first groups.
	groups := 0
	for _, b := range bodies {
		e.Ints = append(e.Ints, groups)
		own, ownArgs = append(own, argRef{buf: -1}), append(ownArgs, plan.Arg{Int: int64(groups)})
		groups += b.Grid
	}
	e.Ints = append(e.Ints, groups)
	own, ownArgs = append(own, argRef{buf: -1}), append(ownArgs, plan.Arg{Int: int64(groups)})
	p.Args = append(append(inArgs, outArgs...), ownArgs...)
	e.Body = joinedBody(bodies)
	return p, append(append(in, out...), own...), e
}

// joinedBody runs in each group the body of its part.
func joinedBody(parts []kernels.Launch) func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
	return func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
		ins, outs, own := 0, 0, 0
		for _, p := range parts {
			outs += len(p.In)
			own += len(p.Ints)
		}
		starts := ints[own:]
		own = 0
		for i, p := range parts {
			bufs := append(append([]*kernel.Buf{}, b[ins:ins+len(p.In)]...), b[outs:outs+len(p.Out)]...)
			mine := ints[own : own+len(p.Ints)]
			k.Groups(starts[i], starts[i+1], bufs, mine, func(bufs []*kernel.Buf, ints []kernel.V) { p.Body(k, bufs, ints) })
			ins, outs, own = ins+len(p.In), outs+len(p.Out), own+len(p.Ints)
		}
	}
}
