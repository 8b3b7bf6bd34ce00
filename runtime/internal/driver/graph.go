package driver

import (
	"errors"
	"fmt"
	"unsafe"
)

// Graph is a template: kernels and their order. Its arguments are the driver's
// copies.
type Graph struct {
	resource
	handle uintptr
}

// Exec is a graph that a stream can replay. It needs its Graph no longer.
type Exec struct {
	resource
	handle uintptr
}

func (d *Device) ownGraph(g *Graph, how string, needs ...*resource) {
	d.own(&g.resource, "graph ("+how+")", func() error { return d.try(&d.lib.fn.GraphDestroy, g.handle) }, needs...)
}

// BuildGraph makes a graph of a list of launches: a chain of kernel nodes, each
// after the one before, by an edge that says so if it overlaps. No stream takes part.
func (d *Device) BuildGraph(q *Sequence) (*Graph, error) {
	g := &Graph{}
	return made(g, d.Do(func() error {
		if err := d.usable(&q.resource); err != nil {
			return err
		}
		if err := d.try(&d.lib.fn.GraphCreate, uintptr(unsafe.Pointer(&g.handle)), 0); err != nil {
			return err
		}
		// The node before, as an array of dependencies: empty for the first.
		var last uintptr
		for i := range q.launches {
			var node uintptr
			before, overlap := min(i, 1), i > 0 && q.launches[i].Overlap
			if overlap {
				before = 0
			}
			err := d.try(&d.lib.fn.GraphAddKernel, uintptr(unsafe.Pointer(&node)), g.handle, uintptr(unsafe.Pointer(&last)), uintptr(before), q.launches[i].node)
			if err == nil && overlap {
				edge := cudaProgrammaticEdge
				err = d.try(&d.lib.fn.GraphDependAfter, g.handle, uintptr(unsafe.Pointer(&last)), uintptr(unsafe.Pointer(&node)), uintptr(unsafe.Pointer(&edge)), 1)
			}
			if err != nil {
				err = fmt.Errorf("building a graph: %w", &LaunchError{i, q.launches[i].Function.name, err})
				return errors.Join(err, d.try(&d.lib.fn.GraphDestroy, g.handle))
			}
			last = node
		}
		d.ownGraph(g, "built", q.modules...)
		return nil
	}))
}

// Of captures.
const (
	captureThreadLocal = 1 // mode: other threads may do what they like
	captureActive      = 1 // status
)

// CaptureGraph makes a graph of a list of launches by recording what a stream
// would do. It is an error if the graph does not have a node for each launch.
func (d *Device) CaptureGraph(q *Sequence) (*Graph, error) {
	return made(d.capture(q.modules, func(s *Stream) error {
		if err := d.usable(&q.resource); err != nil {
			return err
		}
		for i := range q.launches {
			if err := d.record(i, &q.launches[i], s.handle); err != nil {
				return err
			}
			if err := s.capturing(); err != nil {
				return &LaunchError{i, q.launches[i].Function.name, err}
			}
		}
		return nil
	}, func(nodes int) error {
		if nodes != len(q.launches) {
			return fmt.Errorf("%d launches were captured as %d nodes: build the graph explicitly instead", len(q.launches), nodes)
		}
		return nil
	}))
}

// Capture makes a graph of what f puts into a stream, for libraries that cannot
// describe their launches. f runs on the device's thread. It must not wait for
// work, nor allocate.
func (d *Device) Capture(f func(s *Stream) error) (*Graph, error) {
	return made(d.capture(nil, f, func(int) error { return nil }))
}

// capture records f on a stream of its own: some versions of ROCm remember a
// capture that failed for as long as its stream lives.
func (d *Device) capture(needs []*resource, f func(*Stream) error, check func(nodes int) error) (*Graph, error) {
	g := &Graph{}
	return g, d.Do(func() error {
		s, err := d.NewStream()
		if err != nil {
			return err
		}
		if err := d.try(&d.lib.fn.CaptureBegin, s.handle, captureThreadLocal); err != nil {
			return errors.Join(fmt.Errorf("capturing a graph: %w", err), s.release())
		}
		err = f(s)
		if err == nil {
			err = s.capturing()
		}
		// Ended in any case, or the stream would stay in capture. The library's
		// own report of a capture that failed is that of the first call.
		end := d.try(&d.lib.fn.CaptureEnd, s.handle, uintptr(unsafe.Pointer(&g.handle)))
		if err == nil {
			err = end
		}
		if gone := s.release(); err == nil {
			err = gone
		}
		if err == nil {
			var nodes uint64
			if err = d.try(&d.lib.fn.GraphNodes, g.handle, 0, uintptr(unsafe.Pointer(&nodes))); err == nil {
				err = check(int(nodes))
			}
		}
		if err != nil {
			err = fmt.Errorf("capturing a graph: %w", err)
			if g.handle != 0 && end == nil {
				err = errors.Join(err, d.try(&d.lib.fn.GraphDestroy, g.handle))
			}
			return err
		}
		d.ownGraph(g, "captured", needs...)
		return nil
	})
}

// capturing is an error if the capture broke off: before ROCm 7.14 the calls that
// break one report success.
func (s *Stream) capturing() error {
	d := s.device
	var status int32
	if err := d.try(&d.lib.fn.CaptureStatus, s.handle, uintptr(unsafe.Pointer(&status))); err != nil {
		return err
	}
	if status != captureActive {
		return fmt.Errorf("%s: the capture is not active any more (status %d); %s", d.lib.fn.CaptureStatus.name, status, captureRemedy[d.lib.Kind])
	}
	return nil
}

// Nodes asks the driver how many nodes the graph has.
func (g *Graph) Nodes() (int, error) {
	var n uint64
	d := g.device
	err := d.Do(func() error {
		if err := d.usable(&g.resource); err != nil {
			return err
		}
		return d.try(&d.lib.fn.GraphNodes, g.handle, 0, uintptr(unsafe.Pointer(&n)))
	})
	return int(n), err
}

// Instantiate makes the graph executable.
func (g *Graph) Instantiate() (*Exec, error) {
	e := &Exec{}
	d := g.device
	return made(e, d.Do(func() error {
		if err := d.usable(&g.resource); err != nil {
			return err
		}
		if err := d.try(&d.lib.fn.GraphInstantiate, uintptr(unsafe.Pointer(&e.handle)), g.handle, 0); err != nil {
			return fmt.Errorf("%s: %w", g.what, err)
		}
		d.own(&e.resource, "executable "+g.what, func() error { return d.try(&d.lib.fn.ExecDestroy, e.handle) }, g.resource.needs...)
		return nil
	}))
}
