package host

import "github.com/kiln-project/kiln/runtime/device"

// Device is this process's CPU: device.Device. All is done when a call returns.
type Device struct {
	chip string
	team *team
}

// Open starts the device; an error if Kiln has no code for this CPU.
func Open() (*Device, error) {
	chip, err := Target()
	if err != nil {
		return nil, err
	}
	return &Device{chip, newTeam()}, nil
}

// Name implements device.Device.
func (d *Device) Name() string { return "host" }

// Chip implements device.Device.
func (d *Device) Chip() string { return d.chip }

// Sync implements device.Device.
func (d *Device) Sync() error { return nil }

// Close implements device.Device.
func (d *Device) Close() error {
	d.team.close()
	return nil
}

// Alloc implements device.Device.
func (d *Device) Alloc(bytes int64) (device.Memory, error) {
	m, err := device.Map(bytes)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Load implements device.Device.
func (d *Device) Load(code []byte, kernels []string) (device.Library, error) {
	l := &library{team: d.team}
	if err := l.open(code); err != nil {
		return nil, err
	}
	for _, symbol := range kernels {
		f, err := l.kernel(symbol)
		if err != nil {
			l.Close()
			return nil, err
		}
		l.kernels = append(l.kernels, f)
	}
	return l, nil
}
