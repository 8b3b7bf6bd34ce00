package fix

import (
	"fmt"
	"io"
)

func keys(w io.Writer, m map[string]int) {
	for k := range m {
		fmt.Fprintln(w, k) // want `w is written`
	}
}

func both(w io.Writer, m map[int]string) {
	for k, v := range m {
		fmt.Fprintln(w, k) // want `w is written`
		fmt.Fprintln(w, v) // want `w is written`
	}
}

// Not rewritten: no name for the key, keys that may differ from themselves, a map that
// changes, a map that is computed, a taken name.

func value(w io.Writer, m map[int]string) {
	for _, v := range m {
		fmt.Fprintln(w, v) // want `w is written`
	}
}

func floats(w io.Writer, m map[float64]string) {
	for k := range m {
		fmt.Fprintln(w, k) // want `w is written`
	}
}

func changing(w io.Writer, m map[int]string) {
	for k := range m {
		fmt.Fprintln(w, k) // want `w is written`
		delete(m, k+1)
	}
}

func computed(w io.Writer, m func() map[int]string) {
	for k := range m() {
		fmt.Fprintln(w, k) // want `w is written`
	}
}

func taken(w io.Writer, maps map[int]string) {
	for k := range maps {
		fmt.Fprintln(w, k) // want `w is written`
	}
}
