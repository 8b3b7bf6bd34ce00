package emu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
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
	change func(v *varied)
}

// varied is a recording whose inputs are changed. Arguments are those of the kernel
// in order, as its Launch in codegen/kernels has them.
type varied struct {
	*recording
	*rand.Rand
	n int // which of the launches
}

// headWidth is the width of all heads and rows of the tiny checkpoint.
const headWidth = 128

// borders are numbers around the tiles of all kernels.
var borders = []int{0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 96, 97, 127, 128, 129, 159, 160}

// variations are by kernel; of several that fit the first counts.
var variations = []variation{
	{"matrix_attention", len(borders), (*varied).attention},
	{"attention_sum", len(borders), func(v *varied) {
		v.fill(0, func(int) float32 { return float32(v.NormFloat64()) })
		v.fill(1, func(int) float32 { return 0.5 + 8*v.Float32() }) // a maximum, and a sum
		v.rows(2, func(int) int32 { return int32(min(int64(borders[v.n]), 64*v.last())) })
	}},
	{"compress", 4, (*varied).compress},
	{"matrix_scores", 6, (*varied).scores},
	{"topk", 6, (*varied).topk},
	{"gather_rows", 4, func(v *varied) { v.rows(1, v.anyRow(v.last())) }},
	{"scatter_rows", 4, (*varied).slots},
	{"history_rows", 6, (*varied).history},
	{"entry_rows", 6, (*varied).entries},
	{"expert_route", 6, func(v *varied) { v.rows(0, v.experts(8)) }},
	{"expert_sum", 4, func(v *varied) { v.rows(0, v.experts(8)) }},
	{"matrix_experts_sum", 4, func(v *varied) { v.rows(3, v.experts(8)) }},
	{"gate", 4, func(v *varied) { v.fill(0, v.tied) }},
	{"hash_gate", 4, func(v *varied) { v.fill(0, v.tied) }},
	{"ew_select", 4, func(v *varied) {
		v.rows(0, func(int) int32 { return int32(v.IntN(5) - 2) })
		v.rows(1, func(int) int32 { return int32(v.IntN(300)) })
	}},
	{"ew_mod", 2, func(v *varied) { v.rows(0, func(int) int32 { return int32(v.IntN(1000)) }) }},
}

// most is how many instructions of waves all varied launches of one shape may have; one
// launch is made in any case.
const most = 60_000

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
		for n := range max(1, min(variations[i].times, int(most/r.instructions))) {
			x := *r
			x.memory = slices.Clone(r.memory)
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

// normalBF16 fills an argument with bf16.
func (v *varied) normalBF16(arg int) {
	half := func() uint32 { return math.Float32bits(float32(v.NormFloat64())) >> 16 }
	v.words(arg, func(int) uint32 { return half() | half()<<16 })
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
	return func(int) int32 { return int32(v.IntN(1+min(n, 1<<v.n)) - 1) }
}

// tied gives numbers of which several are equal, and zeros of both signs.
func (v *varied) tied(int) float32 {
	return []float32{float32(v.IntN(7)-3) / 2, float32(v.NormFloat64()), float32(math.Copysign(0, -1))}[v.IntN(3)]
}

// attention lets token t see a number of rows at a border, anywhere in its lists.
func (v *varied) attention() {
	widths := v.integers()[1:]
	columns := 0
	for _, w := range widths {
		columns += int(w)
	}
	lists := make([][]int32, len(widths))
	tokens := len(v.memory[0]) / (4 * 2 * headWidth)
	counts := slices.DeleteFunc(slices.Clone(borders), func(n int) bool { return n > columns })
	counts = append(counts, columns-1, columns)
	for t := range tokens {
		seen := make([]bool, columns)
		for _, i := range v.Perm(columns)[:counts[(t+v.n)%len(counts)]] {
			seen[i] = true
		}
		for s, w := range widths {
			rows := len(v.memory[2+2*s]) / (2 * headWidth)
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
	for s := range widths {
		v.rows(3+2*s, func(i int) int32 { return lists[s][i] })
	}
}

// compress lets members of entries be rows of either list, or missing.
func (v *varied) compress() {
	entries := len(v.memory[6]) / (2 * headWidth)
	members := len(v.memory[4]) / 4 / entries
	size := 4 * headWidth
	if members == 8 { // they overlap: a row has columns for two entries
		size *= 2
	}
	old, own := make([]int32, entries*members), make([]int32, entries*members)
	for i := range old {
		old[i], own[i] = int32(v.IntN(len(v.memory[0])/size)), int32(v.IntN(len(v.memory[2])/size))
		switch entry := i/members + v.n; {
		case entry%4 == 0 && i%members != v.n*37%members, v.IntN(4) == 0:
			old[i], own[i] = -1, -1
		case entry%4 == 1:
			own[i] = -1
		case entry%4 == 2:
			old[i] = -1
		case v.IntN(2) == 0:
			own[i] = -1
		}
	}
	v.rows(4, func(i int) int32 { return old[i] })
	v.rows(5, func(i int) int32 { return own[i] })
}

// scores lets tokens score some entries.
func (v *varied) scores() {
	n := int(v.integers()[0])
	entries := len(v.memory[2]) / (2 * headWidth)
	v.rows(3, func(i int) int32 {
		if i%n >= borders[(i/n+5*v.n)%len(borders)] || v.IntN(4) == 0 {
			return -1
		}
		return int32(v.IntN(entries))
	})
	v.normalBF16(0)
	v.normalBF16(2)
}

// topk makes scores tie, or lets entries have none.
func (v *varied) topk() {
	v.fill(0, func(int) float32 {
		if v.IntN(6) < v.n {
			return float32(math.Inf(-1))
		}
		return v.tied(0)
	})
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
	v.rows(1, func(i int) int32 { return list[i%len(list)] })
}

// last is the last integer argument.
func (v *varied) last() int64 {
	list := v.integers()
	return list[len(list)-1]
}
