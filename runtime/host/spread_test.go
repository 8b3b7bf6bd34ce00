package host_test

import (
	"bytes"
	"testing"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// poisoned is a device whose memory is full of a canary until it is written.
type poisoned struct {
	device.Device
	blocks []device.Memory
}

const poison = 0xA5

func (d *poisoned) Alloc(n int64) (device.Memory, error) {
	m, err := d.Device.Alloc(n)
	if err != nil {
		return nil, err
	}
	b := m.Bytes()
	for i := range b {
		b[i] = poison
	}
	d.blocks = append(d.blocks, m)
	return m, nil
}

// TestSpread: plans whose values share no bytes give the bits of the plans that
// reuse the arena, when what no launch has written is no number; and no launch
// touches a byte between the values.
func TestSpread(t *testing.T) {
	const n, pages = 70, 1
	ids := devicetest.Prompt(n + 3)
	run := func(m *devicetest.Tiny) ([]float32, *device.State) {
		e, st := m.Engine(t, 1, pages)
		s, err := e.NewSeq(0, pages)
		if err != nil {
			t.Fatal(err)
		}
		logits, err := e.Prefill(s, ids[:n], 64, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids[n:] {
			out, err := e.DecodeOne(s, id)
			if err != nil {
				t.Fatal(err)
			}
			s.Len++
			logits = append(logits, out["logits"].F...)
		}
		return logits, st
	}
	want, wantState := run(openTiny(t))

	m := openTiny(t)
	dev := &poisoned{Device: m.Exec.Dev}
	m.Exec.Dev = dev
	var plans []*plan.Plan
	m.Exec.Relay = func(p *plan.Plan) (*plan.Plan, error) {
		spread, err := plan.Spread(p, 256)
		plans = append(plans, spread)
		return spread, err
	}
	got, state := run(m)
	devicetest.SameBits(t, "logits", want, got)
	for _, v := range m.States {
		if !bytes.Equal(devicetest.PoolBytes(t, wantState, v.Name), devicetest.PoolBytes(t, state, v.Name)) {
			t.Errorf("pool %s differs", v.Name)
		}
	}
	if len(plans) != 3 { // prefill of 64 and of 6, decode
		t.Errorf("%d plans ran, want 3", len(plans))
	}
	for _, p := range plans {
		checkZones(t, p, dev.arena(t, p.Arena))
	}
}

// arena is the memory of a model whose arena has that many bytes.
func (d *poisoned) arena(t *testing.T, n int64) []byte {
	t.Helper()
	var found []byte
	for _, m := range d.blocks {
		if m.Size() != n {
			continue
		}
		if found != nil {
			t.Fatalf("two blocks of %d bytes", n)
		}
		found = m.Bytes()
	}
	return found
}

func checkZones(t *testing.T, p *plan.Plan, arena []byte) {
	t.Helper()
	if len(p.Values) == 0 || arena == nil {
		t.Fatalf("plan %s has %d values, its arena was not found", p.Entry, len(p.Values))
	}
	end := int64(0)
	for i := 0; i <= len(p.Values); i++ {
		before, next := "the end", p.Arena
		if i < len(p.Values) {
			before, next = p.Values[i].Name, p.Values[i].Offset
		}
		if zone := arena[end:next]; len(zone) < 256 || len(bytes.Trim(zone, "\xa5")) > 0 {
			t.Errorf("plan %s: the %d bytes before %s are not all untouched", p.Entry, len(zone), before)
		}
		if i < len(p.Values) {
			end = next + p.Values[i].Bytes
		}
	}
}
