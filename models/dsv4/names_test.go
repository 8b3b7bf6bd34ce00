package dsv4

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Counts and bytes of the published index files (Flash, Pro) and of the tiny
// checkpoint.
func TestTensorTotals(t *testing.T) {
	for _, tc := range []struct {
		dir   string
		count int
		bytes int64
	}{
		{flashDir, 69187, 159_609_485_896},
		{proDir, 145116, 864_704_792_696},
		{tinyDir, 585, 10_756_074},
	} {
		c, err := LoadConfig(tc.dir)
		if err != nil {
			t.Fatal(err)
		}
		specs := Tensors(c)
		var bytes int64
		names := make(map[string]bool, len(specs))
		for _, s := range specs {
			bytes += s.Bytes()
			if names[s.Name] {
				t.Errorf("%s: tensor %s stands twice", tc.dir, s.Name)
			}
			names[s.Name] = true
		}
		if len(specs) != tc.count || bytes != tc.bytes {
			t.Errorf("%s: %d tensors of %d bytes, want %d of %d", tc.dir, len(specs), bytes, tc.count, tc.bytes)
		}
	}
}

// header returns the tensors that a safetensors file declares, by name.
func header(t *testing.T, file string) []TensorSpec {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var size uint64
	if err := binary.Read(f, binary.LittleEndian, &size); err != nil {
		t.Fatal(err)
	}
	entries := map[string]json.RawMessage{}
	if err := json.NewDecoder(io.LimitReader(f, int64(size))).Decode(&entries); err != nil {
		t.Fatal(err)
	}
	delete(entries, "__metadata__")
	var out []TensorSpec
	for name, raw := range entries {
		spec := TensorSpec{Name: name}
		if err := json.Unmarshal(raw, &struct {
			DType *string `json:"dtype"`
			Shape *[]int  `json:"shape"`
		}{&spec.DType, &spec.Shape}); err != nil {
			t.Fatal(err)
		}
		out = append(out, spec)
	}
	sortSpecs(out)
	return out
}

func sortSpecs(s []TensorSpec) {
	slices.SortFunc(s, func(a, b TensorSpec) int { return strings.Compare(a.Name, b.Name) })
}

func TestTensorsEqualTinyCheckpoint(t *testing.T) {
	c, err := LoadConfig(tinyDir)
	if err != nil {
		t.Fatal(err)
	}
	got := Tensors(c)
	sortSpecs(got)
	if diff := cmp.Diff(header(t, filepath.Join(tinyDir, "model.safetensors")), got); diff != "" {
		t.Errorf("-checkpoint +Tensors:\n%s", diff)
	}
}

// The order is that of the forward pass and does not vary.
func TestTensorsOrder(t *testing.T) {
	c, err := LoadConfig(tinyDir)
	if err != nil {
		t.Fatal(err)
	}
	specs := Tensors(c)
	if diff := cmp.Diff(specs, Tensors(c)); diff != "" {
		t.Errorf("two calls differ:\n%s", diff)
	}
	at := func(name string) int {
		return slices.IndexFunc(specs, func(s TensorSpec) bool { return s.Name == name })
	}
	inOrder := []string{
		"embed.weight", "layers.0.hc_attn_fn", "layers.0.attn.wq_a.weight", "layers.0.attn.wq_a.scale", "layers.0.ffn.experts.7.w2.scale",
		"layers.1.hc_attn_fn", "layers.5.ffn.experts.7.w2.scale", "norm.weight", "hc_head_fn", "head.weight",
		"mtp.0.enorm.weight", "mtp.0.hc_attn_fn", "mtp.0.ffn.gate.bias", "mtp.0.norm.weight", "mtp.0.hc_head_scale",
	}
	for i, name := range inOrder {
		if at(name) < 0 || i > 0 && at(name) <= at(inOrder[i-1]) {
			t.Errorf("%s is at %d, after %s at %d", name, at(name), inOrder[max(i-1, 0)], at(inOrder[max(i-1, 0)]))
		}
	}
}

// Shapes that tiny and Flash cannot show: edge blocks of scales, and no MTP.
func TestTensorsEdges(t *testing.T) {
	c, err := LoadConfig(tinyDir)
	if err != nil {
		t.Fatal(err)
	}
	c.NextN, c.Ratios = 0, c.Ratios[:c.Layers]
	c.HeadDim = 192 // wkv has one and a half blocks of rows
	want := map[string][]int{
		"layers.0.attn.wkv.weight":                  {192, 256},
		"layers.0.attn.wkv.scale":                   {2, 2},
		"layers.2.attn.compressor.wkv.weight":       {384, 256},
		"layers.2.attn.compressor.ape":              {4, 384},
		"layers.2.attn.indexer.compressor.ape":      {4, 256},
		"layers.3.attn.compressor.ape":              {128, 192},
		"layers.5.ffn.experts.0.w1.scale":           {128, 8},
		"layers.5.ffn.experts.0.w1.weight":          {128, 128},
		"layers.5.ffn.shared_experts.w2.scale":      {2, 1},
		"layers.0.ffn.gate.tid2eid":                 {2048, 2},
		"layers.1.ffn.gate.bias":                    {8},
		"layers.2.attn.indexer.weights_proj.weight": {4, 256},
	}
	got := map[string][]int{}
	for _, s := range Tensors(c) {
		if _, ok := want[s.Name]; ok {
			got[s.Name] = s.Shape
		}
		if strings.HasPrefix(s.Name, "mtp.") {
			t.Errorf("%s without an MTP block", s.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
