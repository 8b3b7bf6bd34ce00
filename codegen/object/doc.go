// Package object reads what a compiler made: AMDGPU code objects, clang offload
// bundles that hold them, and the x86-64 shared objects that stand in for them
// on the host. It reports what each kernel became (registers, spills, LDS,
// scratch, arguments, machine code) and where the places that state the same
// fact disagree.
//
// The format is that of LLVM's "User Guide for AMDGPU Backend" (AMDGPUUsage),
// code object versions 4 to 6; sections of it are cited by name below. Nothing
// in a file is trusted: every error names the field and its offset, and no
// length found in a file is allocated before it is compared with the bytes
// that are there.
package object
