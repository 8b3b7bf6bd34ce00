package object

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

// tree reads a value with everything in it. Go's maps cannot hold every key of
// MessagePack, so a map becomes pairs.
func tree(d *decoder, depth int) (any, error) {
	t, err := d.next()
	if err != nil {
		return nil, err
	}
	if depth >= maxDepth && (t.kind == kindArray || t.kind == kindMap) {
		return nil, d.errorAt(t.at, "too deep")
	}
	switch t.kind {
	case kindNil:
		return nil, nil
	case kindBool:
		return t.num == 1, nil
	case kindUint:
		return t.num, nil
	case kindInt:
		return int(t.num), nil
	case kindFloat:
		return math.Float64frombits(t.num), nil
	case kindString:
		return string(t.body), nil
	case kindBinary:
		return append([]byte{}, t.body...), nil
	case kindArray:
		list := []any{}
		for range t.num {
			v, err := tree(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	}
	m := pairs{}
	for range t.num {
		k, err := tree(d, depth+1)
		if err != nil {
			return nil, err
		}
		v, err := tree(d, depth+1)
		if err != nil {
			return nil, err
		}
		m = append(m, pair{k, v})
	}
	return m, nil
}

// The examples of the MessagePack specification's format table, by hand.
func TestMsgpack(t *testing.T) {
	for _, tc := range []struct {
		data string
		want any
	}{
		{"\x00", uint64(0)},
		{"\x7f", uint64(127)},
		{"\xe0", -32},
		{"\xff", -1},
		{"\xc0", nil},
		{"\xc2", false},
		{"\xc3", true},
		{"\xcc\xff", uint64(255)},
		{"\xcd\x01\x02", uint64(0x102)},
		{"\xce\x01\x02\x03\x04", uint64(0x1020304)},
		{"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", uint64(math.MaxUint64)},
		{"\xd0\x05", uint64(5)},
		{"\xd0\x80", -128},
		{"\xd1\xff\xfe", -2},
		{"\xd2\x80\x00\x00\x00", -1 << 31},
		{"\xd3\xff\xff\xff\xff\xff\xff\xff\xff", -1},
		{"\xd3\x00\x00\x00\x00\x00\x00\x00\x09", uint64(9)},
		{"\xca\x3f\xc0\x00\x00", 1.5},
		{"\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00", 1.5},
		{"\xa0", ""},
		{"\xa3abc", "abc"},
		{"\xd9\x03abc", "abc"},
		{"\xda\x00\x03abc", "abc"},
		{"\xdb\x00\x00\x00\x03abc", "abc"},
		{"\xc4\x02\x00\x01", []byte{0, 1}},
		{"\xc5\x00\x02\x00\x01", []byte{0, 1}},
		{"\xc6\x00\x00\x00\x02\x00\x01", []byte{0, 1}},
		{"\x92\x01\x02", []any{uint64(1), uint64(2)}},
		{"\xdc\x00\x01\xa0", []any{""}},
		{"\xdd\x00\x00\x00\x01\xc0", []any{nil}},
		{"\x81\xa1a\x90", pairs{{"a", []any{}}}},
		{"\xde\x00\x01\x01\xc3", pairs{{uint64(1), true}}},
		{"\xdf\x00\x00\x00\x00", pairs{}},
	} {
		d := &decoder{data: []byte(tc.data)}
		got, err := tree(d, 0)
		if err != nil || !reflect.DeepEqual(got, tc.want) || d.pos != len(tc.data) {
			t.Errorf("%q: %#v, error %v, %d bytes read; want %#v", tc.data, got, err, d.pos, tc.want)
		}
		s := &decoder{data: []byte(tc.data)}
		if err := s.skip(0); err != nil || s.pos != len(tc.data) {
			t.Errorf("%q: skip reads %d bytes, error %v", tc.data, s.pos, err)
		}
		for n := range tc.data {
			d := &decoder{data: []byte(tc.data[:n])}
			if err := d.skip(0); err == nil {
				t.Errorf("%q cut after %d bytes is read without error", tc.data, n)
			}
		}
	}
}

func TestMsgpackErrors(t *testing.T) {
	for _, tc := range []struct{ data, want string }{
		{"", "metadata note at offset 0x100: the value needs 1 bytes where 0 are left"},
		{"\xc1", "type byte 0xc1 is not used in metadata"},
		{"\xc7\x01\x01\x00", "type byte 0xc7 is not used in metadata"},
		{"\xd4\x01\x00", "type byte 0xd4 is not used in metadata"},
		{"\x92\x01\xa5abc", "metadata note at offset 0x102: the value needs 5 bytes where 3 are left"},
		{"\xdd\x00\x00\x01\x00\x01", "an array of 256 items where 1 bytes are left"},
		{"\xde\x00\x02\x01\x02\x03", "a map of 2 items where 3 bytes are left"},
		{strings.Repeat("\x91", 40) + "\xc0", "metadata note at offset 0x120: values nest deeper than 32"},
	} {
		d := &decoder{data: []byte(tc.data), base: 0x100}
		if err := d.skip(0); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: error %v, want %q in it", tc.data, err, tc.want)
		}
	}
}

func FuzzMsgpack(f *testing.F) {
	f.Add(pack(rootOf(goodKernel())))
	f.Add(pack(pairs{{"a", []any{nil, true, -5, 1.5, []byte("xy"), uint64(1) << 40}}, {3, pairs{}}}))
	f.Add([]byte("\xdd\xff\xff\xff\xff"))
	f.Add([]byte("\xd9\x03abc"))
	f.Add(bytes.Repeat([]byte{0x91}, 100))
	for _, tc := range tritonObjects[:3] {
		e, err := readELF(readTestFile(f, golden+"/"+tc.file))
		if err != nil {
			f.Fatal(err)
		}
		note, _, err := e.metadataNote()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(note)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, s := &decoder{data: data}, &decoder{data: data}
		v, err := tree(d, 0)
		skipErr := s.skip(0)
		if (err == nil) != (skipErr == nil) {
			t.Fatalf("read whole: error %v; skipped: error %v", err, skipErr)
		}
		m, metaErr := decodeMetadata(data, 0)
		if metaErr == nil && (err != nil || m == nil) {
			t.Fatalf("metadata is read, the value is not: %v", err)
		}
		if err != nil {
			return
		}
		if d.pos != s.pos || d.pos > len(data) {
			t.Fatalf("read whole: %d bytes; skipped: %d bytes", d.pos, s.pos)
		}
		// Written and read again, a value is the same (%#v: NaN too).
		again, err := tree(&decoder{data: pack(v)}, 0)
		if a, b := fmt.Sprintf("%#v", v), fmt.Sprintf("%#v", again); err != nil || a != b {
			t.Errorf("%s becomes %s, error %v", a, b, err)
		}
	})
}
