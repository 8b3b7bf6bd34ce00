package object

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Line is an instruction as llvm-objdump prints it.
type Line struct {
	Offset uint64   // from the kernel's first byte
	Text   string   // mnemonic, operands, modifiers
	Words  []uint32 // encoding
}

// Undecodable tells whether the bytes are no instruction of the chip.
func (l Line) Undecodable() bool { return strings.HasPrefix(l.Text, ".") }

// MFMA tells whether the instruction is a matrix one, dense or sparse.
func (l Line) MFMA() bool {
	return strings.HasPrefix(l.Text, "v_mfma") || strings.HasPrefix(l.Text, "v_smfmac")
}

// CountMFMA counts the matrix instructions of a kernel.
func CountMFMA(lines []Line) int {
	n := 0
	for _, l := range lines {
		if l.MFMA() {
			n++
		}
	}
	return n
}

// Undecodable lists what of a kernel's code is no instruction of the chip, as
// problems that name kernel and offset. LLVM has been seen to encode an
// instruction that its target does not have.
func Undecodable(kernel string, lines []Line) []string {
	var p problems
	for _, l := range lines {
		if l.Undecodable() {
			p.add("kernel %s: no instruction at +0x%x: %s", kernel, l.Offset, l.Text)
		}
	}
	return p.all()
}

// instruction matches a line of llvm-objdump -d for AMDGPU:
//
//	s_branch 56        // 00000000161C: BF820038 <k_add+0x100>
var instruction = regexp.MustCompile(`^\s+(\S.*?)\s*// ([0-9A-F]{12,16}): ([0-9A-F]{8}(?: [0-9A-F]{8})*)\s*(?:<.*>)?$`)

// Disassemble runs llvm-objdump on a code object and returns the instructions
// of each kernel, without the s_nop that pad the code after the last s_endpgm.
// cpu is the processor to decode for, "" for the object's own. The program must
// know it: an LLVM that does not is an error, as is anything it writes to
// standard error and every line that is not understood.
func Disassemble(ctx context.Context, objdump string, data []byte, cpu string) (map[string][]Line, error) {
	return disassemble(ctx, objdump, data, cpu, func(*CodeObject) {})
}

// DisassembleFunctions does the same for the functions that are no kernel. The lists
// are in the order of CodeObject.Functions; offsets count from the function.
func DisassembleFunctions(ctx context.Context, objdump string, data []byte, cpu string) ([][]Line, error) {
	n := 0
	found, err := disassemble(ctx, objdump, data, cpu, func(o *CodeObject) {
		n = len(o.Functions)
		o.Kernels = make([]Kernel, n)
		for i, f := range o.Functions {
			// Names may be there twice: numbers are not.
			o.Kernels[i] = Kernel{Name: strconv.Itoa(i), Section: f.Section, Address: f.Address, Code: f.Code}
		}
	})
	list := make([][]Line, n)
	for i := range list {
		list[i] = found[strconv.Itoa(i)]
	}
	return list, err
}

// disassemble lists the kernels of the code object as pick leaves it.
func disassemble(ctx context.Context, objdump string, data []byte, cpu string, pick func(*CodeObject)) (map[string][]Line, error) {
	f, err := Read(data)
	if err != nil {
		return nil, err
	}
	if f.Kind != KindAMDGPU {
		return nil, fmt.Errorf("disassembly of a file of kind %s: %w", f.Kind, ErrUnsupported)
	}
	if cpu == "" {
		cpu = f.Object.Target.Chip
	}
	pick(f.Object)
	// -z: zeros are instructions too, and must not be abbreviated.
	cmd := exec.CommandContext(ctx, objdump, "-d", "-z", "--mcpu="+cpu, "-")
	cmd.Stdin = bytes.NewReader(data)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("disassembler: %w", err)
	}
	found, parseErr := parseListing(stdout, f.Object)
	_, _ = io.Copy(io.Discard, stdout) // so that the program can end
	err = cmd.Wait()
	complaint, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("disassembler %s: %w", objdump, ctx.Err())
	case err != nil && complaint != "":
		return nil, fmt.Errorf("disassembler %s: %w: %s", objdump, err, complaint)
	case err != nil:
		return nil, fmt.Errorf("disassembler %s: %w", objdump, err)
	case complaint != "":
		return nil, fmt.Errorf("disassembler %s: %s", objdump, complaint)
	case parseErr != nil:
		return nil, fmt.Errorf("disassembler %s: %w", objdump, parseErr)
	}
	return found, nil
}

