package plan

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sample is a module with one plan: x and its scales come in, launch 0 makes t and
// scratch, launch 1 reads t and makes y in the place of x.
func sample() (*Module, *Plan) {
	arena := func(offset, bytes int64) Slice { return Slice{Space: Arena, Offset: offset, Bytes: bytes} }
	scales := arena(64, 1)
	p := &Plan{
		Entry: "e", Arena: 384, Binding: []Binding{}, States: []int{0},
		Inputs:  []Tensor{{Name: "x", Type: "f8e4m3[1,32] block(1,32) scale e8m0", Data: arena(0, 32), Scales: &scales}},
		Outputs: []Tensor{{Name: "y", Type: "f32[16]", Data: arena(0, 64)}},
		Values: []Value{
			{Name: "x", Bytes: 32, First: -1},
			{Name: "x scales", Offset: 64, Bytes: 1, First: -1},
			{Name: "a t", Offset: 128, Bytes: 100, Last: 1},
			{Name: "a scratch", Offset: 256, Bytes: 128},
			{Name: "y", Bytes: 64, First: 1, Last: 2},
		},
		Launches: []Launch{
			{Op: "a", Grid: 1, Args: []Arg{{Mode: Read, Buf: arena(0, 32)}, {Mode: Read, Buf: arena(64, 1)}, {Mode: Write, Buf: arena(128, 100)}, {Mode: Write, Buf: arena(256, 128)}}},
			{Op: "b", Grid: 1, Args: []Arg{{Mode: Read, Buf: arena(128, 64)}, {Mode: Read, Buf: arena(192, 36)}, {Mode: Write, Buf: arena(0, 64)}, {Mode: Update, Buf: Slice{Space: State, Bytes: 64}}}},
		},
	}
	p.Launches[1].Kernel = 1
	m := &Module{
		Version: Version, Target: "t", Block: 1, States: []Storage{{Name: "s", Type: "f32[16]", Bytes: [2]int64{64, 0}}},
		Kernels: []Kernel{{Symbol: "a", Params: []string{"f8e4m3", "e8m0", "=f32", "=f32"}}, {Symbol: "b", Params: []string{"f32", "f32", "=f32", "=f32"}}},
		Plans:   []*Plan{p},
	}
	return m, p
}

func TestValueText(t *testing.T) {
	for text, want := range map[string]Value{
		"a+0:256 -1..0 x":                   {Name: "x", Bytes: 256, First: -1},
		"a+64:1 3..12 linear layers.0 wq_a": {Name: "linear layers.0 wq_a", Offset: 64, Bytes: 1, First: 3, Last: 12},
		"a+64:1 3..12 ":                     {Offset: 64, Bytes: 1, First: 3, Last: 12},
	} {
		var got Value
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %+v (%v), want %+v", text, got, err, want)
		}
		if back, _ := want.MarshalText(); string(back) != text {
			t.Errorf("%+v prints as %q, want %q", want, back, text)
		}
	}
	for text, want := range map[string]string{
		"":                "want SLICE",
		"a+0:256":         "want SLICE",
		"a+0:256 1..2":    "want SLICE",
		"a+0:256 1 x":     "want SLICE",
		"s0+0:256 1..2 x": "not in the arena",
		"a+0 1..2 x":      "no length",
		"a+0:256 01..2 x": `"01" is no number`,
		"a+0:256 1..z x":  `"z" is no number`,
	} {
		var v Value
		if err := v.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q in it", text, err, want)
		}
	}
}

// FuzzValue: what is read prints as it was.
func FuzzValue(f *testing.F) {
	for _, s := range []string{"a+0:256 -1..0 x", "a+64:1 3..12 linear layers.0", "a+0:1 0..0 ", "s0+0:1 0..0 x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var v Value
		if v.UnmarshalText([]byte(text)) != nil {
			return
		}
		if back, _ := v.MarshalText(); string(back) != text {
			t.Errorf("%q prints as %q", text, back)
		}
	})
}

