package cli

import (
	"bytes"
	"fmt"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
)

// determinismRuns is how many compilations --check-determinism compares.
const determinismRuns = 5

// checkDeterminism compiles several times, each from the start, without a cache
// and in another order, and compares the files.
func checkDeterminism(cc *codegen.Compiler, build func(*codegen.Compiler) (bundle.Files, codegen.Stats, error)) (bundle.Files, codegen.Stats, error) {
	var first bundle.Files
	var stats codegen.Stats
	for i := range determinismRuns {
		c := *cc
		c.Cache, c.Seed = nil, uint64(i)
		files, st, err := build(&c)
		if err != nil {
			return nil, st, err
		}
		if i == 0 {
			first, stats = files, st
			continue
		}
		if name := differs(first, files); name != "" {
			return nil, st, &codedError{exitCheck, fmt.Errorf("--check-determinism: compilation %d of %d made another %s than the first", i+1, determinismRuns, name),
				"kiln compile --dump-dir A, twice, and compare the folders"}
		}
	}
	return first, stats, nil
}

// differs names the first file that is not the same, or "".
func differs(a, b bundle.Files) string {
	for i := range max(len(a), len(b)) {
		switch {
		case i >= len(a):
			return b[i].Name
		case i >= len(b) || a[i].Name != b[i].Name || !bytes.Equal(a[i].Data, b[i].Data):
			return a[i].Name
		}
	}
	return ""
}
