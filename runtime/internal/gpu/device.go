package gpu

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/internal/driver"
)

// Vendor is what differs between the two.
type Vendor struct {
	Name string // hip, cuda
	Chip string // of the device, as package target names it
	// Load loads code for the device and finds kernels in it.
	Load func(d *driver.Device, code []byte, kernels []string) (*driver.Module, []Kernel, error)
}

// Kernel is a kernel of loaded code with what that says about it.
type Kernel struct {
	*driver.Function
	Params []driver.Param // of the arguments that a caller gives
	Block  int            // work-items of a group, which a launch must have; 0: any number
	Pool   bool           // it uses shared memory that a launch gives
	Waits  bool           // it waits for the launch before, before it touches memory

	shared int // bytes that launches may give by now
}

// Device is an open GPU: device.Device. Like all devices it is not safe for
// concurrent use.
type Device struct {
	*driver.Device
	vendor Vendor
	opts   Options

	stream  *driver.Stream
	staging *driver.Pinned
	used    int64   // bytes of staging that copies under way may still need
	pending []write // not enqueued yet
}

var _ device.MemoryReporter = (*Device)(nil) // by package driver

// write is a copy to the device from staging.
type write struct {
	to           *driver.Buffer
	offset, from int64
	bytes        int64
}

// New makes a device of an open GPU, which it takes over, also when it fails.
func New(d *driver.Device, v Vendor, o Options) (*Device, error) {
	o.Graph, o.Build, o.Overlap = cmp.Or(o.Graph, GraphAuto), cmp.Or(o.Build, BuildExplicit), cmp.Or(o.Overlap, OverlapAuto)
	x := &Device{Device: d, vendor: v, opts: o}
	var err error
	if _, why := x.Overlaps(); o.Overlap == OverlapOn && why != nil {
		return nil, errors.Join(fmt.Errorf("overlap %s: %w", o.Overlap, why), x.Close())
	}
	if x.stream, err = d.NewStream(); err == nil {
		x.staging, err = d.AllocatePinned(cmp.Or(o.Staging, defaultStaging))
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// Name implements device.Device.
func (d *Device) Name() string { return d.vendor.Name }

// Chip implements device.Device.
func (d *Device) Chip() string { return d.vendor.Chip }

// Options are the device's, defaults filled in.
func (d *Device) Options() Options { return d.opts }

// Graphs tells whether sequences are replayed as graphs.
func (d *Device) Graphs() bool { return d.opts.Graph != GraphOff }

// Overlaps tells whether kernels of a graph that are made for it begin while the one
// before ends, and why not.
func (d *Device) Overlaps() (yes bool, why error) {
	if d.opts.Overlap == OverlapOff {
		return false, errors.New("--overlap off")
	}
	why = d.CanOverlap()
	return why == nil, why
}

// SetGraphs implements device.Replayer.
func (d *Device) SetGraphs(on bool) {
	d.opts.Graph = GraphOff
	if on {
		d.opts.Graph = GraphOn
	}
}

// Sync implements device.Device.
func (d *Device) Sync() error {
	return d.DoWithin(d.opts.Watchdog, func() error { return d.wait() })
}

// Close implements device.Device.
func (d *Device) Close() error {
	var errs []error
	if d.staging != nil {
		// Copies may be under way. With a lost device all is gone, and who lost it
		// knows.
		if err := d.Sync(); !errors.Is(err, driver.ErrDeviceLost) && !errors.Is(err, driver.ErrStuck) {
			errs = append(errs, err)
		}
		errs = append(errs, d.staging.Close())
	}
	if d.stream != nil {
		errs = append(errs, d.stream.Close())
	}
	return errors.Join(append(errs, d.Device.Close())...)
}

// wait enqueues what is pending and waits for all work, on the device's thread.
func (d *Device) wait() error {
	if err := d.flush(); err != nil {
		return err
	}
	if err := d.stream.SyncInDo(); err != nil {
		return fmt.Errorf("work on the device: %w", err)
	}
	d.used = 0
	return nil
}

// flush enqueues what is pending, on the device's thread. What cannot be enqueued is
// dropped with its error: it would fail again at what has nothing to do with it.
func (d *Device) flush() error {
	all := d.pending
	d.pending = d.pending[:0]
	for _, w := range all {
		if err := d.stream.Upload(w.to, w.offset, d.staging, w.from, w.bytes); err != nil {
			return err
		}
	}
	return nil
}

// stage copies to staging; when that is full it waits for what it holds.
func (d *Device) stage(src []byte) (from, n int64, err error) {
	all := d.staging.Bytes()
	if d.used == int64(len(all)) {
		if err := d.Sync(); err != nil {
			return 0, 0, err
		}
	}
	from = d.used
	n = int64(copy(all[from:], src))
	d.used += n
	return from, n, nil
}

// Load implements device.Device.
func (d *Device) Load(code []byte, kernels []string) (device.Library, error) {
	l := &library{d: d}
	if len(code) == 0 {
		if len(kernels) > 0 {
			return nil, fmt.Errorf("kernel %s: the library is empty", kernels[0])
		}
		return l, nil
	}
	var err error
	if l.module, l.kernels, err = d.vendor.Load(d.Device, code, kernels); err != nil {
		return nil, err
	}
	return l, nil
}
