package plan

import (
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	for text, want := range map[string]Arg{
		"i -37":                     {Int: -37},
		"r a+64:128":                {Mode: Read, Buf: Slice{Space: Arena, Offset: 64, Bytes: 128}},
		"w s3+0:4096":               {Mode: Write, Buf: Slice{Space: State, Index: 3, Bytes: 4096}},
		"rw w17.1+9:1":              {Mode: Update, Buf: Slice{Space: Weight, Index: 17, Part: 1, Offset: 9, Bytes: 1}},
		"r a+0:9223372036854775807": {Mode: Read, Buf: Slice{Space: Arena, Bytes: 1<<63 - 1}},
	} {
		var got Arg
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %+v (%v), want %+v", text, got, err, want)
		}
		if back, _ := want.MarshalText(); string(back) != text {
			t.Errorf("%+v prints as %q, want %q", want, back, text)
		}
	}
}

func TestTextRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "no mode",
		"r":                          "no mode",
		"x a+0:1":                    `mode "x"`,
		"i 0x1":                      `"0x1" is no number`,
		"i 01":                       `"01" is no number`,
		"r ":                         "empty",
		"r a":                        "no offset",
		"r a1+0:1":                   "the arena has no index",
		"r a+0":                      "no length",
		"r a+0:":                     `"" is no number`,
		"r q+0:1":                    "unknown memory",
		"r s+0:1":                    `"" is no number`,
		"r s1.0+0:1":                 `part "0"`,
		"r w1.2+0:1":                 `part "2"`,
		"r a+99999999999999999999:1": "is no number",
	} {
		var a Arg
		if err := a.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q in it", text, err, want)
		}
	}
}

// FuzzArg: what is read prints as it was.
func FuzzArg(f *testing.F) {
	for _, s := range []string{"i 3", "r a+0:64", "rw s1+64:4", "w w2.1+0:9", "r a+-1:1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var a Arg
		if a.UnmarshalText([]byte(text)) != nil {
			return
		}
		if back, _ := a.MarshalText(); string(back) != text {
			t.Errorf("%q prints as %q", text, back)
		}
	})
}
