package codegen

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
)

// running is the executable of this process on Linux, also when its file was replaced
// since by another build, whose code must not be served as that one's.
const running = "/proc/self/exe"

// program is the digest of the running executable.
var program = sync.OnceValues(func() (string, error) {
	path, err := running, error(nil)
	if runtime.GOOS != "linux" {
		path, err = os.Executable()
	}
	if err != nil {
		return "", fmt.Errorf("the compile cache needs to know this program: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("the compile cache needs to know this program: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
})
