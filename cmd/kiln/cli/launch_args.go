package cli

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/ir/num"
	"github.com/kiln-project/kiln/runtime/emu"
	"github.com/kiln-project/kiln/runtime/weights"
)

// launchArgs are the arguments that a launch is given.
type launchArgs struct {
	list  []launchArg
	nulls []int // positions of pointers that are not given
}

// launchArg is one of them: a tensor that a pointer points to, or a value.
type launchArg struct {
	name, text string // as written
	tensor     *weights.Tensor
	value      []byte // little endian
}

func (a launchArg) errorf(format string, args ...any) error {
	return usagef("kiln launch --help", "--arg %s: %s", a.text, fmt.Sprintf(format, args...))
}

// parseLaunchArgs reads NAME=WHAT of each --arg.
func parseLaunchArgs(texts []string) (*launchArgs, error) {
	list := &launchArgs{}
	seen := map[string]bool{}
	for _, text := range texts {
		name, what, ok := strings.Cut(text, "=")
		a := launchArg{name: name, text: text}
		switch {
		case !ok || name == "":
			return nil, a.errorf("want NAME=F.safetensors:TENSOR, NAME=zeros:TYPE[SHAPE] or NAME=TYPE:NUMBER")
		case seen[name]:
			return nil, a.errorf("the name %s stands twice", name)
		}
		seen[name] = true
		if err := a.parse(what); err != nil {
			return nil, err
		}
		list.list = append(list.list, a)
	}
	return list, nil
}

func (a *launchArg) parse(what string) error {
	kind, rest, _ := strings.Cut(what, ":")
	if kind == "zeros" {
		return a.zeros(rest)
	}
	if s, ok := scalars[kind]; ok {
		v, err := s.parse(rest, s.bits)
		if err != nil {
			return a.errorf("%q is no %s: %v", rest, kind, err)
		}
		a.value = binary.LittleEndian.AppendUint64(nil, v)[:s.bits/8]
		return nil
	}
	path, tensor, ok := strings.Cut(what, ".safetensors:")
	if !ok || tensor == "" {
		return a.errorf("%q is neither F.safetensors:TENSOR, zeros:TYPE[SHAPE] nor TYPE:NUMBER", what)
	}
	return a.read(path+".safetensors", tensor)
}

// read copies a tensor of a file.
func (a *launchArg) read(path, name string) error {
	file, err := weights.Open(path)
	if err != nil {
		return fmt.Errorf("--arg %s: %w", a.text, err)
	}
	defer file.Close()
	t, err := file.Lookup(name)
	if err != nil {
		return fmt.Errorf("--arg %s: %w", a.text, err)
	}
	a.tensor = &weights.Tensor{Name: a.name, DType: t.DType, Shape: slices.Clone(t.Shape), Data: apart(len(t.Data))}
	copy(a.tensor.Data, t.Data)
	return nil
}

// maxZeros bounds a tensor of zeros: more is taken for a mistake.
const maxZeros = 1 << 40

// zeros reads TYPE[N,N].
func (a *launchArg) zeros(text string) error {
	dtype, shape, ok := strings.Cut(text, "[")
	inner, closed := strings.CutSuffix(shape, "]")
	if !ok || !closed {
		return a.errorf("%q is not of the form F32[70,80]", text)
	}
	d, err := weights.ParseDType(strings.ToUpper(dtype))
	if err != nil {
		return a.errorf("%v", err)
	}
	t := &weights.Tensor{Name: a.name, DType: d}
	size := uint64(d.Size())
	if inner != "" { // a shape of no extents is one element
		for part := range strings.SplitSeq(inner, ",") {
			n, err := strconv.ParseUint(part, 10, 62)
			if err != nil || n < 1 {
				return a.errorf("%q of the shape is no number from 1", part)
			}
			hi, lo := bits.Mul64(size, n)
			if hi != 0 || lo > maxZeros {
				return a.errorf("more than %d bytes", uint64(maxZeros))
			}
			size, t.Shape = lo, append(t.Shape, int(n))
		}
	}
	t.Data = apart(int(size))
	a.tensor = t
	return nil
}

// scalars are the types of values.
var scalars = map[string]struct {
	bits  int
	parse func(text string, bits int) (uint64, error)
}{
	"i8": {8, parseSigned}, "i16": {16, parseSigned}, "i32": {32, parseSigned}, "i64": {64, parseSigned},
	"u8": {8, parseUnsigned}, "u16": {16, parseUnsigned}, "u32": {32, parseUnsigned}, "u64": {64, parseUnsigned},
	"f16":  {16, rounded(func(x float64) uint64 { return uint64(num.F16Bits(num.RoundF16F64(x))) })},
	"bf16": {16, rounded(func(x float64) uint64 { return uint64(num.BF16Bits(num.RoundBF16F64(x))) })},
	"f32":  {32, rounded(func(x float64) uint64 { return uint64(math.Float32bits(float32(x))) })},
	"f64":  {64, rounded(math.Float64bits)},
}

func parseSigned(text string, bits int) (uint64, error) {
	n, err := strconv.ParseInt(text, 0, bits)
	return uint64(n), cause(err)
}

