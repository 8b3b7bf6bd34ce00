//go:build !linux

package llvm

import (
	"errors"
	"time"
)

// fileIdentity is known on Linux alone; elsewhere programs are asked each time.
func fileIdentity(string) (id string, changed time.Time, err error) {
	return "", changed, errors.ErrUnsupported
}
