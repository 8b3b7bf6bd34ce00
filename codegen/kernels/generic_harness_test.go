package kernels_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/codegen/testcache"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/metric"
	"github.com/kiln-project/kiln/ir/num"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/host"
)

// mergedIR joins the modules of several kernels into one: a run of LLVM costs as
// much as many kernels.
func mergedIR(ks []*codegen.Kernel) string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, k := range ks {
		for line := range strings.Lines(k.IR) {
			if strings.HasPrefix(line, "declare ") || strings.HasPrefix(line, "target ") {
				if seen[line] {
					continue
				}
				seen[line] = true
			}
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestMain(m *testing.M) {
	llvm.MaybeServeWorker(os.Args)
	debug.SetGCPercent(400) // code of simulated machines is many small objects, and collecting took a third of the time
	code := m.Run()
	if shared.llvm != nil {
		shared.llvm.Close()
	}
	os.Exit(code)
}

// shared is the compiler of all tests.
var shared struct {
	once  sync.Once
	tools *llvm.Toolchain
	llvm  llvm.Compiler
	none  error // there is no LLVM
	err   error
}

func compiler(t testing.TB) (*llvm.Toolchain, llvm.Compiler) {
	t.Helper()
	shared.once.Do(func() {
		if shared.tools, shared.none = llvm.Find(context.Background(), llvm.FindOptions{}); shared.none == nil {
			if shared.llvm, shared.err = llvm.New(context.Background(), shared.tools, llvm.Options{}); shared.err == nil {
				shared.llvm = testcache.Compiler(shared.llvm, shared.tools, testcache.Open(t))
			}
		}
	})
	if shared.none != nil {
		t.Skipf("this test compiles with LLVM, and there is none: %v", shared.none)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.tools, shared.llvm
}

// compileMerged compiles kernels as some modules, as many as there are cores, and
// returns each one's result with its kernels.
func compileMerged(t testing.TB, ks []*codegen.Kernel, tg *target.Target, out llvm.Output) (results [][]byte, parts [][]*codegen.Kernel) {
	t.Helper()
	_, c := compiler(t)
	n := min(runtime.GOMAXPROCS(0), len(ks))
	results, parts = make([][]byte, n), make([][]*codegen.Kernel, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		for j := i; j < len(ks); j += n {
			parts[i] = append(parts[i], ks[j])
		}
		wg.Go(func() {
			job := llvm.Job{
				Name: fmt.Sprintf("part%d", i), IR: []byte(mergedIR(parts[i])), Triple: tg.Triple, CPU: tg.CPU, Features: tg.Features,
				OptPasses: "default<O3>", PIC: tg.Kind == target.Host, Output: out,
			}
			var r llvm.Result
			r, errs[i] = c.Compile(context.Background(), job)
			results[i] = r.Output
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatalf("%s: %v", tg.Name, err)
		}
	}
	return results, parts
}

func mustTarget(t testing.TB, name string) *target.Target {
	t.Helper()
	tg, err := target.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return tg
}

// buildHost compiles a unit for the host, or for a chip that is emulated or simulated,
// and loads it; the caller closes the model.
func buildHost(t testing.TB, u *codegen.Unit) *device.Model {
	t.Helper()
	switch u.Target.Kind {
	case target.AMDGPU:
		return buildEmulated(t, u)
	case target.NVPTX:
		return buildWarps(t, u)
	}
	if best, err := host.Target(); err != nil || best == "x86-64-v2" && u.Target.Name != best {
		t.Skipf("this CPU does not run %s code (best: %q, %v)", u.Target.Name, best, err)
	}
	tools, _ := compiler(t)
	objs, _ := compileMerged(t, u.Kernels, u.Target, llvm.Object)
	so, err := tools.Link(context.Background(), "kernels", objs)
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cpu.Close() })
	m, err := device.NewModel(cpu, so, u.Module)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// batch is a graph of many ops, compiled and run at once.
type batch struct {
	t      testing.TB
	b      *ir.Builder
	in     map[string]*eval.Tensor
	states map[string]*eval.Tensor
	names  map[*eval.Tensor]*ir.Value
	what   []string // by output
	value  []*ir.Value
	limit  []limit
	rest   []rest
}

// limit is the number of ulps by which a result may differ.
type limit struct {
	ulps  float64 // of elements that are not equal
	worst *float64
	share float64 // of elements that may differ at all
	abs   float64 // elements this close count as equal
	bf16  bool    // f32 elements are compared after rounding to bf16
	cos   float64 // if not 0: instead, 1 - cosine of all elements; NaN and Inf are where they are
	block int     // if not 0: elements that are not equal are one f8e4m3 code away, with scales of so many elements each
}

var exact = limit{}

func newBatch(t testing.TB) *batch {
	return &batch{t: t, b: ir.NewBuilder("batch"), in: map[string]*eval.Tensor{}, states: map[string]*eval.Tensor{}, names: map[*eval.Tensor]*ir.Value{}}
}

// input is the value of a tensor.
func (c *batch) input(x *eval.Tensor) *ir.Value {
	if v, ok := c.names[x]; ok {
		return v
	}
	name := fmt.Sprintf("x%d", len(c.in))
	c.in[name] = x
	c.names[x] = c.b.Input(name, x.Type())
	return c.names[x]
}

// output asks for a value.
func (c *batch) output(what string, l limit, v *ir.Value) {
	c.b.Output(fmt.Sprintf("y%d", len(c.what)), v)
	c.what, c.value, c.limit = append(c.what, what), append(c.value, v), append(c.limit, l)
}

// op adds one op whose results are outputs, rows that a composite packs as the numbers
// they stand for: a rounding that went the other way is a step of a code.
func (c *batch) op(op string, attrs ir.Attrs, l limit, args ...*eval.Tensor) {
	c.t.Helper()
	what := op
	var in []*ir.Value
	for _, a := range args {
		in = append(in, c.input(a))
		what += " " + a.Type().String()
	}
	for _, a := range attrs {
		what += fmt.Sprintf(" %s=%v", a.Key, a.Val)
	}
	for _, r := range c.b.Op(op, attrs, in...) {
		if r.Op != nil && !r.Op.Def.Primitive() {
			if f, ok := ir.PackedResult(r.Op); ok {
				r = c.b.Unpack(f, r)
			}
		}
		c.output(what, l, r)
	}
	if err := c.b.Err(); err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
}

func (c *batch) graph() *ir.Graph {
	c.t.Helper()
	g, err := c.b.Finish()
	if err != nil {
		c.t.Fatal(err)
	}
	return g
}

func clones(m map[string]*eval.Tensor) map[string]*eval.Tensor {
	out := map[string]*eval.Tensor{}
	for k, v := range m {
		out[k] = v.Clone()
	}
	return out
}

// want evaluates the graph; states are those after it.
func (c *batch) want(g *ir.Graph) (out, states map[string]*eval.Tensor) {
	c.t.Helper()
	p, err := eval.Compile(g, eval.NewConsts(nil))
	if err != nil {
		c.t.Fatal(err)
	}
	states = clones(c.states)
	if out, err = p.Run(c.in, states); err != nil {
		c.t.Fatal(err)
	}
	return out, states
}

// bothHosts are the targets whose code this machine runs.
var bothHosts = []string{"x86-64-v3", "x86-64-v2"}

// run compares the code of hosts or emulated chips with the evaluator: if none are
// named, of the first of bothHosts, and in long tests of both chips.
func (c *batch) run(hosts ...string) {
	c.t.Helper()
	g := c.graph()
	if recordOnly() {
		load(c.t, hosts[0], g)
		return
	}
	want, wantStates := c.want(g)
	if len(hosts) == 0 {
		hosts = bothHosts[:1]
		if long {
			hosts = slices.Concat(hosts, bothChips)
		}
	}
	for _, name := range hosts {
		got, states := c.compiled(name, g)
		c.check(name, want, got)
		for n, w := range wantStates {
			if d := exact.compare(w, states[n]); d != "" {
				c.t.Errorf("%s: state %s: %s", name, n, d)
			}
		}
	}
}

// check compares results with the evaluator's.
func (c *batch) check(name string, want, got map[string]*eval.Tensor) {
	c.t.Helper()
	want = c.wantRest(want, got)
	for i, what := range c.what {
		y := fmt.Sprintf("y%d", i)
		if d := c.limit[i].compare(want[y], got[y]); d != "" {
			c.t.Errorf("%s: %s: %s", name, what, d)
		}
	}
}

// outputs runs the code of a host or an emulated chip.
func (c *batch) outputs(name string) map[string]*eval.Tensor {
	c.t.Helper()
	out, _ := c.compiled(name, c.graph())
	return out
}

// compiled runs code for g; states are those after it.
func (c *batch) compiled(name string, g *ir.Graph) (out, states map[string]*eval.Tensor) {
	c.t.Helper()
	d, plans := load(c.t, name, g)
	defer d.Close()
	return execute(c.t, d, plans[0], c.in, c.states)
}

// load compiles graphs to one library, for a host or for an emulated chip.
func load(t testing.TB, name string, graphs ...*ir.Graph) (*device.Model, []*plan.Plan) {
	t.Helper()
	return loadFor(t, mustTarget(t, strings.TrimPrefix(name, "emu:")), graphs...)
}

// loadFor is load for a target that need not be in the table. Plans of what is
// emulated are laid out so that no two values share bytes or touch each other.
func loadFor(t testing.TB, tg *target.Target, graphs ...*ir.Graph) (*device.Model, []*plan.Plan) {
	t.Helper()
	u := codegen.NewUnit(tg)
	var plans []*plan.Plan
	for _, g := range graphs {
		pl, err := u.Lower(g)
		if err != nil {
			t.Fatalf("%v\n%s", err, ir.Text(g))
		}
		plans = append(plans, pl)
	}
	if !tg.GPU() {
		return buildHost(t, u), plans
	}
	return buildHost(t, u), spread(t, plans...)
}

// execute runs a plan on copies of the states and returns those after it.
func execute(t testing.TB, d *device.Model, pl *plan.Plan, in, before map[string]*eval.Tensor) (out, states map[string]*eval.Tensor) {
	t.Helper()
	prog, err := d.Load(pl)
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	st, err := d.NewState(pl)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for n, x := range before {
		if err := st.SetPool(n, x); err != nil {
			t.Fatal(err)
		}
	}
	if out, err = prog.Run(in, st); err != nil {
		t.Fatal(err)
	}
	states = map[string]*eval.Tensor{}
	for n := range before {
		if states[n], err = st.Pool(n); err != nil {
			t.Fatal(err)
		}
	}
	return out, states
}

// compare describes how got differs from want beyond the limit, or is empty. All
// NaNs are equal; zeros of different sign are not.
func (l limit) compare(want, got *eval.Tensor) string {
	if got == nil || !want.Type().Equal(got.Type()) {
		return fmt.Sprintf("no result of type %s", want.Type())
	}
	if l.cos > 0 {
		return l.angle(want.F, got.F)
	}
	diff, bad := 0, ""
	var codes []float64
	if l.block > 0 {
		codes = metric.CodesApart(want.F, got.F, l.block)
	}
	note := func(i int, w, g any) {
		if bad == "" {
			bad = fmt.Sprintf("element %d of %d is %v, want %v", i, want.Len(), g, w)
		}
	}
	for i, w := range want.F {
		g, dt := got.F[i], want.DType
		if l.bf16 && dt == ir.F32 {
			w, g, dt = num.RoundBF16(w), num.RoundBF16(g), ir.BF16
		}
		if math.Float32bits(w) == math.Float32bits(g) || w != w && g != g {
			continue
		}
		if math.Abs(float64(w)-float64(g)) <= l.abs {
			continue
		}
		diff++
		u := ulps(dt, w, g)
		if l.worst != nil {
			*l.worst = max(*l.worst, u)
		}
		if codes != nil && codes[i] > 1 || codes == nil && !(u <= l.ulps) {
			note(i, fmt.Sprintf("%v (%#08x)", w, math.Float32bits(w)), fmt.Sprintf("%v (%#08x)", g, math.Float32bits(g)))
		}
	}
	for i, w := range want.I {
		if w != got.I[i] {
			note(i, w, got.I[i])
		}
	}
	for i, w := range want.Codes {
		if w != got.Codes[i] {
			note(i, w, got.Codes[i])
		}
	}
	for i, w := range want.Scales {
		if w != got.Scales[i] {
			note(i, fmt.Sprintf("scale %d", w), fmt.Sprintf("scale %d", got.Scales[i]))
		}
	}
	if bad == "" && float64(diff) > l.share*float64(want.Len()) {
		bad = fmt.Sprintf("%d of %d elements differ", diff, want.Len())
	}
	return bad
}

// angle describes how the angle of got and want is beyond the limit.
func (l limit) angle(want, got []float32) string {
	var wg, ww, gg float64
	for i, w := range want {
		x, y := float64(w), float64(got[i])
		if x != x || math.IsInf(x, 0) || y != y || math.IsInf(y, 0) {
			if x != y && !(x != x && y != y) {
				return fmt.Sprintf("element %d of %d is %v, want %v", i, len(want), y, x)
			}
			continue
		}
		wg, ww, gg = wg+x*y, ww+x*x, gg+y*y
	}
	if d := 1 - wg/math.Sqrt(ww*gg); d > l.cos || ww > 0 && d != d {
		return fmt.Sprintf("1-cos is %g, want at most %g", d, l.cos)
	}
	return ""
}

// ulps is the distance of two numbers in units of the last place of dt; infinite
// if one of them is NaN.
func ulps(dt ir.DType, a, b float32) float64 {
	line := func(x float32) float64 {
		u := int64(math.Float32bits(x))
		switch dt {
		case ir.BF16:
			u = int64(num.BF16Bits(x)) << 16
		case ir.F16:
			u = int64(num.F16Bits(x)) << 16
		}
		if u >= 1<<31 {
			u = 1<<31 - u
		}
		if dt != ir.F32 {
			u /= 1 << 16
		}
		return float64(u)
	}
	if a != a || b != b {
		return math.Inf(1)
	}
	return math.Abs(line(a) - line(b))
}

// Data.

var (
	floatTypes = []ir.DType{ir.F32, ir.BF16, ir.F16}
	intTypes   = []ir.DType{ir.I64, ir.I32, ir.I8, ir.U8}
	codeTypes  = []ir.DType{ir.F8E4M3, ir.F8E4M3FNUZ, ir.F4E2M1}
	allTypes   = []ir.DType{ir.F32, ir.BF16, ir.F16, ir.F8E4M3, ir.F8E4M3FNUZ, ir.F4E2M1, ir.E8M0, ir.I64, ir.I32, ir.I8, ir.U8, ir.Bool}
)

// style is a way to choose elements.
type style int

const (
	ordinary style = iota // numbers about 1
	patterns              // all bit patterns
	special               // few values: zeros, infinities, NaN, extremes, subnormals, ties
)

func blank(t testing.TB, typ ir.Type) *eval.Tensor {
	t.Helper()
	x, err := eval.New(typ)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func intDims(shape []int) []ir.Dim {
	d := make([]ir.Dim, len(shape))
	for i, n := range shape {
		d[i] = ir.Int(n)
	}
	return d
}

// random makes a tensor.
func random(t testing.TB, r *rand.Rand, st style, dt ir.DType, shape ...int) *eval.Tensor {
	t.Helper()
	x := blank(t, ir.T(dt, intDims(shape)...))
	for i := range x.F {
		x.F[i] = randomFloat(r, st, dt)
	}
	for i := range x.I {
		x.I[i] = randomInt(r, st, dt)
	}
	for i := range x.Codes {
		x.Codes[i] = byte(r.Uint32())
	}
	return x
}

func randomFloat(r *rand.Rand, st style, dt ir.DType) float32 {
	round := map[ir.DType]func(float32) float32{ir.F32: func(x float32) float32 { return x }, ir.BF16: num.RoundBF16, ir.F16: num.RoundF16}[dt]
	switch st {
	case patterns:
		switch dt {
		case ir.BF16:
			return num.FromBF16(uint16(r.Uint32()))
		case ir.F16:
			return num.FromF16(uint16(r.Uint32()))
		}
		return math.Float32frombits(r.Uint32())
	case special:
		inf := math.Inf(1)
		list := []float64{0, math.Copysign(0, -1), 1, -1, 0.5, 2, 3, inf, -inf, math.NaN(), 65504, -65504, 448, 240, 6, math.MaxFloat32, -math.MaxFloat32,
			0x1p-126, 0x1p-149, -0x1p-149, 0x1p-24, 0x1p-14, 1 + 0x1p-8, 1 + 0x1p-11, 0x1p-133}
		return round(float32(list[r.IntN(len(list))]))
	}
	return round(float32(r.NormFloat64() * math.Pow(2, float64(r.IntN(7)-3))))
}

var intRange = map[ir.DType][2]int64{ir.I64: {math.MinInt64, math.MaxInt64}, ir.I32: {math.MinInt32, math.MaxInt32}, ir.I8: {-128, 127}, ir.U8: {0, 255}, ir.Bool: {0, 1}}

func randomInt(r *rand.Rand, st style, dt ir.DType) int64 {
	lo, hi := intRange[dt][0], intRange[dt][1]
	switch st {
	case patterns:
		if dt == ir.I64 {
			return int64(r.Uint64())
		}
		return lo + int64(r.Uint64N(uint64(hi-lo)+1))
	case special:
		return []int64{lo, hi, max(lo, min(hi, 0)), max(lo, min(hi, 1))}[r.IntN(4)]
	}
	return max(lo, min(hi, int64(r.IntN(15)-7)))
}

// randomScaled makes a block-scaled tensor of any codes, with scales about 1; in
// the style special any scales.
func randomScaled(t testing.TB, r *rand.Rand, st style, dt ir.DType, b0, b1 int, shape ...int) *eval.Tensor {
	t.Helper()
	x := blank(t, ir.Scaled(dt, b0, b1, intDims(shape)...))
	for i := range x.Codes {
		x.Codes[i] = byte(r.Uint32())
	}
	for i := range x.Scales {
		x.Scales[i] = byte(120 + r.IntN(14))
		if st == special {
			x.Scales[i] = byte(r.Uint32())
		}
	}
	return x
}

func floatsOf(t testing.TB, dt ir.DType, v []float32, shape ...int) *eval.Tensor {
	t.Helper()
	x, err := eval.FromF32(dt, v, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func intsOf(t testing.TB, dt ir.DType, v []int64, shape ...int) *eval.Tensor {
	t.Helper()
	x := blank(t, ir.T(dt, intDims(shape)...))
	copy(x.I, v)
	return x
}
