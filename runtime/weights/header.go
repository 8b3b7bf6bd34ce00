package weights

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

const (
	// maxHeader bounds the JSON header of a file, and the index of a folder. The
	// format's own implementation has the same bound.
	maxHeader = 100 << 20
	// prefixSize is the header length in front of the header.
	prefixSize = 8
	// metadataKey is the one header key that is not a tensor.
	metadataKey = "__metadata__"
)

// shard is one parsed file.
type shard struct {
	file     string
	tensors  []*Tensor // in the order of their data, with the names of the file
	metadata map[string]string
}

// parse reads the header of a safetensors file held in raw. The tensors' data
// are slices of raw. Every error starts with the file name.
func parse(file string, raw []byte) (*shard, error) {
	s, err := parseHeader(file, raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

func parseHeader(file string, raw []byte) (*shard, error) {
	if len(raw) < prefixSize {
		return nil, fmt.Errorf("file of %d bytes is too short for a header length", len(raw))
	}
	n := binary.LittleEndian.Uint64(raw)
	if n > maxHeader {
		return nil, fmt.Errorf("header length %d is above the limit of %d", n, maxHeader)
	}
	if n > uint64(len(raw)-prefixSize) {
		return nil, fmt.Errorf("header length %d reaches past the end of the file, %d bytes", n, len(raw))
	}
	header, data := raw[prefixSize:prefixSize+n], raw[prefixSize+n:]
	if n == 0 || header[0] != '{' {
		return nil, errors.New("header does not begin with {")
	}
	r, err := newReader(header)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	s := &shard{file: file}
	var spans []span
	err = r.object(func(key string) error {
		if key == metadataKey {
			s.metadata, err = r.strings()
			if err != nil {
				return fmt.Errorf("%s: %w", metadataKey, err)
			}
			return nil
		}
		sp, err := r.tensor(uint64(len(data)))
		if err != nil {
			return fmt.Errorf("tensor %s: %w", quote(key), err)
		}
		if key == "" {
			return errors.New("a tensor has an empty name")
		}
		sp.t.Name, sp.t.File = key, file
		spans = append(spans, sp)
		return nil
	})
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if err := place(s, spans, data); err != nil {
		return nil, err
	}
	return s, nil
}

// span is a tensor with its offsets into the data section.
type span struct {
	t          *Tensor
	begin, end uint64
}

// tensor consumes the description of one tensor and checks all that can be
// checked without the other tensors.
func (r *reader) tensor(dataSize uint64) (span, error) {
	t := &Tensor{}
	var offsets []int
	err := r.object(func(key string) (err error) {
		switch key {
		case "dtype":
			var name string
			if name, err = r.str(); err == nil {
				t.DType, err = ParseDType(name)
				return err
			}
		case "shape":
			t.Shape, err = r.integers(maxRank)
		case "data_offsets":
			offsets, err = r.integers(2)
			if err == nil && len(offsets) != 2 {
				err = fmt.Errorf("%d numbers, must be 2", len(offsets))
			}
		default:
			return fmt.Errorf("field %s is not known", quote(key))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	switch {
	case err != nil:
		return span{}, err
	case t.DType == 0:
		return span{}, errors.New("field dtype is missing")
	case t.Shape == nil:
		return span{}, errors.New("field shape is missing")
	case offsets == nil:
		return span{}, errors.New("field data_offsets is missing")
	}
	begin, end := uint64(offsets[0]), uint64(offsets[1])
	if begin > end {
		return span{}, fmt.Errorf("data_offsets [%d, %d]: begin is after end", begin, end)
	}
	if end > dataSize {
		return span{}, fmt.Errorf("data_offsets [%d, %d]: end is past the data section, %d bytes", begin, end, dataSize)
	}
	size, err := byteSize(t.DType, t.Shape)
	if err != nil {
		return span{}, err
	}
	if size != end-begin {
		return span{}, fmt.Errorf("data_offsets [%d, %d] span %d bytes, %v of shape %v takes %d",
			begin, end, end-begin, t.DType, t.Shape, size)
	}
	return span{t, begin, end}, nil
}

// place checks that the tensors cover the data section exactly and gives each
// its slice of it.
func place(s *shard, spans []span, data []byte) error {
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.t.Name, b.t.Name))
	})
	var at uint64
	for i, sp := range spans {
		if sp.begin < at {
			return fmt.Errorf("tensor %s at offset %d overlaps tensor %s, which ends at %d",
				quote(sp.t.Name), sp.begin, quote(spans[i-1].t.Name), at)
		}
		if sp.begin > at {
			return fmt.Errorf("tensor %s at offset %d: the %d bytes before it belong to no tensor",
				quote(sp.t.Name), sp.begin, sp.begin-at)
		}
		// The capacity ends with the tensor, so that an append cannot run into the next.
		sp.t.Data = data[sp.begin:sp.end:sp.end]
		s.tensors = append(s.tensors, sp.t)
		at = sp.end
	}
	if at != uint64(len(data)) {
		return fmt.Errorf("offset %d: the last %d bytes of the data section belong to no tensor",
			at, uint64(len(data))-at)
	}
	return nil
}
