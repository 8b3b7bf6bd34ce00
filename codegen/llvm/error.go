package llvm

import (
	"errors"
	"fmt"
	"strings"
)

// ErrClosed is the cause of the error of a Compile during or after Close.
var ErrClosed = errors.New("the compiler is closed")

// Error is why a job failed. Its cause, if it has one, is for errors.Is:
// [ErrClosed], context.Canceled, context.DeadlineExceeded.
type Error struct {
	Job string // name of the job or link
	CPU string // of the job; empty for a link
	// Stage is "job" (refused before LLVM saw it), "parse", "verify", "passes",
	// "emit" or "worker" in [Worker] form, "opt" or "llc" in [Programs] form,
	// "output" (LLVM's result is not what was asked for), or "link".
	Stage string
	// Message is LLVM's line that says what is wrong, or Kiln's.
	Message string
	// Detail is all that LLVM said, when it said more than Message; bounded.
	Detail string
	Err    error // cause; may be nil
}

// Error gives one line.
func (e *Error) Error() string {
	who := e.Job
	if e.CPU != "" {
		who += " (" + e.CPU + ")"
	}
	return fmt.Sprintf("llvm: %s: %s: %s", who, e.Stage, e.Message)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// fail builds the error of a job. The message is the first line of text.
func (j *Job) fail(stage, text string, cause error) *Error {
	e := &Error{Job: j.Name, CPU: j.CPU, Stage: stage, Err: cause}
	e.Message = headline(text)
	if e.Message == "" && cause != nil {
		e.Message = cause.Error()
	}
	if e.Message == "" {
		e.Message = "failed without a message"
	}
	if d := strings.TrimSpace(text); d != e.Message {
		e.Detail = d
	}
	return e
}
