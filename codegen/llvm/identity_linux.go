package llvm

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// fileIdentity describes a file's content without reading it. changed is when its content
// or its entry last changed, which no program can set.
func fileIdentity(path string) (id string, changed time.Time, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", changed, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", changed, fmt.Errorf("%s: the system says too little about it", path)
	}
	changed = time.Unix(st.Ctim.Unix())
	return fmt.Sprintf("device %d inode %d, %d bytes, %d %d", st.Dev, st.Ino, st.Size, info.ModTime().UnixNano(), changed.UnixNano()), changed, nil
}
