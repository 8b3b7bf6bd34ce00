package emu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/kiln-project/kiln/runtime/weights"
)

// foreignKernel is a kernel of another compiler (Triton), from meta.json.
type foreignKernel struct {
	GFX942, GFX950 struct {
		Symbol   string
		Shared   int
		NumWarps int `json:"num_warps"`
	}
	Args    [][2]string // name, type
	Grid    [3]int
	Scalars map[string]float64
	Outputs []string
}

// TestForeignObjects runs another compiler's code objects, entered at their first
// byte, which loads the arguments, and behind that, with the arguments preloaded.
// Outputs are equal bit by bit.
func TestForeignObjects(t *testing.T) {
	tools := toolchain(t)
	var kernels map[string]foreignKernel
	if err := json.Unmarshal(golden(t, "meta.json"), &kernels); err != nil {
		t.Fatal(err)
	}
	io, err := weights.Open("../../testdata/golden/triton/io.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer io.Close()
	if len(kernels) != 3 {
		t.Fatalf("%d kernels, want 3", len(kernels))
	}
	for name, fk := range kernels {
		for _, chip := range Chips {
			variant := fk.GFX942
			if chip == "gfx950" {
				variant = fk.GFX950
			}
			p, err := Load(t.Context(), tools.ObjDump, golden(t, name+"."+chip+".hsaco"))
			if err != nil {
				t.Fatal(err)
			}
			k, err := p.Kernel(variant.Symbol)
			if err != nil {
				t.Fatal(err)
			}
			for _, preloaded := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/preloaded=%v", name, chip, preloaded), func(t *testing.T) {
					l, buffers := fk.launch(t, io, name, k, Lanes*variant.NumWarps, variant.Shared)
					l.Preloaded = preloaded
					if _, err := k.Run(t.Context(), l); err != nil {
						t.Fatal(err)
					}
					for arg, got := range buffers { // inputs too: they are only read
						want, err := io.Lookup(name + "." + arg)
						if err != nil {
							t.Fatal(err)
						}
						at := 0
						for at < len(got) && got[at] == want.Data[at] {
							at++
						}
						if at < len(got) {
							t.Errorf("%s differs from byte %d of %d", arg, at, len(got))
						}
					}
				})
			}
		}
	}
}

// launch prepares a launch of the kernel with its inputs, and the buffers by argument.
// Outputs hold what no kernel computes.
func (fk foreignKernel) launch(t *testing.T, io *weights.Checkpoint, name string, k *Kernel, block, lds int) (Launch, map[string][]byte) {
	t.Helper()
	space := &Space{}
	kernarg := make([]byte, k.Meta.KernargBytes)
	buffers := map[string][]byte{}
	for i, arg := range fk.Args {
		at := kernarg[k.Meta.Args[i].Offset:]
		switch arg[1] {
		case "i32":
			le.PutUint32(at, uint32(int32(fk.Scalars[arg[0]])))
			continue
		case "fp32":
			le.PutUint32(at, math.Float32bits(float32(fk.Scalars[arg[0]])))
			continue
		}
		tensor, err := io.Lookup(name + "." + arg[0])
		if err != nil {
			t.Fatal(err)
		}
		b := bytes.Clone(tensor.Data)
		if arg[0] == fk.Outputs[0] {
			for i := range b {
				b[i] = 0xa5
			}
		}
		buffers[arg[0]] = b
		if err := space.Map(b, arg[0]); err != nil {
			t.Fatal(err)
		}
		le.PutUint64(at, Address(b))
	}
	return Launch{Grid: fk.Grid, Block: [3]int{block, 1, 1}, LDS: lds, Kernarg: kernarg, Memory: space}, buffers
}