// copied is a deep copy through JSON, which is also how plans travel.
func copied(t *testing.T, p *Plan) *Plan {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	out := &Plan{}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCheckValues(t *testing.T) {
	m, good := sample()
	if err := m.Check(); err != nil {
		t.Fatalf("a good module: %v", err)
	}
	if diff := cmp.Diff(good, copied(t, good)); diff != "" {
		t.Fatalf("after JSON, -want +got:\n%s", diff)
	}
	for _, tc := range []struct {
		want string
		edit func(*Plan)
	}{
		{"value a t: no place a+384:100 in an arena of 384 bytes", func(p *Plan) { p.Values[2].Offset = 384 }},
		{"value a t: no place a+129:100", func(p *Plan) { p.Values[2].Offset = 129 }},
		{"value a t: no place a+128:0", func(p *Plan) { p.Values[2].Bytes = 0 }},
		{"value a t: no place a+128:9223372036854775807", func(p *Plan) { p.Values[2].Bytes = 1<<63 - 1 }},
		{"value x: no life from launch -2 to 0 of 2", func(p *Plan) { p.Values[0].First = -2 }},
		{"value y: no life from launch 1 to 0 of 2", func(p *Plan) { p.Values[4].Last = 0 }},
		{"value y: no life from launch 1 to 3 of 2", func(p *Plan) { p.Values[4].Last = 3 }},
		{"value y: no life from launch 2 to 2 of 2", func(p *Plan) { p.Values[4].First = 2 }},
		{"value x is out of order", func(p *Plan) { p.Values[0], p.Values[1] = p.Values[1], p.Values[0] }},
		{"value a scratch is out of order", func(p *Plan) { slices.Reverse(p.Values[2:]) }},
		{"values x and y share bytes at launch 1", func(p *Plan) { p.Values[0].Last = 1 }},
		{"values x scales and a t share bytes at launch 0", func(p *Plan) { p.Values[1].Bytes = 65 }},
		{"tensor x: no value has its bytes a+64:1", func(p *Plan) { p.Values = slices.Delete(p.Values, 1, 2) }},
		{"tensor y: no value has its bytes a+0:64", func(p *Plan) { p.Values[4].Last = 1 }},
		{"launch 0 (a) argument 3: no value has its bytes a+256:128", func(p *Plan) { p.Values[3].Bytes = 64 }},
		{"launch 1 (b) argument 0: no value has its bytes a+128:64", func(p *Plan) { p.Values[2].Last = 0 }},
		{"launch 1 (b) argument 0: no value has its bytes a+64:64", func(p *Plan) { p.Launches[1].Args[0].Buf.Offset = 64 }},
		{"launch 1 (b) argument 2: no value has its bytes a+64:64", func(p *Plan) { p.Launches[1].Args[2].Buf.Offset = 64 }},
		{"launch 0 (a) argument 1 reads value a t, which nothing has written", func(p *Plan) { p.Launches[0].Args[1].Buf = p.Launches[0].Args[2].Buf }},
	} {
		p := copied(t, good)
		tc.edit(p)
		if err := m.CheckPlan(p); err == nil || !strings.HasPrefix(err.Error(), "plan e []: "+tc.want) {
			t.Errorf("error %v, want %q", err, tc.want)
		}
	}
}

func TestSpread(t *testing.T) {
	m, p := sample()
	before := copied(t, p)
	got, err := Spread(p, 100)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, p); diff != "" {
		t.Errorf("the plan itself changed, -before +after:\n%s", diff)
	}
	if err := m.CheckPlan(got); err != nil {
		t.Errorf("the spread plan: %v", err)
	}
	var text []string
	for line := range strings.Lines(m.Text(got)) {
		text = append(text, strings.TrimSuffix(line, "\n"))
	}
	want := []string{
		"plan @e : t, arena of 1216 bytes",
		"state s0 !s : f32[16]",
		"input x : f8e4m3[1,32] block(1,32) scale e8m0 at a+128:32, scales at a+320:1",
		"0 a by , grid 1: r a+128:32, r a+320:1, w a+512:100, w a+768:128",
		"1 b by , grid 1: r a+512:64, r a+576:36, w a+1024:64, rw s0+0:64",
		"output y : f32[16] at a+1024:64",
		"value a+128:32 -1..0 x",
		"value a+320:1 -1..0 x scales",
		"value a+512:100 0..1 a t",
		"value a+768:128 0..0 a scratch",
		"value a+1024:64 1..2 y",
	}
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	spread, err := m.Spread(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := spread.Check(); err != nil || spread.Plans[0].Arena != 448 || m.Plans[0] != p || p.Arena != 384 {
		t.Errorf("the module's plan has an arena of %d bytes (%v), want 448; the original's is %d", spread.Plans[0].Arena, err, p.Arena)
	}
}

func TestSpreadRefuses(t *testing.T) {
	m, p := sample()
	if _, err := m.Spread(-1); err == nil || !strings.Contains(err.Error(), "plan e: red zones of -1 bytes") {
		t.Errorf("red zones of -1 bytes: %v", err)
	}
	p.Values = p.Values[:4]
	if _, err := m.Spread(0); err == nil || !strings.Contains(err.Error(), "plan e: no value has bytes a+0:64") {
		t.Errorf("a plan without one of its values: %v", err)
	}
}

// TestSpreadZones: of any plan, values keep their lives, sizes and names, and lie
// in order with a red zone on each side.
func TestSpreadZones(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		p := &Plan{Entry: "e"}
		for n := r.IntN(20); n > 0; n-- {
			p.Values = append(p.Values, Value{Name: string(rune('a' + n)), Offset: int64(r.IntN(9)) * Align, Bytes: int64(1 + r.IntN(300)), First: r.IntN(9) - 1, Last: 9})
		}
		Sort(p.Values)
		zone := int64(r.IntN(200))
		q, err := Spread(p, zone)
		if err != nil {
			t.Fatal(err)
		}
		var end int64
		for i, v := range q.Values {
			if v.Offset-end < zone || v.Offset%Align != 0 {
				t.Fatalf("value %d at %d, after byte %d, with red zones of %d", i, v.Offset, end, zone)
			}
			end = v.end()
			if v.Offset = p.Values[i].Offset; v != p.Values[i] {
				t.Fatalf("value %d is %+v, was %+v", i, v, p.Values[i])
			}
		}
		if q.Arena-end < zone {
			t.Fatalf("the arena of %d bytes ends %d after the last value, with red zones of %d", q.Arena, q.Arena-end, zone)
		}
	}
}
