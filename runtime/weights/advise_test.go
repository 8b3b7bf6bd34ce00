package weights

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Positions follow the files, and advice changes no byte, whatever it is about.
func TestAdvice(t *testing.T) {
	dir := t.TempDir()
	big := bytes.Repeat([]byte{1, 2, 3, 4, 5}, 1<<14)
	for file, name := range map[string]string{"model-00001.safetensors": "a", "model-00002.safetensors": "b"} {
		if err := Write(filepath.Join(dir, file), []Tensor{{Name: name, DType: U8, Shape: []int{len(big)}, Data: big}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	index := `{"weight_map": {"a": "model-00001.safetensors", "b": "model-00002.safetensors"}}`
	if err := os.WriteFile(filepath.Join(dir, indexFile), []byte(index), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a, err := c.Lookup("a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Lookup("b")
	if err != nil {
		t.Fatal(err)
	}
	first := int64(len(c.mappings[0]))
	for _, tc := range []struct {
		of   []byte
		want int64 // -1: not of the checkpoint
	}{
		{a.Data, first - int64(len(big))},
		{a.Data[7:9], first - int64(len(big)) + 7},
		{b.Data, first + int64(len(c.mappings[1])-len(big))},
		{big, -1},
		{nil, -1},
	} {
		at, ok := c.Position(tc.of)
		if ok != (tc.want >= 0) || ok && at != tc.want {
			t.Errorf("position %d %v, want %d", at, ok, tc.want)
		}
	}
	own := bytes.Clone(big)
	for _, part := range [][]byte{a.Data, a.Data[5000:9000], a.Data[:1], b.Data[len(big)-1:], own, nil} {
		c.Ahead(part)
		c.Behind(part)
	}
	if !bytes.Equal(a.Data, big) || !bytes.Equal(b.Data, big) || !bytes.Equal(own, big) {
		t.Error("advice changed bytes")
	}
}
