package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
)

// TestCompileWarm: a compilation from the cache writes and says what the first one did:
// where a bundle is already, elsewhere, over one that was changed, and with single files of
// the cache removed or damaged, which is reported.
func TestCompileWarm(t *testing.T) {
	needGPU(t)
	dir := t.TempDir()
	cache := filepath.Join(dir, "cache")
	compile := func(name string, more ...string) result {
		t.Helper()
		return kiln(t, append([]string{"compile", "--model", tinyModel, "--target", "gfx950", "--layers", "1", "--batch", "1", "--prefill", "16", "--speculate", "0",
			"--cache-dir", cache, "-o", filepath.Join(dir, name)}, more...)...).ok(t)
	}
	cold := compile("a.kiln")
	if !strings.Contains(cold.stdout, " (0 from the cache)") {
		t.Fatalf("standard output %q", cold.stdout)
	}
	want := tree(t, filepath.Join(dir, "a.kiln"))
	same := func(what, name string) {
		t.Helper()
		if have := tree(t, filepath.Join(dir, name)); !reflect.DeepEqual(have, want) {
			t.Errorf("%s: other files", what)
		}
	}
	warm := func(what, name string) {
		t.Helper()
		r := compile(name)
		same(what, name)
		if strings.Contains(r.stdout, " (0 from the cache)") {
			t.Errorf("%s: nothing came from the cache: %q", what, r.stdout)
		}
		for _, out := range [][2]string{{r.stdout, cold.stdout}, {r.stderr, cold.stderr}} {
			have := strings.ReplaceAll(out[0], name, "a.kiln")
			if have, first := untimed.ReplaceAllString(have, ""), untimed.ReplaceAllString(out[1], ""); have != first {
				t.Errorf("%s: says %q, the first time %q", what, have, first)
			}
		}
	}
	warm("again", "a.kiln")
	warm("elsewhere", "b.kiln")
	plan, module := filepath.Join(dir, "a.kiln", "gfx950", "plan-000.json"), filepath.Join(dir, "a.kiln", "gfx950", "module.json")
	for _, tc := range []struct {
		what   string
		change func() error
	}{
		{"a changed file", func() error { return os.WriteFile(plan, []byte("x"), 0o644) }},
		{"a file more", func() error { return os.WriteFile(module+"2", nil, 0o644) }},
		{"a file less", func() error { return os.Remove(module) }},
		{"another name", func() error { return os.Rename(module, module+"2") }},
	} {
		if err := tc.change(); err != nil {
			t.Fatal(err)
		}
		warm(tc.what, "a.kiln")
	}
	if r := compile("c.kiln", "--time-passes"); !strings.Contains(r.stderr, "select-kernels") {
		t.Errorf("--time-passes on a full cache says %q", r.stderr)
	}
	same("with --time-passes", "c.kiln")
	if compile("c.kiln", "--emit", "kir"); len(tree(t, filepath.Join(dir, "c.kiln"))) <= len(want) {
		t.Error("--emit kir on a full cache kept no graphs")
	}

	list, err := os.ReadDir(cache)
	if err != nil {
		t.Fatal(err)
	}
	var path string
	var data []byte
	for _, e := range list {
		path = filepath.Join(cache, e.Name())
		if data = readFile(t, path); strings.HasPrefix(string(data), want["/gfx950/plan-000.json"]) {
			break
		}
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	r := compile("d.kiln")
	same("a damaged file", "d.kiln")
	if !strings.Contains(r.stderr, "note: "+path+" was damaged: what it held was made again\n") {
		t.Errorf("standard error does not say that %s was damaged: %q", path, r.stderr)
	}
	warm("after the damage", "d.kiln")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	warm("a file of the cache less", "d.kiln")
}

// untimed matches what may differ of what a compilation says: progress, and how much was
// cached.
var untimed = regexp.MustCompile(`(?m)^.* \(\d+ s\)\n| \(\d+ from the cache\)`)

// tree is the content of all files below a folder.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files[strings.TrimPrefix(path, dir)] = string(readFile(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestCompilationKey: each field of a config and of the options changes the key, and so
// does each setting that chooses buckets.
func TestCompilationKey(t *testing.T) {
	c, err := dsv4.LoadConfig(tinyModel)
	if err != nil {
		t.Fatal(err)
	}
	cn := &compilation{c: c, set: bundle.Settings{Batch: []int{1}, Prefill: []int{16}}, config: passes.Config{Set: map[string]int{}}}
	keys := map[string]string{strings.Join(cn.key(), "\n"): "as it was"}
	note := func(what string) {
		t.Helper()
		key := strings.Join(cn.key(), "\n")
		if other, ok := keys[key]; ok {
			t.Errorf("%s: the key of %s", what, other)
		}
		keys[key] = what
	}
	var walk func(what string, v reflect.Value)
	walk = func(what string, v reflect.Value) {
		was := reflect.New(v.Type()).Elem()
		was.Set(v)
		switch {
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				walk(what+"."+v.Type().Field(i).Name, v.Field(i))
			}
			return
		case v.Kind() == reflect.Slice:
			v.Set(reflect.Append(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()+1), v), reflect.Zero(v.Type().Elem())))
		case v.CanInt():
			v.SetInt(v.Int() + 1)
		case v.CanUint():
			v.SetUint(v.Uint() + 1)
		case v.CanFloat():
			v.SetFloat(v.Float() * (1 + 1e-15))
			if was.Float() == 0 {
				v.SetFloat(1)
			}
		case v.Kind() == reflect.String:
			v.SetString(v.String() + "x")
		case v.Kind() == reflect.Bool:
			v.SetBool(!v.Bool())
		default:
			t.Errorf("%s is a %s: does the key say what it is?", what, v.Kind())
		}
		note(what)
		v.Set(was)
	}
	walk("config", reflect.ValueOf(cn.c).Elem())
	walk("options", reflect.ValueOf(&cn.opts).Elem())
	for _, field := range []string{"MaxSeq", "Speculate", "Batch", "Prefill"} {
		walk(field, reflect.ValueOf(&cn.set).Elem().FieldByName(field))
	}
	cn.config.Set["moe_fused_rows"]++
	note("a threshold")
}
