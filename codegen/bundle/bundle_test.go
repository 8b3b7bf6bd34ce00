package bundle

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen/plan"
)

const testTarget = "x86-64-v3"

func sample() *Bundle {
	p := &plan.Plan{
		Version: plan.Version, Entry: "decode", Target: testTarget, Arena: 128,
		Binding:  []plan.Binding{{Symbol: "B", Value: 1}},
		Inputs:   []plan.Tensor{{Name: "x", Type: "f32[16]", Data: plan.Slice{Space: plan.Arena, Bytes: 64}}},
		Outputs:  []plan.Tensor{{Name: "y", Type: "f32[16]", Data: plan.Slice{Space: plan.Arena, Offset: 64, Bytes: 64}}},
		Launches: []plan.Launch{{Kernel: "k", Form: "f", Op: "neg", Grid: 1, Args: []plan.Arg{{Buf: &plan.Slice{Space: plan.Arena, Bytes: 64}, Mode: plan.Read}, {Buf: &plan.Slice{Space: plan.Arena, Offset: 64, Bytes: 64}, Mode: plan.Write}, {Int: 16}}}},
	}
	return &Bundle{
		Manifest: Manifest{Format: Format, Kiln: "test", LLVM: "LLVM", Model: "m", Targets: []string{testTarget}, Settings: Settings{Numerics: "production", Batch: []int{1}, Prefill: []int{16}}, OrderClass: map[string]string{"decode": "step"}},
		Config:   []byte("{}\n"), Pack: "graph @pack\n",
		Code: map[string]*Code{testTarget: {Plans: []*plan.Plan{p}, Object: []byte("object"), Kernels: []Kernel{{Symbol: "k", Form: "f", Spec: "s"}}}},
	}
}

func write(t *testing.T) (*Bundle, string) {
	t.Helper()
	b, dir := sample(), filepath.Join(t.TempDir(), "m.kiln")
	if err := b.Write(dir); err != nil {
		t.Fatal(err)
	}
	return b, dir
}

func read(dir string) (*Bundle, error) {
	b, err := ReadManifest(dir)
	if err == nil {
		_, err = b.ReadCode(dir, testTarget)
	}
	return b, err
}

func TestRoundTrip(t *testing.T) {
	want, dir := write(t)
	got, err := read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if err := want.Write(dir); err != nil {
		t.Errorf("a bundle is not replaced: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".kiln-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// Targets that differ in features only lie side by side, each with its own plans.
func TestTargetIDs(t *testing.T) {
	b := sample()
	b.Manifest.Targets, b.Code = nil, map[string]*Code{}
	names := []string{"gfx950", "gfx950:sramecc+:xnack-", "gfx950:xnack-"}
	for _, name := range names {
		code := *sample().Code[testTarget]
		p := *code.Plans[0]
		p.Target = name
		code.Plans, code.Object = []*plan.Plan{&p}, []byte("object for "+name)
		b.Manifest.Targets, b.Code[name] = append(b.Manifest.Targets, name), &code
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
		if _, err := got.ReadCode(dir, name); err != nil {
			t.Error(err)
		}
	}
	if d := cmp.Diff(b, got); d != "" {
		t.Error(d)
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
		}, "format 99, this kiln reads 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, dir := write(t)
			if err := tc.damage(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := read(dir); err == nil || !strings.Contains(err.Error(), tc.want) {
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
	if err := sample().Write(other); err == nil || !strings.Contains(err.Error(), "is not a bundle") {
		t.Errorf("writing over a folder: %v", err)
	}
}
