// Package reported holds loops whose order gets out.
package reported

import (
	"slices"
	"strings"
)

type out struct {
	names []string
	other int
}

func never(m map[string]int) []string {
	var names []string
	for k := range m {
		names = append(names, k) // want `names is appended to, and not sorted before its use, in the order of map m: iterate over slices.Sorted\(maps.Keys\(m\)\)`
	}
	return names
}

func sortedTooLate(m map[string]int) string {
	var names []string
	for k := range m {
		names = append(names, k) // want `names is appended to`
	}
	text := strings.Join(names, ",")
	slices.Sort(names)
	return text
}

func otherSorted(m map[string]int) ([]string, []int) {
	var names []string
	var values []int
	for k, v := range m {
		names = append(names, k)
		values = append(values, v) // want `values is appended to`
	}
	slices.Sort(names)
	return names, values
}

func field(m map[string]int) out {
	var o out
	for k := range m {
		o.names = append(o.names, k) // want `o.names is appended to`
	}
	o.other = 1
	return o
}

func param(m map[string]int, o *out) {
	for k := range m {
		o.names = append(o.names, k) // want `o.names is appended to`
	}
}

func named(m map[string]int) (names []string) {
	for k := range m {
		names = append(names, k) // want `names is appended to`
	}
	return
}

func derived(m map[string]int) []string {
	var names []string
	for k, v := range m {
		text := strings.Repeat(k, v)
		upper := strings.ToUpper(text)
		names = append(names, upper) // want `names is appended to`
	}
	return names
}

func byCondition(m map[string]bool) []string {
	var labels []string
	for _, v := range m {
		label := "no"
		if v {
			label = "yes"
		}
		labels = append(labels, label) // want `labels is appended to`
	}
	return labels
}

func filled(m map[string]int) []string {
	names := make([]string, len(m))
	i := 0
	for k := range m {
		names[i] = k // want `names is filled in the order of map m`
		i++
	}
	return names
}

func bySharedGroup(m map[string]int) map[int][]string {
	groups := map[int][]string{}
	for k, v := range m {
		groups[v] = append(groups[v], k) // want `groups\[v\] is appended to`
	}
	return groups
}

func inner(m map[string][]int) []int {
	var all []int
	for _, list := range m {
		for _, x := range list {
			all = append(all, x) // want `all is appended to`
		}
	}
	return all
}

func usedByLoop(m map[string]int, w *strings.Builder) {
	var names []string
	for k := range m {
		names = append(names, k) // want `names is appended to`
	}
	for _, n := range names {
		w.WriteString(n)
	}
}

func inClosure(m map[string]int) func() []string {
	return func() []string {
		var names []string
		for k := range m {
			names = append(names, k) // want `names is appended to`
		}
		return names
	}
}

func inserted(m map[string]int) []string {
	var names []string
	for k := range m {
		names = slices.Insert(names, 0, k) // want `names is appended to`
	}
	return names
}

var global []string

func toGlobal(m map[string]int) {
	for k := range m {
		global = append(global, k) // want `global is appended to`
	}
}

func typeParameter[M ~map[K]V, K comparable, V any](m M) []K {
	var keys []K
	for k := range m {
		keys = append(keys, k) // want `keys is appended to`
	}
	return keys
}
