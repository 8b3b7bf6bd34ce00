package passes

// Table lists the passes in the order in which they run.
var Table = []Pass{
	{Name: "fold", Doc: "Drops ops that do nothing and makes one of two that follow each other, where every bit stays.", Graph: fold, Apart: true},
	{Name: "fuse-qkv", Doc: "Makes one product of two that multiply the same activations; their weights are joined in the pack graph.", Module: fuseQKV},
	{Name: "fuse-linears", Doc: "Makes one product of up to four that multiply one value with bf16 weights; their weights are joined in the pack graph.", Module: fuseLinears},
	{Name: "fnuz-weights", Doc: "For a target whose 8-bit floats are e4m3fnuz, recodes f8e4m3 weights that kernels decode in every step.", Required: true, Graph: fnuzWeights, Apart: true},
	{Name: "hoist-pack", Doc: "Moves weight-only values out of the entries into the pack graph, each once.", Required: true, Module: hoistPack},
	{Name: "hoist-rope", Doc: "Gathers rows of rope tables once per step and distinct position vector, at the top of the graph.", Graph: hoistRope, Apart: true},
	{Name: "fuse-rope", Doc: "Makes one op of a row's norm, rope, Hadamard rotation and cache rounding.", Graph: fuseRope, Apart: true},
	{Name: "fuse-compress", Doc: "Makes one op of an entry's compression and its way to the cache.", Graph: fuseCompress, Apart: true},
	{Name: "fuse-topk", Doc: "Makes one op of topk and the rows that it chooses.", Graph: fuseTopK, Apart: true},
	{Name: "fuse-head-argmax", Doc: "Makes one op of the head's product and the argmax of its rows; logits are not stored.", Graph: fuseHeadArgmax, Apart: true},
	{Name: "share-quant", Doc: "Quantises activations once for all products that read them.", Graph: shareQuant, Apart: true},
	{Name: "cse", Doc: "Computes equal values once.", Graph: cse, Apart: true},
	{Name: "dce", Doc: "Drops ops whose results nothing uses.", Graph: dce, Apart: true},
	{Name: "perturb", Doc: "Check: multiplies every f32 result by 1 + 2^-20, to show what hangs on last bits.", Off: true, Graph: perturb, Apart: true},

	{Name: "bind", Doc: "Gives the symbols of an entry the integers of every bucket.", Required: true, On: Steps, Module: bind, Each: true},
	{Name: "fuse-hc", Doc: "Makes one op of hc_post of a sublayer, and hc_pre and the norm of the next.", On: Steps, Graph: fuseHC},
	{Name: "fuse-moe-add", Doc: "Has moe_experts add the shared expert's output.", On: Steps, Graph: fuseMoEAdd},
	{Name: "fuse-norm-quant", Doc: "Makes one op of rms_norm and the quantisation of its result.", On: Steps, Graph: fuseNormQuant},
	{Name: "select-kernels", Doc: "Chooses a kernel form for every op; a composite that no form takes is decomposed.", Required: true, On: Steps, Module: selectKernels, Each: true},
	{Name: "join-launches", Doc: "On GPUs, makes one launch of several of little work that do not need each other.", On: Steps, Module: joinLaunches, Each: true},
	{Name: "plan-memory", Doc: "Places every buffer: pools and weights once per bundle, the rest in an arena, by liveness.", Required: true, On: Steps, Module: planMemory, Each: true},
}

// Orders are the constraints on the table, each with its reason. They are checked
// when the program starts and when a pass is registered.
var Orders = []Order{
	{"fuse-qkv", "fnuz-weights", "a joined weight is recoded as a whole; a recoded one is no weight of the model any more"},
	{"fuse-qkv", "hoist-pack", "joining weights is weight-only work, which belongs into the pack graph"},
	{"fuse-linears", "hoist-pack", "joining weights is weight-only work, which belongs into the pack graph"},
	{"fnuz-weights", "hoist-pack", "recoding is weight-only work, which belongs into the pack graph"},
	{"hoist-pack", "hoist-rope", "the pack graph says which weights are rope tables, and of which plan"},
	{"fuse-qkv", "share-quant", "two products that become one quantise once anyway"},
	{"hoist-pack", "cse", "tables that hoist-pack merges make their gathers equal"},
	{"hoist-rope", "fuse-compress", "a fused entry is made before its state is written, when only rows from the top are there"},
	{"fuse-rope", "fuse-compress", "fuse-compress takes what fuse-rope makes"},
	{"hoist-pack", "fuse-rope", "a weight that is packed is a weight again, and no result"},
	{"fold", "cse", "what was written in two ways is equal once it is folded"},
	{"fold", "dce", "the inner op of a chain is left without use"},
	{"cse", "dce", "what was computed twice leaves its operands without use"},
	{"cse", "perturb", "values that are computed once are perturbed once"},
	{"bind", "fuse-hc", "its threshold is compared with an integer number of tokens"},
	{"fuse-hc", "select-kernels", "a fused op needs a kernel, and launches are not fused"},
	{"fuse-hc", "fuse-norm-quant", "a norm behind a border belongs to hc_fused"},
	{"share-quant", "fuse-norm-quant", "products quantise their operands themselves until share-quant has made that an op"},
	{"share-quant", "fuse-moe-add", "share-quant knows moe_experts"},
	{"fuse-moe-add", "select-kernels", "a fused op needs a kernel, and launches are not fused"},
	{"bind", "select-kernels", "kernels are chosen for integer shapes"},
	{"select-kernels", "join-launches", "it is launches that are joined"},
	{"join-launches", "plan-memory", "what a launch reads and writes must live through all of it"},
	{"select-kernels", "plan-memory", "launches say what memory lives when"},
}
