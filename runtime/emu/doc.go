// Package emu executes AMDGPU code objects for gfx942 and gfx950 on the CPU: the
// machine code itself, instruction by instruction, as a wavefront of 64 lanes.
//
// It is a functional model: it says what a kernel computes, and with sanitizers
// what it does wrong, not how long it takes. Source of the semantics, unless a
// table names another: AMD's "Instinct MI300" and "CDNA4" instruction set
// architecture documents, LLVM's AMDGPUUsage for the ABI.
//
// The way of an instruction: llvm-objdump's text (codegen/object) is parsed into
// an Inst (parse.go), looked up by its mnemonic in the table of instructions
// (table.go) and compiled once into a step, a Go function over the state of a
// wavefront (wave.go). What is not understood, a mnemonic, an operand or a
// modifier, is an error when the kernel is loaded: nothing is ignored.
//
// What looks at a launch (watch.go): the sanitizers (sanitize.go and a file for each),
// the counters and the trace. They know an instruction's registers from its compiler
// (uses.go), and its accesses of memory from its execution. A launch with none of them
// pays for a nil check at each access.
package emu
