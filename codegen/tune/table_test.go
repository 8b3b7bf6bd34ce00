package tune

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const head = `# Written by kiln tune: docs/tune.md.
target: sm_90
kiln: 1.2.3
date: 2026-12-01
device: cuda:0, NVIDIA H200, sm_90
driver: CUDA 13.0
compiled: kiln tune --model M --target sm_90
measured: kiln tune --from DIR --device cuda
method: medians

`

const rows = `block_linear_mma 1-8 n1536 k4096: tile1x1 12.31, tile1x2 13.02
linear_mma 1-1 n4096 k4096 bf16: tile1x4 20.00, tile1x1 19.90, tile1x2 21.00
linear_mma 2-16 n4096 k4096 bf16: tile2x1 22.50
linear_mma 64-64 n4096 k4096 bf16: tile8x2 80.10, tile4x1 81.00, tile4x2 81.00
`

func TestParse(t *testing.T) {
	table, err := Parse("t.txt", head+rows)
	if err != nil {
		t.Fatal(err)
	}
	text, err := table.Text()
	if err != nil || text != head+rows {
		t.Errorf("error %v, -file +text:\n%s", err, cmp.Diff(head+rows, text))
	}
	if table.Target != "sm_90" || table.Method != "medians" || table.Compiled != "kiln tune --model M --target sm_90" {
		t.Errorf("run %+v", table.Run)
	}
	empty, err := Parse("t.txt", head)
	if err != nil || len(empty.Rows) != 0 {
		t.Errorf("a table without rows: %v, error %v", empty, err)
	}
}

// Text is the same whatever the order of rows and of the candidates that were not taken.
func TestTextSorts(t *testing.T) {
	table, err := Parse("t.txt", head+rows)
	if err != nil {
		t.Fatal(err)
	}
	r := table.Rows
	r[0], r[3] = r[3], r[0]
	r[0].Times[1], r[0].Times[2] = r[0].Times[2], r[0].Times[1]
	if text, err := table.Text(); err != nil || text != head+rows {
		t.Errorf("error %v, -want +got:\n%s", err, cmp.Diff(head+rows, text))
	}
}

func TestFind(t *testing.T) {
	table, err := Parse("t.txt", head+rows)
	if err != nil {
		t.Fatal(err)
	}
	const key = "n4096 k4096 bf16"
	for _, tc := range []struct {
		form, key string
		rows      int
		want      string
	}{
		{"linear_mma", key, 1, "tile1x4"},
		{"linear_mma", key, 2, "tile2x1"},
		{"linear_mma", key, 16, "tile2x1"},
		{"linear_mma", key, 17, ""},
		{"linear_mma", key, 63, ""},
		{"linear_mma", key, 64, "tile8x2"},
		{"linear_mma", key, 65, ""},
		{"linear_mma", "n4096 k4096", 1, ""},
		{"linear", key, 1, ""},
		{"block_linear_mma", "n1536 k4096", 8, "tile1x1"},
	} {
		got := ""
		if r := table.Find(tc.form, tc.key, tc.rows); r != nil {
			got = r.Choice()
		}
		if got != tc.want {
			t.Errorf("%s, %s, %d rows: %q, want %q", tc.form, tc.key, tc.rows, got, tc.want)
		}
	}
	if r := (*Table)(nil).Find("linear_mma", key, 1); r != nil {
		t.Errorf("no table has row %v", r)
	}
}

