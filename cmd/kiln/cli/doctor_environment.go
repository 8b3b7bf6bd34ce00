package cli

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen"
)

// doctorVariable is an environment variable that changes what kiln or a driver does.
type doctorVariable struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	ReadBy string `json:"read_by"`
}

// variableReaders say who reads variables, by what their names start with.
var variableReaders = []struct{ prefix, reader string }{
	{"HIP_", "AMD's HIP runtime"},
	{"ROCR_", "AMD's ROCr runtime"},
	{"HSA_", "AMD's ROCr runtime"},
	{"ROCM_PATH", "kiln: where ROCm is"},
	{"CUDA_", "NVIDIA's driver"},
}

// examineVariables lists the variables, by name. Of one that is set twice the last
// counts.
func examineVariables(environ []string) []doctorVariable {
	list := []doctorVariable{}
	for _, kv := range slices.Backward(environ) {
		name, value, _ := strings.Cut(kv, "=")
		reader := variableReader(name)
		if reader != "" && !slices.ContainsFunc(list, func(v doctorVariable) bool { return v.Name == name }) {
			list = append(list, doctorVariable{name, value, reader})
		}
	}
	slices.SortFunc(list, func(a, b doctorVariable) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// variableReader says who reads a variable; "" if it is none of interest.
func variableReader(name string) string {
	if strings.HasPrefix(name, envPrefix) {
		flag := ""
		var of []string
		for _, d := range flagTable {
			if d.env() == name {
				flag, of = d.name, append(of, d.commands...)
			}
		}
		slices.Sort(of)
		return "kiln: --" + flag + " of " + strings.Join(slices.Compact(of), ", ")
	}
	for _, r := range variableReaders {
		if strings.HasPrefix(name, r.prefix) {
			return r.reader
		}
	}
	return ""
}

// doctorCache is the report on the cache of compiled kernels.
type doctorCache struct {
	Dir   string `json:"dir"`
	Found bool   `json:"found"` // it is made when something is stored
	codegen.CacheHealth
	Checks  []found `json:"startup_checks"` // what they found, of each device and model
	Problem string  `json:"problem,omitempty"`
}

func examineCache(f *flags) doctorCache {
	dir, err := cacheDir(f)
	r := doctorCache{Dir: dir, Checks: []found{}}
	if err == nil {
		_, err = os.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			r.Damaged = []string{}
			return r
		}
	}
	if err == nil {
		r.Found = true
		cache := codegen.OpenCache(dir)
		r.CacheHealth, err = cache.Health()
		err = errors.Join(err, cache.Check(), cache.Each(func(body []byte) {
			if x, ok := decodeFound(body); ok {
				r.Checks = append(r.Checks, x)
			}
		}))
		slices.SortFunc(r.Checks, func(a, b found) int {
			return cmp.Or(strings.Compare(a.Of, b.Of), strings.Compare(a.Device, b.Device), len(a.Faults)-len(b.Faults), strings.Compare(a.Replay, b.Replay))
		})
		r.Checks = slices.CompactFunc(r.Checks, func(a, b found) bool { return reflect.DeepEqual(a, b) })
	}
	if err != nil {
		r.Problem = oneLine(err)
	}
	return r
}

// print writes the report by line, which takes a name and a value.
func (r doctorCache) print(line func(name, format string, args ...any)) {
	switch {
	case r.Found:
		line("cache", "%s: %s, %s", r.Dir, count(int64(r.Entries), "file"), binarySize(r.Bytes))
	case r.Problem == "":
		line("cache", "%s: not made yet", r.Dir)
	default:
		line("cache", "none")
	}
	for _, name := range r.Damaged {
		line("  damaged", "%s: it is made again when it is needed; kiln cache clean removes all", name)
	}
	for _, x := range r.Checks {
		if len(x.Faults) == 0 && x.Replay == "" {
			line("  checked", "%s on %s: fused kernels and replays are right", x.Of, x.Device)
			continue
		}
		for _, f := range x.Faults {
			line("  checked", "%s on %s: %s", x.Of, x.Device, f)
		}
		if x.Replay != "" {
			line("  checked", "%s on %s: %s", x.Of, x.Device, x.Replay)
		}
	}
	if r.Unfinished > 0 {
		line("", "%s being written, or left by a process that was stopped", count(int64(r.Unfinished), "file"))
	}
	if r.Problem != "" {
		line("  problem", "%s", r.Problem)
	}
}
