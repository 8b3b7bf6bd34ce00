package passes

import (
	"fmt"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

// ruled are the passes that apply rules, in the order of the table; each has one
// place in each layer of layeredModule. share-quant, which has no rules, makes what
// fuse-norm-quant fuses.
var ruled = []string{"fold", "fuse-qkv", "fuse-rope", "fuse-topk", "fuse-head-argmax", "share-quant", "fuse-hc", "fuse-moe-add", "fuse-norm-quant"}

// Per op of the graph, rules look at as many ops and uses in 10,000 layers as they
// do in 61.
func TestRuleVisitsAreLinear(t *testing.T) {
	const most = 1.05
	perOp := map[string]float64{} // with 61 layers
	for _, layers := range []int{61, 610, 10_000} {
		m := layeredModule(t, layers)
		for _, name := range ruled {
			p, err := Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			ops := len(m.Entries[0].Ops)
			visits, remarks := m.visits, len(m.Remarks)
			c := &Context{Module: m, pass: p.Name}
			if p.Module != nil {
				err = p.Module(c)
			} else {
				m.Entries[0], err = p.Graph(c, m.Entries[0])
			}
			if err != nil {
				t.Fatalf("%s: %v", p.Name, err)
			}
			applied := 0
			for _, remark := range m.Remarks[remarks:] {
				if remark.Kind == Applied {
					applied++
				}
			}
			if applied < layers-1 {
				t.Errorf("%s of %d layers: applied %d times", p.Name, layers, applied)
			}
			now := float64(m.visits-visits) / float64(ops)
			if layers == 61 {
				perOp[p.Name] = now
			}
			if now > most*perOp[p.Name] {
				t.Errorf("%s of %d layers: %.3f visits per op, of 61: %.3f", p.Name, layers, now, perOp[p.Name])
			}
			t.Logf("%s of %d layers: %d ops, %.3f visits per op", p.Name, layers, ops, now)
		}
	}
}

// layeredModule is a chain of sublayers with what the rules fuse in each, and
// values that every layer reads, among them a context that each multiplies by a
// weight of its own.
func layeredModule(t *testing.T, layers int) *Module {
	t.Helper()
	const tokens, width = 2, 128
	b := ir.NewBuilder("step")
	row := ir.T(ir.BF16, ir.Int(tokens), ir.Int(width))
	f32 := func(dims ...int) ir.Type {
		ty := ir.T(ir.F32)
		for _, d := range dims {
			ty.Dims = append(ty.Dims, ir.Int(d))
		}
		return ty
	}
	h := b.Input("h", ir.T(ir.BF16, ir.Int(tokens), ir.Int(2), ir.Int(width)))
	context, cos, sin := b.Input("context", row), b.Input("cos", f32(tokens, width/4)), b.Input("sin", f32(tokens, width/4))
	norm := b.Weight("norm", ir.T(ir.BF16, ir.Int(width)))
	head := b.Weight("head", ir.T(ir.BF16, ir.Int(16), ir.Int(width)))
	fn, scale, base := b.Weight("fn", f32(8, 2*width)), b.Weight("scale", f32(3)), b.Weight("base", f32(8))
	rows := b.Input("rows", ir.T(ir.I32, ir.Int(tokens), ir.Int(width)))
	stacked := ir.Scaled(ir.F4E2M1, 1, 32, ir.Int(2), ir.Int(width), ir.Int(width))
	w1, w2, w3 := b.Weight("w1", stacked), b.Weight("w2", stacked), b.Weight("w3", stacked)
	for i := range layers {
		loc := fmt.Sprintf("layers.%d", i)
		b.At(loc)
		product := func(x *ir.Value, name string) *ir.Value {
			return b.Op1("block_linear", nil, x, b.Weight(loc+"."+name, ir.Scaled(ir.F8E4M3, 128, 128, ir.Int(width), ir.Int(width))))
		}
		rmsNorm := func(x *ir.Value) *ir.Value { return b.Op1("rms_norm", ir.A("eps", 1e-6), x, norm) }
		pre := b.Op("hc_pre", ir.A("eps", 1e-6, "norm_eps", 1e-6), h, fn, scale, base)
		x := rmsNorm(pre[0])
		q, kv := product(x, "wq"), product(x, "wkv")
		kv = b.Op1("rope", nil, rmsNorm(kv), cos, sin)
		kv = b.Op1("fake_quant", ir.A("to", ir.F8E4M3, "block", 64, "floor", 1e-4, "dims", 64), kv)
		kv = b.Bin("add", kv, product(context, "wctx"))
		y := b.Reshape(b.Reshape(b.Bin("add", product(rmsNorm(q), "wo"), kv), ir.Int(tokens*width)), row.Dims...)
		ids := b.Op1("take_along", ir.A("fill", -1.0), rows, b.Op1("topk", ir.A("k", 2), b.Cast(y, ir.F32)))
		b.Output(loc+".token", b.Op("argmax", nil, b.Op1("linear", ir.A("to", ir.F32), y, head))[0])
		routed := b.Op1("moe_experts", ir.A("limit", 10.0), y, w1, w3, w2, ids, b.Cast(ids, ir.F32))
		y = b.Cast(b.Bin("add", routed, b.Cast(kv, ir.F32)), ir.BF16)
		h = b.Op1("hc_post", nil, y, h, pre[1], pre[2])
	}
	b.Output("h", h)
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return &Module{Entries: []*ir.Graph{g}}
}
