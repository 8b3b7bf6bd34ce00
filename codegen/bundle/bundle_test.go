package bundle

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
)

const testTarget = "x86-64-v3"

func code() *Code {
	arena := func(offset int64) plan.Slice { return plan.Slice{Space: plan.Arena, Offset: offset, Bytes: 64} }
	p := &plan.Plan{
		Entry: "decode", Arena: 128, Binding: []plan.Binding{{Symbol: "B", Value: 1}}, States: []int{},
		Inputs:   []plan.Tensor{{Name: "x", Type: "f32[16]", Data: arena(0)}},
		Outputs:  []plan.Tensor{{Name: "y", Type: "f32[16]", Data: arena(64)}},
		Values:   []plan.Value{{Name: "x", Bytes: 64, First: -1}, {Name: "y", Offset: 64, Bytes: 64, Last: 1}},
		Launches: []plan.Launch{{Op: "neg", Grid: 1, Args: []plan.Arg{{Buf: arena(0), Mode: plan.Read}, {Buf: arena(64), Mode: plan.Write}, {Int: 16}}}},
	}
	return &Code{
		Module: &plan.Module{
			Version: plan.Version, Target: testTarget, Block: 1, Kernels: []plan.Kernel{{Symbol: "k", Form: "f", Spec: "s", Params: []string{"f32", "=f32", "int"}}}, Plans: []*plan.Plan{p},
			States: []plan.Storage{}, Weights: []plan.Storage{{Name: "w", Type: "f32[4]", Bytes: [2]int64{16, 0}}}, Decomposed: []plan.Decomposed{},
		},
		Object: []byte("object"), Pack: "graph @pack\n",
	}
}

func sample(t *testing.T) *Bundle {
	t.Helper()
	files, err := code().Encode()
	if err != nil {
		t.Fatal(err)
	}
	return &Bundle{
		Manifest: Manifest{Format: Format, Kiln: "test", LLVM: "LLVM", Model: "m", Targets: []string{testTarget}, Settings: Settings{Numerics: "production", Batch: []int{1}, Prefill: []int{16}}, OrderClass: map[string]string{"decode": "step"}},
		Config:   []byte("{}\n"),
		Code:     map[string]Files{testTarget: files.Emit("ll/k.ll", []byte("; k\n"))},
	}
}

func write(t *testing.T) (*Bundle, string) {
	t.Helper()
	b, dir := sample(t), filepath.Join(t.TempDir(), "m.kiln")
	if err := b.Write(dir); err != nil {
		t.Fatal(err)
	}
	return b, dir
}

func read(dir string) (*Bundle, *Code, error) {
	b, err := ReadManifest(dir)
	if err != nil {
		return nil, nil, err
	}
	c, err := b.ReadCode(dir, testTarget)
	return b, c, err
}

