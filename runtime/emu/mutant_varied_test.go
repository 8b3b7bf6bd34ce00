package emu

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

// Launches beside those of the model: what it met in a prompt and a few steps is far
// from most borders (attention sees few rows, no row is missing but at the start). So
// recorded launches are repeated with other inputs where these say which rows a kernel
// takes, or decide something: numbers at random, and those at the borders of tiles. The
// unmutated kernel says what the results are.

// variation is how launches of a kernel are varied.
type variation struct {
	kernel string // what its symbol begins with
	times  int    // how many launches of each shape, at most
	least  int    // how many in any case
	change func(v *varied)
}

// varied is a recording whose inputs are changed. Arguments are those of the kernel
// in order, as its Launch in codegen/kernels has them.
type varied struct {
	*recording
	*rand.Rand
	n int // which of the launches
}

// The tiny checkpoint has so many heads, and all of its heads and cached rows are so wide.
const (
	heads     = 4
	headWidth = 128
)

// Its packed rows.
var (
	kvRows    = ir.RowFormat{To: ir.F8E4M3, Block: 64, Dims: 64, D: headWidth}
	indexRows = ir.RowFormat{To: ir.F4E2M1, Block: 32, Dims: headWidth, D: headWidth}
)

// borders are numbers around the tiles of all kernels.
var borders = []int{0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 96, 97, 127, 128, 129, 191, 192, 193, 255, 256, 257}

// variations are by kernel; of several that fit the first counts.
var variations = []variation{
	{"matrix_attention", len(borders), 1, (*varied).attention},
	{"attention_sum", len(borders), 1, func(v *varied) {
		v.fill(0, func(int) float32 { return float32(v.NormFloat64()) })
		v.fill(1, func(int) float32 { return 0.5 + 8*v.Float32() }) // a maximum, and a sum
		v.rows(2, func(int) int32 { return int32(min(int64(borders[v.n%len(borders)]), 64*v.last())) })
	}},
	{"compress_row", 20, 18, func(v *varied) { v.compress(int(v.launch.Grid[0])) }}, // a group for each entry
	{"compress", 20, 18, func(v *varied) { v.compress(len(v.memory[6]) / (2 * headWidth)) }},
	{"matrix_scores", 6, 1, (*varied).scores},
	{"topk", 15, 5, (*varied).topk},
	{"gather_rows", 4, 1, func(v *varied) { v.rows(1, v.anyRow(v.last())) }},
	{"scatter_rows", 4, 1, (*varied).slots},
	{"history_rows", 6, 1, (*varied).history},
	{"entry_rows", 6, 1, (*varied).entries},
	{"expert_route", 16, 1, (*varied).route},
	{"expert_sum", 4, 1, func(v *varied) { v.rows(0, v.experts(8)) }},
	{"matrix_experts_sum", 4, 1, func(v *varied) { v.rows(3, v.experts(8)); v.scales() }},
	{"matrix_experts", 4, 1, func(v *varied) {
		if v.integers()[0] == 1 { // else the lists of tokens belong to the choices
			v.rows(5, v.experts(8))
		}
		v.scales()
		if v.label(0, "quant") {
			v.normalBF16(0, 30)
		}
	}},
	{"matrix_product", 3, 1, func(v *varied) {
		v.scales()
		if v.label(0, "quant") && v.label(len(v.args)-2, "expert") { // of what a sigmoid is
			v.normalBF16(0, 30)
		}
	}},
	{"gate", 8, 1, func(v *varied) { v.fill(0, v.tied) }},
	{"hash_gate", 8, 1, func(v *varied) {
		v.fill(0, func(int) float32 { return v.tied(0) - float32(90*v.IntN(2)) }) // some weights are next to nothing
	}},
	{"act_quant", 128, 1, func(v *varied) { v.spikes(0, v.anywhere) }},
	{"rms_norm_quant", 128, 1, func(v *varied) { v.spikes(0, v.anywhere) }},
	{"rms_norm_rope", 64, 1, func(v *varied) {
		v.pointed()
		v.words(3, func(int) uint32 { return 0x3f803f80 }) // ones
	}},
	{"rope_row", 64, 1, (*varied).pointed},
	{"pack_rows", 64, 1, func(v *varied) {
		v.spikes(0, v.ends(v.n))
		if v.n%4 == 3 { // the last row's blocks are below the floor
			clear(v.memory[0][len(v.memory[0])-2*128:])
		}
	}},
	{"unpack_rows", 8, 1, func(v *varied) {
		v.words(0, func(int) uint32 { return v.Uint32() }) // any codes and scales
		v.rows(1, v.anyRow(v.last()))
	}},
	{"hc_mix", 16, 1, func(v *varied) {
		size := []float64{1, 4, 20}[v.n%3]
		v.fill(0, func(i int) float32 {
			if i%28 == 24 { // the squares
				return 512 * v.Float32()
			}
			return float32(size * v.NormFloat64())
		})
		v.spikes(1, v.anywhere)
	}},
	{"hc_head", 9, 1, func(v *varied) { v.normalBF16(0, []float64{0.3, 1, 5}[v.n%3]) }},
	{"iota", 2, 1, func(v *varied) { v.elements(0, 700+v.n) }},
	{"ew_select", 4, 1, func(v *varied) {
		v.elements(1, 255+100*v.n)
		v.rows(0, func(int) int32 { return int32(v.IntN(5) - 2) })
		v.rows(1, func(int) int32 { return int32(v.IntN(300)) })
	}},
	{"ew_mod", 2, 1, func(v *varied) { v.rows(0, func(int) int32 { return int32(v.IntN(1000)) }) }},
	{"ew_", 2, 1, func(v *varied) { v.elements(1, 255+512*v.n) }},
}

