package llvm

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// workerArg starts a worker instead of the program. It looks like a flag so that
// a program (or test binary) that does not call [MaybeServeWorker] refuses it.
const workerArg = "--kiln-llvm-worker"

// protocol is the version of the messages below. The parent and the worker are
// the same file, unless it was replaced meanwhile.
const protocol = 1

// hello is the worker's first message.
type hello struct {
	Protocol int
	Version  string // of libLLVM: "22.1.8"
	Err      string // why libLLVM cannot be used
}

// request is a job, checked and ready for LLVM.
type request struct {
	Name, Triple, CPU, Features, Passes string
	IR                                  []byte
	PIC, Asm                            bool
	CodeObjectVersion                   int
}

// response is what came of it: an output, or the stage that failed and the text
// about it.
type response struct {
	Output     []byte
	Stage, Err string
	Diags      []Diag
}

// keepMemory has glibc's malloc keep what a job has freed for the next one: giving it back
// to the system and asking for it again took a tenth of the time.
var keepMemory = []string{"MALLOC_TRIM_THRESHOLD_=1073741824", "MALLOC_TOP_PAD_=16777216", "MALLOC_MMAP_THRESHOLD_=1073741824"}

// startTimeout is for a worker to load libLLVM, which takes 60 ms from a warm
// disk.
const startTimeout = 60 * time.Second

// pool is the compiler whose jobs run in workers.
type pool struct {
	tc    *Toolchain
	opts  Options
	why   string
	slots chan *worker // one entry per worker that may run; nil: not started
	life  context.Context
	end   context.CancelCauseFunc
	once  sync.Once
}

func newPool(ctx context.Context, tc *Toolchain, opts Options, why string) (*pool, error) {
	if tc.LibLLVM == "" {
		return nil, errors.New(tc.LibLLVMWhy)
	}
	if servesWorker() {
		return nil, errors.New("this program does not call llvm.MaybeServeWorker at the start of main")
	}
	p := &pool{tc: tc, opts: opts, why: why, slots: make(chan *worker, opts.Workers)}
	w, err := startWorker(ctx, tc)
	if err != nil {
		return nil, err
	}
	p.life, p.end = context.WithCancelCause(context.Background())
	p.slots <- w
	for range opts.Workers - 1 {
		p.slots <- nil
	}
	return p, nil
}

func (p *pool) Mode() (Mode, string) { return Worker, p.why }

func (p *pool) Close() error {
	p.once.Do(func() {
		p.end(ErrClosed)
		for range cap(p.slots) { // each comes back when its job has ended
			if w := <-p.slots; w != nil {
				w.stop()
			}
		}
	})
	return nil
}

func (p *pool) Compile(ctx context.Context, job Job) (Result, error) {
	ctx, done := jobContext(ctx, p.life, p.opts)
	defer done()
	if err := accept(ctx, p.tc, &job); err != nil {
		return Result{}, err
	}
	var w *worker
	select {
	case w = <-p.slots:
	case <-ctx.Done():
		return Result{}, job.fail("job", "", context.Cause(ctx))
	}
	defer func() { p.slots <- w }()
	if w == nil {
		var err error
		if w, err = startWorker(ctx, p.tc); err != nil {
			return Result{}, job.fail("worker", "", err)
		}
	}
	resp, stray, err := w.do(ctx, &request{
		Name: job.Name, Triple: job.Triple, CPU: job.CPU, Features: job.Features, Passes: job.OptPasses,
		IR: job.IR, PIC: job.PIC, Asm: job.Output == Asm, CodeObjectVersion: job.CodeObjectVersion,
	})
	if err != nil {
		w = nil // the slot starts a new one for the next job
		if ctx.Err() != nil {
			return Result{}, job.fail("worker", "", context.Cause(ctx))
		}
		return Result{}, job.fail("worker", stray, err)
	}
	if resp.Err != "" {
		return Result{}, job.fail(resp.Stage, resp.Err, nil)
	}
	diags := append(resp.Diags, parseDiags(stray)...)
	if first, bad := errorsAmong(diags); bad {
		return Result{}, job.fail("emit", first, nil)
	}
	if err := checkOutput(&job, resp.Output); err != nil {
		return Result{}, err
	}
	return Result{resp.Output, diags}, nil
}

