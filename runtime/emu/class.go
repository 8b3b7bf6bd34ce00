package emu

import "strings"

// class is what an instruction does, and which of the chip's units does it.
type class uint8

const (
	classSALU class = iota
	classVALU
	classMFMA
	classSMEM    // scalar loads and cache control
	classLoad    // vector memory, without the LDS; scratch too
	classStore   // the same
	classAtomic  // the same
	classLoadLDS // vector memory, into the LDS
	classCache   // buffer_inv, buffer_wbl2
	classLDS     // reads, writes and atomics of the LDS
	classPermute // the crossbar of the LDS: no memory, but counted by lgkmcnt
	classBranch
	classBarrier
	classWait
	classOther // s_endpgm, s_nop, s_sleep and the like
	numClasses
)

var classNames = [numClasses]string{
	"salu", "valu", "mfma", "smem", "load", "store", "atomic", "load to lds", "cache", "lds", "permute", "branch", "barrier", "wait", "other",
}

func (c class) String() string { return classNames[c] }

// classes is by prefix of the mnemonic; the first that fits counts.
var classes = []struct {
	prefix string
	class  class
}{
	{"s_waitcnt", classWait},
	{"s_barrier", classBarrier},
	{"s_branch", classBranch}, {"s_cbranch", classBranch}, {"s_setpc", classBranch}, {"s_swappc", classBranch}, {"s_call", classBranch},
	{"s_load", classSMEM}, {"s_buffer", classSMEM}, {"s_scratch", classSMEM}, {"s_dcache", classSMEM}, {"s_memtime", classSMEM}, {"s_memrealtime", classSMEM},
	{"s_nop", classOther}, {"s_sleep", classOther}, {"s_setprio", classOther}, {"s_endpgm", classOther}, {"s_code_end", classOther}, {"s_icache", classOther},
	{"s_", classSALU},
	{"v_mfma", classMFMA}, {"v_smfmac", classMFMA},
	{"v_", classVALU},
	{"ds_bpermute", classPermute}, {"ds_permute", classPermute}, {"ds_swizzle", classPermute}, {"ds_nop", classPermute},
	{"ds_", classLDS},
	{"buffer_inv", classCache}, {"buffer_wbl2", classCache},
}

// memoryPrefixes begin the mnemonics of vector memory instructions.
var memoryPrefixes = []string{"global_", "flat_", "scratch_", "buffer_"}

// classOf classifies an instruction. What is not known by name is a compile error
// elsewhere; here it is "other".
func classOf(in *Inst) class {
	for _, c := range classes {
		if strings.HasPrefix(in.Op, c.prefix) {
			return c.class
		}
	}
	if !in.has(memoryPrefixes...) {
		return classOther
	}
	_, rest, _ := strings.Cut(in.Op, "_")
	switch {
	case strings.HasPrefix(rest, "atomic"):
		return classAtomic
	case strings.HasPrefix(rest, "store"):
		return classStore
	case strings.HasPrefix(rest, "load_lds"):
		return classLoadLDS
	}
	if _, lds := in.mod("lds"); lds {
		return classLoadLDS
	}
	return classLoad
}

// vmem tells whether vmcnt counts the instruction.
func (c class) vmem() bool {
	return c == classLoad || c == classStore || c == classAtomic || c == classLoadLDS || c == classCache
}
