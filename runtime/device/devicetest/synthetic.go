package devicetest

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
)

// Synthetic is a checkpoint of any size with weights of every kind, and the module and
// the pack graph of a model that would use them.
type Synthetic struct {
	Path    string // of the checkpoint
	Bytes   int64  // of the file
	Tensors int    // in it
	Module  *plan.Module
	Pack    *ir.Graph
}

// WriteSynthetic writes a checkpoint of about that many bytes to a folder. A sparse one
// is a hole, which takes no disk and reads as zeros; else the bytes are pseudo-random,
// without codes that are NaN.
func WriteSynthetic(dir string, bytes int64, sparse bool) (*Synthetic, error) {
	s := &Synthetic{Path: filepath.Join(dir, "synthetic.safetensors"), Module: &plan.Module{Version: plan.Version, Target: "synthetic", Block: 1}}
	const width, experts = 4096, 16
	// rows of that many bits are a share of the file, and a multiple of 128.
	rows := func(share float64, bits int) ir.Dim {
		return ir.Int(max(1, int(share*float64(bytes)*8/float64(width*bits))/128) * 128)
	}
	fp8 := func(share float64) ir.Type { return ir.Scaled(ir.F8E4M3, 128, 128, rows(share, 8), ir.Int(width)) }
	fp4 := ir.Scaled(ir.F4E2M1, 1, 32, ir.Int(experts), rows(0.3/experts, 4), ir.Int(width))
	bf16 := func(share float64) ir.Type { return ir.T(ir.BF16, rows(share, 16), ir.Int(width)) }

	file := &synthetic{header: map[string]any{}}
	use := s.use
	b := ir.NewBuilder("pack")
	packed := func(name string, v *ir.Value) {
		b.Output("packed."+name, v)
		use("packed."+name, v.Type)
	}

	file.add("embed", bf16(0.25))
	use("embed", bf16(0.25))
	file.add("experts.*.w1", fp4)
	use("experts.*.w1", fp4)
	file.add("wq_b", fp8(0.15))
	use("wq_b", fp8(0.15))
	file.add("norm", ir.T(ir.F32, ir.Int(width)))
	use("norm", ir.T(ir.F32, ir.Int(width)))
	file.add("wkv", fp8(0.05))
	file.add("wq_a", fp8(0.1))
	packed("w_qkv", b.Concat(0, b.Weight("wkv", fp8(0.05)), b.Weight("wq_a", fp8(0.1))))
	file.add("wo_a", fp8(0.05))
	wo := b.Op1("dequantize", ir.Attrs{{Key: "to", Val: ir.BF16}}, b.Weight("wo_a", fp8(0.05)))
	n, _ := wo.Type.Dims[0].Const()
	packed("wo_a", b.Reshape(wo, ir.Int(n/128), ir.Int(128), ir.Int(width)))
	file.add("w_f", fp8(0.05))
	packed("w_f", b.Op1("recode_fnuz", nil, b.Weight("w_f", fp8(0.05))))
	file.add("compressor.wgate", bf16(0.05))
	file.add("compressor.wkv", bf16(0.05))
	packed("compressor", b.Concat(0, b.Weight("compressor.wgate", bf16(0.05)), b.Weight("compressor.wkv", bf16(0.05))))
	tables := b.Op("freqs_cis", ir.Attrs{{Key: "len", Val: max(1, int(bytes/10_000))}, {Key: "dim", Val: 64}, {Key: "base", Val: 10000.0}})
	packed("cos", tables[0])
	packed("sin", tables[1])
	var err error
	if s.Pack, err = b.Finish(); err != nil {
		return nil, err
	}
	s.Tensors = len(file.header)
	s.Bytes, err = file.write(s.Path, sparse)
	return s, err
}

