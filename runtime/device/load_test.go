package device_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
)

// packOf is the pack graph of a config for a target, with all entries.
func packOf(t *testing.T, config, name string) *ir.Graph {
	t.Helper()
	c, err := dsv4.LoadConfig("../../testdata/configs/" + config)
	if err != nil {
		t.Fatal(err)
	}
	tg, err := target.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	m := &passes.Module{Target: tg.ForPasses()}
	for _, entry := range []dsv4.Entry{dsv4.Prefill, dsv4.Decode, dsv4.Draft} {
		g, err := dsv4.Build(c, entry, dsv4.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		m.Entries = append(m.Entries, g)
	}
	if err := passes.Run(m); err != nil {
		t.Fatal(err)
	}
	return m.Pack
}

// The bound of the host's memory holds for Flash and Pro on every kind of target: all
// that is packed is cut into rows, the tables of a million positions too. gfx942 is the
// one that recodes fp8.
func TestHostBytes(t *testing.T) {
	if device.HostLimit > 1<<30 {
		t.Errorf("the limit is %d MiB", device.HostLimit>>20)
	}
	for name, configs := range map[string][]string{"gfx942": {"flash", "pro"}, "gfx950": {"flash"}} {
		for _, config := range configs {
			pack := packOf(t, config, name)
			list, err := engine.Packings(pack)
			if err != nil {
				t.Fatal(err)
			}
			if len(list) < 40 {
				t.Errorf("%s for %s: only %d weights are packed otherwise than by copying", config, name, len(list))
			}
			most := list[0]
			for _, p := range list {
				if p.Whole != nil {
					t.Errorf("%s for %s: %s is evaluated whole: %v", config, name, p.Name, p.Whole)
				}
				if p.Host > most.Host {
					most = p
				}
			}
			host, err := device.HostBytes(pack)
			if err != nil || host > device.HostLimit || host < most.Host {
				t.Errorf("%s for %s: %d bytes, error %v, the limit is %d", config, name, host, err, device.HostLimit)
			}
			t.Logf("%s for %s: loading takes %d MiB of the host at most; the largest job is of %s, %d MiB", config, name, host>>20, most.Name, most.Host>>20)
		}
	}
	if host, err := device.HostBytes(nil); err != nil || host >= device.HostLimit {
		t.Errorf("without packed weights: %d bytes, error %v", host, err)
	}
}

// What cannot be cut and is large is refused, before anything is read.
func TestHostBytesRefused(t *testing.T) {
	b := ir.NewBuilder("pack")
	b.Output("packed.w", b.Transpose(b.Weight("w", ir.T(ir.BF16, ir.Int(1<<14), ir.Int(1<<13))), 1, 0))
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	const want = "weight packed.w: packing it takes 1536 MiB of the host's memory at a time, the limit is 256 MiB (it is evaluated whole: op transpose does not compute rows from rows); kiln dump --entry pack shows "
	if _, err := device.HostBytes(g); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// lone is a source that is not safe for concurrent use.
type lone struct {
	t    *testing.T
	busy atomic.Bool
}

func (l *lone) Weight(_ string, t ir.Type) (*eval.Tensor, error) {
	if l.busy.Swap(true) {
		l.t.Error("the source is asked while it is being asked")
	}
	defer l.busy.Store(false)
	n, _ := t.Size()
	return eval.FromF32(t.DType, make([]float32, n), n)
}

// A source that is no checkpoint is asked for one weight at a time, also for one that
// is larger than what may be evaluated.
func TestSourceIsAskedAlone(t *testing.T) {
	mod := module()
	for i := range 40 {
		mod.Weights = append(mod.Weights, plan.Storage{Name: fmt.Sprint("w", i), Type: "bf16[262144]", Bytes: [2]int64{1 << 19, 0}})
	}
	mod.Weights = append(mod.Weights, plan.Storage{Name: "large", Type: "bf16[68000000]", Bytes: [2]int64{136e6, 0}})
	d := &fake{}
	m, err := device.NewModel(d, []byte(code), mod)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.BindWeights(t.Context(), &lone{t: t}, nil); err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil || d.left() != 0 {
		t.Errorf("%d things are left (%v)", d.left(), err)
	}
}
