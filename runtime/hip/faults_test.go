package hip

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestReleaseOf(t *testing.T) {
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "version")
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, tc := range []struct {
		version int
		file    string
		want    string // release, or error
		note    string // part of it
	}{
		{50221153, "", "5.2.?", ""},
		{70226015, file("7.2.1-43\n"), "7.2.1", ""},
		{71400000, file("7.14.0\n"), "7.14.0", ""},
		{70226015, file("7.13.0-1\n"), "7.2.?", "says ROCm 7.13.0, the library that was loaded is HIP 7.2.26015, which counts"},
		{70226015, file("7.2\n"), `holds "7.2", want MAJOR.MINOR.PATCH-BUILD`, ""},
		{70226015, file("7.2.1 (two)"), `holds "7.2.1 (two)"`, ""},
		{70226015, file("ROCm"), `holds "ROCm"`, ""},
		{70226015, file(""), `holds ""`, ""},
		{70226015, "/absent/version", "/absent/version: no such file", ""},
	} {
		r, note, err := ReleaseOf(tc.version, tc.file)
		got := r.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tc.want) || !strings.Contains(note, tc.note) || (note == "") != (tc.note == "") {
			t.Errorf("%d, %s: %s, note %q; want %s, %q", tc.version, tc.file, got, note, tc.want, tc.note)
		}
	}
}

func TestAssess(t *testing.T) {
	for _, tc := range []struct {
		release   Release
		chip      string
		overrides []string
		want      string // of the lines, each up to its first colon
	}{
		{Release{5, 2, 3}, "gfx90a", nil, ""},
		{Release{5, 2, 1}, "gfx90a", nil, "graphs off"},
		{Release{5, 2, anyPatch}, "gfx942", nil, "graphs off"},
		{Release{6, 2, 4}, "gfx942", nil, ""},
		{Release{6, 4, 0}, "gfx942", nil, "capture off"},
		{Release{6, 4, 0}, "gfx942", []string{"--graph-build capture"}, "not capture off, because of --graph-build capture"},
		{Release{6, 4, 1}, "gfx942", nil, ""},
		{Release{7, 1, 1}, "gfx942", nil, ""},
		{Release{7, 2, 0}, "gfx942", nil, "graphs off"},
		{Release{7, 2, 3}, "gfx942", nil, "graphs off"},
		{Release{7, 2, 4}, "gfx942", nil, ""},
		{Release{7, 2, 4}, "gfx950", nil, "graphs off"},
		{Release{7, 2, anyPatch}, "gfx942", nil, "graphs off"},
		{Release{7, 2, 3}, "gfx942", []string{"--graph-build explicit"}, "not graphs off, because of --graph-build explicit"},
		{Release{7, 2, 3}, "gfx942", []string{"--graph-build capture"}, "graphs off"},
		{Release{7, 2, 3}, "gfx1201", nil, ""},
		{Release{7, 2, 5}, "gfx950", nil, "ROCm 7.2.5 is newer than every release with a known fault (7.2.4)"},
		{Release{7, 14, 0}, "gfx950", nil, "ROCm 7.14.0 is newer than every release with a known fault (7.2.4)"},
		{Release{7, 14, anyPatch}, "gfx942", nil, "ROCm 7.14.? is newer than every release with a known fault (7.2.4)"},
	} {
		a, err := Assess(tc.release, tc.chip, tc.overrides...)
		if err != nil {
			t.Fatal(err)
		}
		var heads []string
		for _, line := range a.Lines() {
			head, rest, _ := strings.Cut(line, ": ")
			heads = append(heads, head)
			if rest == "" || strings.Contains(line, "\n") {
				t.Errorf("line %q", line)
			}
		}
		if got := strings.Join(heads, "; "); got != tc.want {
			t.Errorf("ROCm %s on %s with %v: %q, want %q", tc.release, tc.chip, tc.overrides, got, tc.want)
		}
		if got, want := a.Has(GraphsOff), strings.HasPrefix(tc.want, "graphs off"); got != want {
			t.Errorf("ROCm %s on %s: graphs off %t", tc.release, tc.chip, got)
		}
		if got, want := a.Has(CaptureOff), strings.HasPrefix(tc.want, "capture off"); got != want {
			t.Errorf("ROCm %s on %s: capture off %t", tc.release, tc.chip, got)
		}
	}
	if _, err := Assess(Release{7, 2, 0}, "gfx942", "--graph-bild explicit"); err == nil || !strings.Contains(err.Error(), `set aside with "--graph-bild explicit"`) {
		t.Errorf("error %v", err)
	}
	a, err := Assess(Release{7, 2, 1}, "gfx942")
	want := []string{"graphs off: ROCm 7.2.1 on gfx942: replays give corrupt output in one of five processes, launches do not; " +
		"https://github.com/ROCm/clr/issues/279; --graph-build explicit sets this aside"}
	if diff := cmp.Diff(want, a.Lines()); err != nil || diff != "" {
		t.Errorf("error %v (-want +got)\n%s", err, diff)
	}
}

