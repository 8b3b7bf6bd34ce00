package host_test

import (
	"bytes"
	"testing"

	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

func openTiny(t *testing.T) *devicetest.Tiny {
	t.Helper()
	return openTinyAs(t, false, dsv4.DefaultOptions())
}

// openTinyAs is openTiny with other options, on a host whose 8-bit floats are
// e4m3fnuz, if fnuz.
func openTinyAs(t *testing.T, fnuz bool, o dsv4.Options) *devicetest.Tiny {
	t.Helper()
	return devicetest.OpenTiny(t, devicetest.Compiler(t), openHost, fnuz, o)
}

func TestChunksAndBatches(t *testing.T) { devicetest.ChunksAndBatches(t, openTiny(t), 1, 7, 64) }

func TestPaddingWritesNothing(t *testing.T) { devicetest.PaddingWritesNothing(t, openTiny(t)) }

func TestVerifyEqualsDecode(t *testing.T) { devicetest.VerifyEqualsDecode(t, openTiny(t)) }

func TestPackedPools(t *testing.T) {
	o := dsv4.DefaultOptions()
	o.BF16Pools = true
	devicetest.PackedPools(t, openTinyAs(t, false, o), openTiny(t))
}

// TestTaps: outputs of hidden states change no other bit, of logits or pools.
func TestTaps(t *testing.T) {
	const n, pages = 137, 2
	ids := devicetest.Prompt(n + 2)
	var logits [2][]float32
	var pools [2]*device.State
	var names []string
	for i, taps := range []bool{false, true} {
		o := dsv4.DefaultOptions()
		o.Taps = taps
		m := openTinyAs(t, false, o)
		e, st := m.Engine(t, 1, pages)
		s, err := e.NewSeq(0, pages)
		if err != nil {
			t.Fatal(err)
		}
		if logits[i], err = e.Prefill(s, ids[:n], 64, nil); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids[n:] {
			out, err := e.DecodeOne(s, id)
			if err != nil {
				t.Fatal(err)
			}
			s.Len++
			logits[i] = append(logits[i], out["logits"].F...)
		}
		pools[i], names = st, nil
		for _, v := range m.States {
			names = append(names, v.Name)
		}
	}
	devicetest.SameBits(t, "logits", logits[0], logits[1])
	for _, name := range names {
		if !bytes.Equal(devicetest.PoolBytes(t, pools[0], name), devicetest.PoolBytes(t, pools[1], name)) {
			t.Errorf("pool %s differs", name)
		}
	}
}
