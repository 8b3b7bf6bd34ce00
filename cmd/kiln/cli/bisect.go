package cli

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const bisectHelp = `Finds the first application of a pass after which a command fails. One application
is one optional pass on one graph; required passes always run.

The command is run by sh, once for each N that is tried. The kiln commands in it
stop their optional passes after N applications: the variable KILN_BISECT tells
them, and the text {N} in the command is replaced by N. KILN_BISECT_LOG names a
file in which they note what they applied. Its output is not shown.

Exit code 0 means that it works, any other that it does not. It must work with
N = 0 and fail with all applications, else there is nothing to find and bisect
exits with 3. Applications are assumed to be to blame one at a time: a command
that fails at N is taken to fail beyond.

  kiln bisect --check 'kiln logits ... --out a.safetensors &&
      kiln compare a.safetensors good.safetensors --max-rel 1e-3'`

// bisectResult is the JSON of bisect.
type bisectResult struct {
	Application int      `json:"application"`
	Applied     []string `json:"applied"` // "PASS on GRAPH", by every kiln command that got there
	Of          int      `json:"of"`      // applications in all; 0 if no kiln command said
	Runs        int      `json:"runs"`
}

// bisection runs a command with that many applications.
type bisection struct {
	e    *env
	cmd  string
	log  string
	runs int
	said string // the last line of standard error of the last run
}

// allApplications is a number of applications that no model reaches.
const allApplications = math.MaxInt32

func runBisect(e *env, f *flags, _ []string) error {
	dir, err := os.MkdirTemp("", "kiln-bisect-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bisection{e: e, cmd: f.text("check"), log: filepath.Join(dir, "applied")}
	progress := newProgress(e, f)
	defer progress.close()
	try := func(n int) (bool, error) {
		progress.say("run %d of the command", b.runs+1)
		return b.works(n)
	}
	if ok, err := try(0); err != nil {
		return err
	} else if !ok {
		return refuse(fmt.Errorf("--check: the command fails without any optional pass, too: no application is to blame; it said: %s", cmp.Or(b.said, "nothing")), "KILN_BISECT=0 sh -c "+quoted(strings.ReplaceAll(b.cmd, "{N}", "0")))
	}
	if ok, err := try(allApplications); err != nil {
		return err
	} else if ok {
		return refuse(errors.New("--check: the command works with all applications"), "kiln bisect --help")
	}
	total := b.last()
	works, fails := 0, total
	if total == 0 { // no kiln command said how many there are
		for fails = 1; fails < allApplications/2; fails *= 2 {
			ok, err := try(fails)
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			works = fails
		}
	}
	for fails-works > 1 {
		n := works + (fails-works)/2
		ok, err := try(n)
		if err != nil {
			return err
		}
		if ok {
			works = n
		} else {
			fails = n
		}
	}
	if ok, err := try(fails); err != nil { // also leaves the log of that very run
		return err
	} else if ok {
		return fmt.Errorf("--check: the command failed with all applications and works with %d: is it the same each time?", fails)
	}
	r := bisectResult{fails, b.applied(fails), total, b.runs}
	progress.clear()
	if f.boolean("json") {
		return printJSON(e.stdout, r)
	}
	what := strings.Join(r.Applied, ", or ")
	if what == "" {
		what = "no kiln command of the check said which"
	}
	of := ""
	if total > 0 {
		of = fmt.Sprintf(" of %d", total)
	}
	_, err = fmt.Fprintf(e.stdout, "application %d%s: %s\nworks with --bisect %d, fails with --bisect %d; %d runs\n", fails, of, what, works, fails, r.Runs)
	return err
}

// quoted is a text as one word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// works runs the command with n applications.
func (b *bisection) works(n int) (bool, error) {
	b.runs++
	if err := os.RemoveAll(b.log); err != nil {
		return false, err
	}
	cmd := exec.CommandContext(b.e.ctx, "sh", "-c", strings.ReplaceAll(b.cmd, "{N}", strconv.Itoa(n)))
	cmd.Env = slices.DeleteFunc(slices.Clone(b.e.getenv), func(kv string) bool {
		return strings.HasPrefix(kv, "KILN_BISECT=") || strings.HasPrefix(kv, "KILN_BISECT_LOG=")
	})
	cmd.Env = append(cmd.Env, "KILN_BISECT="+strconv.Itoa(n), "KILN_BISECT_LOG="+b.log)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	err := cmd.Run()
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	b.said = lines[len(lines)-1]
	if b.e.ctx.Err() != nil {
		return false, b.e.ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return false, err
	}
	return err == nil, nil
}

// entries are the lines of the log: number, and what was applied.
func (b *bisection) entries(each func(n int, what string)) {
	data, err := os.ReadFile(b.log)
	if err != nil {
		return // no kiln command ran passes
	}
	for line := range strings.Lines(string(data)) {
		var n int
		var pass, graph string
		if _, err := fmt.Sscan(line, &n, &pass, &graph); err == nil {
			each(n, pass+" on "+graph)
		}
	}
}

// last is the largest number of an application in the log.
func (b *bisection) last() int {
	most := 0
	b.entries(func(n int, _ string) { most = max(most, n) })
	return most
}

// applied is what the log has at a number; commands may differ.
func (b *bisection) applied(at int) []string {
	out := []string{}
	b.entries(func(n int, what string) {
		if n == at && !slices.Contains(out, what) {
			out = append(out, what)
		}
	})
	return out
}
