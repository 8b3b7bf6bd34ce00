package engine

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/weights"
)

// openWith writes and opens a small checkpoint.
func openWith(t *testing.T, tensors ...weights.Tensor) (CheckpointSource, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "w.safetensors")
	if err := weights.Write(path, tensors, nil); err != nil {
		t.Fatal(err)
	}
	file, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	return CheckpointSource{file}, path
}

// raw makes a tensor whose byte i is i.
func raw(name string, dt weights.DType, shape ...int) weights.Tensor {
	n := dt.Size()
	for _, s := range shape {
		n *= s
	}
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i)
	}
	return weights.Tensor{Name: name, DType: dt, Shape: shape, Data: data}
}

func typ(dt ir.DType, shape ...int) ir.Type {
	dims := make([]ir.Dim, len(shape))
	for i, n := range shape {
		dims[i] = ir.Int(n)
	}
	return ir.T(dt, dims...)
}

func scaled(dt ir.DType, b0, b1 int, shape ...int) ir.Type {
	t := typ(dt, shape...)
	t.Quant = &ir.Quant{Block: [2]int{b0, b1}, Scale: ir.E8M0}
	return t
}

// Every storage form: plain, block scaled with edge blocks, packed fp4, stacked.
func TestCheckpointSource(t *testing.T) {
	src, _ := openWith(t,
		weights.Float32Tensor("norm.weight", []int{3}, []float32{1, -2, 0.5}),
		weights.Float32Tensor("scale3", []int{1}, []float32{4}),
		raw("b.weight", weights.BF16, 2),
		raw("table", weights.I64, 1),
		raw("q.weight", weights.F8E4M3, 3, 5), raw("q.scale", weights.F8E8M0, 2, 3),
		raw("e.0.w1.weight", weights.I8, 1, 32), raw("e.0.w1.scale", weights.F8E8M0, 1, 2),
		raw("e.1.w1.weight", weights.I8, 1, 32), raw("e.1.w1.scale", weights.F8E8M0, 1, 2),
		raw("r.weight", weights.F8E4M3, 2, 1, 3), raw("r.scale", weights.F8E8M0, 2, 1, 2),
		weights.Float32Tensor("s.0.bias", []int{2}, []float32{1, 2}),
		weights.Float32Tensor("s.1.bias", []int{2}, []float32{3, 4}),
	)
	bytes := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i)
		}
		return b
	}
	for _, tc := range []struct {
		name string
		typ  ir.Type
		want eval.Tensor
	}{
		{"norm", typ(ir.F32, 3), eval.Tensor{F: []float32{1, -2, 0.5}}},
		{"scale3", typ(ir.F32, 1), eval.Tensor{F: []float32{4}}},
		{"b", typ(ir.BF16, 2), eval.Tensor{F: []float32{0x1p-125, 0x1.04p-121}}},
		{"table", typ(ir.I64, 1), eval.Tensor{I: []int64{0x0706050403020100}}},
		{"q", scaled(ir.F8E4M3, 2, 2, 3, 5), eval.Tensor{Codes: bytes(15), Scales: bytes(6)}},
		{"r", scaled(ir.F8E4M3, 2, 2, 2, 1, 3), eval.Tensor{Codes: bytes(6), Scales: bytes(4)}},
		{"e.*.w1", scaled(ir.F4E2M1, 1, 32, 2, 1, 64), eval.Tensor{Codes: slices.Concat(bytes(32), bytes(32)), Scales: slices.Concat(bytes(2), bytes(2))}},
		{"s.*.bias", typ(ir.F32, 2, 2), eval.Tensor{F: []float32{1, 2, 3, 4}}},
	} {
		got, err := src.Weight(tc.name, tc.typ)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if !got.Type().Equal(tc.typ) {
			t.Errorf("%s is %s, want %s", tc.name, got.Type(), tc.typ)
		}
		if err := got.Check(); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		parts := func(v eval.Tensor) []any { return []any{v.F, v.I, v.Codes, v.Scales} }
		if diff := cmp.Diff(parts(tc.want), parts(*got)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tc.name, diff)
		}
	}
}

