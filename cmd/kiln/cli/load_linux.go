package cli

import (
	"os"
	"strconv"
	"strings"
)

// loadAverage is how many processes wanted a core in the last minute.
func loadAverage() *float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return nil
	}
	first, _, _ := strings.Cut(string(text), " ")
	n, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return nil
	}
	return &n
}
