package codegen_test

import (
	"context"
	"testing"
	"time"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/host"
	"github.com/kiln-project/kiln/runtime/weights"
)

type packedSrc struct {
	packed map[string]*eval.Tensor
	base   eval.WeightSource
}

func (s packedSrc) Weight(n string, t ir.Type) (*eval.Tensor, error) {
	if p, ok := s.packed[n]; ok {
		return p, nil
	}
	return s.base.Weight(n, t)
}

func TestZZ(t *testing.T) {
	dir := "../testdata/tiny-dsv4"
	c, err := dsv4.LoadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := &passes.Module{}
	for _, e := range []dsv4.Entry{dsv4.Prefill, dsv4.Decode} {
		g, err := dsv4.Build(c, e, dsv4.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		m.Entries = append(m.Entries, g)
	}
	if err := passes.Run(m); err != nil {
		t.Fatal(err)
	}
	tg, _ := target.Lookup("x86-64-v3")
	u := codegen.NewUnit(tg)
	t0 := time.Now()
	plans, err := u.LowerAll(m.Entries, []codegen.Bucket{
		{"decode", map[string]int{"B": 1, "R": 1, "P": 4, "N": 4}},
		{"prefill", map[string]int{"T": 512, "B": 1, "O": 1, "R": 1, "P": 4, "N": 4}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("lower", time.Since(t0), len(plans[0].Launches), len(u.Kernels), plans[0].Arena, plans[1].Arena)
	tc, err := llvm.Find(context.Background(), llvm.FindOptions{Dir: "../.toolchain/llvm"})
	if err != nil {
		t.Fatal(err)
	}
	lc, err := llvm.New(context.Background(), tc, llvm.Options{Mode: llvm.Programs})
	if err != nil {
		t.Fatal(err)
	}
	cc := &codegen.Compiler{Tools: tc, LLVM: lc, Cache: codegen.OpenCache("/tmp/kiln/cache")}
	t0 = time.Now()
	out, err := cc.Compile(context.Background(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("compile", time.Since(t0), out.Stats)
	ck, _ := weights.Open(dir)
	pp, err := eval.Compile(m.Pack, eval.NewConsts(engine.CheckpointSource{File: ck}))
	if err != nil {
		t.Fatal(err)
	}
	packed, err := pp.Run(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	lib, err := host.OpenLibrary(out.Object)
	if err != nil {
		t.Fatal(err)
	}
	d := host.NewDevice(lib)
	src := packedSrc{packed, engine.CheckpointSource{File: ck}}
	var progs []*host.Program
	for _, p := range plans {
		if err := d.BindWeights(p, src); err != nil {
			t.Fatal(err)
		}
		g, err := d.Load(p)
		if err != nil {
			t.Fatal(err)
		}
		progs = append(progs, g)
	}
	st, err := host.NewState(plans[0])
	if err != nil {
		t.Fatal(err)
	}
	l, err := engine.LayoutOf(m.Entries[0])
	if err != nil {
		t.Fatal(err)
	}
	seq := &engine.Seq{Pages: []int{0, 1, 2, 3}}
	run := func(pi int, ids []int32, T int) []float32 {
		f := []engine.Feed{{Seq: seq, IDs: ids, Out: []int{len(ids) - 1}}}
		in, err := engine.Metadata(l, f, engine.Shape{T: T, B: 1, O: 1, P: 4})
		if err != nil {
			t.Fatal(err)
		}
		o, err := progs[pi].Run(in, st)
		if err != nil {
			t.Fatal(err)
		}
		engine.Commit(f)
		return o["logits"].F
	}
	prompt := []int32{0, 303, 222, 881, 296, 268, 94, 200}
	r, err := engine.NewRef(m.Entries, m.Pack, engine.CheckpointSource{File: ck})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(r, l, 1, 4)
	if err != nil {
		t.Fatal(err)
	}
	rs, _ := e.NewSeq(0, 4)
	want, err := e.Prefill(rs, prompt, 32, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := run(1, prompt, 512)
	t.Log(got[:4], want[:4], engine.Argmax(got), engine.Argmax(want))
	for i := 0; i < 3; i++ {
		t0 = time.Now()
		n := 0
		id := engine.Argmax(got)
		s0 := seq.Len
		for time.Since(t0) < time.Second && seq.Len < 500 {
			got = run(0, []int32{id}, 1)
			id = engine.Argmax(got)
			n++
		}
		t.Log("decode tok/s", float64(n)/time.Since(t0).Seconds())
		seq.Len = s0
	}
	seq.Len = 0
	long := make([]int32, 512)
	for i := range long {
		long[i] = int32(2 + i*7%2000)
	}
	for i := 0; i < 3; i++ {
		t0 = time.Now()
		run(1, long, 512)
		t.Log("prefill tok/s", 512/time.Since(t0).Seconds())
		seq.Len = 0
	}
}
