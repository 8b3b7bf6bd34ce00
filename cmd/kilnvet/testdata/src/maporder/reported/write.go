package reported

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	"github.com/kiln-project/kiln/ir"
)

func writes(m map[string]int, w io.Writer, h hash.Hash, enc *json.Encoder) string {
	var b strings.Builder
	var buf bytes.Buffer
	for k, v := range m {
		fmt.Println(k)                  // want `fmt.Println prints in the order of map m`
		fmt.Fprintf(w, "%s\n", k)       // want `w is written in the order of map m`
		fmt.Fprintln(os.Stderr, k)      // want `os.Stderr is written`
		io.WriteString(w, k)            // want `w is written`
		b.WriteString(k)                // want `b is written`
		buf.Write([]byte(k))            // want `buf is written`
		h.Write([]byte(k))              // want `h is written`
		_ = enc.Encode(v)               // want `enc is written`
		row(&b, k)                      // want `&b is written`
		_, _ = w.Write([]byte{byte(v)}) // want `w is written`
	}
	return b.String() + buf.String()
}

func row(b *strings.Builder, k string) { b.WriteString(k) }

type state struct{ b *ir.Builder }

func builds(m map[string]ir.Type, b *ir.Builder, s *state) {
	for k, t := range m {
		v := b.Input(k, t)                      // want `b.Input adds to a graph in the order of map m`
		s.b.Output(k, v)                        // want `s.b.Output adds to a graph`
		add(b, k)                               // want `b, a graph builder, is handed to add`
		for _, r := range b.Op("neg", nil, v) { // want `b.Op adds to a graph`
			b.Bin("add", r, r) // want `b.Bin adds to a graph`
		}
	}
}

func add(b *ir.Builder, name string) { b.Input(name, ir.Type{}) }

func moves(moved map[*ir.Value]*ir.Value, b *ir.Builder) {
	for from, to := range moved {
		b.Output(from.Name, to) // want `b.Output adds to a graph in the order of map moved: iterate over slices.SortedFunc\(maps.Keys\(moved\), …\), or over a slice that has an order, such as g.Ops`
	}
}

func sends(m map[string]int, ch chan<- string) {
	for k := range m {
		ch <- k // want `ch is sent to in the order of map m`
	}
}