// What does not fit is one line with the file and the tensor.
func TestCheckpointSourceErrors(t *testing.T) {
	src, path := openWith(t,
		raw("norm.weight", weights.BF16, 4),
		raw("attn.hc_fn", weights.F32, 2, 2),
		raw("a.weight", weights.F8E4M3, 2, 4), raw("a.scale", weights.F8E8M0, 1, 1),
		raw("b.weight", weights.F8E4M3, 2, 4),
		raw("c.weight", weights.F8E4M3, 2, 4), raw("c.scale", weights.F32, 1, 1),
		raw("d.weight", weights.F8E4M3, 2, 4), raw("d.scale", weights.F8E8M0, 2, 1),
		raw("p.weight", weights.I8, 2, 32), raw("p.scale", weights.F8E8M0, 2, 2),
		raw("e.0.weight", weights.F32, 2), raw("e.1.weight", weights.F32, 3),
	)
	for _, tc := range []struct {
		name string
		typ  ir.Type
		want string // after the file's name
	}{
		{"norm", typ(ir.BF16, 5), ": tensor norm.weight is BF16 [4], the model wants BF16 [5]"},
		{"norm", typ(ir.BF16, 2, 2), ": tensor norm.weight is BF16 [4], the model wants BF16 [2 2]"},
		{"norm", typ(ir.F32, 4), ": tensor norm.weight is BF16 [4], the model wants F32 [4]"},
		{"attn.hc_fn", typ(ir.F32, 4), ": tensor attn.hc_fn is F32 [2 2], the model wants F32 [4]"},
		{"attn.hc_fm", typ(ir.F32, 4), `: no tensor "attn.hc_fm"; the nearest name is "attn.hc_fn" (and no "attn.hc_fm.weight")`},
		{"unlike", typ(ir.F32, 4), `: no tensor "unlike" (and no "unlike.weight")`},
		{"a", scaled(ir.F8E4M3, 2, 4, 2, 5), ": tensor a.weight is F8_E4M3 [2 4], the model wants F8_E4M3 [2 5]"},
		{"b", scaled(ir.F8E4M3, 2, 4, 2, 4), `: no tensor "b.scale"; the nearest name is "a.scale"`},
		{"c", scaled(ir.F8E4M3, 2, 4, 2, 4), ": tensor c.scale is F32 [1 1], the model wants F8_E8M0 [1 1]"},
		{"d", scaled(ir.F8E4M3, 2, 4, 2, 4), ": tensor d.scale is F8_E8M0 [2 1], the model wants F8_E8M0 [1 1]"},
		{"p", scaled(ir.F4E2M1, 1, 32, 2, 32), ": tensor p.weight is I8 [2 32], the model wants I8 [2 16]"},
		{"e.*", typ(ir.F32, 2, 2), ": tensor e.1.weight is F32 [3], the model wants F32 [2]"},
		{"e.*", typ(ir.F32, 3, 2), ": tensor e.1.weight is F32 [3], the model wants F32 [2]"},
		{"norm", typ(ir.F8E4M3FNUZ, 4), ": tensor norm.weight: f8e4m3fnuz is not a checkpoint format"},
	} {
		wantError(t, tc.name+" "+tc.typ.String(), func() error { _, err := src.Weight(tc.name, tc.typ); return err }, path+tc.want)
	}
}

// The same, met by the model: the error says which op wanted the tensor.
func TestModelWithDamagedCheckpoint(t *testing.T) {
	m := tiny(t, dsv4.Production)
	for _, tc := range []struct {
		drop    string
		replace []weights.Tensor
		want    string
	}{
		{"norm.weight", nil, `: no tensor "norm"`},
		{"layers.2.attn.wq_b.scale", nil, `: no tensor "layers.2.attn.wq_b.scale"`},
		{"layers.3.ffn.experts.5.w2.weight", nil, `: no tensor "layers.3.ffn.experts.5.w2"`},
		{"head.weight", []weights.Tensor{raw("head.weight", weights.BF16, 256, 2048)}, ": tensor head.weight is BF16 [256 2048], the model wants BF16 [2048 256]"},
		{"layers.0.attn.wo_a.weight", []weights.Tensor{raw("layers.0.attn.wo_a.weight", weights.BF16, 256, 256)}, ": tensor layers.0.attn.wo_a.weight is BF16 [256 256], the model wants F8_E4M3 [256 256]"},
	} {
		t.Run(tc.drop, func(t *testing.T) {
			tensors := tc.replace
			for _, name := range m.file.Names() {
				if name == tc.drop {
					continue
				}
				x, err := m.file.Lookup(name)
				if err != nil {
					t.Fatal(err)
				}
				tensors = append(tensors, *x)
			}
			src, path := openWith(t, tensors...)
			damaged, err := buildModel(m.cfg, tinyOptions(dsv4.Production), src)
			if err == nil {
				e, s := damaged.one(t)
				_, err = e.DecodeOne(s, 1)
			}
			if err == nil || !strings.Contains(err.Error(), path+tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %q", err, path+tc.want)
			}
		})
	}
}
