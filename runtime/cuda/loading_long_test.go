//go:build long

package cuda

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
)

// A checkpoint of 8 GB takes no more than a smaller one.
func TestLoadingPeakLong(t *testing.T) {
	loadingPeak(t, 8_000_000_000, 96<<20+96<<20)
}

// Pro, whose checkpoint is made of a hole: what is known of each of its tensors counts,
// too. Loading is interrupted when it goes round and round.
func TestLoadingPro(t *testing.T) {
	const slots, limit = 300, 1 << 30
	s, err := devicetest.SparseModel(t.TempDir(), "../../testdata/configs/pro")
	if errors.Is(err, syscall.EFBIG) {
		t.Skip(err) // a file system without files of such a size
	}
	ok(t, err)
	d, fake := loadingFake(t, drivertest.Options{Forgets: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	_, peak, err := devicetest.Peak(func() error {
		m, err := load(ctx, d, s, func(done, total int64) {
			if n++; n == slots {
				cancel()
			}
		})
		if m != nil {
			err = errors.Join(err, m.Close())
		}
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v after %d slots", err, n)
	}
	nothingLeft(t, "interrupted", d, fake)
	host, err := device.HostBytes(s.Pack)
	ok(t, err)
	t.Logf("a file of %d GiB with %d tensors: at most %d MiB of anonymous memory, %d MiB of it for the ring and rows at most", s.Bytes>>30, s.Tensors, peak>>20, host>>20)
	if peak > limit {
		t.Errorf("%d MiB of anonymous memory, the limit is %d MiB", peak>>20, limit>>20)
	}
}
