package llvm

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// Triples of the devices that Kiln compiles for.
const (
	AMDGPU = "amdgcn-amd-amdhsa"
	NVPTX  = "nvptx64-nvidia-cuda"
)

// Output is what a job produces.
type Output string

// The outputs. Object is the zero value of a [Job].
const (
	Object Output = ""    // a relocatable object file
	Asm    Output = "asm" // assembly; for NVPTX that is PTX
)

// Code object versions, in the units of LLVM's module flag. The default of LLVM 22
// is 6, which needs a recent ROCm.
const (
	CodeObjectV5 = 500 // ELF ABI version 3; the default
	CodeObjectV6 = 600 // ELF ABI version 4
)

// Job is one module to compile.
type Job struct {
	// Name of the kernel or module, for errors and as the name of the source.
	Name string
	// IR is LLVM IR as text. It may name the target triple, which then must be
	// Triple. It must not carry a data layout or a code object version: LLVM
	// supplies the first, CodeObjectVersion the second.
	IR []byte
	// Triple, CPU and Features as llc takes them in -mtriple, -mcpu and -mattr.
	// Features may be empty; names that this LLVM does not know are refused.
	Triple, CPU, Features string
	// OptPasses is a pipeline as in opt -passes, such as "default<O3>"; empty
	// runs the code generator alone (at -O3 in any case).
	OptPasses string
	// PIC asks for position independent code, which a shared object of the host
	// needs. AMDGPU code is always position independent.
	PIC bool
	// Output is what to produce.
	Output Output
	// CodeObjectVersion of AMDGPU: CodeObjectV5 (also when 0) or CodeObjectV6.
	// It must be 0 for other targets.
	CodeObjectVersion int
}

// Result of a job.
type Result struct {
	Output []byte
	// Diags are LLVM's warnings, notes and remarks in its order. For AMDGPU the
	// remarks include the registers, spills, scratch, LDS and occupancy of every
	// kernel. An error is never among them: it makes Compile fail.
	Diags []Diag
}

// isAMDGPU tells whether the job's target is an AMD GPU.
func (j *Job) isAMDGPU() bool { return strings.HasPrefix(j.Triple, "amdgcn-") }

var (
	tripleLine     = regexp.MustCompile(`(?m)^[ \t]*target[ \t]+triple[ \t]*=[ \t]*"([^"]*)"`)
	dataLayoutLine = regexp.MustCompile(`(?m)^[ \t]*target[ \t]+datalayout\b`)
)

// prepare checks the job and fills in what it leaves open. It refuses what one
// form of the compiler would take and the other not, or would override unseen.
func (j *Job) prepare() error {
	for _, f := range []struct{ name, value string }{{"Name", j.Name}, {"Triple", j.Triple}, {"CPU", j.CPU}} {
		if f.value == "" {
			return fmt.Errorf("the job has no %s", f.name)
		}
	}
	for _, f := range []struct{ name, value string }{
		{"Name", j.Name}, {"Triple", j.Triple}, {"CPU", j.CPU}, {"Features", j.Features}, {"OptPasses", j.OptPasses},
	} {
		if strings.ContainsRune(f.value, 0) {
			return fmt.Errorf("%s %q contains a zero byte", f.name, f.value)
		}
	}
	switch {
	case len(bytes.TrimSpace(j.IR)) == 0:
		return fmt.Errorf("the job has no IR")
	case bytes.HasPrefix(j.IR, []byte("BC\xc0\xde")):
		return fmt.Errorf("the IR is bitcode, not text")
	case bytes.IndexByte(j.IR, 0) >= 0:
		return fmt.Errorf("the IR contains a zero byte at offset %d", bytes.IndexByte(j.IR, 0))
	case dataLayoutLine.Match(j.IR):
		return fmt.Errorf("the IR sets a data layout; LLVM supplies the one of %s", j.Triple)
	case bytes.Contains(j.IR, []byte("amdhsa_code_object_version")):
		return fmt.Errorf("the IR sets amdhsa_code_object_version; the job's CodeObjectVersion does that")
	}
	for _, m := range tripleLine.FindAllSubmatch(j.IR, -1) {
		if string(m[1]) != j.Triple {
			return fmt.Errorf("the IR is for %s, the job for %s", m[1], j.Triple)
		}
	}
	if j.Output != Object && j.Output != Asm {
		return fmt.Errorf("unknown output %q", j.Output)
	}
	switch {
	case !j.isAMDGPU():
		if j.CodeObjectVersion != 0 {
			return fmt.Errorf("code object version %d given for %s", j.CodeObjectVersion, j.Triple)
		}
	case j.CodeObjectVersion == 0:
		j.CodeObjectVersion = CodeObjectV5
	case j.CodeObjectVersion != CodeObjectV5 && j.CodeObjectVersion != CodeObjectV6:
		return fmt.Errorf("code object version %d: only %d and %d can be made", j.CodeObjectVersion, CodeObjectV5, CodeObjectV6)
	}
	return nil
}

// prologueLines is how many lines stand before the job's own in what LLVM reads.
const prologueLines = 1

// source returns the text that LLVM reads: a line with the module's name and
// target, then the IR. The name makes objects independent of how the text
// reached LLVM; where the IR has the same directives, its own come later and
// win. dataLayout may be empty.
func (j *Job) source(dataLayout string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `source_filename = "%s" target triple = "%s"`, quoteIR(j.Name), quoteIR(j.Triple))
	if dataLayout != "" {
		fmt.Fprintf(&b, ` target datalayout = "%s"`, quoteIR(dataLayout))
	}
	b.WriteByte('\n')
	b.Write(j.IR)
	return b.Bytes()
}

// quoteIR escapes text for a quoted string of LLVM IR.
func quoteIR(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\%02X`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
