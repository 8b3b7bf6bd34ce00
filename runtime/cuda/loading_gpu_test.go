//go:build gpu

package cuda

import (
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

var loadingBytes = flag.Int64("loading-bytes", 8_000_000_000, "size of the checkpoint of TestLoadingGPU")

// TestLoadingGPU loads a checkpoint of pseudo-random bytes, twice: from the disk, and
// from the system's cache. The peak counts all of the process, with what the driver
// takes for itself.
func TestLoadingGPU(t *testing.T) {
	const limit = 3 << 29 // 1.5 GiB
	dir := t.TempDir()
	s, err := devicetest.WriteSynthetic(dir, *loadingBytes, false)
	check(t, err)
	check(t, dropCache(s.Path))
	for i, name := range []string{"disk", "cache"} {
		r := &recorder{PlanDevice: openPlans(t, PlanOptions{})}
		var m *device.Model
		var took time.Duration
		before, peak, err := devicetest.Peak(func() (err error) {
			start := time.Now()
			if m, err = load(t.Context(), r, s, nil); err == nil {
				err = r.Sync()
			}
			took = time.Since(start)
			return err
		})
		check(t, err)
		if peak > limit {
			t.Errorf("at most %d MiB of anonymous memory, the limit is %d", peak>>20, limit>>20)
		}
		if i == 0 && !*onFakes {
			verifyLoaded(t, r, s)
		}
		check(t, m.Close())
		check(t, r.Close())
		emit(t, "LOADING", map[string]any{
			"from": name, "file_bytes": s.Bytes, "seconds": took.Seconds(), "gb_per_s": float64(s.Bytes) / took.Seconds() / 1e9,
			"anonymous_mib_before": before >> 20, "anonymous_mib_peak": peak >> 20, "verified": i == 0 && !*onFakes && !t.Failed(),
		})
	}
}

// dropCache writes a file to the disk and drops it from the system's cache.
func dropCache(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}
