package llvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// queryTimeout is for commands that only print something. They take tens of
// milliseconds; a cold disk under load takes seconds.
const queryTimeout = 60 * time.Second

// killGrace is how long the pipes of a killed process may stay open.
const killGrace = 2 * time.Second

// program runs a program to its end. The error is nil for exit status 0, the
// cause of the context if that ended the program, and says how it ended otherwise.
func program(ctx context.Context, dir string, stdin []byte, name string, args ...string) (stdout, stderr []byte, err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.WaitDelay = killGrace
	var out, notes bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &notes
	err = cmd.Run()
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%s ended with %s", name, exit.ProcessState)
		}
	}
	return out.Bytes(), notes.Bytes(), err
}

// ask runs a program that prints something and returns all of it, standard
// output first.
func ask(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, fmt.Errorf("%s gave no answer in %v", name, queryTimeout))
	defer cancel()
	out, notes, err := program(ctx, "", nil, name, args...)
	if err != nil {
		if line := headline(string(notes)); line != "" {
			err = fmt.Errorf("%w: %s", err, line)
		}
		return "", err
	}
	return string(out) + string(notes), nil
}
