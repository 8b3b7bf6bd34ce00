// Package num holds the number formats of the DeepSeek-V4 checkpoint and of its
// forward pass: bfloat16, IEEE half, the two 8-bit floats e4m3fn and e4m3fnuz,
// the 4-bit float e2m1, the power-of-two scale e8m0, and the block-scaled
// quantisation built on them.
//
// Every conversion to a narrower format rounds once, to nearest, ties to even.
// The sources are IEEE 754 (half), the OCP 8-bit floating point specification
// (e4m3fn) and the OCP microscaling specification (e2m1, e8m0). Nothing here
// allocates, returns an error or depends on the machine.
package num
