// Package quiet holds loops over maps whose order cannot be seen.
package quiet

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

type out struct {
	names []string
	n     int
}

func sortedAfter(m map[string]int) ([]string, []string, []string, []string) {
	var a, b, c, d []string
	for k := range m {
		a = append(a, k)
		b = append(b, k)
		c = append(c, k)
		d = append(d, k)
	}
	if len(a) == 0 || b == nil {
		return nil, nil, nil, nil
	}
	slices.Sort(a)
	sort.Strings(b)
	sort.Slice(c, func(i, j int) bool { return c[i] < c[j] })
	return a, b, c, slices.Sorted(slices.Values(d))
}

type byLength []string

func (l byLength) Len() int           { return len(l) }
func (l byLength) Less(i, j int) bool { return l[i] < l[j] }
func (l byLength) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }

func sortNames(names []string) { slices.Sort(names) }

func otherSorts(m map[string]int) (a, b []string) {
	for k := range m {
		a = append(a, k)
		b = append(b, k)
	}
	sort.Sort(byLength(a))
	sortNames(b)
	return a, b
}

func field(m map[string]int) out {
	var o out
	for k := range m {
		o.names = append(o.names, k)
	}
	o.n = len(o.names)
	slices.SortFunc(o.names, strings.Compare)
	return o
}

func twoLoops(m, n map[string]int) []string {
	var names []string
	for k := range m {
		names = append(names, k)
	}
	for k := range n {
		names = append(names, k)
	}
	names = append(names, "x")
	slices.Sort(names)
	return names
}

func filled(m map[string]int) []string {
	names := make([]string, len(m))
	i := 0
	for k := range m {
		names[i] = k
		i++
	}
	names = names[:i]
	sort.Strings(names)
	return names
}

func intoSet(m map[string]int) map[string]bool {
	var names []string
	for k := range m {
		names = append(names, k)
	}
	set := map[string]bool{}
	for _, n := range names {
		set[n] = true
	}
	return set
}

func insertSorted(m map[string]int) []string {
	var names []string
	for k := range m {
		at, _ := slices.BinarySearch(names, k)
		names = slices.Insert(names, at, k)
	}
	return names
}

func sums(m map[string]int) (n, bits, product int, all, some bool) {
	all = true
	for k, v := range m {
		n += v
		n -= len(k)
		bits |= v
		bits = bits ^ v
		product = product * v
		all = all && v > 0
		some = some || v > 0
		if v > 3 {
			n++
		}
	}
	return
}

func otherMaps(m map[string]int) (map[int]string, map[string][]string) {
	inverse, perKey := map[int]string{}, map[string][]string{}
	weights := map[string]float64{}
	for k, v := range m {
		inverse[v] = k
		perKey[k] = append(perKey[k], fmt.Sprint(v))
		perKey["x."+k] = append(perKey["x."+k], k)
		weights[k] += float64(v)
		weights[k] *= 2
		if v < 0 {
			delete(m, k)
		}
	}
	return inverse, perKey
}

func slots(m map[int]string) []string {
	list := make([]string, len(m))
	for i, s := range m {
		list[i] = s
	}
	return list
}

type node struct {
	kids   []string
	parent string
}

func perElement(m map[string]*node, of map[string]string) {
	for k, n := range m {
		n.parent = of[k]
		n.kids = append(n.kids, k)
		local := []string{}
		local = append(local, k)
		n.kids = append(n.kids, local...)
		text := ""
		for _, s := range n.kids {
			text += s
		}
		var b strings.Builder
		fmt.Fprint(&b, k)
		n.parent = b.String()
	}
}

func extremes(m map[string]int, f map[string]float64) (int, int, string, float64) {
	top, low, first, big := math.MinInt, math.MaxInt, "", 0.0
	for k, v := range m {
		top = max(top, v)
		if v < low {
			low = v
		}
		if first == "" || k < first {
			first = k
		}
	}
	for _, v := range f {
		big = math.Max(big, v)
	}
	return top, low, first, big
}

func mostFirstByName(m map[string]int) string {
	who, n := "", 0
	for k, v := range m {
		if v > n || v == n && k < who {
			who, n = k, v
		}
	}
	return who
}

func compared(m map[string]int) (a, b string) {
	for k := range m {
		if strings.Compare(k, a) > 0 {
			a = k
		}
		switch {
		case cmp.Less(k, b):
			b = k
		}
	}
	return a, b
}

func flags(m map[string]int) (found bool, kind string) {
	for _, v := range m {
		if v > 3 {
			found = true
			kind = "large"
		}
	}
	return found, kind
}

func allOf(m map[string]int) bool {
	for _, v := range m {
		if v < 0 {
			return false
		}
	}
	return true
}

func oneKey(m map[string]int, want string) (int, string) {
	n := 0
	for k, v := range m {
		if k == want {
			n = v
		}
		if k != want {
			continue
		}
		fmt.Println(k)
		return v, k
	}
	for k, v := range m {
		switch k {
		case want:
			n = v
		}
	}
	return n, ""
}

func single(m map[string]int) string {
	if len(m) == 1 {
		for k := range m {
			return k
		}
	}
	return ""
}

func singleAfterReturn(m map[string]int) string {
	if len(m) != 1 {
		return ""
	}
	for k := range m {
		return k
	}
	return ""
}

func scratch(m map[string]string) int {
	var buf []byte
	n := 0
	for _, v := range m {
		buf = append(buf[:0], v...)
		n += len(buf)
	}
	return n
}

func counted(m map[string]int) []int {
	var list []int
	for range m {
		list = append(list, len(list))
	}
	return list
}

func sortedKeys(m map[string]int, b *ir.Builder, w *strings.Builder) (names []string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		names = append(names, k)
		w.WriteString(k)
		b.Input(k, ir.Type{})
	}
	for _, v := range slices.Sorted(maps.Values(m)) {
		names = append(names, fmt.Sprint(v))
	}
	for i, k := range slices.SortedFunc(maps.Keys(m), strings.Compare) {
		names[i] = k
	}
	return names
}

func readOnlyBuilder(m map[string]int, b *ir.Builder) error {
	for k := range m {
		b.At(k)
		if b.Err() != nil {
			return b.Err()
		}
	}
	return nil
}

func collects(m map[string]int) ([]string, int, bool) {
	keys := slices.Collect(maps.Keys(m))
	slices.Sort(keys)
	n := len(slices.Collect(maps.Values(m)))
	return keys, n, slices.Contains(slices.Collect(maps.Values(m)), 3)
}

func files(m map[string][]byte) {
	for name, data := range m {
		_ = os.WriteFile(name, data, 0o644)
	}
}

func parallel(m map[string]int, results chan<- int) {
	var wait sync.WaitGroup
	for _, v := range m {
		wait.Add(1)
		go func() {
			defer wait.Done()
			results <- v
		}()
	}
	wait.Wait()
}

func cases(t *testing.T, m map[string]int) {
	for name, want := range m {
		t.Run(name, func(t *testing.T) {
			got := len(name)
			if got != want {
				t.Errorf("%s is %d, want %d", name, got, want)
			}
		})
	}
}

func callback(m map[string]func() int) {
	for _, f := range m {
		slices.SortFunc([]int{f()}, func(a, b int) int { return f() })
	}
}

func overSlice(list []string) (names []string) {
	for _, s := range list {
		names = append(names, s)
	}
	return names
}
