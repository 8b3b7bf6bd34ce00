package eval

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

func TestEvaluatorsAreThePrimitives(t *testing.T) {
	primitive := map[string]bool{}
	for _, d := range ir.Ops() {
		_, ok := evaluators[d.Name]
		switch {
		case d.Primitive() && !ok:
			t.Errorf("primitive %s has no evaluator", d.Name)
		case !d.Primitive() && ok:
			t.Errorf("composite %s has an evaluator; its decomposition is its meaning", d.Name)
		}
		primitive[d.Name] = d.Primitive()
	}
	for name, e := range evaluators {
		if _, ok := primitive[name]; !ok {
			t.Errorf("evaluator of %s, which is not in the op table", name)
		}
		if (e.make == nil) != e.view {
			t.Errorf("evaluator of %s: want either make or view", name)
		}
	}
}

// properties has one property for each op of the table: a comparison with the
// test's own reference on random operands.
var properties = map[string]func(t *rapid.T){
	"neg": unaryProp("neg"), "abs": unaryProp("abs"), "exp": unaryProp("exp"), "log1p": unaryProp("log1p"),
	"sqrt": unaryProp("sqrt"), "rsqrt": unaryProp("rsqrt"), "sigmoid": unaryProp("sigmoid"),
	"cos": unaryProp("cos"), "sin": unaryProp("sin"), "not": unaryProp("not"),

	"add": binaryProp("add"), "sub": binaryProp("sub"), "mul": binaryProp("mul"), "div": binaryProp("div"),
	"mod": binaryProp("mod"), "min": binaryProp("min"), "max": binaryProp("max"),
	"and": binaryProp("and"), "or": binaryProp("or"),
	"eq": binaryProp("eq"), "ne": binaryProp("ne"), "lt": binaryProp("lt"), "le": binaryProp("le"),
	"gt": binaryProp("gt"), "ge": binaryProp("ge"),
	"select": selectProp, "cast": castProp,

	"const": constProp, "iota": iotaProp, "reshape": reshapeProp, "broadcast": broadcastProp,
	"transpose": transposeProp, "slice": sliceProp, "concat": concatProp,
	"hadamard_matrix": hadamardMatrixProp, "rope_freqs": ropeFreqsProp,

	"reduce_sum": reduceSumProp, "reduce_max": reduceMaxProp, "dot": dotProp, "topk": topkProp, "topk_rows": topkRowsProp,
	"argmax": argmaxProp, "linear_argmax": linearArgmaxProp, "sample": sampleProp,
	"gather_rows": gatherProp, "scatter_rows": scatterProp, "take_along": takeProp,
	"quantize": quantizeProp, "dequantize": dequantizeProp, "recode_fnuz": recodeFNUZProp,
	"pack_rows": packRowsProp, "unpack_rows": unpackRowsProp,

	"rms_norm": rmsNormProp, "head_rms_norm": headNormProp,
	"rms_norm_quant": normQuantProp("rms_norm_quant"), "rms_norm_and_quant": normQuantProp("rms_norm_and_quant"),
	"linear": linearProp, "block_linear": blockLinearProp, "split_linear": splitLinearProp, "grouped_linear": groupedLinearProp,
	"linear2": joinedLinearProp(2), "linear3": joinedLinearProp(3), "linear4": joinedLinearProp(4),
	"hadamard": hadamardProp, "fake_quant": fakeQuantProp,
	"freqs_cis": freqsCisProp, "rope": ropeProp,
	"rope_row": rowProp("rope_row"), "rms_norm_rope": rowProp("rms_norm_rope"), "head_rms_norm_rope": rowProp("head_rms_norm_rope"), "compress_row": compressRowProp,
	"hc_split": hcSplitProp, "hc_pre": hcPreProp, "hc_post": hcPostProp, "hc_fused": hcFusedProp, "hc_fused_quant": hcFusedQuantProp,
	"hc_head":      hcHeadProp,
	"history_rows": historyProp, "entry_rows": entryProp, "group_start": groupStartProp,
	"compress": compressProp, "indexer_scores": indexerProp, "sparse_attention": attentionProp,
	"gate": gateProp, "hash_gate": hashGateProp, "swiglu": swigluProp,
	"expert": expertProp, "moe_experts": moeProp, "moe_experts_add": moeAddProp,
}

func TestOps(t *testing.T) {
	for _, d := range ir.Ops() {
		prop, ok := properties[d.Name]
		if !ok {
			t.Errorf("op %s has no property test", d.Name)
			continue
		}
		check(t, d.Name, prop)
	}
}