func parseUnsigned(text string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(text, 0, bits)
	return n, cause(err)
}

// rounded reads a number and rounds it to the type, to nearest even.
func rounded(encode func(float64) uint64) func(text string, bits int) (uint64, error) {
	return func(text string, bits int) (uint64, error) {
		if bits != 32 { // f32 is read as such: by way of f64 it would be rounded twice
			bits = 64
		}
		x, err := strconv.ParseFloat(text, bits)
		return encode(x), cause(err)
	}
}

// cause is an error of strconv without the name of its function.
func cause(err error) error {
	if n, ok := err.(*strconv.NumError); ok {
		return n.Err
	}
	return err
}

// bind checks the arguments against those of the kernel, maps the tensors into the
// launch's memory, and builds the argument segment.
func (l *launchArgs) bind(k *emu.Kernel, launch *emu.Launch) error {
	var want []object.Arg
	for _, a := range k.Meta.Args {
		if !a.Hidden() {
			want = append(want, a)
		}
	}
	var given []emu.Argument
	for i, a := range l.list {
		if i >= len(want) {
			return a.errorf("argument %d, kernel %s has %d", i+1, k.Meta.Name, len(want))
		}
		data, err := a.bytes(i, want[i], launch.Memory)
		if err != nil {
			return err
		}
		given = append(given, emu.Argument{Data: data})
	}
	for i := len(l.list); i < len(want); i++ {
		if want[i].ValueKind != pointerKind {
			return usagef("kiln launch --help", "argument %d of kernel %s has no --arg: a %s of %d bytes", i+1, k.Meta.Name, want[i].ValueKind, want[i].Size)
		}
		l.nulls = append(l.nulls, i)
		given = append(given, emu.Argument{Data: make([]byte, want[i].Size)})
	}
	segment, err := k.Segment(*launch, given...)
	if err != nil {
		return refuse(err, "")
	}
	launch.Kernarg = segment
	return nil
}

// pointerKind is how metadata calls a pointer to memory.
const pointerKind = "global_buffer"

// bytes is the argument as kernel argument number i takes it.
func (a *launchArg) bytes(i int, want object.Arg, memory *emu.Space) ([]byte, error) {
	switch isPointer := want.ValueKind == pointerKind; {
	case isPointer && a.tensor == nil:
		return nil, a.errorf("argument %d is a pointer, want a tensor", i+1)
	case !isPointer && want.ValueKind != "by_value":
		return nil, refuse(fmt.Errorf("--arg %s: argument %d is of kind %s, which is not supported", a.text, i+1, want.ValueKind), "")
	case !isPointer && a.tensor != nil:
		return nil, a.errorf("argument %d is a value of %d bytes, not a pointer", i+1, want.Size)
	case !isPointer && len(a.value) != want.Size:
		return nil, a.errorf("argument %d has %d bytes, not %d", i+1, want.Size, len(a.value))
	case !isPointer:
		return a.value, nil
	}
	if err := memory.Map(a.tensor.Data, a.name); err != nil {
		return nil, fmt.Errorf("--arg %s: %w", a.text, err)
	}
	return binary.LittleEndian.AppendUint64(nil, emu.Address(a.tensor.Data)), nil
}

// undefined adds to the error of a launch that ran to its end what is undefined of the
// tensors.
func (l *launchArgs) undefined(shadow *emu.Shadow, err error) error {
	found := (*emu.SanitizerError)(nil)
	if err != nil && !errors.As(err, &found) {
		return err
	}
	var reports []emu.Report
	for _, a := range l.list {
		if a.tensor == nil {
			continue
		}
		b := a.tensor.Data
		if r, bad := shadow.Result(b, b, fmt.Sprintf("%s (%d bytes)", a.name, len(b))); bad {
			reports = append(reports, r)
		}
	}
	switch {
	case len(reports) == 0:
		return err
	case found == nil:
		return &emu.SanitizerError{Reports: reports}
	}
	found.Reports = append(found.Reports, reports...)
	return err
}

// alignment is that of what a GPU's allocator returns.
const alignment = 256

// apart makes memory for a tensor, aligned and with unused bytes on both sides, so
// that what reads or writes beyond one tensor does not reach another.
func apart(size int) []byte {
	b := make([]byte, size+3*alignment)
	at := 2*alignment - int(emu.Address(b)%alignment)
	return b[at : at+size : at+size]
}

// buffers are the memory that the launch may touch.
func (l *launchArgs) buffers() []emu.Buffer {
	list := []emu.Buffer{}
	for _, a := range l.list {
		if a.tensor != nil {
			list = append(list, emu.Buffer{Address: emu.Address(a.tensor.Data), Bytes: uint64(len(a.tensor.Data)), Mode: emu.ModeRead | emu.ModeWrite, Label: a.name})
		}
	}
	return list
}

// tensors are what the pointers point to.
func (l *launchArgs) tensors() []weights.Tensor {
	var list []weights.Tensor
	for _, a := range l.list {
		if a.tensor != nil {
			list = append(list, *a.tensor)
		}
	}
	return list
}
