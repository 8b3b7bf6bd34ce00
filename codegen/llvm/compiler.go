package llvm

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"regexp"
	"time"
)

// Mode is how a [Compiler] runs LLVM.
type Mode string

// The modes. Auto is the zero value of [Options]: Worker where libLLVM loads,
// Programs otherwise.
const (
	Auto     Mode = ""
	Worker   Mode = "worker"
	Programs Mode = "programs"
)

// Options of a [Compiler].
type Options struct {
	// Workers is how many jobs run at a time; 2 if 0.
	Workers int
	// Mode to use.
	Mode Mode
	// Timeout bounds one job; 5 minutes if 0.
	Timeout time.Duration
}

const (
	defaultWorkers = 2
	defaultTimeout = 5 * time.Minute
)

// Compiler compiles jobs. Its methods may be called from any goroutine; jobs
// beyond Options.Workers wait.
type Compiler interface {
	// Compile runs one job. The error is an [*Error] that names the job; the
	// compiler is usable after it. Equal jobs give equal results, whatever ran
	// before and in whichever mode.
	Compile(ctx context.Context, job Job) (Result, error)
	// Mode tells how LLVM runs ([Worker] or [Programs]) and why so.
	Mode() (mode Mode, why string)
	// Close ends running jobs with [ErrClosed] and frees everything.
	Close() error
}

// New returns a compiler for a toolchain. In mode [Worker] (and [Auto]) it starts
// the first worker, so that what keeps libLLVM from loading is known now.
func New(ctx context.Context, tc *Toolchain, opts Options) (Compiler, error) {
	if opts.Workers == 0 {
		opts.Workers = defaultWorkers
	}
	if opts.Timeout == 0 {
		opts.Timeout = defaultTimeout
	}
	if opts.Workers < 0 || opts.Timeout < 0 {
		return nil, fmt.Errorf("llvm: %d workers, timeout %v: must not be negative", opts.Workers, opts.Timeout)
	}
	switch opts.Mode {
	case Programs:
		return newPrograms(tc, opts, "asked for"), nil
	case Worker:
		return newPool(ctx, tc, opts, "asked for")
	case Auto:
		pool, err := newPool(ctx, tc, opts, "libLLVM loads")
		if err == nil {
			return pool, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		return newPrograms(tc, opts, err.Error()), nil
	}
	return nil, fmt.Errorf("llvm: unknown mode %q", opts.Mode)
}

// checkOutput refuses a result that has a call to an intrinsic in it. LLVM
// compiles a misspelt intrinsic, or one of another LLVM version, to the call of
// an external function of that name, without a word.
func checkOutput(job *Job, output []byte) error {
	name := ""
	switch {
	case len(output) == 0:
		return job.fail("output", "LLVM gave no output", nil)
	case job.Output == Asm:
		if m := asmIntrinsic.FindSubmatch(output); m != nil {
			name = string(bytes.Join(m[1:], nil))
		}
	case bytes.HasPrefix(output, []byte(elf.ELFMAG)):
		f, err := elf.NewFile(bytes.NewReader(output))
		if err != nil {
			return job.fail("output", "the object cannot be read", err)
		}
		for _, s := range undefined(f) {
			if intrinsicName.MatchString(s) {
				name = s
				break
			}
		}
	}
	if name != "" {
		return job.fail("output", fmt.Sprintf("no intrinsic %s in this LLVM", name), nil)
	}
	return nil
}

var (
	intrinsicName = regexp.MustCompile(`^llvm\.`)
	// In assembly: PTX's declaration, a call, or a relocated address.
	asmIntrinsic = regexp.MustCompile(`(?m)^[ \t]*(?:\.extern[ \t]+\.func[^\n;]*?|call\w*[ \t]+)(llvm\.[\w.$]+)|\b(llvm\.[\w.$]+)@`)
)

// undefined returns the names of the symbols that an object leaves undefined, in
// the order of its symbol table.
func undefined(f *elf.File) []string {
	symbols, err := f.Symbols()
	if err != nil {
		return nil // no symbol table
	}
	var names []string
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF && s.Name != "" {
			names = append(names, s.Name)
		}
	}
	return names
}

// servesWorker tells whether this process was started as a worker. If it gets
// as far as making a compiler, main does not call [MaybeServeWorker], and every
// worker would start workers of its own.
func servesWorker() bool { return len(os.Args) > 1 && os.Args[1] == workerArg }
