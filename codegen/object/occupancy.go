package object

// chip is what bounds the waves of a SIMD.
type chip struct {
	vgprs       int // registers of a lane's file, AGPRs included
	vgprGranule int
	waves       int // of a SIMD
	simds       int // of a compute unit
	ldsBytes    int // of a compute unit
	groups      int // workgroups of more than one wave on a compute unit
}

// chips has the numbers that AMD's "Instinct MI200/CDNA3/CDNA4 ISA" guides and
// the GPU specifications of the ROCm documentation give (512 registers shared
// by VGPRs and AGPRs, LDS 64 KiB, on CDNA4 160 KiB), as LLVM 22 uses them in
// its remark kernel-resource-usage; testdata/occupancy.txt holds its answers.
var chips = map[string]chip{
	"gfx90a": {vgprs: 512, vgprGranule: 8, waves: 8, simds: 4, ldsBytes: 64 << 10, groups: 16},
	"gfx942": {vgprs: 512, vgprGranule: 8, waves: 8, simds: 4, ldsBytes: 64 << 10, groups: 16},
	"gfx950": {vgprs: 512, vgprGranule: 8, waves: 8, simds: 4, ldsBytes: 160 << 10, groups: 16},
}

// Resources are what a kernel takes.
type Resources struct {
	VGPRs     int // of a work-item, AGPRs included
	SGPRs     int // of a wave
	LDSBytes  int // of a workgroup, fixed and dynamic
	Workgroup int // work-items
}

// Occupancy is the number of waves that fit on a SIMD at once; ok is false for
// a chip whose limits are not known, and for resources that do not fit at all.
func Occupancy(chipName string, r Resources) (waves int, ok bool) {
	c, ok := chips[chipName]
	if !ok || r.Workgroup < 1 || r.VGPRs < 0 || r.VGPRs > c.vgprs || r.SGPRs < 0 || r.LDSBytes < 0 || r.LDSBytes > c.ldsBytes {
		return 0, false
	}
	waves = c.waves
	if n := roundUp(r.VGPRs, c.vgprGranule); n > 0 {
		waves = min(waves, c.vgprs/n)
	}
	// Of the 800 scalar registers of a SIMD a wave takes multiples of 16.
	if r.SGPRs > 100 {
		waves = min(waves, 7)
	}
	const waveSize = 64
	group := (r.Workgroup + waveSize - 1) / waveSize
	groups := c.waves * c.simds / group
	if groups == 0 {
		return 0, false
	}
	if group > 1 {
		groups = min(groups, c.groups)
	}
	if r.LDSBytes > 0 {
		groups = min(groups, c.ldsBytes/r.LDSBytes)
	}
	perSIMD := (groups*group + c.simds - 1) / c.simds
	return min(waves, perSIMD), true
}

func roundUp(n, granule int) int { return (n + granule - 1) / granule * granule }
