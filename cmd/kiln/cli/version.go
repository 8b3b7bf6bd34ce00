package cli

import (
	"fmt"
	"runtime"
)

// Version of Kiln; the CHANGELOG says what is in it.
const Version = "0.1.0-dev"

func runVersion(e *env, _ *flags, _ []string) error {
	_, err := fmt.Fprintf(e.stdout, "kiln %s %s %s/%s\n", Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
