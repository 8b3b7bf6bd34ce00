package weights_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kiln-project/kiln/runtime/weights"
)

// folder makes a model folder of shards, each a list of one-element tensors,
// and an index if it is not empty.
func folder(t *testing.T, index string, shards map[string][]string) string {
	t.Helper()
	dir := t.TempDir()
	for file, names := range shards {
		var tensors []weights.Tensor
		for i, n := range names {
			tensors = append(tensors, weights.Int32Tensor(n, []int{1}, []int32{int32(i)}))
		}
		if err := weights.Write(filepath.Join(dir, file), tensors, map[string]string{"format": "pt", "shard": file}); err != nil {
			t.Fatal(err)
		}
	}
	if index != "" {
		writeFile(t, filepath.Join(dir, "model.safetensors.index.json"), index)
	}
	return dir
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, path string) *weights.Checkpoint {
	t.Helper()
	c, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestOpenShards(t *testing.T) {
	dir := folder(t, `{"metadata":{"total_size":12},"weight_map":{"model.norm.weight":"b.safetensors","a":"a.safetensors","lm_head.weight":"b.safetensors"}}`,
		map[string][]string{"a.safetensors": {"a"}, "b.safetensors": {"model.norm.weight", "lm_head.weight"}, "unused.safetensors": {"a", "z"}})
	c := open(t, dir)
	if d := cmp.Diff([]string{"a", "head.weight", "norm.weight"}, c.Names()); d != "" {
		t.Errorf("names (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]string{"format": "pt"}, c.Metadata()); d != "" {
		t.Errorf("metadata (-want +got):\n%s", d)
	}
	for _, name := range []string{"head.weight", "lm_head.weight", "model.lm_head.weight"} {
		x, err := c.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		want := &weights.Tensor{Name: "head.weight", DType: weights.I32, Shape: []int{1}, Data: []byte{1, 0, 0, 0}, File: filepath.Join(dir, "b.safetensors")}
		if d := cmp.Diff(want, x); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if !c.Has(name) {
			t.Errorf("Has(%q) is false", name)
		}
	}
	if c.Has("z") {
		t.Error("a tensor of an unlisted file is visible")
	}
}

func TestOpenRefuses(t *testing.T) {
	one := map[string][]string{"a.safetensors": {"a"}, "b.safetensors": {"b"}}
	for _, c := range []struct {
		name, index string
		shards      map[string][]string
		want        string // DIR stands for the folder
	}{
		{"empty folder", "", nil, "DIR: folder has neither model.safetensors nor model.safetensors.index.json"},
		{"not in its shard", `{"weight_map":{"a":"a.safetensors","b":"b.safetensors","c":"a.safetensors"}}`, one,
			`DIR/model.safetensors.index.json: tensor "c" is not in its shard DIR/a.safetensors`},
		{"in another shard", `{"weight_map":{"a":"b.safetensors","b":"a.safetensors"}}`, one,
			`DIR/model.safetensors.index.json: tensor "a" is not in its shard DIR/b.safetensors but in DIR/a.safetensors`},
		{"in two shards", `{"weight_map":{"a":"a.safetensors","b":"b.safetensors"}}`, map[string][]string{"a.safetensors": {"a"}, "b.safetensors": {"a", "b"}},
			`DIR/b.safetensors: tensor "a" is also in DIR/a.safetensors (canonical name "a")`},
		{"collision of spellings", `{"weight_map":{"head.weight":"a.safetensors","lm_head.weight":"b.safetensors"}}`,
			map[string][]string{"a.safetensors": {"head.weight"}, "b.safetensors": {"lm_head.weight"}},
			`DIR/b.safetensors: tensor "lm_head.weight" is also in DIR/a.safetensors (canonical name "head.weight")`},
		{"collision in the index", `{"weight_map":{"head.weight":"a.safetensors","lm_head.weight":"a.safetensors"}}`,
			map[string][]string{"a.safetensors": {"head.weight"}},
			`DIR/model.safetensors.index.json: tensors "head.weight" and "lm_head.weight" are both "head.weight"`},
		{"not listed", `{"weight_map":{"a":"a.safetensors"}}`, map[string][]string{"a.safetensors": {"a", "b"}},
			`DIR/model.safetensors.index.json: tensor "b" of DIR/a.safetensors is not listed`},
		{"missing shard", `{"weight_map":{"a":"a.safetensors","x":"gone.safetensors"}}`, one,
			"open checkpoint: stat DIR/gone.safetensors: no such file or directory"},
		{"bad index", `{"weight_map":[]}`, nil, `DIR/model.safetensors.index.json: weight_map: found "[" where "{" is expected`},
		{"leaves the folder", `{"weight_map":{"a":"../a.safetensors"}}`, one,
			`DIR/model.safetensors.index.json: weight_map: tensor "a": shard "../a.safetensors" is not the plain name of a .safetensors file`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := folder(t, c.index, c.shards)
			_, err := weights.Open(dir)
			if err == nil {
				t.Fatal("accepted")
			}
			if d := cmp.Diff(c.want, strings.ReplaceAll(filepath.ToSlash(err.Error()), filepath.ToSlash(dir), "DIR")); d != "" {
				t.Errorf("error (-want +got):\n%s", d)
			}
		})
	}
}

func TestOpenFileRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "d.safetensors"), 0o777); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "config.json"), "{}")
	writeFile(t, filepath.Join(dir, "empty.safetensors"), "")
	writeFile(t, filepath.Join(dir, "model.safetensors"), "\x02\x00\x00\x00\x00\x00\x00\x00{}")
	// The spellings collide within one file, which Write would not produce.
	entry := `{"dtype":"U8","shape":[1],"data_offsets":[`
	header := `{"head.weight":` + entry + `0,1]},"lm_head.weight":` + entry + `1,2]}}`
	writeFile(t, filepath.Join(dir, "twice.safetensors"), string([]byte{byte(len(header))})+"\x00\x00\x00\x00\x00\x00\x00"+header+"ab")
	for _, c := range []struct{ file, want string }{
		{"gone.safetensors", "no such file"},
		{"config.json", "config.json: neither a .safetensors file nor a model folder"},
		{"empty.safetensors", "empty.safetensors: file of 0 bytes is too short"},
		{"d.safetensors", "d.safetensors: folder has neither"},
		{"twice.safetensors", `twice.safetensors: tensor "lm_head.weight" is also in`},
	} {
		if _, err := weights.Open(filepath.Join(dir, c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", c.file, err, c.want)
		}
	}
	if c := open(t, dir); len(c.Names()) != 0 || len(c.Metadata()) != 0 {
		t.Errorf("an empty file holds %v and %v", c.Names(), c.Metadata())
	}
}

