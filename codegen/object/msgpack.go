package object

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// maxDepth bounds how deep values nest; the metadata note needs 5.
const maxDepth = 32

// decoder reads MessagePack value by value. It builds no tree: what is not
// asked for is skipped, so memory is bounded by what the caller keeps.
type decoder struct {
	data []byte
	pos  int
	base uint64 // offset of data[0] in the file, for errors
}

// fieldError is an error at a field of the metadata.
type fieldError struct {
	path   string // amdhsa.kernels[0].args[2].size
	offset uint64
	what   string
}

func (e *fieldError) Error() string {
	path := e.path
	if path == "" {
		path = "note"
	}
	return fmt.Sprintf("metadata %s at offset 0x%x: %s", path, e.offset, e.what)
}

// within puts a step before the path of an error.
func within(step string, err error) error {
	if e, ok := err.(*fieldError); ok {
		return &fieldError{step + e.path, e.offset, e.what}
	}
	return err
}

// errorAt is an error about the value that begins at data[pos].
func (d *decoder) errorAt(pos int, format string, args ...any) error {
	return &fieldError{offset: d.base + uint64(pos), what: fmt.Sprintf(format, args...)}
}

// kind of a MessagePack value.
type kind uint8

const (
	kindNil kind = iota
	kindBool
	kindUint // an integer of at least 0, however it is encoded
	kindInt  // an integer below 0
	kindFloat
	kindString
	kindBinary
	kindArray
	kindMap
)

func (k kind) String() string {
	return [...]string{"nil", "a boolean", "an unsigned integer", "a negative integer", "a float", "a string", "binary data", "an array", "a map"}[k]
}

// token is a value, or the head of an array or map whose items follow.
type token struct {
	at   int // where it begins
	kind kind
	num  uint64 // integer, two's complement if below 0; bits of a float64; 1 for true; number of items
	body []byte // of a string or of binary data
}

// take returns the next n bytes of the value that begins at data[at].
func (d *decoder) take(at int, n uint64) ([]byte, error) {
	if n > uint64(len(d.data)-d.pos) {
		return nil, d.errorAt(at, "the value needs %d bytes where %d are left", n, len(d.data)-d.pos)
	}
	b := d.data[d.pos : d.pos+int(n)]
	d.pos += int(n)
	return b, nil
}

// unsigned reads a big-endian integer of n bytes.
func (d *decoder) unsigned(at, n int) (uint64, error) {
	b, err := d.take(at, uint64(n))
	var x uint64
	for _, c := range b {
		x = x<<8 | uint64(c)
	}
	return x, err
}

// sized are the types whose head is a byte and a length of 1, 2 or 4 bytes.
var sized = map[byte]struct {
	kind   kind
	length int
}{
	0xc4: {kindBinary, 1}, 0xc5: {kindBinary, 2}, 0xc6: {kindBinary, 4},
	0xd9: {kindString, 1}, 0xda: {kindString, 2}, 0xdb: {kindString, 4},
	0xdc: {kindArray, 2}, 0xdd: {kindArray, 4},
	0xde: {kindMap, 2}, 0xdf: {kindMap, 4},
}

// next reads a token.
func (d *decoder) next() (token, error) {
	t := token{at: d.pos}
	head, err := d.take(t.at, 1)
	if err != nil {
		return t, err
	}
	c := head[0]
	switch {
	case c < 0x80:
		t.kind, t.num = kindUint, uint64(c)
		return t, nil
	case c < 0x90:
		return d.items(t, kindMap, uint64(c&15))
	case c < 0xa0:
		return d.items(t, kindArray, uint64(c&15))
	case c < 0xc0:
		return d.bytes(t, kindString, uint64(c&31))
	case c >= 0xe0:
		t.kind, t.num = kindInt, uint64(int64(int8(c)))
		return t, nil
	case c == 0xc0:
		return t, nil
	case c == 0xc2, c == 0xc3:
		t.kind, t.num = kindBool, uint64(c&1)
		return t, nil
	case c == 0xca:
		t.kind = kindFloat
		bits, err := d.unsigned(t.at, 4)
		t.num = math.Float64bits(float64(math.Float32frombits(uint32(bits))))
		return t, err
	case c == 0xcb:
		t.kind = kindFloat
		t.num, err = d.unsigned(t.at, 8)
		return t, err
	case c >= 0xcc && c <= 0xcf:
		t.kind = kindUint
		t.num, err = d.unsigned(t.at, 1<<(c-0xcc))
		return t, err
	case c >= 0xd0 && c <= 0xd3:
		n := 1 << (c - 0xd0)
		t.num, err = d.unsigned(t.at, n)
		shift := 64 - 8*n
		t.num = uint64(int64(t.num<<shift) >> shift)
		t.kind = kindUint
		if int64(t.num) < 0 {
			t.kind = kindInt
		}
		return t, err
	}
	s, ok := sized[c]
	if !ok {
		return t, d.errorAt(t.at, "type byte 0x%02x is not used in metadata", c)
	}
	n, err := d.unsigned(t.at, s.length)
	if err != nil {
		return t, err
	}
	if s.kind == kindArray || s.kind == kindMap {
		return d.items(t, s.kind, n)
	}
	return d.bytes(t, s.kind, n)
}