// most is how many instructions of waves all varied launches of one shape may have, if
// they are not to be more in any case.
const most = 150_000

// varied are the kernel's recordings with other inputs: of each shape one, several times.
func (e *kept) varied(symbol string) []*recording {
	i := slices.IndexFunc(variations, func(x variation) bool { return strings.HasPrefix(symbol, x.kernel) })
	if i < 0 {
		return nil
	}
	var out []*recording
	done := map[string]bool{}
	for _, r := range e.list {
		if done[r.shape()] {
			continue
		}
		done[r.shape()] = true
		for n := range max(variations[i].least, min(variations[i].times, int(most/r.instructions))) {
			x := *r
			x.args, x.memory = slices.Clone(r.args), slices.Clone(r.memory)
			v := &varied{&x, rand.New(rand.NewPCG(uint64(n), 5)), n}
			variations[i].change(v)
			out = append(out, v.recording)
		}
	}
	return out
}

// integers are the launch's integer arguments.
func (v *varied) integers() []int64 {
	var list []int64
	for _, a := range v.args {
		if a.Mode == "" {
			list = append(list, a.Int)
		}
	}
	return list
}

// resize gives an argument other bytes, all zero, which no other argument shares.
func (v *varied) resize(arg, bytes int) {
	v.args[arg].Bytes, v.args[arg].Address = int64(bytes), uint64(arg+1)<<40
	v.memory[arg] = make([]byte, bytes)
}

// words changes the 32-bit words of an argument.
func (v *varied) words(arg int, of func(i int) uint32) {
	b := make([]byte, len(v.memory[arg]))
	for i := range len(b) / 4 {
		binary.LittleEndian.PutUint32(b[4*i:], of(i))
	}
	v.memory[arg] = b
}

func (v *varied) rows(arg int, of func(i int) int32) {
	v.words(arg, func(i int) uint32 { return uint32(of(i)) })
}

func (v *varied) fill(arg int, of func(i int) float32) {
	v.words(arg, func(i int) uint32 { return math.Float32bits(of(i)) })
}

// label tells whether the name of what lies in an argument's place has a word.
func (v *varied) label(arg int, word string) bool { return strings.Contains(v.args[arg].Label, word) }

