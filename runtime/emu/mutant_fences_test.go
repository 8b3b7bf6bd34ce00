package emu

import (
	"bytes"
	"slices"
	"testing"
)

// fenceGroups is how many groups the kernels of fences.ll are launched with.
const fenceGroups = 5

// fenceBuffer is an argument of one of them: so many words, and how it is used.
type fenceBuffer struct {
	name  string
	words int
	mode  Mode
}

// fenceKernels are the kernels of testdata/fences.ll, with what word i of their last
// buffer is to hold, by the input.
var fenceKernels = []struct {
	name    string
	buffers []fenceBuffer
	want    func(in []uint32, i int) uint32
}{
	{"last", []fenceBuffer{{"in", fenceGroups * Lanes, ModeRead}, {"parts", fenceGroups * Lanes, ModeRead | ModeWrite}, {"count", 1, ModeRead | ModeWrite}, {"out", Lanes, ModeWrite}}, func(in []uint32, i int) uint32 {
		sum := uint32(0)
		for g := range fenceGroups {
			sum += 3 * in[g*Lanes+i]
		}
		return sum
	}},
	{"flag", []fenceBuffer{{"in", Lanes, ModeRead}, {"data", Lanes, ModeRead | ModeWrite}, {"flag", 1, ModeRead | ModeWrite}, {"out", fenceGroups * Lanes, ModeWrite}}, func(in []uint32, i int) uint32 {
		if i < Lanes { // group 0 stores nothing here
			return 0
		}
		return (in[i%Lanes] + 7) * (in[i%Lanes] + 7)
	}},
	{"lock", []fenceBuffer{{"in", fenceGroups * Lanes, ModeRead}, {"lock", 1, ModeRead | ModeWrite}, {"sums", Lanes, ModeRead | ModeWrite}}, func(in []uint32, i int) uint32 {
		sum := uint32(0)
		for g := range fenceGroups {
			sum += in[g*Lanes+i]
		}
		return sum
	}},
}

// fenceSubjects are kernels with releases and acquires, which the model's have none of.
func fenceSubjects(t *testing.T, chip string) []*subject {
	p := compiled(t, chip, "fences.ll")
	var list []*subject
	for _, f := range fenceKernels {
		k, err := p.Kernel(f.name)
		if err != nil {
			t.Fatal(err)
		}
		var b buffers
		var args []Argument
		r := &replay{launch: Launch{Grid: [3]int{fenceGroups, 1, 1}, Block: [3]int{Lanes, 1, 1}, Memory: &b.space, Workers: 1}}
		for i, x := range f.buffers {
			data := make([]byte, 4*x.words)
			if i == 0 {
				data = randomBytes(13, len(data))
			}
			args = append(args, b.add(t, data))
			now := b.bytes[i]
			r.blocks = append(r.blocks, &block{now: now, before: bytes.Clone(now), readOnly: x.mode == ModeRead})
			r.buffers = append(r.buffers, Buffer{Address: Address(now), Bytes: uint64(len(now)), Mode: x.mode, Label: x.name})
		}
		if f.name == "last" {
			args = append(args, word(fenceGroups))
		}
		if r.launch.Kernarg, err = k.Segment(r.launch, args...); err != nil {
			t.Fatal(err)
		}
		s := &subject{name: chip + " fences " + f.name, form: "fences", k: k, launches: []*replay{r}}
		if err := s.record(t); err != nil {
			t.Fatal(err)
		}
		in, got := u32s(b.bytes[0]), u32s(b.bytes[len(b.bytes)-1])
		for i := range got {
			if want := f.want(in, i); got[i] != want {
				t.Fatalf("%s: word %d is %d, want %d", s.name, i, got[i], want)
			}
		}
		if !slices.ContainsFunc(mutantsOf(k), func(m mutant) bool { return m.kind.name == "fence wait" }) {
			t.Fatalf("%s has no wait of a fence", s.name)
		}
		list = append(list, s)
	}
	return list
}
