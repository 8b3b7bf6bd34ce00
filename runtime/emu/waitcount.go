package emu

import "fmt"

// waitLimits are the counters of s_waitcnt and the largest value of each, which
// means "do not wait" (gfx9: vmcnt has 6 bits, lgkmcnt 4, expcnt 3).
var waitLimits = map[string]int64{"vmcnt": 63, "lgkmcnt": 15, "expcnt": 7}

// waitCounter checks an operand of s_waitcnt.
func waitCounter(o *Operand) (string, error) {
	limit, ok := waitLimits[o.Text]
	if o.Kind != Counter || !ok || o.Int < 0 || o.Int > limit {
		return "", fmt.Errorf("operand %s(%d) is no counter", o.Text, o.Int)
	}
	return o.Text, nil
}
