package llvm

import (
	"regexp"
	"strconv"
	"strings"
)

// Severity of a [Diag].
type Severity string

// The severities, as LLVM prints them.
const (
	SevError   Severity = "error"
	SevWarning Severity = "warning"
	SevRemark  Severity = "remark"
	SevNote    Severity = "note"
)

// Diag is one diagnostic of LLVM.
type Diag struct {
	Severity Severity
	Text     string // one line or more, without the severity
}

var (
	// A program's own name before its messages, perhaps with a path.
	toolPrefix = regexp.MustCompile(`^(?:\S*/)?(?:opt|llc|ld\.lld)(?:-[0-9]+)?: `)
	// A place in the text that LLVM read, and the severity behind it.
	placePrefix = regexp.MustCompile(`^<stdin>:([0-9]+):([0-9]+): `)
	// What opt and llc say after the verifier has said what is wrong.
	afterVerifier = regexp.MustCompile(`input module (?:cannot be verified|is broken)`)
	// A line of LLVM's report on a kernel's resources: place, then the kernel's
	// name or an indented key and value.
	resourceRemark = regexp.MustCompile(`^\S*:[0-9]+:[0-9]+: (?:Function Name: |    \S.*: )`)
	severityPrefix = regexp.MustCompile(`^(error|warning|remark|note): *`)
)

// maxNotes bounds how much of what LLVM says is kept per job.
const maxNotes = 64 << 10

// classify takes a line that LLVM wrote apart: where, how bad, what. A line
// without a severity has the severity "". The line numbers are those of the job.
func classify(line string) (Severity, string) {
	line = strings.TrimRight(line, " \t\r")
	var sev Severity
	place := ""
	for {
		if m := toolPrefix.FindString(line); m != "" {
			line = line[len(m):]
		} else if m := placePrefix.FindStringSubmatch(line); m != nil && place == "" {
			place = jobPlace(m[1], m[2])
			line = line[len(m[0]):]
		} else if m := severityPrefix.FindStringSubmatch(line); m != nil {
			if sev == "" {
				sev = Severity(m[1])
			}
			line = line[len(m[0]):]
		} else {
			break
		}
	}
	line = strings.TrimPrefix(line, "<unknown>:0:0: ")
	return sev, strings.TrimSpace(place + strings.TrimSpace(line))
}

// jobPlace says where a position of the text that LLVM read is in the job's IR.
func jobPlace(line, column string) string {
	n, err := strconv.Atoi(line)
	if err != nil || n <= prologueLines {
		return ""
	}
	return "line " + strconv.Itoa(n-prologueLines) + ", column " + column + ": "
}

// parseDiags splits what LLVM wrote on standard error into diagnostics. Lines
// without a severity belong to the diagnostic before them (LLVM shows the source
// line and a caret); before the first they are warnings of their own.
func parseDiags(text string) []Diag {
	var ds []Diag
	for line := range strings.Lines(text) {
		sev, what := classify(line)
		switch {
		case sev == "" && what == "":
		case sev != "":
			ds = append(ds, Diag{sev, what})
		case len(ds) > 0 && ds[len(ds)-1].Severity != SevRemark:
			ds[len(ds)-1].Text += "\n" + what
		default:
			ds = append(ds, Diag{SevWarning, what})
		}
	}
	return ds
}

// headline picks the line that says what went wrong: LLVM's report of a fatal
// error, else the first error, else the first line that is no warning, remark or
// note. It may be empty.
func headline(text string) string {
	best, rank := "", 0
	for line := range strings.Lines(text) {
		sev, what := classify(line)
		r := 0
		switch {
		case what == "", afterVerifier.MatchString(what):
		case strings.HasPrefix(what, "LLVM ERROR:"):
			r = 3
		case sev == SevError:
			r = 2
		case sev == "":
			r = 1
		}
		if r > rank {
			best, rank = what, r
		}
	}
	return best
}

// errorsAmong returns the first error of the diagnostics.
func errorsAmong(ds []Diag) (string, bool) {
	for _, d := range ds {
		if d.Severity == SevError {
			first, _, _ := strings.Cut(d.Text, "\n")
			return first, true
		}
	}
	return "", false
}
