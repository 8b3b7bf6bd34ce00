package passes

// Pass is one row of the pass table. Its name is part of the user interface.
type Pass struct {
	Name string
	Doc  string
	// Required passes cannot be left out: what follows does not work without.
	Required bool
	// On says what the pass works on.
	On  Stage
	Run func(*Module) error
}

// Stage is a part of the pipeline.
type Stage uint8

// The stages, in order.
const (
	Graphs Stage = iota // entries with symbolic extents, and the pack graph
	Steps               // entries bound to a bucket, made by bind, for one target
)

// Table lists the passes in the order in which they run: hoist-pack after those
// that leave something to pack.
var Table = []Pass{
	{"fnuz-weights", "For a target whose 8-bit floats are e4m3fnuz, recodes f8e4m3 weights that kernels decode in every step.", true, Graphs, fnuzWeights},
	{"hoist-pack", "Moves weight-only values out of the entries into the pack graph, each once.", true, Graphs, hoistPack},

	{"bind", "Gives the symbols of an entry the integers of every bucket.", true, Steps, bind},
	{"select-kernels", "Chooses a kernel form for every op; a composite that no form takes is decomposed.", true, Steps, selectKernels},
	{"plan-memory", "Places every buffer: pools and weights once per bundle, the rest in an arena, by liveness.", true, Steps, planMemory},
}
