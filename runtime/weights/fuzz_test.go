package weights

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// FuzzParse checks that any bytes either give a one-line error with the file
// name, or tensors that tile the data and survive a round trip through Write.
func FuzzParse(f *testing.F) {
	for _, c := range accepted {
		f.Add(c.raw)
	}
	for _, c := range refused {
		f.Add(c.raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := parse("f.safetensors", raw)
		if err != nil {
			oneLine(t, err, "f.safetensors: ")
			return
		}
		total := 0
		tensors := map[string]Tensor{}
		var list []Tensor
		for _, x := range s.tensors {
			if size, err := byteSize(x.DType, x.Shape); err != nil || size != uint64(len(x.Data)) {
				t.Fatalf("tensor %q: %d bytes of data, %d expected, %v", x.Name, len(x.Data), size, err)
			}
			total += len(x.Data)
			tensors[x.Name] = *x
			list = append(list, *x)
		}
		if len(tensors) != len(list) {
			t.Fatal("two tensors of one name")
		}
		if data := len(raw) - prefixSize; total > data || total == 0 && len(list) > 0 {
			t.Fatalf("%d bytes of tensors in a file of %d", total, len(raw))
		}
		path := filepath.Join(t.TempDir(), "f.safetensors")
		if err := Write(path, list, s.metadata); err != nil {
			if strings.Contains(err.Error(), "canonical name") {
				return // legal in one file, ambiguous in a checkpoint
			}
			t.Fatal(err)
		}
		again, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s2, err := parse("f.safetensors", again)
		if err != nil {
			t.Fatal(err)
		}
		back := map[string]Tensor{}
		for _, x := range s2.tensors {
			back[x.Name] = *x
		}
		if d := cmp.Diff(tensors, back); d != "" {
			t.Fatalf("after a round trip (-want +got):\n%s", d)
		}
		if len(s.metadata) > 0 {
			if d := cmp.Diff(s.metadata, s2.metadata); d != "" {
				t.Fatalf("metadata after a round trip (-want +got):\n%s", d)
			}
		}
	})
}

// FuzzParseIndex checks that an index either gives a one-line error or only
// shard names that stay in the folder.
func FuzzParseIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":12,"x":[1,{"y":null}]},"weight_map":{"a":"model-00001-of-00001.safetensors"}}`))
	for _, c := range indexRefused {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseIndex(text)
		if err != nil {
			oneLine(t, err, "")
			return
		}
		for name, file := range m {
			if filepath.Base(file) != file || filepath.Dir(filepath.Join("d", file)) != "d" {
				t.Fatalf("tensor %q: shard %q leaves the folder", name, file)
			}
		}
	})
}

// FuzzCanonicalName checks that renaming twice changes nothing more and never
// empties a name.
func FuzzCanonicalName(f *testing.F) {
	for _, c := range canonicalNames {
		f.Add(c.in)
	}
	f.Fuzz(func(t *testing.T, name string) {
		once := CanonicalName(name)
		if twice := CanonicalName(once); twice != once {
			t.Fatalf("%q becomes %q, then %q", name, once, twice)
		}
		if once == "" && name != "" {
			t.Fatalf("%q becomes empty", name)
		}
	})
}

// oneLine checks the form of an error message.
func oneLine(t *testing.T, err error, prefix string) {
	t.Helper()
	msg := err.Error()
	if !strings.HasPrefix(msg, prefix) || len(msg) <= len(prefix) || len(msg) > 2000 ||
		strings.ContainsAny(msg, "\n\r") || !utf8.ValidString(msg) {
		t.Fatalf("bad message %q", msg)
	}
}
