package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// traceEvent is an event of Chrome's trace format: a span ("X") or a name ("M").
type traceEvent struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	Ts       float64        `json:"ts"` // microseconds
	Duration *float64       `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Args     map[string]any `json:"args"`
}

// trace writes the launches of each step one after the other, each step as a process
// of its own. A time that is not above 0 is one of 0: its args have what was measured.
func (r *benchReport) trace() ([]byte, error) {
	file := struct {
		Events []traceEvent   `json:"traceEvents"`
		Unit   string         `json:"displayTimeUnit"`
		Other  map[string]any `json:"otherData"`
	}{[]traceEvent{}, "ns", map[string]any{"bundle": r.Bundle, "bundle_sha256": r.Digest, "device": r.Device, "device_name": r.Name, "kiln": r.Kiln, "weights": r.Weights, "cache": r.Cache}}
	for i, s := range r.Steps {
		name := fmt.Sprintf("%s, batch %d, tokens %d, context %d", s.Entry, s.Batch, s.Tokens, s.Ctx)
		file.Events = append(file.Events, traceEvent{Name: "process_name", Phase: "M", Process: i + 1, Args: map[string]any{"name": name}})
		at := 0.0
		for _, l := range s.Each {
			took := max(l.Median, 0)
			file.Events = append(file.Events, traceEvent{
				Name: l.Op, Category: l.Form, Phase: "X", Ts: at, Duration: &took, Process: i + 1, Thread: 1,
				Args: map[string]any{"launch": l.Index, "kernel": l.Kernel, "form": l.Form, "loc": l.Loc, "grid": l.Grid, "bytes": l.Bytes, "median_us": l.Median, "p95_us": l.P95, "of_bandwidth": l.Part},
			})
			at += took
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(file)
	return b.Bytes(), err
}