func TestLookupRefuses(t *testing.T) {
	dir := folder(t, "", map[string][]string{"model.safetensors": {"layers.0.attn.wq_a.weight", "norm.weight"}})
	c := open(t, dir)
	for _, l := range []struct{ name, want string }{
		{"layers.0.attn.wq_q.weight", `DIR: no tensor "layers.0.attn.wq_q.weight"; the nearest name is "layers.0.attn.wq_a.weight"`},
		{"model.layers.0.self_attn.q_b_proj.weight", `DIR: no tensor "layers.0.attn.wq_b.weight"; the nearest name is "layers.0.attn.wq_a.weight"`},
		{"embedding", `DIR: no tensor "embedding"`},
	} {
		_, err := c.Lookup(l.name)
		if err == nil {
			t.Fatalf("%s: found", l.name)
		}
		if d := cmp.Diff(l.want, strings.ReplaceAll(err.Error(), dir, "DIR")); d != "" {
			t.Errorf("error (-want +got):\n%s", d)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := c.Lookup("norm.weight"); err == nil || !strings.Contains(err.Error(), `tensor "norm.weight": checkpoint is closed`) {
		t.Errorf("after close: %v", err)
	}
	if c.Has("norm.weight") || len(c.Names()) != 0 {
		t.Error("tensors are left after close")
	}
}
