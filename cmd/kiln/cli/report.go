package cli

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/mattn/go-isatty"
)

// progress is one line on standard error that is written over; it exists on a
// terminal only.
type progress struct {
	e     *env
	on    bool
	width int
}

func newProgress(e *env) *progress {
	f, ok := e.stderr.(*os.File)
	return &progress{e: e, on: ok && isatty.IsTerminal(f.Fd())}
}

func (p *progress) say(format string, args ...any) {
	if !p.on {
		return
	}
	line := fmt.Sprintf(format, args...)
	fmt.Fprintf(p.e.stderr, "\r%s%s", line, strings.Repeat(" ", max(0, p.width-len(line))))
	p.width = len(line)
}

func (p *progress) clear() {
	if p.on && p.width > 0 {
		fmt.Fprintf(p.e.stderr, "\r%s\r", strings.Repeat(" ", p.width))
		p.width = 0
	}
}

// deviceLine describes what computed.
func deviceLine(device string) string {
	if device == "ref" {
		return fmt.Sprintf("ref (reference evaluator, %d cores)", runtime.GOMAXPROCS(0))
	}
	return device
}