// scales makes the block scales of weights, powers of two, differ from block to block.
func (v *varied) scales() {
	for i := range v.args {
		if v.label(i, " scales") {
			v.memory[i] = bytes.Clone(v.memory[i])
			for j := range v.memory[i] {
				v.memory[i][j] = byte(123 + v.IntN(6))
			}
		}
	}
}

// normalBF16 fills an argument with bf16.
func (v *varied) normalBF16(arg int, size float64) {
	half := func() uint32 { return math.Float32bits(float32(size*v.NormFloat64())) >> 16 }
	v.words(arg, func(int) uint32 { return half() | half()<<16 })
}

// packed fills an argument with packed rows of numbers about 1, whose blocks have
// scales of their own.
func (v *varied) packed(arg int, f ir.RowFormat) {
	b := make([]byte, len(v.memory[arg]))
	for row := 0; row < len(b); row += f.Bytes() {
		for i := range f.Rest() {
			b[row+i] = byte(v.Uint32())
			if f.To == ir.F8E4M3 {
				b[row+i] &= 0xBF // below 2: no NaN
			}
		}
		for i := f.Rest(); i < f.Scales(); i += 2 {
			binary.LittleEndian.PutUint16(b[row+i:], uint16(math.Float32bits(float32(v.NormFloat64()))>>16))
		}
		for i := f.Scales(); i < f.Used(); i++ {
			b[row+i] = byte(125 + v.IntN(4))
		}
	}
	v.memory[arg] = b
}

// anywhere gives each row's large element another place from launch to launch.
func (v *varied) anywhere(row int) int { return 37 * (v.n + 5*row) % 128 }

// ends gives those places in turn that a maximum over a block of 32 or 64 may miss: a
// block's first and last one, and those that lanes get from the lane that is a power of
// two further. n counts launches.
func (v *varied) ends(n int) func(row int) int {
	rows := len(v.memory[0]) / 2 / 128
	return func(row int) int {
		i := n*rows + row
		return 32*(i%4) + []int{0, 16, 8, 4, 2, 1, 31}[i/4%7]
	}
}

// spikes fills an argument with bf16 of which one in 128 is much larger than the others,
// in row i element place(i), so that it matters whether a maximum sees it.
func (v *varied) spikes(arg int, place func(row int) int) {
	half := func(i int) uint32 {
		x := v.NormFloat64()
		if i%128 == place(i/128) {
			x = math.Copysign(1<<12, x) * (1 + v.Float64())
		}
		return math.Float32bits(float32(x)) >> 16
	}
	v.words(arg, func(i int) uint32 { return half(2*i) | half(2*i+1)<<16 })
}

// rotated is spikes for a kernel that multiplies rows with a Hadamard matrix before it
// looks for the largest element: each row is one of the matrix's and some noise. The
// rotation of pairs before that is by no angle.
func (v *varied) rotated(arg, cos, sin int, place func(row int) int) {
	half := func(i int) uint32 {
		row, column := place(i/128), i%128
		x := 64 * (1 - 2*float64(bits.OnesCount(uint(row&column))%2))
		return math.Float32bits(float32(x+v.NormFloat64())) >> 16
	}
	v.words(arg, func(i int) uint32 { return half(2*i) | half(2*i+1)<<16 })
	v.fill(cos, func(int) float32 { return 1 })
	v.fill(sin, func(int) float32 { return 0 })
}

// pointed is spikes or rotated, in turn.
func (v *varied) pointed() {
	if v.n%2 == 0 {
		v.spikes(0, v.ends(v.n/2))
	} else {
		v.rotated(0, 1, 2, v.ends(v.n/2))
	}
}

// elements makes all arguments of an elementwise launch n elements long, the number
// that integer argument i has.
func (v *varied) elements(i, n int) {
	old := v.integers()[i]
	for j := range v.args {
		a := &v.args[j]
		if a.Mode == "" {
			if i--; i < 0 && a.Int == old {
				a.Int, i = int64(n), len(v.args)
			}
			continue
		}
		content := v.memory[j]
		v.resize(j, int(a.Bytes/old)*n)
		for at := 0; at < len(v.memory[j]); at += len(content) {
			copy(v.memory[j][at:], content)
		}
	}
}

