package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/weights"
)

// packTypes are weights of every storage form; data are random bytes without NaN codes.
const packWeights = `
weight @a : f8e4m3[256,96] block(128,32) scale e8m0
weight @b : f8e4m3[136,96] block(128,32) scale e8m0
weight @c : bf16[24,10]
weight @d : bf16[7,10]
weight @e.*.w : f4e2m1[3,6,64] block(1,32) scale e8m0
weight @e.*.x : f8e4m3[3,4,64] block(2,32) scale e8m0
weight @v : f32[12]
weight @row : f32[1,10]
`

// parsePack makes a pack graph from ops and outputs.
func parsePack(t *testing.T, body string) *ir.Graph {
	t.Helper()
	g, err := ir.ParseOne("pack.kir", "graph @pack\n"+strings.TrimSpace(packWeights)+"\n"+body)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// packCheckpoint has the weights of packWeights.
func packCheckpoint(t *testing.T) CheckpointSource {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	fill := func(x weights.Tensor) weights.Tensor {
		for i := range x.Data {
			x.Data[i] = byte(random.Uint32())
			switch x.DType {
			case weights.F8E4M3:
				x.Data[i] &^= 1 // no NaN ends in 0
			case weights.F8E8M0:
				x.Data[i] = 120 + x.Data[i]%16
			case weights.BF16, weights.F32: // no NaN: the exponent is not full
				if size := x.DType.Size(); i%size == size-1 {
					x.Data[i] = 0x3F | x.Data[i]&0x80
				}
			}
		}
		return x
	}
	var list []weights.Tensor
	add := func(name string, dt weights.DType, shape ...int) { list = append(list, fill(raw(name, dt, shape...))) }
	add("a.weight", weights.F8E4M3, 256, 96)
	add("a.scale", weights.F8E8M0, 2, 3)
	add("b.weight", weights.F8E4M3, 136, 96)
	add("b.scale", weights.F8E8M0, 2, 3)
	add("c.weight", weights.BF16, 24, 10)
	add("d.weight", weights.BF16, 7, 10)
	for i := range 3 {
		add(fmt.Sprintf("e.%d.w.weight", i), weights.I8, 6, 32)
		add(fmt.Sprintf("e.%d.w.scale", i), weights.F8E8M0, 6, 2)
		add(fmt.Sprintf("e.%d.x.weight", i), weights.F8E4M3, 4, 64)
		add(fmt.Sprintf("e.%d.x.scale", i), weights.F8E8M0, 2, 2)
	}
	add("v", weights.F32, 12)
	add("row", weights.F32, 1, 10)
	src, _ := openWith(t, list...)
	return src
}

// assemble does jobs and returns the bytes of both parts.
func assemble(t *testing.T, typ ir.Type, jobs []Job) [2][]byte {
	t.Helper()
	data, scales, _ := typ.Bytes()
	out := [2][]byte{make([]byte, data), make([]byte, scales)}
	seen := [2][]bool{make([]bool, data), make([]bool, scales)}
	for i := range jobs {
		j := &jobs[i]
		j.Ahead()
		from := j.Copy
		if j.Make != nil {
			x, err := j.Make()
			if err != nil {
				t.Fatal(err)
			}
			from[0], from[1] = make([]byte, j.Size[0]), x.Scales
			if err := x.Encode(from[0]); err != nil {
				t.Fatal(err)
			}
		}
		for part := range from {
			if int64(len(from[part])) != j.Size[part] {
				t.Fatalf("job %d has %d bytes of part %d, says %d", i, len(from[part]), part, j.Size[part])
			}
			for k := range from[part] {
				at := j.Base[part] + int64(k)
				if seen[part][at] {
					t.Fatalf("job %d makes byte %d of part %d again", i, at, part)
				}
				seen[part][at] = true
			}
			copy(out[part][j.Base[part]:], from[part])
		}
		j.Behind()
	}
	for part := range seen {
		if at := bytes.IndexByte(bytesOfBools(seen[part]), 0); at >= 0 {
			t.Fatalf("nothing makes byte %d of part %d", at, part)
		}
	}
	return out
}

func bytesOfBools(list []bool) []byte {
	b := make([]byte, len(list))
	for i, v := range list {
		if v {
			b[i] = 1
		}
	}
	return b
}

// encoded is a tensor as both parts.
func encoded(t *testing.T, x *eval.Tensor) [2][]byte {
	t.Helper()
	data := make([]byte, x.DType.Bytes(x.Len()))
	if err := x.Encode(data); err != nil {
		t.Fatal(err)
	}
	return [2][]byte{data, x.Scales}
}

// However a packed weight is made, its bytes are those of the oracle, which evaluates
// it whole.
func TestJobs(t *testing.T) {
	const bytesAlone, cuttable = "copied", ""
	for _, tc := range []struct {
		name, ops, how string // how: copied, cut, or why it is evaluated whole
	}{
		{"concat of scaled rows", "%0 = concat @a, @b {axis = 0} : f8e4m3[392,96] block(128,32) scale e8m0", bytesAlone},
		{"concat of rows", "%0 = concat @c, @d {axis = 0} : bf16[31,10]", bytesAlone},
		{"another shape", "%0 = reshape @c {shape = [2,120]} : bf16[2,120]", bytesAlone},
		{"recoded", "%0 = concat @a, @b {axis = 0} : f8e4m3[392,96] block(128,32) scale e8m0\n%1 = recode_fnuz %0 : f8e4m3fnuz[392,96] block(128,32) scale e8m0", cuttable},
		{"recoded stack", "%0 = recode_fnuz @e.*.x : f8e4m3fnuz[3,4,64] block(2,32) scale e8m0", cuttable},
		{"dequantised", "%0 = dequantize @a {to = bf16} : bf16[256,96]\n%1 = reshape %0 {shape = [2,128,96]} : bf16[2,128,96]", cuttable},
		{"dequantised with a short block", "%0 = dequantize @b : f32[136,96]", cuttable},
		{"dequantised fp4", "%0 = dequantize @e.*.w {to = f16} : f16[3,6,64]", cuttable},
		{"reshaped inside", "%0 = dequantize @b : f32[136,96]\n%1 = reshape %0 {shape = [17,8,96]} : f32[17,8,96]\n%2 = neg %1 : f32[17,8,96]", cuttable},
		{"hi and lo", "%0 = cast @c {to = f32} : f32[24,10]\n%1 = mul %0, @row : f32[24,10]\n%2 = cast %1 {to = bf16} : bf16[24,10]\n%3 = cast %2 {to = f32} : f32[24,10]\n%4 = sub %1, %3 : f32[24,10]\n%5 = cast %4 {to = bf16} : bf16[24,10]", cuttable},
		{"a vector", "%0 = exp @v : f32[12]", cuttable},
		{"columns", "%0 = concat @c, @c {axis = 1} : bf16[24,20]\n%1 = slice %0 {axis = 1, start = 3, size = 15} : bf16[24,15]", cuttable},
		{"requantised", "%0 = dequantize @a : f32[256,96]\n%1 = quantize %0 {to = f4e2m1, block = 32, floor = 1e-5} : f4e2m1[256,96] block(1,32) scale e8m0", cuttable},
		{"tables", "%0, %1 = freqs_cis {len = 300, dim = 8, base = 10000} : f32[300,4], f32[300,4]", cuttable},
		{"fragments", "%0 = reshape @c {shape = [3,8,10]} : bf16[3,8,10]\n%1 = transpose %0 {perm = [0,2,1]} : bf16[3,10,8]", cuttable},
		{"columns first", "%0 = transpose @c {perm = [1,0]} : bf16[10,24]", "op transpose does not compute rows from rows"},
		{"a product", "%0 = dot @c, @c {to = f32} : f32[24,24]", "op dot does not compute rows from rows"},
		{"rows inside a block", "%0 = dequantize @b : f32[136,96]\n%1 = dequantize @a : f32[256,96]\n%2 = concat %0, %1 {axis = 0} : f32[392,96]", "operand 1 of concat begins at row 136, which is not a multiple of 128"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			last := strings.Count(tc.ops, "\n")
			g := parsePack(t, fmt.Sprintf("%s\noutput p = %%%d\n", tc.ops, last))
			src := packCheckpoint(t)
			bound, err := BindPack(g, src)
			if err != nil {
				t.Fatal(err)
			}
			typ := g.Outputs[0].Value.Type
			x, err := bound.Weight("p", typ)
			if err != nil {
				t.Fatal(err)
			}
			want := encoded(t, x)
			check := func(how string, jobs []Job, err error) {
				t.Helper()
				if err != nil {
					t.Fatalf("%s: %v", how, err)
				}
				got := assemble(t, typ, jobs)
				for part := range got {
					if !bytes.Equal(got[part], want[part]) {
						t.Errorf("%s: part %d differs from the oracle's", how, part)
					}
				}
			}
			for _, most := range []int64{1 << 20, 100} {
				jobs, err := Jobs(bound, "p", typ, most)
				check(fmt.Sprint("at most ", most), jobs, err)
			}
			plain, err := BindPack(g, struct{ eval.WeightSource }{src})
			if err != nil {
				t.Fatal(err)
			}
			jobs, err := Jobs(plain, "p", typ, 1<<20)
			check("of a source without bytes", jobs, err)

			v := bound.(*Packed).values["p"]
			if copied(v) != (tc.how == bytesAlone) {
				t.Errorf("copied %v", copied(v))
			}
			if tc.how == bytesAlone {
				return
			}
			c, host, why, err := packing(v)
			if err != nil || host <= 0 {
				t.Fatalf("%d bytes, error %v", host, err)
			}
			if why != nil {
				if why.Error() != tc.how {
					t.Errorf("it is evaluated whole: %v", why)
				}
				return
			}
			if tc.how != cuttable {
				t.Fatalf("it is cut, though %s", tc.how)
			}
			stored, err := bound.(*Packed).find(v)
			if err != nil {
				t.Fatal(err)
			}
			for _, c.elements = range []int{1, 500, 5000} {
				jobs, err := c.jobs(src, stored)
				check(fmt.Sprint(c.elements, " elements at a time"), jobs, err)
				if rows := rowsOf(c.value.Type); c.elements == 1 && len(jobs) != (rows+c.grain-1)/c.grain {
					t.Errorf("%d jobs for %d rows, %d at a time", len(jobs), rows, c.grain)
				}
			}
		})
	}
}

