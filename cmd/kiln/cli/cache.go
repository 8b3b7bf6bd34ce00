package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/kiln-project/kiln/codegen"
)

const cacheHelp = `cache clean removes the compiled kernels that run, logits and compile keep, and
the disassemblies of launch. Nothing else in the folder is touched.`

// cacheDir is the folder of compiled kernels.
func cacheDir(f *flags) (string, error) {
	if dir := f.text("cache-dir"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", &codedError{exitFailed, fmt.Errorf("no cache folder: %w", err), "--cache-dir DIR"}
	}
	return filepath.Join(dir, "kiln"), nil
}

func runCache(e *env, f *flags, args []string) error {
	if args[0] != "clean" {
		return usagef("kiln cache clean", "cache: unknown action %q", args[0])
	}
	dir, err := cacheDir(f)
	if err != nil {
		return err
	}
	files, bytes, err := codegen.OpenCache(dir).Clean()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.stdout, "%s: removed %d files, %d bytes\n", dir, files, bytes)
	return err
}
