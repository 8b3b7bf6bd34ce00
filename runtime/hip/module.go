package hip

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/runtime/internal/driver"
)

// Module is a code object on a device.
type Module struct {
	*driver.Module
	Object *object.CodeObject // what was loaded; its Problems did not prevent that
	label  string
}

// Load loads a code object, or the one of an offload bundle that is for the
// device. Code that the device cannot run is refused before the driver sees it;
// the error has both target IDs. The label is for errors.
func Load(d *Device, label string, data []byte) (*Module, error) {
	refuse := func(format string, args ...any) error {
		i := d.Info()
		return fmt.Errorf("module %s on device %d (%s): %w", label, i.Index, i.Name, fmt.Errorf(format, args...))
	}
	device, err := object.ParseDevice(d.Info().Target)
	if err != nil {
		return nil, refuse("%w; rocminfo prints the target ID", err)
	}
	file, err := object.Read(data)
	if err != nil {
		return nil, refuse("%w", err)
	}
	code, err := file.ForDevice(device)
	switch {
	case err != nil:
		return nil, refuse("%w: %w; compile with --target %s", ErrWrongImage, err, device)
	case len(code.Undefined) > 0:
		return nil, refuse("%w: undefined symbols %s", ErrWrongImage, strings.Join(code.Undefined, ", "))
	case code.Relocatable:
		return nil, refuse("%w: the code object for %s is not linked", ErrWrongImage, code.Target)
	}
	m, err := d.LoadModule(label, code.Data)
	if err != nil {
		return nil, err
	}
	return &Module{m, code, label}, nil
}

// Kernel is a kernel of a module and what its code object says about it.
type Kernel struct {
	*driver.Function
	Meta   *object.Kernel
	Params []Param // of the arguments that the caller gives
	bytes  int     // of these arguments
}

// Kernel finds a kernel.
func (m *Module) Kernel(name string) (*Kernel, error) {
	meta, err := m.Object.Kernel(name)
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", m.label, err)
	}
	f, err := m.Function(name)
	if err != nil {
		return nil, err
	}
	k := &Kernel{Function: f, Meta: meta}
	for _, a := range meta.Args {
		if !a.Hidden() {
			k.Params = append(k.Params, Param{Offset: a.Offset, Size: a.Size})
			k.bytes = max(k.bytes, a.Offset+a.Size)
		}
	}
	return k, nil
}

// Launch makes a launch after checking it against the code object: args is the
// argument segment up to the last argument that the caller gives, or longer.
func (k *Kernel) Launch(grid, block [3]uint32, shared uint32, args []byte) (Launch, error) {
	items := uint64(block[0]) * uint64(block[1]) * uint64(block[2])
	switch required := k.Meta.RequiredWorkgroup; {
	case len(args) < k.bytes:
		return Launch{}, fmt.Errorf("kernel %s: %d bytes of arguments, it takes %d", k.Meta.Name, len(args), k.bytes)
	case items > uint64(k.Meta.MaxWorkgroup):
		return Launch{}, fmt.Errorf("kernel %s: block %v: compiled for at most %d work-items", k.Meta.Name, block, k.Meta.MaxWorkgroup)
	case required != nil && !slices.Equal(required, []int{int(block[0]), int(block[1]), int(block[2])}):
		return Launch{}, fmt.Errorf("kernel %s: block %v: compiled for %v", k.Meta.Name, block, required)
	}
	return Launch{Function: k.Function, Grid: grid, Block: block, Shared: shared, Args: args, Params: k.Params}, nil
}
