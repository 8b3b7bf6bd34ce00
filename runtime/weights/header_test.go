package weights

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rawFile builds the bytes of a file from a header and n data bytes.
func rawFile(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range n {
		b = append(b, byte(i))
	}
	return b
}

// lengthOnly is a file with the given header length and a few bytes after it.
func lengthOnly(n uint64) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, n), "{}      "...)
}

// accepted holds files that conform to the format.
var accepted = []struct {
	name string
	raw  []byte
}{
	{"no tensors", rawFile(`{}`, 0)},
	{"metadata only", rawFile(`{"__metadata__":{"format":"pt","a":""}}`, 0)},
	{"padded header", rawFile("{ }\n\t ", 0)},
	{"scalar", rawFile(`{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, 4)},
	{"fields in another order", rawFile(`{"a":{"data_offsets":[0,4],"shape":[2],"dtype":"BF16"}}`, 4)},
	{"data in another order", rawFile(`{"a":{"dtype":"I32","shape":[1],"data_offsets":[3,7]},"b":{"dtype":"U8","shape":[3,1],"data_offsets":[0,3]}}`, 7)},
	{"every dtype", rawFile(`{"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F8_E8M0","shape":[1],"data_offsets":[1,2]},`+
		`"c":{"dtype":"I8","shape":[1],"data_offsets":[2,3]},"d":{"dtype":"U8","shape":[1],"data_offsets":[3,4]},`+
		`"e":{"dtype":"BOOL","shape":[1],"data_offsets":[4,5]},"f":{"dtype":"F16","shape":[1],"data_offsets":[5,7]},`+
		`"g":{"dtype":"BF16","shape":[1],"data_offsets":[7,9]},"h":{"dtype":"F64","shape":[1],"data_offsets":[9,17]},`+
		`"i":{"dtype":"I64","shape":[1],"data_offsets":[17,25]},"j":{"dtype":"F32","shape":[1],"data_offsets":[25,29]},`+
		`"k":{"dtype":"I32","shape":[1],"data_offsets":[29,33]}}`, 33)},
	{"escaped name", rawFile(`{"\u0061\n":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1)},
}