// anyRow gives rows of n, the first and the last more often than others, and numbers
// that are none.
func (v *varied) anyRow(n int64) func(int) int32 {
	return func(int) int32 {
		switch v.IntN(6) {
		case 0:
			return -1
		case 1:
			return int32(n)
		case 2:
			return []int32{0, int32(n) - 1, int32(n) + 1, math.MinInt32, math.MaxInt32}[v.IntN(5)]
		}
		return int32(v.Int64N(n))
	}
}

// experts gives choices among n, or none; some launches choose few of them.
func (v *varied) experts(n int) func(int) int32 {
	return func(int) int32 { return int32(v.IntN(1+min(n, 1<<(v.n%4))) - 1) }
}

// tied gives numbers of which several are equal, and zeros of both signs.
func (v *varied) tied(int) float32 {
	return []float32{float32(v.IntN(7)-3) / 2, float32(v.NormFloat64()), float32(math.Copysign(0, -1))}[v.IntN(3)]
}

// attention lets token t see a number of rows at a border, anywhere in its lists, which
// are longer than the model's: more than one wave looks through them.
func (v *varied) attention() {
	tokens := len(v.memory[0]) / (heads * 2 * headWidth)
	widths := [][]int{{260, 200, 300}, {200, 1, 1}, {1, 260, 64}}[v.n%3][:len(v.integers())-1]
	columns := 0
	for s, w := range widths {
		columns += w
		v.resize(3+2*s, 4*tokens*w)
		v.args[len(v.args)-len(widths)+s].Int = int64(w)
	}
	parts, at := (columns+63)/64, len(v.args)-len(widths)-1
	v.args[at].Int = int64(parts)
	if v.launch.Grid[0] > tokens || at == 5+2*len(widths) { // a group for each part
		v.launch.Grid[0] = tokens * parts
		v.resize(at-3, 4*tokens*parts*heads*headWidth)
		v.resize(at-2, 4*tokens*parts*heads*2)
	}
	lists := make([][]int32, len(widths))
	counts := slices.DeleteFunc(slices.Clone(borders), func(n int) bool { return n > columns })
	counts = append(counts, columns-1, columns)
	for t := range tokens {
		seen := make([]bool, columns)
		for _, i := range v.Perm(columns)[:counts[(t+5*v.n)%len(counts)]] {
			seen[i] = true
		}
		for s, w := range widths {
			rows := len(v.memory[2+2*s]) / kvRows.Bytes()
			for _, is := range seen[:w] {
				row := int32(-1)
				if is {
					row = int32(v.IntN(rows))
				}
				lists[s] = append(lists[s], row)
			}
			seen = seen[w:]
		}
	}
	v.normalBF16(0, 1)
	for s := range widths {
		v.rows(3+2*s, func(i int) int32 { return lists[s][i] })
		v.packed(2+2*s, kvRows)
	}
}

// compress lets members of entries be rows of either list, or missing.
func (v *varied) compress(entries int) {
	members := len(v.memory[4]) / 4 / entries
	size := 4 * headWidth
	if members == 8 { // they overlap: a row has columns for two entries
		size *= 2
	}
	old, own := make([]int32, entries*members), make([]int32, entries*members)
	for i := range old {
		if v.IntN(2) > 0 { // the first row is as good as another
			old[i], own[i] = int32(v.IntN(len(v.memory[0])/size)), int32(v.IntN(len(v.memory[2])/size))
		}
		missing, kind := v.IntN(4) == 0, v.IntN(2)
		if entry := i/members + v.n; entry < 16 { // all but one
			missing, kind = i%members != entry%8, entry/8
			old[i], own[i] = 0, 0
		}
		switch {
		case missing:
			old[i], own[i] = -1, -1
		case kind == 0:
			old[i] = -1
		default:
			own[i] = -1
		}
	}
	v.rows(4, func(i int) int32 { return old[i] })
	v.rows(5, func(i int) int32 { return own[i] })
	spread := []float64{1, 80}[v.n%2] // of what the softmax is of; with the larger one a wrong maximum overflows
	for arg := range 4 {
		v.fill(arg, func(int) float32 { return float32([]float64{1, spread}[arg%2] * v.NormFloat64()) })
	}
}

