//go:build gpu

package kernels_test

import (
	"errors"
	"flag"
	"os"
	"sync"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/runtime/cuda"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

var (
	record  = flag.Bool("record", false, "compile what tests of warps run, for -objects, and run nothing")
	overlap = flag.String("overlap", "", "whether launches overlap: auto, on or off")
	objects = flag.String("objects", "", "folder of what was recorded: tests of warps run it on GPU 0")
)

func init() { onGPU, recordOnly = buildGPU, func() bool { return *record } }

// buildGPU needs LLVM with -record, and a GPU without.
func buildGPU(t testing.TB, u *codegen.Unit) *device.Model {
	t.Helper()
	if *record {
		tools, c := compiler(t)
		if err := os.MkdirAll(*objects, 0o755); err != nil {
			t.Fatal(err)
		}
		compiled := &codegen.Compiler{Tools: tools, LLVM: c, Cache: codegen.OpenCache(*objects + ".cache")}
		if _, err := devicetest.Record(*objects, compiled.Compile)(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		return nil
	}
	code, err := devicetest.Stored(*objects)(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := openGPU()
	if err != nil {
		t.Fatal(err)
	}
	m, err := device.NewModel(dev, code.Object, u.Module)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// openGPU opens GPU 0, once for all: the process's end closes it.
var openGPU = sync.OnceValues(func() (*cuda.PlanDevice, error) {
	l, err := cuda.Open(cuda.Options{})
	if err != nil {
		return nil, err
	}
	gpu, err := l.OpenDevice(0)
	if err != nil {
		return nil, err
	}
	choice, err := cuda.ParseOverlap(*overlap)
	if err != nil {
		return nil, errors.Join(err, gpu.Close())
	}
	return cuda.OpenForPlans(gpu, cuda.PlanOptions{Overlap: choice})
})
