package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
)

// quiet is how long a command may say nothing where there is no terminal: just
// below two seconds, so that with the writing it stays below them.
const quiet = 1900 * time.Millisecond

// progress tells on standard error what takes its time. On a terminal it is one
// line that is written over. Elsewhere it is whole lines, one each quiet, so that
// a quick command leaves none. It is plain ASCII without colour.
type progress struct {
	log     *logs
	w       io.Writer  // the terminal
	columns func() int // width of the terminal; nil: there is none
	silent  bool       // with --quiet, and beside --json where there is no terminal, without -v
	started time.Time
	stop    chan struct{} // ends beat

	mu    sync.Mutex
	doing string // what goes on; empty: nothing to tell
	shown int    // characters of the line on the terminal
}

// newProgress starts telling; close ends it.
func newProgress(e *env, f *flags) *progress {
	p := &progress{log: e.log, silent: e.log.level == levelQuiet}
	if p.silent {
		return p
	}
	if file, ok := e.stderr.(*os.File); ok && isatty.IsTerminal(file.Fd()) {
		p.w, p.columns = e.stderr, func() int { return terminalColumns(file) }
		p.log.before = p.clear
		return p
	}
	if p.silent = f.boolean("json") && e.log.level > levelVerbose; !p.silent {
		p.started, p.stop = time.Now(), make(chan struct{})
		go p.beat()
	}
	return p
}

// beat writes what goes on, time and again.
func (p *progress) beat() {
	tick := time.NewTicker(quiet)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			p.mu.Lock()
			if p.doing != "" {
				p.log.Info(fmt.Sprintf("%s (%.0f s)", p.doing, time.Since(p.started).Seconds()))
			}
			p.mu.Unlock()
		}
	}
}

// say replaces what goes on.
func (p *progress) say(format string, args ...any) {
	p.show(func(int) string { return fmt.Sprintf(format, args...) })
}

// count is say with a bar.
func (p *progress) count(what string, done, total int) {
	p.show(func(columns int) string { return bar(what, done, total, columns) })
}

// redraw is how often a line on a terminal is written anew at most.
const redraw = 100 * time.Millisecond

// transfer is say for bytes of a total, with the rate since its first news, which is
// of no bytes, and the time that is left at that rate.
func (p *progress) transfer(what string) func(done, total int64) {
	start := time.Now()
	var last time.Time
	p.say("%s", what)
	return func(done, total int64) {
		now := time.Now()
		if now.Sub(last) < redraw && done < total {
			return
		}
		last = now
		p.say("%s: %s", what, transferred(done, total, now.Sub(start)))
	}
}

// transferred says how far bytes are after some time.
func transferred(done, total int64, after time.Duration) string {
	const gb = 1e9
	text := fmt.Sprintf("%.2f of %.2f GB", float64(done)/gb, float64(total)/gb)
	if done == 0 || after <= 0 {
		return text
	}
	rate := float64(done) / after.Seconds()
	left := time.Duration(float64(total-done) / rate * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("%s, %.2f GB/s, %v left", text, rate/gb, left)
}

// show takes the text for a terminal of that many columns, 0 for none.
func (p *progress) show(text func(columns int) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.columns == nil {
		p.doing = text(0)
		return
	}
	columns := p.columns()
	line := []rune(text(columns))
	line = line[:min(len(line), columns-1)] // a line that wraps cannot be written over
	fmt.Fprintf(p.w, "\r%s%s", string(line), strings.Repeat(" ", max(0, p.shown-len(line))))
	p.shown = len(line)
}

// note writes a line that stays.
func (p *progress) note(format string, args ...any) {
	p.clear()
	if !p.silent {
		p.log.Info(fmt.Sprintf(format, args...))
	}
}

// warn writes a line that stays beside --json too.
func (p *progress) warn(format string, args ...any) {
	p.clear()
	p.log.Warn(fmt.Sprintf(format, args...))
}

// clear says that there is nothing to tell. Until the next say, nobody but the
// caller writes to standard error.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doing = ""
	if p.shown > 0 {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", p.shown))
		p.shown = 0
	}
}

func (p *progress) close() {
	p.clear()
	p.log.before = nil
	if p.stop != nil {
		close(p.stop)
	}
}

// The cells of a bar: fewer than the least tell nothing.
const leastCells, mostCells = 8, 40

// bar draws how far something is, or writes it where a bar has no room.
func bar(what string, done, total, columns int) string {
	counts := fmt.Sprintf("%d/%d", done, total)
	cells := min(mostCells, columns-1-len(what+" [] "+counts))
	if cells < leastCells {
		return what + " " + counts
	}
	full := cells * done / max(total, 1)
	head := ""
	if full < cells {
		head = ">"
	}
	return fmt.Sprintf("%s [%-*s] %s", what, cells, strings.Repeat("=", full)+head, counts)
}
