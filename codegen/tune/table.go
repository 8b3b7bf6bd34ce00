package tune

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Table is what one run measured for a target.
type Table struct {
	Run
	Rows []Row
}

// Run says how a table came about.
type Run struct {
	Target   string
	Kiln     string // version
	Date     string
	Device   string
	Driver   string
	Compiled string // the command that made the candidates
	Measured string // the command that measured them
	Method   string
}

// fields are the lines of a table's head, in order.
func (r *Run) fields() []field {
	return []field{
		{"target", &r.Target}, {"kiln", &r.Kiln}, {"date", &r.Date}, {"device", &r.Device}, {"driver", &r.Driver},
		{"compiled", &r.Compiled}, {"measured", &r.Measured}, {"method", &r.Method},
	}
}

type field struct {
	name  string
	value *string
}

// Row is what a kernel form takes for a shape.
type Row struct {
	Form string
	// From and To are the rows of which it holds. It was measured with To rows.
	From, To int
	Key      string // the shape, but for the rows
	// Times are those of all candidates: of the choice first, then by time.
	Times []Time
}

// Time is what a candidate took.
type Time struct {
	Choice string
	Us     float64
}

// Choice is what the row says.
func (r *Row) Choice() string { return r.Times[0].Choice }

// Find returns the row for a shape, or nil. A nil table has none.
func (t *Table) Find(form, key string, rows int) *Row {
	if t == nil {
		return nil
	}
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Form == form && r.Key == key && r.From <= rows && rows <= r.To {
			return r
		}
	}
	return nil
}

// first is the first line of a table.
const first = "# Written by kiln tune: docs/tune.md."

// Text is the table as Parse reads it. What it cannot read is an error.
func (t *Table) Text() (string, error) {
	text := t.text()
	if _, err := Parse("table", text); err != nil {
		return "", err
	}
	return text, nil
}

func (t *Table) text() string {
	var b strings.Builder
	b.WriteString(first + "\n")
	for _, f := range t.fields() {
		fmt.Fprintf(&b, "%s: %s\n", f.name, *f.value)
	}
	b.WriteByte('\n')
	rows := slices.Clone(t.Rows)
	slices.SortFunc(rows, Row.compare)
	for i := range rows {
		b.WriteString(rows[i].text() + "\n")
	}
	return b.String()
}

// compare orders rows: by form, shape and rows.
func (r Row) compare(o Row) int {
	return cmp.Or(strings.Compare(r.Form, o.Form), strings.Compare(r.Key, o.Key), r.From-o.From)
}

func (r *Row) text() string {
	times := slices.Clone(r.Times)
	slices.SortStableFunc(times[min(1, len(times)):], func(a, b Time) int {
		return cmp.Or(cmp.Compare(a.Us, b.Us), strings.Compare(a.Choice, b.Choice))
	})
	list := make([]string, len(times))
	for i, x := range times {
		list[i] = fmt.Sprintf("%s %.2f", x.Choice, x.Us)
	}
	return fmt.Sprintf("%s %d-%d %s: %s", r.Form, r.From, r.To, r.Key, strings.Join(list, ", "))
}

// Parse reads a table. It takes only what Text writes.
func Parse(file, text string) (*Table, error) {
	lines := strings.Split(text, "\n")
	at := func(i int, err error) error { return fmt.Errorf("%s:%d: %w", file, i+1, err) }
	if lines[0] != first {
		return nil, at(0, fmt.Errorf("want %q", first))
	}
	t := &Table{}
	n := 1
	for _, f := range t.fields() {
		value, ok := "", false
		if n < len(lines) {
			value, ok = strings.CutPrefix(lines[n], f.name+": ")
		}
		if !ok || value == "" || strings.TrimSpace(value) != value {
			return nil, at(n, fmt.Errorf("want %q and how the table was made", f.name+": "))
		}
		*f.value = value
		n++
	}
	if n+1 >= len(lines) || lines[n] != "" || lines[len(lines)-1] != "" {
		return nil, at(min(n, len(lines)-1), errors.New("want an empty line after the head, and a newline at the end"))
	}
	for i, line := range lines[:len(lines)-1] {
		if i <= n {
			continue
		}
		r, err := parseRow(line)
		if err == nil && len(t.Rows) > 0 {
			err = t.Rows[len(t.Rows)-1].before(&r)
		}
		if err != nil {
			return nil, at(i, err)
		}
		t.Rows = append(t.Rows, r)
	}
	return t, nil
}

// before reports what is wrong with a row that follows.
func (r *Row) before(next *Row) error {
	switch {
	case r.compare(*next) > 0:
		return errors.New("rows are not sorted by form, shape and rows")
	case r.Form == next.Form && r.Key == next.Key && next.From <= r.To:
		return fmt.Errorf("rows %d-%d overlap the %d-%d of the line before", next.From, next.To, r.From, r.To)
	}
	return nil
}

// parseRow reads a line: form, rows, shape, and after a colon the times.
func parseRow(line string) (Row, error) {
	var r Row
	head, times, ok := strings.Cut(line, ": ")
	if !ok {
		return r, errors.New(`want FORM ROWS-ROWS SHAPE: CHOICE US, OTHER US`)
	}
	words := strings.SplitN(head, " ", 3)
	if len(words) < 3 || words[2] == "" || strings.Join(strings.Fields(words[2]), " ") != words[2] {
		return r, fmt.Errorf("%q: want a form, rows and a shape", head)
	}
	r.Form, r.Key = words[0], words[2]
	from, to, _ := strings.Cut(words[1], "-")
	var err, err2 error
	r.From, err = strconv.Atoi(from)
	r.To, err2 = strconv.Atoi(to)
	if errors.Join(err, err2) != nil || r.From < 1 || r.To < r.From {
		return r, fmt.Errorf("rows %q: want two numbers, 1-16", words[1])
	}
	for _, x := range strings.Split(times, ", ") {
		choice, us, _ := strings.Cut(x, " ")
		f, err := strconv.ParseFloat(us, 64)
		switch {
		case choice == "":
			return r, errors.New("a choice has no name")
		case err != nil || !(f > 0) || math.IsInf(f, 0):
			return r, fmt.Errorf("choice %s: %q is no time in microseconds", choice, us)
		case slices.ContainsFunc(r.Times, func(t Time) bool { return t.Choice == choice }):
			return r, fmt.Errorf("choice %s has two times", choice)
		}
		r.Times = append(r.Times, Time{choice, f})
	}
	if want := r.text(); want != line {
		return r, fmt.Errorf("%q is not as kiln tune writes it: %q", line, want)
	}
	return r, nil
}
