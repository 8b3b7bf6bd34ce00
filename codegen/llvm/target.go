package llvm

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// targetInfo is what an LLVM knows of one target.
type targetInfo struct {
	cpus, features []string // sorted
}

// neededMajor says which LLVM introduced a CPU, for the message to those who
// have an older one.
var neededMajor = map[string]int{"gfx950": gfx950Major}

// target asks llc which CPUs and features it knows, once per triple.
func (tc *Toolchain) target(ctx context.Context, triple string) (*targetInfo, error) {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	if t := tc.targets[triple]; t != nil {
		return t, nil
	}
	text, err := tc.ask(ctx, tc.LLC, "-mtriple="+triple, "-mcpu=help")
	if err != nil {
		return nil, fmt.Errorf("LLVM %s has no target %s: %w", tc.Version, triple, err)
	}
	t, err := parseCPUHelp(text)
	if err != nil {
		return nil, fmt.Errorf("LLVM %s, target %s: %w", tc.Version, triple, err)
	}
	if tc.targets == nil {
		tc.targets = map[string]*targetInfo{}
	}
	tc.targets[triple] = t
	return t, nil
}

// parseCPUHelp reads the output of llc -mcpu=help: two headlines, and below each
// lines of a name, a dash and a description.
func parseCPUHelp(text string) (*targetInfo, error) {
	t := &targetInfo{}
	var list *[]string
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "Available CPUs"):
			list = &t.cpus
		case strings.HasPrefix(line, "Available features"):
			list = &t.features
		case list != nil && strings.HasPrefix(line, "  "):
			if name, _, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				*list = append(*list, name)
			}
		}
	}
	if len(t.cpus) == 0 {
		return nil, fmt.Errorf("llc -mcpu=help lists no CPUs")
	}
	slices.Sort(t.cpus)
	slices.Sort(t.features)
	return t, nil
}

// KnowsCPU tells whether this LLVM can compile for a CPU of a target. It is an
// error if LLVM was built without the target.
func (tc *Toolchain) KnowsCPU(ctx context.Context, triple, cpu string) (bool, error) {
	t, err := tc.target(ctx, triple)
	if err != nil {
		return false, err
	}
	_, ok := slices.BinarySearch(t.cpus, cpu)
	return ok, nil
}

// CheckTarget returns an error saying what to do unless this LLVM knows the
// target, the CPU and every feature ("+a,-b"). LLVM itself only warns about a
// name it does not know, compiles for something else, and may abort on that.
func (tc *Toolchain) CheckTarget(ctx context.Context, triple, cpu, features string) error {
	ok, err := tc.KnowsCPU(ctx, triple, cpu)
	if err != nil {
		return err
	}
	if !ok {
		if need := neededMajor[cpu]; tc.Major < need {
			return fmt.Errorf("LLVM %s in %s does not know %s, which LLVM %d and later do: %s", tc.Version, tc.Dir, cpu, need, Remedy)
		}
		return fmt.Errorf("LLVM %s does not know the CPU %q of %s", tc.Version, cpu, triple)
	}
	if features == "" {
		return nil
	}
	t, err := tc.target(ctx, triple)
	if err != nil {
		return err
	}
	for f := range strings.SplitSeq(features, ",") {
		if len(f) < 2 || f[0] != '+' && f[0] != '-' {
			return fmt.Errorf("feature %q is not of the form +name or -name", f)
		}
		if _, ok := slices.BinarySearch(t.features, f[1:]); !ok {
			return fmt.Errorf("LLVM %s does not know the feature %q of %s", tc.Version, f[1:], triple)
		}
	}
	return nil
}