func TestParseErrors(t *testing.T) {
	replaced := func(old, new string) string {
		text := strings.Replace(head+rows, old, new, 1)
		if text == head+rows {
			t.Fatalf("%q is not in the table", old)
		}
		return text
	}
	for _, tc := range []struct{ text, want string }{
		{"", `t.txt:1: want "# Written by kiln tune`},
		{"# Something else\n", "t.txt:1: "},
		{first, `t.txt:2: want "target: "`},
		{replaced("driver: CUDA 13.0\n", ""), `t.txt:6: want "driver: "`},
		{replaced("date: 2026-12-01", "date: "), `t.txt:4: want "date: "`},
		{replaced("method: medians\n\n", "method: medians\n"), "t.txt:10: want an empty line after the head"},
		{strings.TrimSuffix(head+rows, "\n"), "t.txt:10: want an empty line after the head, and a newline at the end"},
		{head + "\n" + rows, "t.txt:11: want FORM ROWS-ROWS SHAPE: CHOICE US, OTHER US"},
		{replaced("linear_mma 1-1 n4096 k4096 bf16: ", "linear_mma 1-1: "), `t.txt:12: "linear_mma 1-1": want a form, rows and a shape`},
		{replaced(" 1-8 ", " 8 "), `t.txt:11: rows "8": want two numbers`},
		{replaced(" 1-8 ", " 9-8 "), `t.txt:11: rows "9-8": want two numbers`},
		{replaced(" 1-8 ", " 0-8 "), `t.txt:11: rows "0-8": want two numbers`},
		{replaced(" 1-8 ", " +1-8 "), `t.txt:11: "block_linear_mma +1-8 n1536 k4096: tile1x1 12.31, tile1x2 13.02" is not as kiln tune writes it`},
		{replaced("12.31", "-1.00"), `t.txt:11: choice tile1x1: "-1.00" is no time`},
		{replaced("12.31", "NaN"), `t.txt:11: choice tile1x1: "NaN" is no time`},
		{replaced("12.31", "+Inf"), `t.txt:11: choice tile1x1: "+Inf" is no time`},
		{replaced("12.31", "12.3"), "is not as kiln tune writes it"},
		{replaced("tile1x1 12.31", "12.31"), `choice 12.31: "" is no time`},
		{replaced("tile1x2 13.02", "tile1x1 13.02"), "t.txt:11: choice tile1x1 has two times"},
		{replaced("tile1x1 19.90, tile1x2 21.00", "tile1x2 21.00, tile1x1 19.90"), "t.txt:12: "},
		{replaced("linear_mma 2-16", "linear_mma 1-16"), "t.txt:13: rows 1-16 overlap the 1-1 of the line before"},
		{head + "b 1-1 k: x 1.00\na 1-1 k: x 1.00\n", "t.txt:12: rows are not sorted"},
	} {
		if _, err := Parse("t.txt", tc.text); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q\nerror %v, want %q", tc.text, err, tc.want)
		}
	}
	for _, key := range []string{"a: b", "a\nb", ""} {
		table := &Table{Run: Run{"t", "k", "d", "d", "d", "c", "m", "m"}, Rows: []Row{{"f", 1, 1, key, []Time{{"x", 1}}}}}
		if text, err := table.Text(); err == nil {
			t.Errorf("key %q: text %q, want an error", key, text)
		}
	}
}

func TestTables(t *testing.T) {
	if _, err := committed(); err != nil {
		t.Error(err)
	}
	if table, err := For("none"); table != nil || err != nil {
		t.Errorf("target none: table %v, error %v", table, err)
	}
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	got, err := read(fstest.MapFS{"tables/README.md": file("x"), "tables/sm_90.txt": file(head + rows)})
	if err != nil || len(got) != 1 || got["sm_90"].Rows[0].Form != "block_linear_mma" {
		t.Errorf("tables %v, error %v", got, err)
	}
	_, err = read(fstest.MapFS{"tables/gfx942.txt": file(head + rows), "tables/sm_90.txt": file("x")})
	const want = "tables/gfx942.txt:2: is the table of target sm_90\ntables/sm_90.txt:1: want"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

// What Parse takes, Text writes again, byte by byte.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", head, head + rows, head + "f 1-2 k: a 1.00, b 0.01\n", head + "f 1-1 k k : a 1e3\n", strings.Replace(head, "kiln: ", "kiln:  ", 1)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		table, err := Parse("t", text)
		if err != nil {
			return
		}
		again, err := table.Text()
		if err != nil || again != text {
			t.Errorf("%q\nerror %v, written as %q", text, err, again)
		}
		for i := range table.Rows {
			if r := &table.Rows[i]; table.Find(r.Form, r.Key, r.From) != r || table.Find(r.Form, r.Key, r.To) != r {
				t.Errorf("row %s is not found", r.text())
			}
		}
	})
}