// worker is a running child process. One goroutine at a time uses it.
type worker struct {
	cmd       *exec.Cmd
	requests  *os.File
	responses *os.File
	enc       *gob.Encoder
	dec       *gob.Decoder
	tap       *tap
}

// startWorker starts a child process and waits until it has loaded libLLVM.
func startWorker(ctx context.Context, tc *Toolchain) (*worker, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		childIn.Close()
		in.Close()
		return nil, err
	}
	argv := append(append([]string(nil), tc.Loader...), exe, workerArg, tc.LibLLVM)
	w := &worker{requests: in, responses: out, tap: newTap()}
	w.cmd = exec.Command(argv[0], argv[1:]...)
	// Messages have pipes of their own: LLVM may write to the standard ones.
	w.cmd.Env = append(os.Environ(), keepMemory...)
	w.cmd.ExtraFiles = []*os.File{childIn, childOut}
	w.cmd.Stdout, w.cmd.Stderr = w.tap, w.tap
	w.cmd.WaitDelay = killGrace
	err = w.cmd.Start()
	childIn.Close()
	childOut.Close()
	if err != nil {
		in.Close()
		out.Close()
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	w.enc, w.dec = gob.NewEncoder(in), gob.NewDecoder(out)

	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("libLLVM did not load within %v", startTimeout))
	defer cancel()
	release := context.AfterFunc(ctx, w.kill)
	var h hello
	err = w.dec.Decode(&h)
	switch {
	case !release():
		err = context.Cause(ctx)
	case err != nil:
		w.kill()
	case h.Protocol != protocol:
		err = fmt.Errorf("the worker speaks protocol %d, not %d: was %s replaced?", h.Protocol, protocol, exe)
	case h.Err != "":
		err = errors.New(h.Err)
	case h.Version != "" && !strings.HasPrefix(tc.Version, h.Version):
		err = fmt.Errorf("libLLVM is version %s, llc is version %s", h.Version, tc.Version)
	default:
		return w, nil
	}
	status := w.stop()
	if h.Protocol == 0 && ctx.Err() == nil {
		err = fmt.Errorf("the worker ended at once (%s); does main call llvm.MaybeServeWorker?", status)
		if line := headline(w.tap.rest()); line != "" {
			err = fmt.Errorf("%w: %s", err, line)
		}
	}
	return nil, fmt.Errorf("starting a worker with %s: %w", tc.LibLLVM, err)
}

// do runs one request. The second result is what the worker wrote to its
// standard streams meanwhile. After an error the worker is gone.
func (w *worker) do(ctx context.Context, q *request) (*response, string, error) {
	select {
	case <-w.tap.marks: // of a stray zero byte during the last job
	default:
	}
	release := context.AfterFunc(ctx, w.kill)
	r := &response{}
	err := w.enc.Encode(q)
	if err == nil {
		err = w.dec.Decode(r)
	}
	if err == nil && release() {
		// The worker marks the end of a job on its standard error before it
		// answers.
		return r, <-w.tap.marks, nil
	}
	w.kill()
	status := w.stop()
	return nil, w.tap.rest(), fmt.Errorf("the worker died: %s", status)
}

func (w *worker) kill() {
	// An error means that it has ended already.
	_ = w.cmd.Process.Kill()
}

// stop makes the worker end (it does so when its requests end, unless it was
// killed) and returns how it did. Its streams are complete afterwards.
func (w *worker) stop() string {
	w.requests.Close()
	timer := time.AfterFunc(killGrace, w.kill)
	defer timer.Stop()
	err := w.cmd.Wait()
	w.responses.Close()
	if w.cmd.ProcessState != nil {
		return w.cmd.ProcessState.String()
	}
	return err.Error()
}

// tap collects what a worker writes to its standard streams, cut at zero bytes.
type tap struct {
	marks chan string // what came before each zero byte

	mu  sync.Mutex
	buf []byte // since the last one, bounded by maxNotes
}

// A job ends with one mark, and its text is taken before the next job begins.
func newTap() *tap { return &tap{marks: make(chan string, 1)} }

func (t *tap) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range p {
		if c != 0 {
			if len(t.buf) < maxNotes {
				t.buf = append(t.buf, c)
			}
			continue
		}
		select {
		case t.marks <- string(t.buf):
		default: // a stray zero byte in LLVM's output
		}
		t.buf = t.buf[:0]
	}
	return len(p), nil
}

// rest returns what came since the last mark.
func (t *tap) rest() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