// refused holds files that do not, with the error each must give.
var refused = []struct {
	name string
	raw  []byte
	want string
}{
	{"empty file", nil, "file of 0 bytes is too short for a header length"},
	{"seven bytes", make([]byte, 7), "file of 7 bytes is too short for a header length"},
	{"no header", make([]byte, 8), "header does not begin with {"},
	{"length past the file", lengthOnly(9), "header length 9 reaches past the end of the file, 16 bytes"},
	{"length at the limit", lengthOnly(100 << 20), "header length 104857600 reaches past the end of the file, 16 bytes"},
	{"length above the limit", lengthOnly(100<<20 + 1), "header length 104857601 is above the limit of 104857600"},
	{"negative length", lengthOnly(1<<64 - 8), "header length 18446744073709551608 is above the limit of 104857600"},
	{"length that wraps", lengthOnly(1<<64 - 1), "header length 18446744073709551615 is above the limit of 104857600"},
	{"not json", rawFile(`{nonsense}`, 0), "header: json near byte 1: invalid character 'n'"},
	{"array", rawFile(`[]`, 0), "header does not begin with {"},
	{"space before", rawFile(` {}`, 0), "header does not begin with {"},
	{"cut off", rawFile(`{"a":`, 0), `header: tensor "a": json near byte 5: unexpected EOF`},
	{"cut off in a name", rawFile(`{"a`, 0), "header: json near byte 1: unexpected EOF"},
	{"text after the object", rawFile(`{} x`, 0), "header: after the json object: invalid character 'x'"},
	{"second object", rawFile(`{}{}`, 0), `header: found "{" after the json object`},
	{"invalid utf-8", rawFile("{\"\xff\":{}}", 0), "header: json is not valid utf-8"},
	{"trailing comma", rawFile(`{"__metadata__":{},}`, 0), "header: json near byte 19: invalid character '}'"},
	{"tensor twice", rawFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2),
		`header: key "a" occurs twice`},
	{"field twice", rawFile(`{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}`, 1), `header: tensor "a": key "dtype" occurs twice`},
	{"metadata twice", rawFile(`{"__metadata__":{},"__metadata__":{}}`, 0), `header: key "__metadata__" occurs twice`},
	{"metadata key twice", rawFile(`{"__metadata__":{"a":"","a":""}}`, 0), `header: __metadata__: key "a" occurs twice`},
	{"metadata not an object", rawFile(`{"__metadata__":"x"}`, 0), `header: __metadata__: found the string "x" where "{" is expected`},
	{"metadata value", rawFile(`{"__metadata__":{"a":1}}`, 0), `header: __metadata__: key "a": found the number "1" where a string is expected`},
	{"tensor not an object", rawFile(`{"a":null}`, 0), `header: tensor "a": found null where "{" is expected`},
	{"no name", rawFile(`{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "header: a tensor has an empty name"},
	{"unknown field", rawFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}}`, 1), `header: tensor "a": field "strides" is not known`},
	{"unknown dtype", rawFile(`{"a":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[0,1]}}`, 1), `header: tensor "a": dtype "F8_E5M2" is not supported`},
	{"dtype in another case", rawFile(`{"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}}`, 4), `header: tensor "a": dtype "f32" is not supported`},
	{"empty dtype", rawFile(`{"a":{"dtype":"","shape":[1],"data_offsets":[0,1]}}`, 1), `header: tensor "a": dtype "" is not supported`},
	{"dtype not a string", rawFile(`{"a":{"dtype":true,"shape":[1],"data_offsets":[0,1]}}`, 1), `header: tensor "a": dtype: found true where a string is expected`},
	{"no dtype", rawFile(`{"a":{"shape":[1],"data_offsets":[0,1]}}`, 1), `header: tensor "a": field dtype is missing`},
	{"no shape", rawFile(`{"a":{"dtype":"U8","data_offsets":[0,1]}}`, 1), `header: tensor "a": field shape is missing`},
	{"no offsets", rawFile(`{"a":{"dtype":"U8","shape":[1]}}`, 1), `header: tensor "a": field data_offsets is missing`},
	{"one offset", rawFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}}`, 1), `header: tensor "a": data_offsets: 1 numbers, must be 2`},
	{"three offsets", rawFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}}`, 1), `header: tensor "a": data_offsets: more than 2 numbers`},
	{"begin after end", rawFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, 1), `header: tensor "a": data_offsets [1, 0]: begin is after end`},
	{"end past the data", rawFile(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 1), `header: tensor "a": data_offsets [0, 2]: end is past the data section, 1 bytes`},
	{"negative offset", rawFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}}`, 1), `header: tensor "a": data_offsets: "-1" is not an integer from 0 to the largest int`},
	{"offset that wraps", rawFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551617]}}`, 1),
		`header: tensor "a": data_offsets: "18446744073709551617" is not an integer`},
	{"fractional offset", rawFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1.0]}}`, 1), `header: tensor "a": data_offsets: "1.0" is not an integer`},
	{"offset as a string", rawFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,"1"]}}`, 1), `header: tensor "a": data_offsets: found the string "1" where an integer is expected`},
	{"size too small", rawFile(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,3]}}`, 3), `header: tensor "a": data_offsets [0, 3] span 3 bytes, F32 of shape [1] takes 4`},
	{"size too large", rawFile(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,5]}}`, 5), `header: tensor "a": data_offsets [0, 5] span 5 bytes, F32 of shape [1] takes 4`},
	{"negative dimension", rawFile(`{"a":{"dtype":"U8","shape":[-1,-1],"data_offsets":[0,1]}}`, 1), `header: tensor "a": shape: "-1" is not an integer`},
	{"zero dimension", rawFile(`{"a":{"dtype":"U8","shape":[3,0],"data_offsets":[0,0]}}`, 0), `header: tensor "a": shape: dimension 1 is 0, must be at least 1`},
	{"shape overflows to the size", rawFile(`{"a":{"dtype":"U8","shape":[4294967296,4294967296,1],"data_offsets":[0,0]}}`, 0),
		`header: tensor "a": shape [4294967296 4294967296 1]: size in bytes overflows`},
	{"element size overflows", rawFile(`{"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]}}`, 0),
		`header: tensor "a": shape [4611686018427387904]: size in bytes overflows`},
	{"too many dimensions", rawFile(`{"a":{"dtype":"U8","shape":[1`+strings.Repeat(",1", 32)+`],"data_offsets":[0,1]}}`, 1), `header: tensor "a": shape: more than 32 numbers`},
	{"nested shape", rawFile(`{"a":{"dtype":"U8","shape":[[[[1]]]],"data_offsets":[0,1]}}`, 1), `header: tensor "a": shape: found "[" where an integer is expected`},
	{"overlap", rawFile(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3),
		`tensor "b" at offset 1 overlaps tensor "a", which ends at 2`},
	{"same place", rawFile(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}}`, 2),
		`tensor "b" at offset 0 overlaps tensor "a", which ends at 2`},
	{"hole in front", rawFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), `tensor "a" at offset 1: the 1 bytes before it belong to no tensor`},
	{"hole", rawFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}}`, 4),
		`tensor "b" at offset 3: the 2 bytes before it belong to no tensor`},
	{"trailing bytes", rawFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 4), `offset 1: the last 3 bytes of the data section belong to no tensor`},
	{"data without tensors", rawFile(`{}`, 1), `offset 0: the last 1 bytes of the data section belong to no tensor`},
	{"line break in a name", rawFile(`{"a\nb":{}}`, 0), `header: tensor "a\nb": field dtype is missing`},
	{"long name", rawFile(`{"`+strings.Repeat("x", 5000)+`":{}}`, 0), `header: tensor "` + strings.Repeat("x", 200) + `"...: field dtype is missing`},
}

