package cuda

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

// Load compiles PTX text for the device and loads it. PTX that needs a newer
// device is refused before the driver sees it; what the driver's compiler refuses
// is a *CompileError with its log. The label is for errors.
func Load(d *Device, label string, ptx []byte) (*Module, error) {
	if err := checkTarget(ptx, d.Info().Target); err != nil {
		i := d.Info()
		return nil, fmt.Errorf("module %s on device %d (%s): %w", label, i.Index, i.Name, err)
	}
	return d.LoadModule(label, ptx)
}

// LoadCached is Load that compiles text only once for a target, a version of CUDA and a
// build of the driver, whose compiler may be another one: a cubin of it is kept in the cache, nil for none. One that the driver does not take
// is made again.
func LoadCached(d *Device, label string, ptx []byte, cache CodeCache) (*Module, error) {
	if cache == nil {
		return Load(d, label, ptx)
	}
	i := d.Info()
	if err := checkTarget(ptx, i.Target); err != nil {
		return nil, fmt.Errorf("module %s on device %d (%s): %w", label, i.Index, i.Name, err)
	}
	digest := cubinKey(i, ptx)
	if cubin, ok := cache.Get(digest); ok {
		m, err := d.LoadModule(label, cubin)
		if err == nil || errors.Is(err, ErrDeviceLost) || errors.Is(err, ErrOutOfMemory) {
			return m, err
		}
	}
	cubin, err := d.Link(label, ptx)
	if err != nil {
		return nil, err
	}
	if err := cache.Put(digest, cubin); err != nil {
		return nil, fmt.Errorf("module %s: %w", label, err)
	}
	return d.LoadModule(label, cubin)
}

// cubinKey digests what a cubin depends on.
func cubinKey(i Info, ptx []byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "cubin of %s by CUDA %d, build %s\n%s", i.Target, i.Version, i.Build, ptx)
	return hex.EncodeToString(h.Sum(nil))
}

// targetLine is the directive of PTX text (PTX ISA, ".target"). A letter behind
// the number takes the promise back that newer devices run the code.
var targetLine = regexp.MustCompile(`(?m)^[ \t]*\.target[ \t]+sm_([0-9]+)([af]?)\b`)

// checkTarget compares the .target of PTX text with the compute capability of a
// device, sm_90.
func checkTarget(ptx []byte, device string) error {
	line := targetLine.FindSubmatch(ptx)
	if line == nil {
		return fmt.Errorf("%w: no PTX text: it has no line .target sm_NN", ErrWrongImage)
	}
	var have int
	if _, err := fmt.Sscanf(device, "sm_%d", &have); err != nil {
		return fmt.Errorf("the device's target %q is not of the form sm_NN", device)
	}
	want, err := strconv.Atoi(string(line[1]))
	if err != nil {
		return fmt.Errorf("%w: .target sm_%s: %w", ErrWrongImage, line[1], err)
	}
	family := 10 // compute capabilities of one major number
	switch suffix := string(line[2]); {
	case want > have,
		suffix == "a" && want != have,
		suffix == "f" && want/family != have/family:
		return fmt.Errorf("%w: the PTX is for sm_%s%s, the device is %s; compile with --target %s", ErrWrongImage, line[1], suffix, device, device)
	}
	return nil
}