// SparseModel makes a hole of a file with the tensors of a model's checkpoint, from its
// config alone, for what the passes leave of its decode and draft steps.
func SparseModel(dir, config string) (*Synthetic, error) {
	c, err := dsv4.LoadConfig(config)
	if err != nil {
		return nil, err
	}
	m := &passes.Module{}
	for _, entry := range []dsv4.Entry{dsv4.Decode, dsv4.Draft} {
		g, err := dsv4.Build(c, entry, dsv4.DefaultOptions())
		if err != nil {
			return nil, err
		}
		m.Entries = append(m.Entries, g)
	}
	file := &synthetic{header: map[string]any{}}
	seen := map[string]bool{}
	for _, g := range m.Entries {
		for _, w := range g.Weights {
			if !seen[w.Name] {
				seen[w.Name] = true
				file.add(w.Name, w.Type)
			}
		}
	}
	if err := passes.Run(m); err != nil {
		return nil, err
	}
	s := &Synthetic{Path: filepath.Join(dir, "model.safetensors"), Module: &plan.Module{Version: plan.Version, Target: "synthetic", Block: 1}, Pack: m.Pack}
	clear(seen)
	for _, g := range m.Entries {
		for _, w := range g.Weights {
			if !seen[w.Name] {
				seen[w.Name] = true
				s.use(w.Name, w.Type)
			}
		}
	}
	s.Tensors = len(file.header)
	s.Bytes, err = file.write(s.Path, true)
	return s, err
}

// use adds a weight to the module.
func (s *Synthetic) use(name string, t ir.Type) {
	data, scales, _ := t.Bytes()
	s.Module.Weights = append(s.Module.Weights, plan.Storage{Name: name, Type: t.String(), Bytes: [2]int64{data, scales}})
}

// synthetic is a file that is being laid out.
type synthetic struct {
	header map[string]any
	at     int64
}

// formats are the checkpoint's names of formats.
var formats = map[ir.DType]string{ir.F32: "F32", ir.BF16: "BF16", ir.F8E4M3: "F8_E4M3", ir.F4E2M1: "I8", ir.E8M0: "F8_E8M0", ir.I64: "I64"}

// add lays out a weight with its scales, as the checkpoint names them.
func (f *synthetic) add(name string, t ir.Type) {
	if strings.Contains(name, "*") {
		n, _ := t.Dims[0].Const()
		for i := range n {
			f.add(strings.Replace(name, "*", strconv.Itoa(i), 1), t.With(t.Dims[1:]...))
		}
		return
	}
	var shape, blocks []int
	for i, d := range t.Dims {
		n, _ := d.Const()
		shape, blocks = append(shape, n), append(blocks, n)
		if j := i - (t.Rank() - 2); t.Quant != nil && j >= 0 {
			blocks[i] = (n + t.Quant.Block[j] - 1) / t.Quant.Block[j]
		}
	}
	if t.DType == ir.F4E2M1 {
		shape[len(shape)-1] /= 2
	}
	data, scales, _ := t.Bytes()
	put := func(name string, dt ir.DType, shape []int, bytes int64) {
		f.header[name] = map[string]any{"dtype": formats[dt], "shape": shape, "data_offsets": []int64{f.at, f.at + bytes}}
		f.at += bytes
	}
	put(name+".weight", t.DType, shape, data)
	if t.Quant != nil {
		put(name+".scale", t.Quant.Scale, blocks, scales)
	}
}

// write makes the file and returns its size.
func (f *synthetic) write(path string, sparse bool) (int64, error) {
	text, err := json.Marshal(f.header)
	if err != nil {
		return 0, err
	}
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if _, err := file.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)); err != nil {
		return 0, err
	}
	size := int64(8+len(text)) + f.at
	if sparse {
		return size, file.Truncate(size)
	}
	random := rand.NewChaCha8([32]byte{1})
	block := make([]byte, 8<<20)
	for left := f.at; left > 0; {
		b := block[:min(left, int64(len(block)))]
		random.Read(b)
		for i := range b {
			b[i] &= 0xBE // no code is NaN, and every scale can be doubled
		}
		if _, err := file.Write(b); err != nil {
			return 0, err
		}
		left -= int64(len(b))
	}
	return size, file.Close()
}