var (
	floatTypes = []ir.DType{ir.F32, ir.BF16, ir.F16}
	intTypes   = []ir.DType{ir.I64, ir.I32, ir.I8, ir.U8}
	codeTypes  = []ir.DType{ir.F8E4M3, ir.F8E4M3FNUZ, ir.F4E2M1}
	numTypes   = slices.Concat(floatTypes, intTypes)
	valueTypes = append(slices.Clone(numTypes), ir.Bool)
	allTypes   = slices.Concat(valueTypes, codeTypes, []ir.DType{ir.E8M0})
)

// TestOperandTypes runs every primitive on every dtype in every operand place:
// what these tests cover is exactly what the op table allows, and whatever the
// table allows evaluates.
func TestOperandTypes(t *testing.T) {
	attrs := map[string]ir.Attrs{
		"cast": ir.A("to", ir.F32), "reshape": ir.A("shape", []ir.Dim{ir.Int(4), ir.Int(2)}),
		"broadcast": ir.A("shape", []ir.Dim{ir.Int(2), ir.Int(4)}), "transpose": ir.A("perm", []int{1, 0}),
		"slice": ir.A("axis", 0, "start", 0, "size", 1), "concat": ir.A("axis", 0),
		"reduce_sum": ir.A("axis", 0), "reduce_max": ir.A("axis", 1), "topk": ir.A("k", 2),
		"quantize":    ir.A("to", ir.F8E4M3, "block", 2, "floor", 1e-4),
		"pack_rows":   ir.A("to", ir.F8E4M3, "block", 2, "dims", 4, "floor", 1e-4),
		"unpack_rows": ir.A("to", ir.F8E4M3, "block", 2, "dims", 8, "d", 10),
	}
	allowed := map[string][]ir.DType{
		"cast": allTypes, "reshape": allTypes, "broadcast": allTypes, "concat": allTypes,
		"transpose": without(allTypes, ir.F4E2M1), "slice": without(allTypes, ir.F4E2M1),
		"not": {ir.Bool}, "and": {ir.Bool}, "or": {ir.Bool}, "mod": intTypes,
		"gather_rows": valueTypes, "select": valueTypes, "dequantize": nil, "recode_fnuz": nil,
		"argmax": {ir.F32, ir.BF16}, "sample": {ir.F32, ir.BF16}, "pack_rows": {ir.BF16}, "unpack_rows": {ir.U8},
	}
	for _, name := range strings.Fields("neg abs add sub mul div min max eq ne lt le gt ge scatter_rows take_along") {
		allowed[name] = numTypes
	}
	for _, name := range strings.Fields("exp log1p sqrt rsqrt sigmoid cos sin reduce_sum reduce_max dot topk quantize") {
		allowed[name] = floatTypes
	}
	index := i32s([]int32{0, 1}, 2)
	columns := i32s([]int32{0, 1, 0, 1}, 2, 2)
	cond := zeroTensor(ir.Bool, 2, 4)
	for _, d := range ir.Ops() {
		if !d.Primitive() || len(d.Operands) == 0 {
			continue
		}
		want, ok := allowed[d.Name]
		if !ok {
			t.Errorf("%s: not in this test's table", d.Name)
		}
		for _, dt := range allTypes {
			x := zeroTensor(dt, 2, 4)
			if dt != ir.Bool {
				for i := range x.I {
					x.I[i] = 1 // no division by zero
				}
			}
			var args []*Tensor
			switch d.Name {
			case "gather_rows":
				args = []*Tensor{x, index}
			case "scatter_rows":
				args = []*Tensor{x, index, x}
			case "take_along":
				args = []*Tensor{x, columns}
			case "sample":
				args = sampleArgs(x, make([]Draw, 2))
			case "select":
				args = []*Tensor{cond, x, x}
			case "unpack_rows":
				args = []*Tensor{zeroTensor(dt, 2, 16), index}
			default:
				for range d.Operands {
					args = append(args, x)
				}
			}
			if d.Name == "neg" && dt == ir.U8 {
				x.I = make([]int64, 8) // only 0 has a negative
			}
			_, err := opGraph(d.Name, attrs[d.Name], args, (*ir.Builder).Input)
			if accepts := slices.Contains(want, dt); accepts != (err == nil) {
				t.Errorf("%s on %s: op table: %v; this test's table allows it: %v", d.Name, dt, err, accepts)
				continue
			}
			if err == nil {
				apply1(t, d.Name, attrs[d.Name], args...)
			}
		}
	}
}

func without(list []ir.DType, drop ir.DType) []ir.DType {
	return slices.DeleteFunc(slices.Clone(list), func(d ir.DType) bool { return d == drop })
}
