package kernels

import (
	"os"
	"strconv"
)

func knob(name string, def int) int {
	if v, err := strconv.Atoi(os.Getenv("KILN_HC_" + name)); err == nil {
		return v
	}
	return def
}

var mmaHCGroups = knob("GROUPS", 264)
