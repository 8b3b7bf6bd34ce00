package llvm

import (
	"context"
	"fmt"
	"sync"
)

// programs is the compiler that runs opt and llc for every job, connected by
// memory: no files are written.
type programs struct {
	tc    *Toolchain
	opts  Options
	why   string
	slots chan struct{}
	life  context.Context // until Close
	end   context.CancelCauseFunc
	once  sync.Once
}

func newPrograms(tc *Toolchain, opts Options, why string) *programs {
	p := &programs{tc: tc, opts: opts, why: why, slots: make(chan struct{}, opts.Workers)}
	p.life, p.end = context.WithCancelCause(context.Background())
	return p
}

func (p *programs) Mode() (Mode, string) { return Programs, p.why }

func (p *programs) Close() error {
	p.once.Do(func() {
		p.end(ErrClosed)
		for range cap(p.slots) { // each becomes free when its job has ended
			p.slots <- struct{}{}
		}
	})
	return nil
}

func (p *programs) Compile(ctx context.Context, job Job) (Result, error) {
	ctx, done := jobContext(ctx, p.life, p.opts)
	defer done()
	if err := accept(ctx, p.tc, &job); err != nil {
		return Result{}, err
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return Result{}, job.fail("job", "", context.Cause(ctx))
	}

	target := []string{"-mtriple=" + job.Triple, "-mcpu=" + job.CPU}
	if job.Features != "" {
		target = append(target, "-mattr="+job.Features)
	}
	if job.PIC {
		target = append(target, "-relocation-model=pic")
	}
	if job.CodeObjectVersion != 0 {
		target = append(target, fmt.Sprintf("--amdhsa-code-object-version=%d", job.CodeObjectVersion/100))
	}
	text := job.source("")
	var diags []Diag
	if job.OptPasses != "" {
		// The level is that of the code generator's own part of the pipeline.
		args := append([]string{"-passes=" + job.OptPasses, "-codegen-opt-level=3"}, target...)
		out, ds, err := p.step(ctx, &job, "opt", p.tc.Opt, text, args)
		if err != nil {
			return Result{}, err
		}
		text, diags = out, ds
	}
	kind := "obj"
	if job.Output == Asm {
		kind = "asm"
	}
	args := append([]string{"-O3", "-filetype=" + kind, "-asm-verbose=false", resourceRemarks}, target...)
	out, ds, err := p.step(ctx, &job, "llc", p.tc.LLC, text, args)
	if err != nil {
		return Result{}, err
	}
	if err := checkOutput(&job, out); err != nil {
		return Result{}, err
	}
	return Result{out, append(diags, ds...)}, nil
}

// step runs one program from standard input to standard output.
func (p *programs) step(ctx context.Context, job *Job, stage, path string, input []byte, args []string) ([]byte, []Diag, error) {
	out, notes, err := program(ctx, "", input, path, append(args, "-o", "-", "-")...)
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, job.fail(stage, "", err)
		}
		return nil, nil, job.fail(stage, string(notes), err)
	}
	diags := parseDiags(string(notes))
	if _, bad := errorsAmong(diags); bad {
		return nil, nil, job.fail(stage, string(notes), nil)
	}
	return out, diags, nil
}

// resourceRemarks is the option that makes LLVM report what every AMDGPU kernel
// became.
const resourceRemarks = "-pass-remarks-analysis=kernel-resource-usage"

// jobContext is ctx with the limits of one job: its timeout, and the life of the
// compiler.
func jobContext(ctx, life context.Context, opts Options) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ctx, cancelTimeout := context.WithTimeoutCause(ctx, opts.Timeout, &timeoutError{opts})
	stop := context.AfterFunc(life, func() { cancel(context.Cause(life)) })
	return ctx, func() {
		stop()
		cancelTimeout()
		cancel(nil)
	}
}

// timeoutError is a deadline that says which.
type timeoutError struct{ opts Options }

func (e *timeoutError) Error() string        { return fmt.Sprintf("no result after %v", e.opts.Timeout) }
func (e *timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// accept is the part of a job that both forms share: checks that need no LLVM
// and those that ask it.
func accept(ctx context.Context, tc *Toolchain, job *Job) error {
	if ctx.Err() != nil {
		return job.fail("job", "", context.Cause(ctx))
	}
	err := job.prepare()
	if err == nil {
		err = tc.CheckTarget(ctx, job.Triple, job.CPU, job.Features)
	}
	if err != nil {
		e := job.fail("job", "", err)
		e.Message = err.Error()
		return e
	}
	return nil
}
