package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/kiln-project/kiln/runtime/emu"
)

// countersFlag is --counters: what an emulated device counts, and where it goes.
type countersFlag struct {
	path  string // "" is the table
	count emu.Counters
}

// countersFile is the JSON of --counters FILE.json, which inspect --profile reads.
type countersFile struct {
	Chip    string               `json:"chip"` // that was emulated
	Kernels []emu.KernelCounters `json:"kernels"`
}

// newCountersFlag reads the flag; nil if it is not given.
func newCountersFlag(f *flags) (*countersFlag, error) {
	switch text := f.text("counters"); {
	case text == "":
		return nil, nil
	case text == "text":
		return &countersFlag{}, nil
	case strings.HasSuffix(text, ".json"):
		return &countersFlag{path: text}, canWrite(f, "counters")
	default:
		return nil, usagef("--counters text", "%s: want text, or a file whose name ends in .json, not %q", f.origins("counters"), text)
	}
}

func (c *countersFlag) counters() *emu.Counters {
	if c == nil {
		return nil
	}
	return &c.count
}

// tellCounters writes the counters of what the device has run.
func (d device) tellCounters(w io.Writer) error {
	c := d.counters
	if c == nil {
		return nil
	}
	if c.path == "" {
		fmt.Fprintf(w, "counters of %s, emulated: instructions are those of waves\n", d.name)
		return c.count.Table(w)
	}
	data, err := json.MarshalIndent(countersFile{d.chip, c.count.Kernels()}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.path, append(data, '\n'), 0o644)
}

// readCounters reads a file of --counters.
func readCounters(path string) (*countersFile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &countersFile{}
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	if err := d.Decode(c); err != nil {
		return nil, fmt.Errorf("%s: not a file that --counters writes: %w", path, err)
	}
	if c.Chip == "" {
		return nil, fmt.Errorf("%s: not a file that --counters writes: it names no chip", path)
	}
	return c, nil
}
