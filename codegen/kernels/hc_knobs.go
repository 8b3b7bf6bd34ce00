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

var ringFrom = knob("FROM", 264)

var ringTwo = knob("TWO", 2)

var mmaHCGroups = knob("GROUPS", 132)

var (
	knobOnly   = knob("ONLY", 0)
	knobNoSink = knob("NOSINK", 0)
	knobSync   = knob("SYNC", 1)
	knobOnce   = knob("ONCE", 1)
	knobRes1   = knob("RES1", 0)
	knobRes2   = knob("RES2", 0)
)
