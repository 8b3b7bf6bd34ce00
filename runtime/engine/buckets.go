package engine

import "fmt"

// Buckets is an executor that runs any shape, as the oracle does, and has the shapes of
// compiled plans here: steps are padded as they are on a device, and the number of
// shapes stays small.
type Buckets struct {
	Executor
	Decode  []int // numbers of requests, ascending
	Prefill []int // numbers of tokens of one request, ascending
	Pages   int   // of a request's page table
}

// Fit implements Executor.
func (b *Buckets) Fit(entry string, s Shape) (Shape, error) {
	pad := Shape{P: b.Pages}
	if entry == entryPrefill || entry == entryDraft && s.B == 1 {
		pad.T, pad.B, pad.O = atLeast(b.Prefill, s.T), 1, 1
	} else {
		n := atLeast(b.Decode, s.B) // of as many rows each
		pad.T, pad.B, pad.O = n*(s.T/s.B), n, n*(s.O/s.B)
	}
	if pad.T < s.T || pad.B < s.B || pad.O < s.O || pad.P < s.P {
		return Shape{}, fmt.Errorf("entry %s: no bucket holds %+v", entry, s)
	}
	return b.Executor.Fit(entry, pad)
}

// MaxPrefill implements Executor.
func (b *Buckets) MaxPrefill() int { return b.Prefill[len(b.Prefill)-1] }

// atLeast is the first of ascending numbers that is at least n, or 0.
func atLeast(list []int, n int) int {
	for _, x := range list {
		if x >= n {
			return x
		}
	}
	return 0
}