func TestParseAccepts(t *testing.T) {
	for _, c := range accepted {
		if _, err := parse("f", c.raw); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range refused {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse("dir/f.safetensors", c.raw)
			if err == nil {
				t.Fatal("accepted")
			}
			want := "dir/f.safetensors: " + c.want
			if msg := err.Error(); !strings.HasPrefix(msg, want) || strings.Contains(msg, "\n") {
				t.Errorf("error\n %s\nwant\n %s", msg, want)
			}
		})
	}
}

func TestParseLayout(t *testing.T) {
	s, err := parse("f", rawFile(`{"a":{"dtype":"I32","shape":[1],"data_offsets":[3,7]},"__metadata__":{"k":"v"},`+
		`"b":{"dtype":"U8","shape":[3,1],"data_offsets":[0,3]}}`, 7))
	if err != nil {
		t.Fatal(err)
	}
	want := []*Tensor{
		{Name: "b", DType: U8, Shape: []int{3, 1}, Data: []byte{0, 1, 2}, File: "f"},
		{Name: "a", DType: I32, Shape: []int{1}, Data: []byte{3, 4, 5, 6}, File: "f"},
	}
	if d := cmp.Diff(want, s.tensors); d != "" {
		t.Errorf("tensors (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]string{"k": "v"}, s.metadata); d != "" {
		t.Errorf("metadata (-want +got):\n%s", d)
	}
	if cap(s.tensors[0].Data) != 3 {
		t.Errorf("capacity %d reaches into the next tensor", cap(s.tensors[0].Data))
	}
}

// TestParseAllocation feeds small files that announce huge things.
func TestParseAllocation(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, raw := range [][]byte{
		lengthOnly(100 << 20),
		lengthOnly(1<<64 - 1),
		rawFile(`{"a":{"dtype":"F64","shape":[1000000000000],"data_offsets":[0,8000000000000]}}`, 0),
		rawFile(`{"a":{"dtype":"U8","shape":[1`+strings.Repeat(",1", 1<<16)+`],"data_offsets":[0,1]}}`, 1),
		rawFile(`{"a":`+strings.Repeat("[", 1<<16), 0),
	} {
		if _, err := parse("f", raw); err == nil {
			t.Error("accepted")
		}
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
		t.Errorf("allocated %d bytes for %d-byte files", used, 1<<17)
	}
}

func TestParseIndexRefuses(t *testing.T) {
	for _, c := range indexRefused {
		_, err := parseIndex([]byte(c.text))
		if err == nil {
			t.Errorf("%s: accepted", c.name)
		} else if msg := err.Error(); !strings.HasPrefix(msg, c.want) || strings.Contains(msg, "\n") {
			t.Errorf("%s: error\n %s\nwant\n %s", c.name, msg, c.want)
		}
	}
	if _, err := parseIndex(make([]byte, maxHeader+1)); err == nil || !strings.Contains(err.Error(), "above the limit") {
		t.Errorf("oversized index: %v", err)
	}
}

var indexRefused = []struct{ name, text, want string }{
	{"empty", ``, "json near byte 0: unexpected EOF"},
	{"array", `[]`, `found "[" where "{" is expected`},
	{"no map", `{"metadata":{"total_size":1}}`, "field weight_map is missing"},
	{"unknown field", `{"weight_map":{},"weights":{}}`, `field "weights" is not known`},
	{"map twice", `{"weight_map":{},"weight_map":{}}`, `key "weight_map" occurs twice`},
	{"tensor twice", `{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}`, `weight_map: key "a" occurs twice`},
	{"file not a string", `{"weight_map":{"a":3}}`, `weight_map: key "a": found the number "3" where a string is expected`},
	{"folder", `{"weight_map":{"a":"d/x.safetensors"}}`, `weight_map: tensor "a": shard "d/x.safetensors" is not the plain name`},
	{"backslash", `{"weight_map":{"a":"d\\x.safetensors"}}`, `weight_map: tensor "a": shard "d\\x.safetensors" is not the plain name`},
	{"absolute", `{"weight_map":{"a":"/x.safetensors"}}`, `weight_map: tensor "a": shard "/x.safetensors" is not the plain name`},
	{"parent", `{"weight_map":{"a":"..safetensors"}}`, `weight_map: tensor "a": shard "..safetensors" is not the plain name`},
	{"no name", `{"weight_map":{"a":""}}`, `weight_map: tensor "a": shard "" is not the plain name`},
	{"other kind", `{"weight_map":{"a":"x.bin"}}`, `weight_map: tensor "a": shard "x.bin" is not the plain name`},
	{"zero byte", `{"weight_map":{"a":"x\u0000.safetensors"}}`, `weight_map: tensor "a": shard "x\x00.safetensors" is not the plain name`},
	{"line break", `{"weight_map":{"a":"x\n.safetensors"}}`, `weight_map: tensor "a": shard "x\n.safetensors" is not the plain name`},
	{"bad metadata", `{"metadata":{"a":[1,{]},"weight_map":{}}`, "metadata: json near byte"},
	{"text after", `{"weight_map":{}} 1`, `found the number "1" after the json object`},
}

func TestDTypes(t *testing.T) {
	sizes := map[string]int{"F8_E4M3": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "BOOL": 1, "BF16": 2, "F16": 2, "F32": 4, "F64": 8, "I32": 4, "I64": 8}
	for name, size := range sizes {
		d, err := ParseDType(name)
		if err != nil || d.String() != name || d.Size() != size {
			t.Errorf("%s: %v of %d bytes, %v", name, d, d.Size(), err)
		}
	}
	if len(dtypes)-1 != len(sizes) {
		t.Errorf("%d dtypes, want %d", len(dtypes)-1, len(sizes))
	}
	for _, d := range []DType{0, DType(len(dtypes))} {
		if d.Size() != 0 || !strings.HasPrefix(d.String(), "DType(") {
			t.Errorf("invalid %v has size %d", d, d.Size())
		}
	}
}
