package cuda

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/gpu"
)

// What runs plans on a GPU: see package gpu.
type (
	PlanDevice  = gpu.Device
	PlanOptions = gpu.Options
	CodeCache   = gpu.CodeCache
)

// ParseGraph, ParseBuild and ParseOverlap read options of PlanOptions; "" is the default.
var (
	ParseGraph   = gpu.ParseGraph
	ParseBuild   = gpu.ParseBuild
	ParseOverlap = gpu.ParseOverlap
)

// OpenForPlans makes an open GPU a device of plans, which closes it; it is closed
// also when this fails.
func OpenForPlans(d *Device, o PlanOptions) (*PlanDevice, error) {
	load := func(d *driver.Device, ptx []byte, names []string) (*driver.Module, []gpu.Kernel, error) {
		return loadKernels(d, ptx, names, o.Code)
	}
	return gpu.New(d, gpu.Vendor{Name: "cuda", Chip: d.Info().Target, Load: load}, o)
}

// loadKernels loads PTX text and finds kernels in it. What they take is read from
// the text: the driver does not tell.
func loadKernels(d *driver.Device, ptx []byte, names []string, cache CodeCache) (*driver.Module, []gpu.Kernel, error) {
	const label = "kernels.ptx"
	text, err := object.ReadPTX(ptx)
	if err != nil {
		return nil, nil, fmt.Errorf("module %s: %w: %w", label, ErrWrongImage, err)
	}
	if len(text.Undefined) > 0 {
		return nil, nil, fmt.Errorf("module %s: %w: undefined %s", label, ErrWrongImage, strings.Join(text.Undefined, ", "))
	}
	m, err := LoadCached(d, label, ptx, cache)
	if err != nil {
		return nil, nil, err
	}
	kernels := make([]gpu.Kernel, len(names))
	for i, name := range names {
		if kernels[i], err = findKernel(m, text, name); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("module %s: %w", label, err), m.Close())
		}
	}
	return m, kernels, nil
}

func findKernel(m *Module, text *object.PTX, name string) (gpu.Kernel, error) {
	e, err := text.Entry(name)
	if err != nil {
		return gpu.Kernel{}, err
	}
	k := gpu.Kernel{Block: e.Block, Pool: e.Pool, Waits: e.Waits}
	end := 0
	for _, p := range e.Params { // each aligned to its size (PTX ISA, "Kernel Function Parameters")
		at := (end + p.Bytes - 1) / p.Bytes * p.Bytes
		k.Params = append(k.Params, Param{Offset: at, Size: p.Bytes})
		end = at + p.Bytes
	}
	k.Function, err = m.Function(name)
	return k, err
}

// Runs lists which of some targets a device executes, the one with the most of its
// instructions first. Code for one compute capability runs on newer ones; sm_90a, the
// instructions of one chip alone, on that only.
func Runs(device string, targets []string) []string {
	have, _ := capability(device)
	runs := slices.DeleteFunc(slices.Clone(targets), func(t string) bool {
		n, exact := capability(t)
		return n == 0 || n > have || exact && n != have
	})
	slices.SortStableFunc(runs, func(a, b string) int {
		n, exact := capability(a)
		m, other := capability(b)
		switch {
		case n != m:
			return m - n
		case exact && !other:
			return -1
		case other && !exact:
			return 1
		}
		return 0
	})
	return runs
}

var capabilityName = regexp.MustCompile(`^sm_([1-9][0-9]{1,3})(a?)$`)

// capability reads the name of a target; 0 is another vendor's.
func capability(t string) (n int, exact bool) {
	part := capabilityName.FindStringSubmatch(t)
	if part == nil {
		return 0, false
	}
	n, _ = strconv.Atoi(part[1]) // digits, few of them
	return n, part[2] != ""
}
