package kernels

import (
	"os"
	"strconv"
	"strings"
)

// attnKnob is for trials: a number of ATTN=name=n,..., or what it is without.
func attnKnob(name string, def int) int {
	for _, kv := range strings.Split(os.Getenv("ATTN"), ",") {
		k, v, _ := strings.Cut(kv, "=")
		if k == name {
			n, err := strconv.Atoi(v)
			if err == nil {
				return n
			}
		}
	}
	return def
}
