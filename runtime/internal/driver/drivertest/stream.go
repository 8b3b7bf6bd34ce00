package drivertest

import (
	"slices"
	"time"
)

// stream is where a capture records. Work is not queued: it is done at once.
type stream struct {
	capture *capture
}

type capture struct {
	graph   *graph
	invalid bool
}

// event has the time of its last record.
type event struct{ at time.Time }

// node is work: a kernel, or something else.
type node struct {
	launch *Launch
	do     func()
	after  []uintptr // handles of the nodes that it depends on
	handle uintptr
}

// graph is a template, exec what a stream replays: a copy of its nodes.
type (
	graph struct{ nodes []*node }
	exec  struct{ nodes []*node }
)

// fault codes of a kernel that Options.Execute could not run.
const codeKernelFault = codeIllegalAddress

// run does the work of a node.
func (f *Fake) run(n *node, inGraph bool) {
	if n.do != nil {
		n.do()
		return
	}
	l := *n.launch
	l.Graph, l.Kernarg, l.fake = inGraph, slices.Clone(n.launch.Kernarg), f
	f.launches = append(f.launches, l)
	execute := f.options.Execute
	if execute == nil {
		execute = func(l *Launch) error { _, err := l.Step(); return err }
	}
	// The device's error shows at a later call, as that of a real device does.
	if err := execute(&l); err != nil && f.lost == 0 {
		f.lost = codeKernelFault
	}
}

// submit gives work to a stream: it is done, or recorded.
func (f *Fake) submit(call string, handle uintptr, n *node) int32 {
	s, ok := get[*stream](f, call, handle)
	switch {
	case !ok:
		return codeInvalidHandle
	case s.capture == nil:
		f.run(n, false)
	case s.capture.invalid:
		return codeCaptureInvalidated
	default:
		if f.dropped--; f.dropped == 0 {
			return 0
		}
		g := s.capture.graph
		if len(g.nodes) > 0 {
			n.after = []uintptr{g.nodes[len(g.nodes)-1].handle}
		}
		f.add(g, n)
	}
	return 0
}

func (f *Fake) add(g *graph, n *node) {
	n.handle = f.put(n)
	g.nodes = append(g.nodes, n)
}

// invalidate breaks every capture off.
func (f *Fake) invalidate() (any bool) {
	for _, h := range sortedKeys(f.handles) {
		if s, ok := f.handles[h].(*stream); ok && s.capture != nil {
			s.capture.invalid, any = true, true
		}
	}
	return any
}

// forbidden is the code of a call that breaks captures off, 0 if there is none.
func (f *Fake) forbidden(code int32) int32 {
	if f.invalidate() {
		return code
	}
	return 0
}

func (c *callbacks) HipStreamCreateWithFlags(to, flags uintptr) int32 {
	*wordAt(to) = c.fake.put(&stream{})
	return 0
}

func (c *callbacks) HipStreamDestroy(handle uintptr) int32 {
	if _, ok := get[*stream](c.fake, "hipStreamDestroy", handle); !ok {
		return codeInvalidHandle
	}
	delete(c.fake.handles, handle)
	return 0
}

// wait is for everything, so any capture breaks off. A fault of a kernel that ran
// is found here.
func (c *callbacks) wait() int32 {
	if code := c.fake.forbidden(codeCaptureUnsupported); code != 0 {
		return code
	}
	return int32(c.fake.lost)
}

func (c *callbacks) HipStreamSynchronize(handle uintptr) int32 {
	if handle != 0 { // the null stream is there in any case
		if _, ok := get[*stream](c.fake, "hipStreamSynchronize", handle); !ok {
			return codeInvalidHandle
		}
	}
	return c.wait()
}

func (c *callbacks) HipStreamWaitEvent(handle, e, flags uintptr) int32 {
	_, isStream := get[*stream](c.fake, "hipStreamWaitEvent", handle)
	_, isEvent := get[*event](c.fake, "hipStreamWaitEvent", e)
	if !isStream || !isEvent {
		return codeInvalidHandle
	}
	return 0
}

func (c *callbacks) HipEventCreateWithFlags(to, flags uintptr) int32 {
	*wordAt(to) = c.fake.put(&event{})
	return 0
}

func (c *callbacks) HipEventDestroy(handle uintptr) int32 {
	if _, ok := get[*event](c.fake, "hipEventDestroy", handle); !ok {
		return codeInvalidHandle
	}
	delete(c.fake.handles, handle)
	return 0
}

func (c *callbacks) HipEventRecord(handle, on uintptr) int32 {
	e, isEvent := get[*event](c.fake, "hipEventRecord", handle)
	_, isStream := get[*stream](c.fake, "hipEventRecord", on)
	if !isStream || !isEvent {
		return codeInvalidHandle
	}
	e.at = time.Now()
	return 0
}

func (c *callbacks) HipEventSynchronize(handle uintptr) int32 {
	if _, ok := get[*event](c.fake, "hipEventSynchronize", handle); !ok {
		return codeInvalidHandle
	}
	return c.wait()
}

func (c *callbacks) HipEventElapsedTime(to, from, until uintptr) int32 {
	a, ok := get[*event](c.fake, "hipEventElapsedTime", from)
	b, also := get[*event](c.fake, "hipEventElapsedTime", until)
	if !ok || !also || a.at.IsZero() || b.at.IsZero() {
		return codeInvalidHandle
	}
	*(*float32)(pointerTo(to)) = float32(b.at.Sub(a.at).Seconds() * 1e3)
	return 0
}