// route has more tokens than the model's prompts, so that all waves look at choices, and
// several tiles for an expert.
func (v *varied) route() {
	const choices, experts, tile = 2, 8, 16
	tokens := 25 * (1 + v.n)
	tiles := experts + tokens*choices/tile
	v.resize(0, 4*tokens*choices)
	v.resize(1, 4*tokens*experts)
	v.resize(3, 4*tiles)
	v.resize(4, 4*tiles)
	for i, n := range []int{tokens, experts, tiles} {
		v.args[5+i].Int = int64(n)
	}
	v.rows(0, v.experts(experts))
}

// scores lets tokens score some entries, every other one of them with gaps; lists are
// also longer than the model's: all steps of all waves have entries, and a second group.
func (v *varied) scores() {
	n := int(v.integers()[0])
	if wide := []int{n, 257, 70}[v.n%3]; wide > n {
		tokens := len(v.memory[3]) / 4 / n
		v.resize(3, 4*tokens*wide)
		v.resize(4, len(v.memory[4])/n*wide)
		v.args[5].Int = int64(wide)
		v.launch.Grid[0] = tokens * ((wide + 255) / 256)
		n = wide
	}
	entries := len(v.memory[2]) / indexRows.Bytes()
	v.rows(3, func(i int) int32 {
		gaps := (i/n+v.n)%2 == 0
		if i%n >= borders[(i/n+5*v.n)%len(borders)] || gaps && v.IntN(4) == 0 {
			return -1
		}
		return int32(v.IntN(entries))
	})
	v.normalBF16(0, 1)
	v.packed(2, indexRows)
}

// topk makes scores tie, or lets entries have none; rows are longer than the model's.
func (v *varied) topk() {
	rows := len(v.memory[0]) / 2 / int(v.integers()[0])
	n := []int{32, 64, 256, 304, 1504}[v.n%5] // whole vectors
	integer := 0
	for i := range v.args {
		if v.args[i].Mode != "" {
			continue
		}
		if integer == 0 || integer == 3 { // the columns of a row of scores, and of what stands there
			v.args[i].Int = int64(n)
		}
		integer++
	}
	v.resize(0, 2*rows*n)
	v.resize(1, 4*rows*n)
	for i := range len(v.memory[0]) / 2 {
		x := v.tied(0)
		if v.IntN(6) < v.n%6 {
			x = float32(math.Inf(-1))
		}
		binary.LittleEndian.PutUint16(v.memory[0][2*i:], uint16(math.Float32bits(x)>>16))
	}
	v.rows(1, func(i int) int32 { return int32(i) })
}

// history has several requests, of which some have no ring, and rows of none.
func (v *varied) history() {
	tokens, requests := len(v.memory[1])/4, len(v.memory[3])/4
	first := int32(v.n % 2 * v.IntN(300))
	v.rows(0, func(int) int32 { return int32(v.IntN(tokens+1) - 1) })
	v.rows(1, func(i int) int32 { return first + int32(i) })
	v.rows(2, func(i int) int32 { return int32(i*(requests+1)/tokens-v.n/2%2) % int32(requests) })
	v.rows(3, func(int) int32 { return int32(v.IntN(4) - 1) })
}

// entries has requests without pages.
func (v *varied) entries() {
	requests := int64(len(v.memory[2])/4) / v.integers()[0]
	v.rows(0, func(i int) int32 { return int32(v.n*31 + i) })
	v.rows(1, func(int) int32 { return int32(v.Int64N(requests+1) - 1) })
	v.rows(2, func(int) int32 { return int32(v.IntN(9) - 1) })
}