// parseListing sorts the lines of a listing into kernels. They must cover each
// kernel's code exactly.
func parseListing(r io.Reader, o *CodeObject) (map[string][]Line, error) {
	bySection := map[string][]*Kernel{}
	for i := range o.Kernels {
		if k := &o.Kernels[i]; k.Code != nil {
			bySection[k.Section] = append(bySection[k.Section], k)
		}
	}
	for _, section := range slices.Sorted(maps.Keys(bySection)) {
		list := bySection[section]
		slices.SortFunc(list, func(a, b *Kernel) int { return cmp.Compare(a.Address, b.Address) })
		for i := 1; i < len(list); i++ {
			if a, b := list[i-1], list[i]; a.Address+uint64(len(a.Code)) > b.Address {
				return nil, fmt.Errorf("the code of the kernels %s and %s overlaps", a.Name, b.Name)
			}
		}
	}
	found := map[string][]Line{}
	var here []*Kernel
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		line := in.Text()
		if name, ok := strings.CutPrefix(line, "Disassembly of section "); ok {
			here = bySection[strings.TrimSuffix(name, ":")]
			continue
		}
		if len(here) == 0 || line == "" || strings.HasSuffix(line, ">:") {
			continue // not the code of a kernel, or a label
		}
		m := instruction.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("line %d of the listing is not understood: %q", n, line)
		}
		address, err := strconv.ParseUint(m[2], 16, 64)
		if err != nil {
			return nil, err // no more than 16 digits match
		}
		// The kernel that begins last before the address, if it reaches there.
		i, exact := slices.BinarySearchFunc(here, address, func(k *Kernel, at uint64) int { return cmp.Compare(k.Address, at) })
		if !exact {
			i--
		}
		if i < 0 || address-here[i].Address >= uint64(len(here[i].Code)) {
			continue
		}
		k := here[i]
		l := Line{Offset: address - k.Address, Text: m[1]}
		for _, word := range strings.Fields(m[3]) {
			w, err := strconv.ParseUint(word, 16, 32)
			if err != nil {
				return nil, err // 8 digits match
			}
			l.Words = append(l.Words, uint32(w))
		}
		found[k.Name] = append(found[k.Name], l)
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	for i := range o.Kernels {
		k := &o.Kernels[i]
		if k.Code == nil {
			continue
		}
		lines := found[k.Name]
		if err := k.covered(lines); err != nil {
			return nil, err
		}
		found[k.Name] = trim(lines)
	}
	return found, nil
}

// covered checks that lines are the kernel's code, byte for byte.
func (k *Kernel) covered(lines []Line) error {
	next := uint64(0)
	for _, l := range lines {
		if l.Offset != next {
			return fmt.Errorf("kernel %s: the listing goes on at +0x%x instead of +0x%x", k.Name, l.Offset, next)
		}
		for _, w := range l.Words {
			if next+4 > uint64(len(k.Code)) || le.Uint32(k.Code[next:]) != w {
				return fmt.Errorf("kernel %s: the listing has 0x%08x at +0x%x, which is not the code there", k.Name, w, next)
			}
			next += 4
		}
	}
	if next != uint64(len(k.Code)) {
		return fmt.Errorf("kernel %s: the listing has 0x%x of 0x%x bytes", k.Name, next, len(k.Code))
	}
	return nil
}

// trim cuts the padding after the last s_endpgm.
func trim(lines []Line) []Line {
	end := len(lines)
	for end > 0 && (strings.HasPrefix(lines[end-1].Text, "s_nop ") || lines[end-1].Text == "s_code_end") {
		end--
	}
	if end > 0 && lines[end-1].Text == "s_endpgm" {
		return lines[:end]
	}
	return lines
}
