package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kiln-project/kiln/runtime/emu"
)

// profile reads the counters of a run and puts them beside the kernels of the chip
// that was emulated. A kernel's name has a digest of what it computes, so that equal
// names are equal kernels.
func (in *bundleInspection) profile(path string) error {
	c, err := readCounters(path)
	if err != nil {
		return err
	}
	if len(c.Kernels) == 0 {
		return refuse(fmt.Errorf("%s: nothing was launched", path), "")
	}
	has := "" // an emulated chip that the bundle has code for
	for _, n := range c.Kernels {
		found := false
		for i := range in.Kernels {
			k := &in.Kernels[i]
			chip, _, _ := strings.Cut(k.bundleTarget, ":")
			if slices.Contains(emu.Chips, chip) && (has == "" || chip == c.Chip) {
				has = chip
			}
			if chip == c.Chip && k.Name == n.Kernel {
				k.Profile, found = &n, true
			}
		}
		if !found {
			hint := ""
			if has != "" {
				hint = "kiln run --bundle " + in.Bundle + " --device emu:" + has + " --counters " + path
			}
			return refuse(fmt.Errorf("%s has no kernel %s for %s, which the run of %s launched", in.Bundle, n.Kernel, c.Chip, path), hint)
		}
	}
	return nil
}

// printProfile writes what a target's kernels executed, those with the most
// instructions first, beside the floor time of the largest launch.
func (in *bundleInspection) printProfile(w io.Writer, t targetTotal) error {
	var list []*bundleKernel
	total := int64(0)
	for i := range in.Kernels {
		if k := &in.Kernels[i]; k.bundleTarget == t.Target && k.Profile != nil {
			list = append(list, k)
			total += k.Profile.Instructions
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b *bundleKernel) int { return cmp.Compare(b.Profile.Instructions, a.Profile.Instructions) })
	fmt.Fprintf(w, "\n%s, emulated: counters of a run, of waves; no times\n\n", t.Target)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "kernel\tform\tfloor us of the largest\tlaunches\tinstructions\tof all\tvalu\tmfma\tlds\tloads\tstores\tactive lanes\tasked for\tcoalesced\tlds conflicts (modelled)\twaves/SIMD")
	for _, k := range list {
		p := k.Profile
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%d\t%.1f%%\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%d\n", k.Name, k.Chosen, microseconds(k.FloorUS), p.Launches, p.Instructions,
			100*float64(p.Instructions)/float64(max(total, 1)), p.VALU, p.MFMA, p.LDS, p.Loads, p.Stores, portion(p.Active(), p.VALU), size(p.RequestedBytes),
			portion(p.Coalescing(), p.Lines), portion(conflicts(p), p.LDSCycles), p.Occupancy)
	}
	return tw.Flush()
}

// conflicts is the part of the LDS cycles that are repeats.
func conflicts(p *emu.KernelCounters) float64 {
	return float64(p.LDSConflicts) / float64(max(p.LDSCycles, 1))
}

// portion is a ratio of something; of nothing it is a dash.
func portion(x float64, of int64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*x)
}
