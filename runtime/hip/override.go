package hip

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// OverrideWarning explains HSA_OVERRIDE_GFX_VERSION, which makes the runtime take
// each GPU for another chip. value is the variable's, "" if it is not set, and then
// there is nothing to say. topology is where the kernel lists the chips that are
// really there (/sys/class/kfd/kfd/topology); nil if that is not known. A value
// that the runtime would not understand is an error.
func OverrideWarning(value string, topology fs.FS) (string, error) {
	if value == "" {
		return "", nil
	}
	claimed, err := overrideChip(value)
	if err != nil {
		return "", err
	}
	var chips []string
	if topology != nil {
		if chips, err = topologyChips(topology); err != nil {
			return "", err
		}
	}
	truth := "an unknown chip"
	if len(chips) > 0 {
		truth = strings.Join(chips, ", ")
	}
	if len(chips) == 1 && chips[0] == claimed {
		return fmt.Sprintf("HSA_OVERRIDE_GFX_VERSION=%s is set and changes nothing: the GPU is %s", value, claimed), nil
	}
	return fmt.Sprintf("HSA_OVERRIDE_GFX_VERSION=%s makes %s claim to be %s: code for %s runs on it, and may give wrong results or hang; unset it to see the true chip",
		value, truth, claimed, claimed), nil
}

// overrideChip is the chip that 9.4.2 stands for: gfx942. The last part is one
// hexadecimal digit of the name: 9.0.10 is gfx90a.
func overrideChip(value string) (string, error) {
	parts := strings.Split(value, ".")
	var n [3]uint64
	var err error
	if len(parts) != len(n) {
		err = errors.New("want MAJOR.MINOR.STEPPING")
	}
	for i := 0; i < len(n) && err == nil; i++ {
		n[i], err = strconv.ParseUint(parts[i], 10, 8)
	}
	if err != nil || n[1] > 15 || n[2] > 15 {
		return "", fmt.Errorf("HSA_OVERRIDE_GFX_VERSION=%q is no version of a chip: want MAJOR.MINOR.STEPPING, such as 9.4.2 for gfx942", value)
	}
	return fmt.Sprintf("gfx%d%x%x", n[0], n[1], n[2]), nil
}

// topologyChips lists the chips of the kernel's topology, each once, sorted. A
// node without one is a CPU.
func topologyChips(topology fs.FS) ([]string, error) {
	nodes, err := fs.ReadDir(topology, "nodes")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // no amdgpu driver
	}
	if err != nil {
		return nil, fmt.Errorf("topology of the GPUs: %w", err)
	}
	var chips []string
	for _, node := range nodes {
		file := path.Join("nodes", node.Name(), "properties")
		text, err := fs.ReadFile(topology, file)
		if err != nil {
			return nil, fmt.Errorf("topology of the GPUs: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			number, ok := strings.CutPrefix(line, "gfx_target_version ")
			if !ok {
				continue
			}
			// 90402 is 9.4.2.
			n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 32)
			if err != nil {
				return nil, fmt.Errorf("topology of the GPUs: %s: gfx_target_version %q is no number", file, strings.TrimSpace(number))
			}
			if n > 0 {
				chips = append(chips, fmt.Sprintf("gfx%d%x%x", n/10_000, n/100%100, n%100))
			}
		}
	}
	slices.Sort(chips)
	return slices.Compact(chips), nil
}