// slots scatters rows to slots of their own (of those that go to one any may win), or
// nowhere.
func (v *varied) slots() {
	n := int(v.last())
	list := []int32{-1, -2, math.MinInt32, int32(n)}
	for _, slot := range v.Perm(n) {
		list = append(list, int32(slot))
	}
	v.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	v.rows(1, func(i int) int32 {
		if i < len(list) {
			return list[i]
		}
		return -1
	})
}

// last is the last integer argument.
func (v *varied) last() int64 {
	list := v.integers()
	return list[len(list)-1]
}

// foreignSizes are sizes that the kernels of another compiler are launched with beside
// those of their files: at the borders of a group's rows, columns and steps.
var foreignSizes = map[string][]map[string]int{
	"add":     {{"n": 1}, {"n": 1023}, {"n": 1024}, {"n": 1025}},
	"rmsnorm": {{"n": 1}, {"n": 65}, {"n": 1023}, {"n": 1025}, {"n": 2047}, {"n": 2048}},
	"matmul_bf16": {
		{"M": 1, "N": 1, "K": 1}, {"M": 32, "N": 32, "K": 32}, {"M": 31, "N": 33, "K": 33}, {"M": 33, "N": 31, "K": 31}, {"M": 33, "N": 5, "K": 95}, {"M": 5, "N": 1, "K": 65}, {"M": 33, "N": 33, "K": 0},
	},
}

// foreignSteps are how many numbers of a size a group has, in the order of the grid.
var foreignSteps = map[string]map[string]int{"add": {"n": 1024}, "matmul_bf16": {"M": 32, "N": 32}}

// otherSizes are launches with those sizes and numbers at random.
func (o *foreignObject) otherSizes(t *testing.T) []*replay {
	var list []*replay
	for n, sizes := range foreignSizes[o.name] {
		rng := rand.New(rand.NewPCG(uint64(n), 6))
		elements := map[string]int{"x": sizes["n"], "y": sizes["n"], "w": sizes["n"], "o": sizes["n"], "a": sizes["M"] * sizes["K"], "b": sizes["K"] * sizes["N"], "c": sizes["M"] * sizes["N"]}
		if o.name == "rmsnorm" { // a row for each group
			elements["x"], elements["o"] = o.Grid[0]*sizes["n"], o.Grid[0]*sizes["n"]
		}
		r := &replay{launch: Launch{Grid: o.Grid, Block: [3]int{o.block, 1, 1}, LDS: o.lds, Memory: &Space{}, Workers: 1, Kernarg: make([]byte, o.k.Meta.KernargBytes)}}
		for axis, size := range slices.Sorted(maps.Keys(foreignSteps[o.name])) {
			step := foreignSteps[o.name][size]
			r.launch.Grid[axis] = (sizes[size] + step - 1) / step
		}
		for i, arg := range o.Args {
			at := r.launch.Kernarg[o.k.Meta.Args[i].Offset:]
			switch size, ok := sizes[arg[0]]; {
			case ok:
				le.PutUint32(at, uint32(size))
				continue
			case arg[1] == "fp32":
				le.PutUint32(at, math.Float32bits(float32(o.Scalars[arg[0]])))
				continue
			case arg[1] == "i32":
				t.Fatalf("%s: no size %s", o.name, arg[0])
			}
			unit := map[string]int{"*fp32": 4, "*bf16": 2}[arg[1]]
			b := make([]byte, max(1, unit*elements[arg[0]]))
			for j := range elements[arg[0]] {
				x := math.Float32bits(float32(rng.NormFloat64()))
				if unit == 4 {
					le.PutUint32(b[4*j:], x)
				} else {
					le.PutUint16(b[2*j:], uint16(x>>16))
				}
			}
			if err := r.launch.Memory.Map(b, arg[0]); err != nil {
				t.Fatal(err)
			}
			le.PutUint64(at, Address(b))
			r.buffers = append(r.buffers, o.buffer(arg[0], b))
			r.blocks = append(r.blocks, &block{now: b, before: bytes.Clone(b)})
		}
		list = append(list, r)
	}
	return list
}
