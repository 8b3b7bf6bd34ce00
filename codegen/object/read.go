package object

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// ErrUnsupported marks a file that is understood as far as its kind, and not
// supported: another code object version, a compressed bundle, another machine.
// A damaged file's error does not wrap it.
var ErrUnsupported = errors.New("not supported")

// Kind is what a file is.
type Kind string

// The kinds of files.
const (
	KindAMDGPU Kind = "amdgpu" // one AMDGPU code object
	KindHost   Kind = "host"   // an x86-64 shared object
	KindBundle Kind = "bundle" // a clang offload bundle
	KindPTX    Kind = "ptx"    // PTX text
)

// File is a file that Read has understood.
type File struct {
	Kind    Kind
	Object  *CodeObject // KindAMDGPU only
	Host    *HostObject // KindHost only
	Entries []Entry     // KindBundle only: every entry, in the order of the file
	PTX     *PTX        // KindPTX only

	// Problems says what is inconsistent, in the bundle or in any code object.
	// They do not prevent reading; whoever runs the code decides.
	Problems []string
}

// Read reads an AMDGPU ELF file, a clang offload bundle, an x86-64 shared object or
// PTX text. The result refers to data, which must not change afterwards.
func Read(data []byte) (*File, error) {
	switch {
	case bytes.HasPrefix(data, []byte(bundleMagic)):
		return readBundle(data)
	case bytes.HasPrefix(data, []byte(compressedMagic)):
		return nil, fmt.Errorf("compressed offload bundle (magic %s): %w; decompress it with clang-offload-bundler --unbundle", compressedMagic, ErrUnsupported)
	case bytes.HasPrefix(data, []byte(elfMagic)):
	case IsPTX(data):
		p, err := ReadPTX(data)
		if err != nil {
			return nil, err
		}
		return &File{Kind: KindPTX, PTX: p}, nil
	default:
		return nil, fmt.Errorf("magic at offset 0x0 is %q: neither an ELF file nor an offload bundle", data[:min(4, len(data))])
	}
	e, err := readELF(data)
	if err != nil {
		return nil, err
	}
	switch e.machine {
	case emAMDGPU:
		o, err := readCodeObject(e)
		if err != nil {
			return nil, err
		}
		return &File{Kind: KindAMDGPU, Object: o, Problems: o.Problems}, nil
	case emX86_64:
		h, err := readHost(e)
		if err != nil {
			return nil, err
		}
		return &File{Kind: KindHost, Host: h}, nil
	}
	return nil, fmt.Errorf("elf e_machine at offset 0x12 is %d, want %d (AMDGPU) or %d (x86-64): %w", e.machine, emAMDGPU, emX86_64, ErrUnsupported)
}

// Objects lists the AMDGPU code objects: the file itself, or those of its
// entries that are any.
func (f *File) Objects() []*CodeObject {
	if f.Object != nil {
		return []*CodeObject{f.Object}
	}
	var list []*CodeObject
	for _, e := range f.Entries {
		if e.Object != nil {
			list = append(list, e.Object)
		}
	}
	return list
}

// ForDevice picks the code object that runs on a device, the most specific one
// if there are several. The device's settings are on, off or unsupported.
func (f *File) ForDevice(device TargetID) (*CodeObject, error) {
	var best *CodeObject
	var have []string
	for _, o := range f.Objects() {
		have = append(have, o.Target.Triple())
		if o.Target.RunsOn(device) && (best == nil || o.Target.settled() > best.Target.settled()) {
			best = o
		}
	}
	if best == nil {
		list := "no AMDGPU code object"
		if len(have) > 0 {
			list = strings.Join(have, ", ")
		}
		return nil, fmt.Errorf("no code object for this device: have %s, need %s", list, device.Triple())
	}
	return best, nil
}

// problems collects what is inconsistent. A hostile file can be wrong in as
// many places as it has bytes, so the list is cut.
type problems struct {
	list []string
	more int
}

const maxProblems = 100

func (p *problems) add(format string, args ...any) {
	if len(p.list) >= maxProblems {
		p.more++
		return
	}
	p.list = append(p.list, fmt.Sprintf(format, args...))
}

func (p *problems) all() []string {
	if p.more > 0 {
		return append(p.list, fmt.Sprintf("%d more problems", p.more))
	}
	return p.list
}

// window returns data[off:off+n]. Its error says what lies outside.
func window(data []byte, off, n uint64, what string) ([]byte, error) {
	if off > uint64(len(data)) || n > uint64(len(data))-off {
		return nil, fmt.Errorf("%s: 0x%x bytes at offset 0x%x lie outside the 0x%x bytes that are there", what, n, off, len(data))
	}
	return data[off : off+n : off+n], nil
}

var le = binary.LittleEndian