func TestRoundTrip(t *testing.T) {
	want, dir := write(t)
	got, c, err := read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(code(), c); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(want.Manifest, got.Manifest); d != "" {
		t.Error(d)
	}
	if ll, err := got.Emitted(dir, testTarget, "ll/k.ll"); err != nil || string(ll) != "; k\n" {
		t.Errorf("emitted %q, %v", ll, err)
	}
	if _, err := got.Emitted(dir, testTarget, "s/k.s"); err == nil || !strings.Contains(err.Error(), "has no "+testTarget+"/ir/s/k.s") {
		t.Errorf("not emitted: %v", err)
	}
	if err := want.Write(dir); err != nil {
		t.Errorf("a bundle is not replaced: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".kiln-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// TestArchive: the cache's form of a target's files, whole and cut short.
func TestArchive(t *testing.T) {
	want := sample(t).Code[testTarget]
	data, err := want.Archive()
	if err != nil {
		t.Fatal(err)
	}
	got, err := FromArchive(data)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for n := 0; n < len(data); n += 97 {
		cut, err := FromArchive(data[:n])
		if err == nil && !cmp.Equal(cut, want[:len(cut):len(cut)], cmpopts.EquateEmpty()) {
			t.Errorf("of the first %d of %d bytes other files are read", n, len(data))
		}
	}
}

// Targets that differ in features only lie side by side, each with its own plans.
func TestTargetIDs(t *testing.T) {
	b := sample(t)
	b.Manifest.Targets, b.Code = nil, map[string]Files{}
	names := []string{"gfx950", "gfx950:sramecc+:xnack-", "gfx950:xnack-"}
	for _, name := range names {
		c := code()
		c.Module.Target, c.Object = name, []byte("object for "+name)
		files, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		b.Manifest.Targets, b.Code[name] = append(b.Manifest.Targets, name), files
	}
	dir := filepath.Join(t.TempDir(), "m.kiln")
	if err := b.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name, "kernels.hsaco")); err != nil {
			t.Error(err)
		}
		if c, err := got.ReadCode(dir, name); err != nil || string(c.Object) != "object for "+name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Verify names every file that is not as it was. What people read is not read to run.
func TestVerify(t *testing.T) {
	b, dir := write(t)
	if err := b.Verify(dir); err != nil {
		t.Fatal(err)
	}
	names := []string{testTarget + "/ir/ll/k.ll", testTarget + "/plan-000.json"}
	for i, name := range names {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		err := b.Verify(dir)
		for _, name := range names[:i+1] {
			if err == nil || !strings.Contains(err.Error(), name+": the content is not what was compiled") {
				t.Errorf("error %v, want %s in it", err, name)
			}
		}
		if _, _, err := read(dir); (err != nil) != (i > 0) {
			t.Errorf("%s is damaged: reading the code: %v", name, err)
		}
	}
}

// A digest of code is one by the manifest and by the files. It says what runs, and
// nothing else.
func TestDigest(t *testing.T) {
	b, dir := write(t)
	files := b.Code[testTarget]
	want := files.Digest()
	read, err := ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := read.CodeDigest(testTarget); got != want {
		t.Errorf("by the manifest %s, by the files %s", got, want)
	}
	for i, f := range files {
		changed := slices.Clone(files)
		changed[i].Data = append(slices.Clone(f.Data), ' ')
		if same := changed.Digest() == want; same != strings.HasPrefix(f.Name, "ir/") {
			t.Errorf("%s has a byte more: the digest is the same: %v", f.Name, same)
		}
	}
	if files.Emit("s/k.s", nil).Digest() != want {
		t.Error("a file for people changes the digest")
	}
}

func TestPackGraph(t *testing.T) {
	const one = "graph @pack\nweight @w : f32[2]\n%0 = neg @w : f32[2]\noutput packed.w = %0\n"
	for _, tc := range []struct{ pack, want string }{
		{one, ""},
		{"graph", "pack.kir:1:6"},
		{one + strings.Replace(one, "@pack", "@more", 1), "pack.kir: 2 graphs, want one"},
	} {
		g, err := (&Code{Pack: tc.pack}).PackGraph()
		if tc.want == "" && (err != nil || ir.Text(g) != tc.pack) {
			t.Errorf("%q: %v", tc.pack, err)
		}
		if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%q: error %v, want %q in it", tc.pack, err, tc.want)
		}
	}
	if g, err := (&Code{}).PackGraph(); g != nil || err != nil {
		t.Errorf("nothing packed: %v, %v", g, err)
	}
}

func TestRefuses(t *testing.T) {
	plan0 := filepath.Join(testTarget, "plan-000.json")
	for _, tc := range []struct {
		name   string
		damage func(dir string) error
		want   string
	}{
		{"truncated code", func(dir string) error { return os.Truncate(filepath.Join(dir, testTarget, "kernels.so"), 3) }, "kernels.so: the content is not what was compiled"},
		{"edited plan", func(dir string) error { return os.WriteFile(filepath.Join(dir, plan0), []byte("{}"), 0o644) }, "plan-000.json: the content is not what was compiled"},
		{"missing plan", func(dir string) error { return os.Remove(filepath.Join(dir, plan0)) }, "plan-000.json: no such file"},
		{"edited config", func(dir string) error { return os.WriteFile(filepath.Join(dir, "config.json"), []byte("{ }"), 0o644) }, "config.json: the content is not what was compiled"},
		{"broken manifest", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(`{"format": `), 0o644)
		}, "manifest.json: offset "},
		{"unknown field", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(`{"formt": 1}`), 0o644)
		}, `unknown field "formt"`},
		{"other format", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(`{"format": 99}`), 0o644)
		}, "format 99, this kiln reads 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, dir := write(t)
			if err := tc.damage(dir); err != nil {
				t.Fatal(err)
			}
			if _, _, err := read(dir); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
	_, dir := write(t)
	b, err := ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.ReadCode(dir, "gfx950"); err == nil || !strings.Contains(err.Error(), "compiled for [x86-64-v3], not for gfx950") {
		t.Errorf("another target: %v", err)
	}
	other := filepath.Join(t.TempDir(), "other.kiln")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "manifest.json"} { // a manifest of something else does not make it one
		if name != "" {
			if err := os.WriteFile(filepath.Join(other, name), []byte("{}"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := sample(t).Write(other); err == nil || !strings.Contains(err.Error(), "is not a bundle") {
			t.Errorf("writing over a folder: %v", err)
		}
	}
}
