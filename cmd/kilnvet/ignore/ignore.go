// Package ignore is how a finding of kilnvet is silenced: by a comment on its
// line or on the line above,
//
//	//kilnvet:ignore maporder the caller sorts
//
// that names the analyzer and gives a reason. A comment that silences nothing is
// reported by the analyzer it names, so that none outlives its cause; one that
// names no analyzer or no reason silences nothing and is reported by the analyzer
// that Check makes.
package ignore

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

const prefix = "//kilnvet:ignore"

// comment is a parsed ignore comment.
type comment struct {
	pos, end     token.Pos
	line         int
	name, reason string
	used         bool
}

// comments returns the ignore comments of a file.
func comments(fset *token.FileSet, f *ast.File) []*comment {
	var list []*comment
	for _, group := range f.Comments {
		for _, c := range group.List {
			rest, ok := strings.CutPrefix(c.Text, prefix)
			if !ok || rest != "" && rest[0] != ' ' && rest[0] != '\t' {
				continue
			}
			// What follows another // is a remark on the comment, not a reason.
			rest, _, _ = strings.Cut(rest, "//")
			name, reason, _ := strings.Cut(strings.TrimSpace(rest), " ")
			list = append(list, &comment{
				pos: c.Pos(), end: c.End(), line: fset.Position(c.Pos()).Line,
				name: name, reason: strings.TrimSpace(reason),
			})
		}
	}
	return list
}

// Reporter reports what no comment silences.
type Reporter struct {
	pass  *analysis.Pass
	files map[*token.File][]*comment
}

// For reads the comments of the package that pass works on.
func For(pass *analysis.Pass) *Reporter {
	r := &Reporter{pass, map[*token.File][]*comment{}}
	for _, f := range pass.Files {
		for _, c := range comments(pass.Fset, f) {
			if c.name == pass.Analyzer.Name && c.reason != "" {
				file := pass.Fset.File(f.FileStart)
				r.files[file] = append(r.files[file], c)
			}
		}
	}
	return r
}

// Report reports d unless a comment silences it.
func (r *Reporter) Report(d analysis.Diagnostic) {
	line := r.pass.Fset.Position(d.Pos).Line
	for _, c := range r.files[r.pass.Fset.File(d.Pos)] {
		if c.line == line || c.line == line-1 {
			c.used = true
			return
		}
	}
	r.pass.Report(d)
}

// Close reports the comments that silenced nothing; call it after the last Report.
func (r *Reporter) Close() {
	for _, f := range r.pass.Files {
		for _, c := range r.files[r.pass.Fset.File(f.FileStart)] {
			if !c.used {
				r.pass.Report(analysis.Diagnostic{Pos: c.pos, End: c.end,
					Message: fmt.Sprintf("%s %s silences nothing: remove it", prefix, c.name)})
			}
		}
	}
}

// Check makes the analyzer that reports malformed comments; known are the
// analyzers that can be named.
func Check(known ...*analysis.Analyzer) *analysis.Analyzer {
	var names []string
	for _, a := range known {
		names = append(names, a.Name)
	}
	return &analysis.Analyzer{
		Name: "ignore",
		Doc: "check comments that silence kilnvet\n\n" +
			"A finding is silenced by //kilnvet:ignore ANALYZER REASON on its line or the line\n" +
			"above. Reported are comments without a reason, and those whose analyzer is not one of\n" +
			strings.Join(names, ", ") + ".",
		Run: func(pass *analysis.Pass) (any, error) {
			for _, f := range pass.Files {
				for _, c := range comments(pass.Fset, f) {
					what := ""
					switch {
					case c.name == "":
						what = "names no analyzer"
					case !slices.Contains(names, c.name):
						what = fmt.Sprintf("names %q, which is no analyzer", c.name)
					case c.reason == "":
						what = "gives no reason"
					default:
						continue
					}
					pass.Report(analysis.Diagnostic{Pos: c.pos, End: c.end,
						Message: fmt.Sprintf("comment silences nothing: it %s; want %s ANALYZER REASON, ANALYZER one of %s", what, prefix, strings.Join(names, ", "))})
				}
			}
			return nil, nil
		},
	}
}