// items makes the head of an array or map. Each item takes a byte at least, so
// a number of items that cannot be there is found before anything is done with
// it.
func (d *decoder) items(t token, k kind, n uint64) (token, error) {
	t.kind, t.num = k, n
	need := n
	if k == kindMap {
		need = 2 * n
	}
	if left := uint64(len(d.data) - d.pos); need > left {
		return t, d.errorAt(t.at, "%v of %d items where %d bytes are left", k, n, left)
	}
	return t, nil
}

func (d *decoder) bytes(t token, k kind, n uint64) (token, error) {
	t.kind = k
	var err error
	t.body, err = d.take(t.at, n)
	return t, err
}

// skip reads a value and everything in it.
func (d *decoder) skip(depth int) error {
	t, err := d.next()
	if err != nil {
		return err
	}
	n := t.num
	switch t.kind {
	case kindMap:
		n *= 2
	case kindArray:
	default:
		return nil
	}
	if depth >= maxDepth {
		return d.errorAt(t.at, "values nest deeper than %d", maxDepth)
	}
	for ; n > 0; n-- {
		if err := d.skip(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

// want reads a token of a kind.
func (d *decoder) want(k kind) (token, error) {
	t, err := d.next()
	if err == nil && t.kind != k {
		err = d.errorAt(t.at, "is %v, want %v", t.kind, k)
	}
	return t, err
}

// str reads a string, which MessagePack wants in UTF-8.
func (d *decoder) str() (string, error) {
	t, err := d.want(kindString)
	if err == nil && !utf8.Valid(t.body) {
		err = d.errorAt(t.at, "the string %q is not UTF-8", t.body)
	}
	return string(t.body), err
}

// count reads an integer of 0 to 2^31-1: sizes and counts of a kernel.
func (d *decoder) count() (int, error) {
	t, err := d.want(kindUint)
	if err == nil && t.num > math.MaxInt32 {
		err = d.errorAt(t.at, "%d is more than %d", t.num, math.MaxInt32)
	}
	return int(t.num), err
}

// boolean reads false or true.
func (d *decoder) boolean() (bool, error) {
	t, err := d.want(kindBool)
	return t.num == 1, err
}

// array calls item for each item.
func (d *decoder) array(item func(i int) error) error {
	t, err := d.want(kindArray)
	if err != nil {
		return err
	}
	for i := range int(t.num) {
		if err := item(i); err != nil {
			return within(fmt.Sprintf("[%d]", i), err)
		}
	}
	return nil
}

// field is one row of a table of map keys.
type field[T any] struct {
	key      string
	required bool
	read     func(d *decoder, into *T) error
}

// readMap reads a map of string keys by a table of at most 64 fields. A field
// without read is known, and of no use here. Keys that are not in the table are
// skipped after a call of unknown.
func readMap[T any](d *decoder, fields []field[T], into *T, unknown func(key string)) error {
	t, err := d.want(kindMap)
	if err != nil {
		return err
	}
	var seen uint64
	for range t.num {
		at := d.pos
		key, err := d.str()
		if err != nil {
			return within("(key)", err)
		}
		i := 0
		for i < len(fields) && fields[i].key != key {
			i++
		}
		if i == len(fields) {
			unknown(key)
			if err := d.skip(0); err != nil {
				return within(key, err)
			}
			continue
		}
		if seen>>i&1 == 1 {
			return within(key, d.errorAt(at, "is there twice"))
		}
		seen |= 1 << i
		if read := fields[i].read; read != nil {
			err = read(d, into)
		} else {
			err = d.skip(0)
		}
		if err != nil {
			return within(key, err)
		}
	}
	for i, f := range fields {
		if f.required && seen>>i&1 == 0 {
			return within(f.key, d.errorAt(t.at, "is missing from the map"))
		}
	}
	return nil
}
