package weights_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kiln-project/kiln/runtime/weights"
	"pgregory.net/rapid"
)

func TestWriteBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.safetensors")
	err := weights.Write(path, []weights.Tensor{
		weights.Int32Tensor("b", []int{2, 1}, []int32{1, -1}),
		{Name: "a<\"\n", DType: weights.Bool, Shape: nil, Data: []byte{1}},
	}, map[string]string{"z": "1", "format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	header := `{"__metadata__":{"format":"pt","z":"1"},"a<\"\n":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]},` +
		`"b":{"dtype":"I32","shape":[2,1],"data_offsets":[1,9]}}`
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	want := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	want = append(want, 1, 1, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF)
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("file (-want +got):\n%s", d)
	}
}

// TestWriteProperty writes random tensors in two orders and reads them back.
func TestWriteProperty(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z."\\é ]{1,6}`), 0, 6, weights.CanonicalName).Draw(t, "names")
		var tensors []weights.Tensor
		for _, name := range names {
			x := weights.Tensor{Name: weights.CanonicalName(name), Shape: rapid.SliceOfN(rapid.IntRange(1, 3), 0, 4).Draw(t, "shape"),
				DType: weights.DType(rapid.IntRange(int(weights.F8E4M3), int(weights.I64)).Draw(t, "dtype"))}
			n := x.DType.Size()
			for _, d := range x.Shape {
				n *= d
			}
			x.Data = rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "data")
			tensors = append(tensors, x)
		}
		metadata := rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(t, "metadata")
		one, two := filepath.Join(dir, "one.safetensors"), filepath.Join(dir, "two.safetensors")
		if err := weights.Write(one, tensors, metadata); err != nil {
			t.Fatal(err)
		}
		reversed := slices.Clone(tensors)
		slices.Reverse(reversed)
		if err := weights.Write(two, reversed, metadata); err != nil {
			t.Fatal(err)
		}
		a, _ := os.ReadFile(one)
		b, _ := os.ReadFile(two)
		if !bytes.Equal(a, b) {
			t.Fatal("the order of the tensors shows in the file")
		}
		if n := binary.LittleEndian.Uint64(a); n%8 != 0 || !json.Valid(a[8:8+n]) {
			t.Fatalf("bad header of %d bytes", n)
		}
		c, err := weights.Open(one)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if len(c.Names()) != len(tensors) {
			t.Fatalf("%d tensors came back of %d", len(c.Names()), len(tensors))
		}
		for _, want := range tensors {
			got, err := c.Lookup(want.Name)
			if err != nil {
				t.Fatal(err)
			}
			want.File = one
			if d := cmp.Diff(&want, got); d != "" {
				t.Fatalf("(-want +got):\n%s", d)
			}
		}
		if d := cmp.Diff(metadata, c.Metadata()); d != "" {
			t.Fatalf("metadata (-want +got):\n%s", d)
		}
	})
}

func TestWriteRefuses(t *testing.T) {
	x := func(name string) weights.Tensor { return weights.Int32Tensor(name, []int{1}, []int32{1}) }
	for _, c := range []struct {
		name     string
		tensors  []weights.Tensor
		metadata map[string]string
		want     string
	}{
		{"repeated name", []weights.Tensor{x("a"), x("a")}, nil, `tensors "a" and "a" have the same canonical name "a"`},
		{"repeated after renaming", []weights.Tensor{x("lm_head.weight"), x("head.weight")}, nil,
			`tensors "head.weight" and "lm_head.weight" have the same canonical name "head.weight"`},
		{"no name", []weights.Tensor{x("")}, nil, `"" is not a valid tensor name`},
		{"reserved name", []weights.Tensor{x("__metadata__")}, nil, `"__metadata__" is not a valid tensor name`},
		{"name not utf-8", []weights.Tensor{x("\xff")}, nil, `"\xff" is not a valid tensor name`},
		{"metadata not utf-8", nil, map[string]string{"a": "\xff"}, `metadata "a" is not valid utf-8`},
		{"size", []weights.Tensor{weights.Float32Tensor("a", []int{3}, make([]float32, 2))}, nil, `tensor "a": F32 of shape [3] takes 12 bytes, the data has 8`},
		{"no dtype", []weights.Tensor{{Name: "a"}}, nil, `tensor "a": dtype DType(0) is not supported`},
		{"empty dimension", []weights.Tensor{{Name: "a", DType: weights.U8, Shape: []int{0}}}, nil, `tensor "a": shape: dimension 0 is 0, must be at least 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "f.safetensors")
			writeFile(t, path, "old")
			err := weights.Write(path, c.tensors, c.metadata)
			if want := "write " + path + ": " + c.want; err == nil || err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
			untouched(t, dir, path)
		})
	}
}

// untouched checks that a failed Write left the old file and nothing else.
func untouched(t *testing.T, dir, path string) {
	t.Helper()
	if old, err := os.ReadFile(path); err != nil || string(old) != "old" {
		t.Errorf("the old file reads %q, %v", old, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("files left: %v, %v", files, err)
	}
}

func TestWriteAtomic(t *testing.T) {
	dir := t.TempDir()
	if err := weights.Write(filepath.Join(dir, "gone", "f.safetensors"), nil, nil); err == nil {
		t.Error("wrote into a folder that does not exist")
	}
	// The rename fails on a folder; the temporary file must go.
	if err := os.MkdirAll(filepath.Join(dir, "f.safetensors", "sub"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := weights.Write(filepath.Join(dir, "f.safetensors"), nil, nil); err == nil {
		t.Error("replaced a folder")
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("files left: %v, %v", files, err)
	}
	// An open checkpoint keeps its content while its file is replaced.
	path := filepath.Join(dir, "g.safetensors")
	for round := range int32(2) {
		if err := weights.Write(path, []weights.Tensor{weights.Int32Tensor("a", nil, []int32{round})}, nil); err != nil {
			t.Fatal(err)
		}
		c := open(t, path)
		defer func() {
			x, err := c.Lookup("a")
			if err != nil || x.Data[0] != byte(round) {
				t.Errorf("content of round %d changed: %v, %v", round, x, err)
			}
		}()
	}
}
