package emu

import "unsafe"

// floats is a vector as f32, which spares a loop the moves between integer and float
// registers. The layouts are the same.
func floats(v *Vec) *[Lanes]float32 { return (*[Lanes]float32)(unsafe.Pointer(v)) }

func moveLoop(d, a, _, _ *Vec) { *d = *a }

func movePairLoop(d0, d1, a0, a1, _, _, _, _ *Vec) {
	// The destination may begin at the source's second register, or end at its first.
	low := *a0
	*d1 = *a1
	*d0 = low
}