// Every row is whole.
func TestFaultsTable(t *testing.T) {
	for _, f := range Faults {
		if f.From.compare(f.To) > 0 || f.From.Patch < 0 || f.To.Patch < 0 || f.What == "" || !strings.HasPrefix(f.Source, "https://") ||
			(f.Effect != GraphsOff && f.Effect != CaptureOff) || !strings.HasPrefix(f.Override, "--") {
			t.Errorf("row %+v", f)
		}
		for _, chip := range f.Chips {
			if !strings.HasPrefix(chip, "gfx") || strings.Contains(chip, ":") {
				t.Errorf("row %+v: chip %s", f, chip)
			}
		}
	}
}

func TestOverrideWarning(t *testing.T) {
	node := func(version string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("cpu_cores_count 0\ngfx_target_version " + version + "\nsimd_count 304\n")}
	}
	topology := func(versions ...string) fstest.MapFS {
		m := fstest.MapFS{"nodes/0/properties": node("0")} // the CPU
		for i, v := range versions {
			m["nodes/"+string(rune('1'+i))+"/properties"] = node(v)
		}
		return m
	}
	for _, tc := range []struct {
		value    string
		topology fstest.MapFS
		want     string // part of the warning or error; "" for neither
	}{
		{"", topology("90402"), ""},
		{"9.4.2", topology("90500"), "HSA_OVERRIDE_GFX_VERSION=9.4.2 makes gfx950 claim to be gfx942: code for gfx942 runs on it"},
		{"10.3.0", topology("100302", "110000", "100302"), "makes gfx1032, gfx1100 claim to be gfx1030"},
		{"9.0.10", topology("90006"), "makes gfx906 claim to be gfx90a"},
		{"9.0.10", topology("90010"), "is set and changes nothing: the GPU is gfx90a"},
		{"11.0.0", topology(), "makes an unknown chip claim to be gfx1100"},
		{"11.0.0", fstest.MapFS{}, "makes an unknown chip claim to be gfx1100"},
		{"gfx942", topology(), `="gfx942" is no version of a chip: want MAJOR.MINOR.STEPPING`},
		{"9.4", topology(), "is no version of a chip"},
		{"9.4.16", topology(), "is no version of a chip"},
		{"9.4.-1", topology(), "is no version of a chip"},
		{"9.4.2", topology("many"), `nodes/1/properties: gfx_target_version "many" is no number`},
		{"9.4.2", fstest.MapFS{"nodes/0/name": node("0")}, "nodes/0/properties"},
	} {
		warning, err := OverrideWarning(tc.value, tc.topology)
		got := warning
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") || strings.Contains(got, "\n") {
			t.Errorf("%q: %q, error %v; want %s", tc.value, warning, err, tc.want)
		}
	}
	if got, err := OverrideWarning("9.4.2", nil); err != nil || !strings.Contains(got, "an unknown chip claim to be gfx942") {
		t.Errorf("%q, error %v", got, err)
	}
}
