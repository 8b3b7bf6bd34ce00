package host

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/cpu"
)

// Target is the name of the best target (codegen/target) that this CPU runs.
func Target() (string, error) {
	list, err := Targets()
	if err != nil {
		return "", err
	}
	return list[0], nil
}

// Targets are the names of all targets that this CPU runs, the best first.
func Targets() ([]string, error) {
	x := cpu.X86
	switch {
	case runtime.GOARCH != "amd64" || runtime.GOOS != "linux":
		return nil, fmt.Errorf("device host is linux/amd64 only, this is %s/%s", runtime.GOOS, runtime.GOARCH)
	case x.HasAVX2 && x.HasFMA && x.HasBMI1 && x.HasBMI2:
		return []string{"x86-64-v3", "x86-64-v2"}, nil
	case x.HasSSE42 && x.HasPOPCNT && x.HasSSSE3:
		return []string{"x86-64-v2"}, nil
	}
	return nil, fmt.Errorf("this CPU lacks SSE4.2: device host needs x86-64-v2")
}
