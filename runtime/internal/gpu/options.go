package gpu

import (
	"fmt"
	"strings"
	"time"
)

// Graph says whether sequences are replayed as graphs.
type Graph string

// The choices.
const (
	GraphAuto Graph = "auto" // unless a fault of the driver is known
	GraphOn   Graph = "on"
	GraphOff  Graph = "off" // kernels are launched one by one
)

// Build says how graphs are made. Both ways give the same chain of kernels.
type Build string

// The ways.
const (
	BuildExplicit Build = "explicit" // node by node
	BuildCapture  Build = "capture"  // by recording what a stream would do
)

// Overlap says whether a kernel of a graph may begin while the one before ends: it asks
// for its weights and then waits for the end by itself (CUDA, "Programmatic Dependent
// Launch"). The results are the same bits.
type Overlap string

// The choices.
const (
	OverlapAuto Overlap = "auto" // where the driver can
	OverlapOn   Overlap = "on"   // an error where it cannot
	OverlapOff  Overlap = "off"
)

// Graphs, Builds and Overlaps list the choices, the default first.
var (
	Graphs   = []Graph{GraphAuto, GraphOn, GraphOff}
	Builds   = []Build{BuildExplicit, BuildCapture}
	Overlaps = []Overlap{OverlapAuto, OverlapOn, OverlapOff}
)

// ParseGraph reads --graph; "" is the default.
func ParseGraph(s string) (Graph, error) { return parse(s, Graphs) }

// ParseBuild reads --graph-build; "" is the default.
func ParseBuild(s string) (Build, error) { return parse(s, Builds) }

// ParseOverlap reads --overlap; "" is the default.
func ParseOverlap(s string) (Overlap, error) { return parse(s, Overlaps) }

func parse[T ~string](s string, all []T) (T, error) {
	var names []string
	for _, v := range all {
		if s == string(v) || s == "" {
			return v, nil
		}
		names = append(names, string(v))
	}
	return "", fmt.Errorf("%q: want one of %s", s, strings.Join(names, ", "))
}

// Options of a device. The zero Options are the defaults.
type Options struct {
	Graph   Graph
	Build   Build
	Overlap Overlap
	// Staging is how many bytes of pinned memory copies pass through; 0 is 8 MiB.
	Staging int64
	// Watchdog is how long a step may take until it is an error; 0 is for ever. Without
	// graphs each launch is waited for then, so that the error names the kernel.
	Watchdog time.Duration
	// Code keeps what the driver's compiler made; nil: it compiles each time.
	Code CodeCache
}

// CodeCache keeps code by the digest of all that it depends on.
type CodeCache interface {
	// Get returns what Put stored; something missing or damaged is not found.
	Get(digest string) ([]byte, bool)
	Put(digest string, code []byte) error
}

const defaultStaging = 8 << 20
