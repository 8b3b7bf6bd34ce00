//go:build long

package host_test

import (
	"fmt"
	"strings"
)

// driftReport has, by position, 1-cos of the logits and the oracle's: of the host and of
// the control, of both where they attend to the entries that the oracle chose, and of
// the host where the step began with the oracle's pools. Others are the entries that
// they would have chosen and the oracle did not.
type driftReport struct {
	host, control, givenHost, givenControl, single []float64
	otherHost, otherControl                        []int
	gaps                                           []float64 // the smallest of a gate
}

// beyond are the positions beyond the limit.
func (r driftReport) beyond() (list []int) {
	for p, c := range r.host {
		if !(c <= driftLimit) {
			list = append(list, p)
		}
	}
	return list
}

// text is the report.
func (r driftReport) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Drift of the host against the oracle

    go test -tags long ./runtime/host -run TestDrift -update

Tiny checkpoint (rope tables for 4,096 positions), production numerics. The first %d tokens of %s go, one at a time, to the oracle (ref) and to the host, whatever they say. 1-cos is of
the logits of a position on host and on ref. Windows are of %d positions. A median must be within %g, the limit of decode logits (docs/dsv4.md section 9).

- Control: ref once more, with every f32 result times 1 + 2^-20 (pass `+"`perturb`"+`). What it drifts is what the model makes of last bits.
- Ref's choice: the host and the control attend to those compressed entries that ref's indexers chose; all else is their own.
- Chosen otherwise: entries, of 64 in two layers, that their own indexers would have chosen there and ref's did not; mean of a position.
- Single steps: positions of the window where the host, if the step begins with ref's pools, gives other logits than ref (1-cos above %g).
- Gap of a position: the smallest distance, over the layers that choose experts by score, of the last chosen score from the first rejected one, on ref.

| positions | host | control | host/control | ref's choice: host | control | chosen otherwise: host | control | single steps | largest | at | gap there | beyond the limit |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
`, len(r.host), "`"+*driftText+"`", driftWindow, driftLimit, sameLogits)
	windows(len(r.host), func(from, to int) {
		at, beyond := from, 0
		for p := from; p < to; p++ {
			if r.host[p] > r.host[at] {
				at = p
			}
			if !(r.host[p] <= driftLimit) {
				beyond++
			}
		}
		host, control := median(r.host[from:to]), median(r.control[from:to])
		fmt.Fprintf(&b, "| %d-%d | %.1e | %.1e | %.2f | %.1e | %.1e | %.1f | %.1f | %d | %.1e | %d | %.1e | %d |\n", from, to-1, host, control, host/control,
			median(r.givenHost[from:to]), median(r.givenControl[from:to]), mean(r.otherHost[from:to]), mean(r.otherControl[from:to]), unlike(r.single[from:to]),
			r.host[at], at, r.gaps[at], beyond)
	})
	r.halves(&b)
	near := 0
	for _, gap := range r.gaps {
		if gap < nearTie {
			near++
		}
	}
	fmt.Fprintf(&b, "\nGaps below %g: %d of %d positions.\n\n", nearTie, near, len(r.gaps))
	list := r.beyond()
	if len(list) == 0 {
		return b.String() + "No position is beyond the limit.\n"
	}
	fmt.Fprintf(&b, "Positions beyond the limit, with gaps that must be below %g:\n\n| position | 1-cos | gap |\n|--:|--:|--:|\n", nearTie)
	for _, p := range list {
		fmt.Fprintf(&b, "| %d | %.1e | %.1e |\n", p, r.host[p], r.gaps[p])
	}
	return b.String()
}

// halves says what the halves of the positions tell.
func (r driftReport) halves(b *strings.Builder) {
	half := len(r.host) / 2
	fmt.Fprint(b, "\n| | first half | second half | growth |\n|---|--:|--:|--:|\n")
	for _, row := range []struct {
		what string
		x    []float64
	}{
		{"host", r.host}, {"control", r.control},
		{"ref's choice: host", r.givenHost}, {"ref's choice: control", r.givenControl},
	} {
		first, second := median(row.x[:half]), median(row.x[half:])
		fmt.Fprintf(b, "| %s, median 1-cos | %.2e | %.2e | %.2f |\n", row.what, first, second, second/first)
	}
	for _, row := range []struct {
		what          string
		host, control []float64
	}{{"host/control", r.host, r.control}, {"ref's choice: host/control", r.givenHost, r.givenControl}} {
		first, second := trend(row.host, row.control)
		fmt.Fprintf(b, "| %s, median of windows | %.2f | %.2f | %.2f |\n", row.what, first, second, second/first)
	}
	first, second := unlike(r.single[:half]), unlike(r.single[half:])
	fmt.Fprintf(b, "| single steps that are not ref's | %d | %d | %.2f |\n", first, second, float64(second)/float64(first))
	fmt.Fprintf(b, `
The test holds each window to %g times the control, and both trends of host/control to a growth by %g; single steps that are not ref's to %g of all, and to a growth by %g.
[drift-texts.md](drift-texts.md) says why the medians grow, and what two other texts give.
`, mostControl, mostGrowth, mostUnlike, mostUnlikeUp)
}
