package emu

import (
	"math/bits"
	"slices"
)

// A model of the LDS' banks: what is documented of MI300, not measured. LDS has 32
// banks of 4 bytes, byte b in bank b/4%32. An access is executed in phases, groups of
// lanes whose words would fill the banks once (AMD, "Avoiding LDS Bank Conflicts on
// AMD GPUs Using CK-Tile Framework"): 32 lanes of up to 4 bytes, 16 of 8 bytes, 8 of
// 16 bytes, one after the other, but reads of 16 bytes take the lanes in another
// order. A phase takes a cycle for each different word in the bank that has most of
// them; lanes that read the same word share it. gfx950 is taken to be the same, though
// its LDS is larger.
const (
	ldsBanks     = 32
	ldsBankBytes = 4
)

// readPhases128 are the lanes of the first four phases of a read of 16 bytes; those of
// the other four are 32 higher.
var readPhases128 = [4][8]int{
	{0, 1, 2, 3, 20, 21, 22, 23}, {4, 5, 6, 7, 16, 17, 18, 19}, {8, 9, 10, 11, 28, 29, 30, 31}, {12, 13, 14, 15, 24, 25, 26, 27},
}

// ldsAccess is an access of LDS by the lanes of a mask.
type ldsAccess struct {
	lanes  uint64
	offset [Lanes]uint32
	size   uint32
	write  bool
}

// cycles is how many cycles the access takes, and how many of them are repeats.
func (a *ldsAccess) cycles() (cycles, conflicts int) {
	perPhase := Lanes / 2
	if a.size > 4 {
		perPhase = ldsBanks * ldsBankBytes / int(a.size)
	}
	for from := 0; from < Lanes; from += perPhase {
		mask := uint64(1<<perPhase-1) << from
		if a.size == 16 && !a.write {
			mask = 0
			for _, lane := range readPhases128[from/perPhase%4] {
				mask |= 1 << (lane + from/32*32)
			}
		}
		if mask &= a.lanes; mask != 0 {
			n := a.phase(mask)
			cycles += n
			conflicts += n - 1
		}
	}
	return cycles, conflicts
}

// phase is the largest number of different words in a bank.
func (a *ldsAccess) phase(mask uint64) int {
	var words [ldsBanks][Lanes]uint32
	var n [ldsBanks]uint8 // of words
	most := uint8(1)
	for ; mask != 0; mask &= mask - 1 {
		at := a.offset[bits.TrailingZeros64(mask)]
		for word := at / ldsBankBytes; word <= (at+a.size-1)/ldsBankBytes; word++ {
			bank := word % ldsBanks
			if !slices.Contains(words[bank][:n[bank]], word) {
				words[bank][n[bank]] = word
				n[bank]++
				most = max(most, n[bank])
			}
		}
	}
	return int(most)
}
