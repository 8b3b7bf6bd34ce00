package bundle

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Archive puts the files into one, a tar without times and owners.
func (f Files) Archive() ([]byte, error) {
	const block = 512
	size := 2 * block // the end
	for _, x := range f {
		size += block + (len(x.Data)+block-1)/block*block
	}
	buf := bytes.NewBuffer(make([]byte, 0, size))
	w := tar.NewWriter(buf)
	for _, x := range f {
		err := w.WriteHeader(&tar.Header{Name: x.Name, Mode: 0o644, Size: int64(len(x.Data))})
		if err == nil {
			_, err = w.Write(x.Data)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", x.Name, err)
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}

// FromArchive reads what Archive wrote. The files share data's memory.
func FromArchive(data []byte) (Files, error) {
	var files Files
	in := bytes.NewReader(data)
	r := tar.NewReader(in)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		at := int64(len(data)) - int64(in.Len())
		if h.Size > int64(in.Len()) {
			return nil, fmt.Errorf("%s: %w", h.Name, io.ErrUnexpectedEOF)
		}
		files = append(files, File{Name: h.Name, Data: data[at : at+h.Size : at+h.Size]})
	}
}
