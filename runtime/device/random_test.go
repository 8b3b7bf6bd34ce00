package device_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/emu"
	"github.com/kiln-project/kiln/runtime/host"
)

func TestMain(m *testing.M) { devicetest.Main(m) }

// randomTypes are weights of every format, some of which end within a word, one of
// which takes several groups.
var randomTypes = []string{
	"f32[7]", "f32[3,5]", "bf16[3,5]", "f16[9]", "bf16[96,1024]", "f8e4m3[3,130] block(128,128) scale e8m0", "f8e4m3fnuz[200,3] block(128,128) scale e8m0",
	"f4e2m1[3,33] block(1,32) scale e8m0", "i64[700,6]", "i64[3]",
}

const randomLimit = 11

func randomStorage(t *testing.T) []plan.Storage {
	t.Helper()
	var list []plan.Storage
	for _, text := range randomTypes {
		typ, err := ir.ParseType(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		data, scales, _ := typ.Bytes()
		list = append(list, plan.Storage{Name: "w" + text, Type: text, Bytes: [2]int64{data, scales}})
	}
	return list
}

// smallModule is a graph with a pool, compiled for a target.
func smallModule(t *testing.T, c *codegen.Compiler, name string) *bundle.Code {
	t.Helper()
	tg, err := target.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	b := ir.NewBuilder("step")
	s := b.State("pool", ir.T(ir.BF16, ir.Int(4), ir.Int(6)))
	x, rows := b.Input("x", ir.T(ir.BF16, ir.Int(2), ir.Int(6))), b.Input("rows", ir.T(ir.I32, ir.Int(2)))
	b.Update(s, b.Op1("scatter_rows", nil, s, rows, x))
	b.Output("y", b.Op1("neg", nil, x))
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	m := &passes.Module{Entries: []*ir.Graph{g}, Target: tg.ForPasses()}
	if err := passes.Run(m); err != nil {
		t.Fatal(err)
	}
	files, _, err := c.Build(t.Context(), tg, m, []passes.Bucket{{Entry: "step"}}, codegen.Emit{})
	if err != nil {
		t.Fatal(err)
	}
	code, err := files.Decode(tg.Name)
	if err != nil {
		t.Fatal(err)
	}
	code.Module.Weights = randomStorage(t)
	return code
}

// Random weights and pools are what package plan says, byte for byte, on every device
// that is here.
func TestRandom(t *testing.T) {
	c := devicetest.Compiler(t)
	devices := map[string]func() (device.Device, error){}
	if chip, err := host.Target(); err == nil {
		devices[chip] = func() (device.Device, error) { return host.Open() }
	}
	for _, chip := range emu.Chips {
		devices[chip] = func() (device.Device, error) {
			l := emu.Loader{ObjDump: c.Tools.ObjDump, Version: c.Tools.Version}
			return emu.Open(t.Context(), chip, l, emu.Options{Sanitize: emu.CheckAll})
		}
	}
	r := device.Random{Seed: 7, IDs: func(string) int { return randomLimit }}
	for name, open := range devices {
		t.Run(name, func(t *testing.T) {
			code := smallModule(t, c, name)
			d, err := open()
			if err != nil {
				t.Fatal(err)
			}
			m, err := device.NewModel(d, code.Object, code.Module)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.BindRandom(r); err != nil {
				t.Fatal(err)
			}
			if err := m.BindRandom(r); err == nil || !strings.Contains(err.Error(), "bound already") {
				t.Errorf("bound twice: %v", err)
			}
			for i, w := range code.Module.Weights {
				exponent, err := plan.RandomExponent(w.Type)
				if err != nil {
					t.Fatal(err)
				}
				parts, err := plan.RandomOf(w.Type, exponent, randomLimit)
				if err != nil {
					t.Fatal(err)
				}
				for part, words := range parts {
					got, want := make([]byte, w.Bytes[part]), make([]byte, w.Bytes[part])
					words.Fill(want, plan.RandomKey(r.Seed, i, part))
					if err := m.WeightPart(i, part).Read(0, got); err != nil || !bytes.Equal(got, want) {
						t.Errorf("%s part %d (error %v):\ngot  %x\nwant %x", w.Type, part, err, got[:min(64, len(got))], want[:min(64, len(want))])
					}
				}
			}
			p := code.Module.Plans[0]
			st, err := m.RandomState(p, r)
			if err != nil {
				t.Fatal(err)
			}
			words, err := plan.RandomOf(code.Module.States[0].Type, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			want := make([]byte, code.Module.States[0].Bytes[0])
			words[0].Fill(want, plan.RandomKey(r.Seed, len(code.Module.Weights), 0))
			if got, err := st.Bytes("pool"); err != nil || !bytes.Equal(got, want) {
				t.Errorf("pool (error %v):\ngot  %x\nwant %x", err, got, want)
			}
			for _, err := range []error{st.Close(), m.Close(), d.Close()} {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// What cannot be filled is refused with its name, and nothing is left.
func TestRandomRefuses(t *testing.T) {
	for want, w := range map[string]plan.Storage{
		"weight w: the code has no kernel of form random_fill: it was compiled by an older kiln": {Type: "f32[4]", Bytes: [2]int64{16}},
		"weight w: i64[2,3]: random ids of a row differ, and are below 2":                        {Type: "i64[2,3]", Bytes: [2]int64{48}},
		"weight w: i32[2]: there are no random numbers of format i32":                            {Type: "i32[2]", Bytes: [2]int64{8}},
		"weight w: f16[2,1073741824]: random numbers from 2^-18 up have no codes in a format":    {Type: "f16[2,1073741824]"},
	} {
		w.Name = "w"
		mod := module()
		mod.Weights = append(mod.Weights[:0:0], w)
		d := &fake{}
		m, err := device.NewModel(d, []byte(code), mod)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.BindRandom(device.Random{IDs: func(string) int { return 2 }}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
		if err := m.Close(); err != nil || d.left() != 0 {
			t.Errorf("%d things are left, error %v", d.left(), err)
		}
	}
}
