package emu

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen/llvm"
)

// memoryStore is a Store that counts.
type memoryStore struct {
	entries map[string][]byte
	puts    int
}

func (s *memoryStore) Get(key string) ([]byte, bool) {
	data, ok := s.entries[key]
	return data, ok
}

func (s *memoryStore) Put(key string, data []byte) error {
	s.puts++
	s.entries[key] = data
	return nil
}

// toolchain is LLVM, without which a test is skipped.
func toolchain(t testing.TB) *llvm.Toolchain {
	t.Helper()
	tools, err := llvm.Find(t.Context(), llvm.FindOptions{})
	if err != nil {
		t.Skipf("no LLVM (run make toolchain): %v", err)
	}
	return tools
}

// golden reads a file of another compiler's code objects.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../testdata/golden/triton", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestListingIsKept(t *testing.T) {
	tools := toolchain(t)
	store := &memoryStore{entries: map[string][]byte{}}
	l := Loader{ObjDump: tools.ObjDump, Version: "22", Store: store}
	code := golden(t, "add.gfx942.hsaco")
	first, err := l.Load(t.Context(), code)
	if err != nil {
		t.Fatal(err)
	}
	// From the store, no program is needed.
	none := Loader{ObjDump: "/nonexistent/llvm-objdump", Version: "22", Store: store}
	second, err := none.Load(t.Context(), code)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.listing, second.listing); diff != "" || len(first.listing["k_add"]) == 0 {
		t.Errorf("the kept listing differs:\n%s", diff)
	}
	for _, c := range []struct {
		name string
		l    Loader
		code []byte
	}{
		{"another LLVM", Loader{ObjDump: none.ObjDump, Version: "23", Store: store}, code},
		{"other code", none, golden(t, "add.gfx950.hsaco")},
	} {
		if _, err := c.l.Load(t.Context(), c.code); err == nil || !strings.Contains(err.Error(), "/nonexistent/llvm-objdump") {
			t.Errorf("%s: error %v, want one of the missing disassembler", c.name, err)
		}
	}
	// An entry that is not understood is made again.
	for key := range maps.Clone(store.entries) {
		store.entries[key] = []byte("damaged")
	}
	if _, err := l.Load(t.Context(), code); err != nil {
		t.Fatal(err)
	}
	if store.puts != 2 || slices.ContainsFunc(slices.Collect(maps.Values(store.entries)), func(b []byte) bool { return string(b) == "damaged" }) {
		t.Errorf("%d entries were stored, want 2, the second over the damaged one", store.puts)
	}
}