// Weights that are not packed are copied from where they lie, at most so many bytes at
// a time.
func TestJobsOfCheckpoint(t *testing.T) {
	src := packCheckpoint(t)
	for _, tc := range []struct {
		name string
		typ  ir.Type
		jobs int
	}{
		{"a", scaled(ir.F8E4M3, 128, 32, 256, 96), 25 + 1},
		{"c", typ(ir.BF16, 24, 10), 1},
		{"e.*.w", scaled(ir.F4E2M1, 1, 32, 3, 6, 64), 3 + 3},
	} {
		x, err := src.Weight(tc.name, tc.typ)
		if err != nil {
			t.Fatal(err)
		}
		jobs, err := Jobs(src, tc.name, tc.typ, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(jobs) != tc.jobs {
			t.Errorf("%s: %d jobs, want %d", tc.name, len(jobs), tc.jobs)
		}
		got, want := assemble(t, tc.typ, jobs), encoded(t, x)
		for part := range got {
			if !bytes.Equal(got[part], want[part]) {
				t.Errorf("%s: part %d differs", tc.name, part)
			}
		}
		for i, j := range jobs {
			if j.Host != 0 || j.Make != nil {
				t.Errorf("%s: job %d takes %d bytes of memory", tc.name, i, j.Host)
			}
			for part, b := range j.Copy {
				if at, ok := src.File.Position(b); len(b) > 0 && (!ok || at != j.At) {
					t.Errorf("%s: job %d: part %d lies at %d (%v), not %d", tc.name, i, part, at, ok, j.At)
				}
			}
		}
	}
}

func TestJobsRefused(t *testing.T) {
	src := packCheckpoint(t)
	g := parsePack(t, "weight @absent : f32[3]\n%0 = neg @absent : f32[3]\n%1 = neg @v : f32[12]\noutput p = %0\noutput q = %1\n")
	bound, err := BindPack(g, src)
	if err != nil {
		t.Fatal(err)
	}
	wrong := fixed{FromF: []float32{1, 2}}
	for _, tc := range []struct {
		src  eval.WeightSource
		name string
		typ  ir.Type
		want string
	}{
		{bound, "p", typ(ir.F32, 3), `weight @absent: `},
		{bound, "q", typ(ir.F32, 5), "f32[12], the plans want f32[5]"},
		{bound, "r", typ(ir.F32, 5), `no tensor "r"`},
		{nil, "r", typ(ir.F32, 5), "no weights are bound"},
		{wrong, "r", typ(ir.F32, 5), "f32[2], the plans want f32[5]"},
	} {
		jobs, err := Jobs(tc.src, tc.name, tc.typ, 100)
		if err == nil && len(jobs) == 1 && jobs[0].Make != nil {
			_, err = jobs[0].Make()
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
}

// fixed has one weight under every name.
type fixed struct{ FromF []float32 }

func (f fixed) Weight(string, ir.Type) (*eval.Tensor, error) {
	return eval.FromF32(ir.F32, f.FromF, len(f.FromF))
}

// What packing takes is known from the graph alone.
func TestPackings(t *testing.T) {
	g := parsePack(t, `%0 = concat @c, @d {axis = 0} : bf16[31,10]
%1 = dequantize @a {to = bf16} : bf16[256,96]
%2 = transpose @c {perm = [1,0]} : bf16[10,24]
output p = %0
output q = %1
output r = %2
`)
	list, err := Packings(g)
	if err != nil {
		t.Fatal(err)
	}
	// Codes and scales, their f32 form, and its copy; all of both transposed bf16.
	want := []string{
		fmt.Sprintf("q %d <nil>", 256*96+6+2*4*256*96),
		fmt.Sprintf("r %d op transpose does not compute rows from rows", 3*4*240),
	}
	if len(list) != len(want) {
		t.Fatalf("packings %v", list)
	}
	for i, p := range list {
		if got := fmt.Sprintf("%s %d %v", p.Name, p.Host, p.Whole); got != want[i] {
			t.Errorf("%s, want %s", got, want[i])
		}
	}
}
