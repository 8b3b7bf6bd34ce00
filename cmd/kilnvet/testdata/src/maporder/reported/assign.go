package reported

import "strings"

func last(m map[string]int) string {
	name := ""
	for k := range m {
		name = k // want `name keeps one of several values, chosen in the order of map m`
	}
	return name
}

func first(m map[string]int, want int) string {
	name := ""
	for k, v := range m {
		if v == want {
			name = k // want `name keeps one of several values`
			break
		}
	}
	return name
}

// Equal counts: the first of them stays.
func most(m map[string]int) (string, int) {
	who, n := "", 0
	for k, v := range m {
		if v > n {
			who, n = k, v // want `who keeps one of several values`
		}
	}
	return who, n
}

func longest(m map[string]int) string {
	name := ""
	for k := range m {
		if len(k) > len(name) {
			name = k // want `name keeps one of several values`
		}
	}
	return name
}

func two(m map[string]func() (int, error)) (n int) {
	var err error
	for _, f := range m {
		n, err = f() // want `n keeps one of several values`
		if err != nil {
			return 0
		}
	}
	return n
}

func concatenation(m map[string]int) (a, b string) {
	for k := range m {
		a += k    // want `a is concatenated in the order of map m`
		b = b + k // want `b is concatenated`
	}
	return a, b
}

func replacement(m map[string]string, text string) string {
	for from, to := range m {
		text = strings.ReplaceAll(text, from, to) // want `text is made from what it was before, in the order of map m`
	}
	return text
}

func sums(m map[string]float64) (a, b float64, c float32, d complex128) {
	for _, v := range m {
		a += v             // want `a is accumulated, rounding, in the order of map m`
		b = b + v          // want `b is accumulated, rounding`
		c *= float32(v)    // want `c is accumulated, rounding`
		d += complex(v, v) // want `d is accumulated, rounding`
	}
	return
}

func hashed(m map[string]int) int {
	h := 0
	for _, v := range m {
		h = 31*h + v // want `h is made from what it was before`
	}
	return h
}

func numbered(m map[string]int) (map[string]int, map[string]int) {
	id, at := map[string]int{}, map[string]int{}
	n := 0
	for k := range m {
		id[k] = len(id) // want `id\[k\] gets a number that counts in the order of map m`
		at[k] = n       // want `at\[k\] gets a number that counts`
		n++
	}
	return id, at
}

type item struct{ offset, size int }

func offsets(m map[string]*item) {
	total := 0
	for _, it := range m {
		it.offset = total // want `it.offset gets a number that counts`
		total += it.size
	}
}

func sharedSlot(m map[string]float64, group func(string) int) map[int]float64 {
	sum := map[int]float64{}
	for k, v := range m {
		sum[group(k)] += v // want `sum\[group\(k\)\] is accumulated, rounding`
	}
	return sum
}

func fixedSlot(m map[string]int, out map[string]int, list []int) {
	for _, v := range m {
		out["x"] = v // want `out\["x"\] keeps one of several values`
		list[0] = v  // want `list\[0\] keeps one of several values`
	}
}
