package emu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
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
	for _, o := range foreignObjects(t) {
		for _, preloaded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%s/preloaded=%v", o.name, o.chip, preloaded), func(t *testing.T) {
				l, buffers := o.launch(t)
				l.Preloaded = preloaded
				if _, err := o.k.Run(t.Context(), l); err != nil {
					t.Fatal(err)
				}
				for arg, got := range buffers { // inputs too: they are only read
					want, err := o.io.Lookup(o.name + "." + arg)
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

// foreignObject is a foreignKernel's code for a chip.
type foreignObject struct {
	foreignKernel
	name, chip string
	k          *Kernel
	block, lds int
	io         *weights.Checkpoint // what goes in and what comes out
}

// foreignObjects loads all of them, those of a chip together, by name.
func foreignObjects(t *testing.T) []*foreignObject {
	t.Helper()
	tools := toolchain(t)
	var kernels map[string]foreignKernel
	if err := json.Unmarshal(golden(t, "meta.json"), &kernels); err != nil {
		t.Fatal(err)
	}
	io, err := weights.Open("../../testdata/golden/triton/io.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { io.Close() })
	if len(kernels) != 3 {
		t.Fatalf("%d kernels, want 3", len(kernels))
	}
	var list []*foreignObject
	for _, chip := range Chips {
		for _, name := range slices.Sorted(maps.Keys(kernels)) {
			fk := kernels[name]
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
			list = append(list, &foreignObject{fk, name, chip, k, Lanes * variant.NumWarps, variant.Shared, io})
		}
	}
	return list
}

// buffer is an argument as sanitizers take it.
func (o *foreignObject) buffer(arg string, b []byte) Buffer {
	x := Buffer{Address: Address(b), Bytes: uint64(len(b)), Mode: ModeRead, Label: arg}
	if arg == o.Outputs[0] {
		x.Mode, x.Undefined = ModeWrite, true
	}
	return x
}

// launch prepares a launch of the kernel with its inputs, and the buffers by argument.
// Outputs hold what no kernel computes.
func (o *foreignObject) launch(t *testing.T) (Launch, map[string][]byte) {
	t.Helper()
	space := &Space{}
	kernarg := make([]byte, o.k.Meta.KernargBytes)
	buffers := map[string][]byte{}
	for i, arg := range o.Args {
		at := kernarg[o.k.Meta.Args[i].Offset:]
		switch arg[1] {
		case "i32":
			le.PutUint32(at, uint32(int32(o.Scalars[arg[0]])))
			continue
		case "fp32":
			le.PutUint32(at, math.Float32bits(float32(o.Scalars[arg[0]])))
			continue
		}
		tensor, err := o.io.Lookup(o.name + "." + arg[0])
		if err != nil {
			t.Fatal(err)
		}
		b := bytes.Clone(tensor.Data)
		if arg[0] == o.Outputs[0] {
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
	return Launch{Grid: o.Grid, Block: [3]int{o.block, 1, 1}, LDS: o.lds, Kernarg: kernarg, Memory: space}, buffers
}
