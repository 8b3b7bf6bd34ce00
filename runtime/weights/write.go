package weights

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Write writes a safetensors file. The same tensors and metadata give the same
// bytes, whatever their order: header and data are sorted by name, and the
// header is padded with spaces so that the data begin at a multiple of 8.
//
// The file appears under path only when it is complete; until then it has a
// temporary name in the same folder. What Open would refuse is refused here:
// empty or repeated names (after CanonicalName), sizes that do not match.
func Write(path string, tensors []Tensor, metadata map[string]string) error {
	sorted := slices.Clone(tensors)
	slices.SortFunc(sorted, func(a, b Tensor) int { return cmp.Compare(a.Name, b.Name) })
	header, err := encodeHeader(sorted, metadata)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := writeFile(path, header, sorted); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// encodeHeader returns the length prefix and the padded header.
func encodeHeader(tensors []Tensor, metadata map[string]string) ([]byte, error) {
	b := append(make([]byte, prefixSize), '{')
	var err error
	if len(metadata) > 0 {
		if b, err = appendMetadata(b, metadata); err != nil {
			return nil, err
		}
	}
	seen := map[string]string{}
	at := 0
	for i := range tensors {
		t := &tensors[i]
		key := CanonicalName(t.Name)
		if t.Name == "" || t.Name == metadataKey || !utf8.ValidString(t.Name) {
			return nil, fmt.Errorf("%s is not a valid tensor name", quote(t.Name))
		}
		if other, ok := seen[key]; ok {
			return nil, fmt.Errorf("tensors %s and %s have the same canonical name %s", quote(other), quote(t.Name), quote(key))
		}
		seen[key] = t.Name
		if err := t.check(); err != nil {
			return nil, err
		}
		b = appendKey(b, t.Name)
		b = fmt.Appendf(b, `{"dtype":"%v","shape":[`, t.DType)
		for j, dim := range t.Shape {
			if j > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(dim), 10)
		}
		b = fmt.Appendf(b, `],"data_offsets":[%d,%d]}`, at, at+len(t.Data))
		at += len(t.Data)
	}
	b = append(b, '}')
	for len(b)%prefixSize != 0 {
		b = append(b, ' ')
	}
	n := len(b) - prefixSize
	if n > maxHeader {
		return nil, fmt.Errorf("header of %d bytes is above the limit of %d", n, maxHeader)
	}
	binary.LittleEndian.PutUint64(b, uint64(n))
	return b, nil
}

// appendMetadata appends the metadata member of the header.
func appendMetadata(b []byte, metadata map[string]string) ([]byte, error) {
	b = append(appendKey(b, metadataKey), '{')
	for _, k := range slices.Sorted(maps.Keys(metadata)) {
		if !utf8.ValidString(k) || !utf8.ValidString(metadata[k]) {
			return nil, fmt.Errorf("metadata %s is not valid utf-8", quote(k))
		}
		b = appendString(appendKey(b, k), metadata[k])
	}
	return append(b, '}'), nil
}

// appendKey appends a key of the object that b ends in, with the comma before
// it if it is not the first.
func appendKey(b []byte, key string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(appendString(b, key), ':')
}

// appendString appends a JSON string.
func appendString(b []byte, s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil {
		return b // a string always encodes into a buffer
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// writeFile writes header and data to a temporary file and renames it to path.
func writeFile(path string, header []byte, tensors []Tensor) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		if removeErr := os.Remove(f.Name()); removeErr != nil {
			err = fmt.Errorf("%w; %w", err, removeErr)
		}
	}()
	err = fill(f, header, tensors)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// fill writes the content of the file and forces it to the disk, so that the
// rename cannot become durable before it.
func fill(f *os.File, header []byte, tensors []Tensor) error {
	w := bufio.NewWriter(f)
	if _, err := w.Write(header); err != nil {
		return err
	}
	for i := range tensors {
		if _, err := w.Write(tensors[i].Data); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	return f.Sync()
}
