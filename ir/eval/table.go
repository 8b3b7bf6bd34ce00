package eval

import "github.com/kiln-project/kiln/ir"

// kernel computes an op's results; out is allocated by the program.
type kernel func(in, out []*Tensor) error

// evaluator gives a primitive its meaning. make runs once per op, with integer
// shapes. view: the result is the operand's storage under another shape.
type evaluator struct {
	make func(op *ir.Op) (kernel, error)
	view bool
}

// evaluators has exactly one entry per primitive of the op table (tested).
var evaluators = map[string]evaluator{
	"neg":     {make: makeUnary},
	"abs":     {make: makeUnary},
	"exp":     {make: makeUnary},
	"log1p":   {make: makeUnary},
	"sqrt":    {make: makeUnary},
	"rsqrt":   {make: makeUnary},
	"sigmoid": {make: makeUnary},
	"cos":     {make: makeUnary},
	"sin":     {make: makeUnary},
	"not":     {make: makeUnary},

	"add": {make: makeBinary},
	"sub": {make: makeBinary},
	"mul": {make: makeBinary},
	"div": {make: makeBinary},
	"mod": {make: makeBinary},
	"min": {make: makeBinary},
	"max": {make: makeBinary},
	"and": {make: makeBinary},
	"or":  {make: makeBinary},
	"eq":  {make: makeBinary},
	"ne":  {make: makeBinary},
	"lt":  {make: makeBinary},
	"le":  {make: makeBinary},
	"gt":  {make: makeBinary},
	"ge":  {make: makeBinary},

	"select": {make: makeSelect},
	"cast":   {make: makeCast},

	"const":           {make: makeConst},
	"iota":            {make: makeIota},
	"reshape":         {view: true},
	"broadcast":       {make: makeBroadcast},
	"transpose":       {make: makeTranspose},
	"slice":           {make: makeSlice},
	"concat":          {make: makeConcat},
	"hadamard_matrix": {make: makeHadamardMatrix},
	"rope_freqs":      {make: makeRopeFreqs},

	"reduce_sum": {make: makeReduceSum},
	"reduce_max": {make: makeReduceMax},
	"dot":        {make: makeDot},
	"topk":       {make: makeTopK},
	"argmax":     {make: makeArgmax},
	"sample":     {make: makeSample},

	"gather_rows":  {make: makeGatherRows},
	"scatter_rows": {make: makeScatterRows},
	"take_along":   {make: makeTakeAlong},

	"quantize":    {make: makeQuantize},
	"dequantize":  {make: makeDequantize},
	"recode_fnuz": {make: makeRecodeFNUZ},
	"pack_rows":   {make: makePackRows},
	"unpack_rows": {make: makeUnpackRows},
}

// shapeOf is the integer shape of a value of a bound graph.
func shapeOf(v *ir.Value) []int {
	shape := make([]int, v.Type.Rank())
	for i, d := range v.Type.Dims {
		shape[i], _ = d.Const() // Compile checked that every extent is an integer
	}
	return shape
}
