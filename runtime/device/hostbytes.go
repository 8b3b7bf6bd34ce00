package device

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/runtime/engine"
)

// What loading takes of the host, whatever the size of the model.
const (
	ringSlots   = 12
	slotBytes   = 8 << 20
	loadWorkers = 8
	// makeBytes is the most that rows which are being evaluated take at a time. The
	// garbage collector may keep as much again.
	makeBytes = 256 << 20
	// HostLimit bounds the memory of the host, mapped files, what is known of each
	// tensor and what sources without a checkpoint make not counted: 608 MiB.
	HostLimit = ringSlots*slotBytes + 2*makeBytes
	// aheadBytes is how far the system is told to read ahead.
	aheadBytes = 128 << 20
	// transferAlign is the alignment of copies in a slot.
	transferAlign = 64
)

// HostBytes is how much memory of the host loading takes at most, at most HostLimit,
// from the pack graph alone (nil if there is none): the ring, and twice what the rows
// take that are evaluated at a time. A packed weight that would take more is an error.
func HostBytes(pack *ir.Graph) (int64, error) {
	const ring = ringSlots * slotBytes
	if pack == nil {
		return ring, nil
	}
	list, err := engine.Packings(pack)
	if err != nil {
		return 0, err
	}
	var most int64
	for _, p := range list {
		if err := tooMuch(p.Host, p.Whole); err != nil {
			return 0, fmt.Errorf("weight %s: %w", p.Name, err)
		}
		most = max(most, p.Host)
	}
	return ring + 2*min(makeBytes, loadWorkers*most), nil
}

// tooMuch refuses a job that takes more memory than there is for all; whole says why
// it is not smaller, if that is known.
func tooMuch(host int64, whole error) error {
	if host <= makeBytes {
		return nil
	}
	why := ""
	if whole != nil {
		why = fmt.Sprintf(" (it is evaluated whole: %v)", whole)
	}
	return fmt.Errorf("packing it takes %d MiB of the host's memory at a time, the limit is %d MiB%s; kiln dump --entry pack shows what packs it, --disable-pass leaves a pass out", host>>20, makeBytes>>20, why)
}
