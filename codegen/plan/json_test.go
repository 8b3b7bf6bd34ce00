package plan

import (
	"bytes"
	"encoding/json"
	"testing"
)

// A plan's text is that of encoding/json: with and without what may be left out, with
// nothing in lists, and with characters that strings escape.
func TestAppendJSON(t *testing.T) {
	_, p := sample()
	odd := "a\"b\\c\n<é>\u2028\x00\xff"
	slice := Slice{Space: Weight, Index: 17, Part: 1, Offset: 64, Bytes: 1 << 40}
	for _, p := range []*Plan{
		p,
		{},
		{Binding: []Binding{}, Inputs: []Tensor{}, Outputs: []Tensor{}, States: []int{}, Values: []Value{}, Launches: []Launch{}},
		{
			Entry: odd, Binding: []Binding{{"T", -1}, {odd, 2}}, Arena: 1 << 50, States: []int{0, 7},
			Inputs:  []Tensor{{odd, "f32[2]", slice, &slice}, {Name: "plain"}},
			Outputs: []Tensor{{"y", odd, Slice{Space: State, Index: 3}, nil}},
			Values:  []Value{{Name: odd, Offset: 64, Bytes: 8, First: -1, Last: 3}, {Name: "x scales"}},
			Launches: []Launch{
				{Kernel: 2, Op: odd, Loc: odd, Grid: 3, Work: 4, Flops: 5, Bytes: 6, Rate: odd, Choices: []int{1, 2}, Args: []Arg{{Mode: Update, Buf: slice}, {Int: -5}, {Mode: Mode(odd)}}},
				{Choices: []int{}, Args: []Arg{}},
				{},
			},
		},
	} {
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(p); err != nil {
			t.Fatal(err)
		}
		if got := string(p.AppendJSON(nil)) + "\n"; got != want.String() {
			t.Errorf("have %s\nwant %s", got, want.String())
		}
	}
}
