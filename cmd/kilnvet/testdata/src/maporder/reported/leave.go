package reported

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func anyKey(m map[string]int) string {
	for k := range m {
		return k // want `one of several values is returned, whichever comes first in the order of map m`
	}
	return ""
}

func byValue(m map[string]int, want int) (string, bool) {
	for k, v := range m {
		if v == want {
			return k, true // want `one of several values is returned`
		}
	}
	return "", false
}

func firstError(m map[string]int) error {
	for k, v := range m {
		if v < 0 {
			return fmt.Errorf("%s is %d", k, v) // want `one of several values is returned`
		}
		if err := check(v); err != nil {
			return err // want `one of several values is returned`
		}
	}
	var err error
	for _, v := range m {
		if err = check(v); err != nil {
			return err // want `one of several values is returned`
		}
	}
	return nil
}

func check(int) error { return nil }

func literal() string {
	for k := range map[string]int{"a": 1, "b": 2} {
		return k // want `in the order of map literal: iterate over slices.Sorted\(maps.Keys\(m\)\)`
	}
	return ""
}

func iterators(m map[string]int) (names []string) {
	for k := range maps.Keys(m) {
		names = append(names, k) // want `in the order of maps.Keys\(m\): iterate over slices.Sorted\(maps.Keys\(m\)\)`
	}
	for v := range maps.Values(m) {
		names = append(names, fmt.Sprint(v)) // want `in the order of maps.Values\(m\): iterate over slices.Sorted\(maps.Values\(m\)\)`
	}
	for k := range maps.All(m) {
		names = append(names, k) // want `in the order of maps.All\(m\)`
	}
	for _, k := range slices.Collect(maps.Keys(m)) {
		names = append(names, k) // want `in the order of maps.Keys\(m\)`
	}
	return names
}

func collects(m map[string]int) ([]string, string) {
	keys := slices.Collect(maps.Keys(m))                    // want `slices.Collect gives a slice that is not sorted before its use, in the order of maps.Keys\(m\): use slices.Sorted\(maps.Keys\(m\)\)`
	text := strings.Join(slices.Collect(maps.Keys(m)), ",") // want `slices.Collect gives`
	keys = slices.AppendSeq(keys, maps.Keys(m))             // want `slices.AppendSeq gives`
	return keys, text
}
