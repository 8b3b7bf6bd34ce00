package emu

import (
	"math"
	"testing"
)

// streamKernel adds two vectors, as a compiler would: one element for each work-item of
// groups of 256. Its arguments are the three pointers.
func streamKernel(t testing.TB) *Kernel {
	k := snippet(t, "gfx942",
		"s_load_dwordx4 s[4:7], s[0:1], 0x0",
		"s_load_dwordx2 s[8:9], s[0:1], 0x10",
		"s_lshl_b32 s3, s2, 8",
		"v_and_b32_e32 v0, 0x3ff, v0",
		"v_add_u32_e32 v0, s3, v0",
		"v_lshlrev_b32_e32 v0, 2, v0",
		"s_waitcnt lgkmcnt(0)",
		"global_load_dword v1, v0, s[4:5]",
		"global_load_dword v2, v0, s[6:7]",
		"s_waitcnt vmcnt(0)",
		"v_add_f32_e32 v1, v1, v2",
		"global_store_dword v0, v1, s[8:9]",
	)
	k.Meta.KernargBytes = 24
	k.Meta.Descriptor.Properties = 1 << 3 // the argument segment
	k.Meta.Descriptor.Rsrc2 = 2<<1 | 1<<7 // and the work-group
	return k
}

func streamLaunch(t testing.TB, b *buffers, groups int) Launch {
	n := 256 * groups
	var x, y []byte
	for i := range n {
		x = le.AppendUint32(x, math.Float32bits(float32(i)))
		y = le.AppendUint32(y, math.Float32bits(float32(i)/4))
	}
	l := Launch{Grid: [3]int{groups, 1, 1}, Block: [3]int{256, 1, 1}, Memory: &b.space}
	for _, data := range [][]byte{x, y, make([]byte, 4*n)} {
		l.Kernarg = append(l.Kernarg, b.add(t, data).Data...)
	}
	return l
}

func TestStream(t *testing.T) {
	var b buffers
	l := streamLaunch(t, &b, 33)
	if _, err := streamKernel(t).Run(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	for i, got := range u32s(b.bytes[2]) {
		if want := float32(i) * 1.25; math.Float32frombits(got) != want { // exact
			t.Fatalf("element %d is %v, want %v", i, math.Float32frombits(got), want)
		}
	}
}

// BenchmarkStream is of one core.
func BenchmarkStream(b *testing.B) {
	k := streamKernel(b)
	var mem buffers
	l := streamLaunch(b, &mem, 1024)
	l.Workers = 1
	instructions := uint64(0)
	for b.Loop() {
		stats, err := k.Run(b.Context(), l)
		if err != nil {
			b.Fatal(err)
		}
		instructions += stats.Instructions
	}
	b.ReportMetric(float64(instructions)/b.Elapsed().Seconds()/1e6, "Minst/s")
	b.SetBytes(int64(3 * len(mem.bytes[0])))
}
