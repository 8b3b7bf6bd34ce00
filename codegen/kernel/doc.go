// Package kernel builds kernels as LLVM IR from one SPMD description.
//
// A kernel runs once per group of its grid; a group has Target.Lanes lanes. A
// value is uniform (one per group) or varying (one per lane). On a GPU a lane is
// a thread and every value a scalar. On the host a group is one thread and a
// varying value a vector, so barriers cost nothing and lane exchange is a
// vector reduction; control flow that differs between lanes becomes a mask.
//
// Loops and branches must be the same for all lanes of a group, except Lanes and
// If, which handle the difference.
//
// Kernels for GPUs alone may also use what a wave has: Wave, WaveLane, LaneXor,
// short vectors in lanes (Vec) and matrix instructions (MMA). A loop or branch may
// then depend on Wave, if there is no barrier inside.
package kernel
