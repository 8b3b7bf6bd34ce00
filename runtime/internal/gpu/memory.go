package gpu

import (
	"fmt"

	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/internal/driver"
)

// memory is a block on the device.
type memory struct {
	d      *Device
	buffer *driver.Buffer
	size   int64 // what was asked for: a buffer has a byte at least
}

// Alloc implements device.Device. Drivers align to 256 bytes.
func (d *Device) Alloc(bytes int64) (device.Memory, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("allocating %d bytes", bytes)
	}
	b, err := d.Allocate(max(bytes, 1))
	if err != nil {
		return nil, err
	}
	return &memory{d, b, bytes}, nil
}

// Address implements device.Memory.
func (m *memory) Address() uint64 { return m.buffer.Address() }

// Size implements device.Memory.
func (m *memory) Size() int64 { return m.size }

// Bytes implements device.Memory: there are none here.
func (m *memory) Bytes() []byte { return nil }

// within checks a range.
func (m *memory) within(offset int64, n int) error {
	if offset < 0 || offset > m.size-int64(n) {
		return fmt.Errorf("bytes %d..%d of a block of %d", offset, offset+int64(n), m.size)
	}
	return nil
}

// Write implements device.Memory.
func (m *memory) Write(offset int64, src []byte) error {
	if err := m.within(offset, len(src)); err != nil {
		return err
	}
	if err := m.d.Answers(); err != nil {
		return err
	}
	for len(src) > 0 {
		from, n, err := m.d.stage(src)
		if err != nil {
			return err
		}
		m.d.pending = append(m.d.pending, write{m.buffer, offset, from, n})
		offset, src = offset+n, src[n:]
	}
	return nil
}

// Read implements device.Memory.
func (m *memory) Read(offset int64, dst []byte) error {
	if err := m.within(offset, len(dst)); err != nil {
		return err
	}
	d := m.d
	return d.DoWithin(d.opts.Watchdog, func() error {
		all := d.staging.Bytes()
		for first := true; first || len(dst) > 0; first = false {
			from := d.used
			if from == int64(len(all)) || from > 0 && int64(len(dst)) > int64(len(all))-from {
				if err := d.wait(); err != nil {
					return err
				}
				from = 0
			}
			n := min(int64(len(dst)), int64(len(all))-from)
			if err := d.flush(); err != nil {
				return err
			}
			if err := d.stream.Download(d.staging, from, m.buffer, offset, n); err != nil {
				return err
			}
			if err := d.wait(); err != nil {
				return err
			}
			copy(dst, all[from:][:n])
			offset, dst = offset+n, dst[n:]
		}
		return nil
	})
}

// Zero implements device.Memory.
func (m *memory) Zero() error {
	return m.d.DoWithin(m.d.opts.Watchdog, func() error {
		if err := m.d.flush(); err != nil {
			return err
		}
		return m.d.stream.Fill(m.buffer, 0, m.size, 0)
	})
}

// Free implements device.Memory.
func (m *memory) Free() error {
	err := m.d.Sync()
	if e := m.buffer.Close(); err == nil {
		err = e
	}
	return err
}
