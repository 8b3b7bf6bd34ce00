package passes

import "testing"

func TestRemarkIsOneLine(t *testing.T) {
	r := Remark{Pass: "cse", Kind: Missed, Graph: "step", Loc: "a\nb", Op: "neg", Text: "as at a\r\nb"}
	if got, want := r.String(), `missed: cse @step a\nb: neg: as at a\r\nb`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
