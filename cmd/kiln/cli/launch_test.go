package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/runtime/emu"
	"github.com/kiln-project/kiln/runtime/weights"
)

const foreign = "../../../testdata/golden/triton/" // another compiler's code objects, with inputs and outputs

// foreignLaunch is the command line of a kernel of another compiler. %s is the chip.
var foreignLaunch = map[string][]string{
	"add": {"--hsaco", foreign + "add.%s.hsaco", "--kernel", "k_add", "--grid", "5,1,1", "--block", "256,1,1",
		"--arg", "x=" + foreign + "io.safetensors:add.x", "--arg", "y=" + foreign + "io.safetensors:add.y", "--arg", "o=zeros:F32[5000]", "--arg", "n=i32:5000"},
	"rmsnorm": {"--hsaco", foreign + "rmsnorm.%s.hsaco", "--kernel", "k_rmsnorm", "--grid", "5,1,1", "--block", "256,1,1", "--shared", "16",
		"--arg", "x=" + foreign + "io.safetensors:rmsnorm.x", "--arg", "w=" + foreign + "io.safetensors:rmsnorm.w", "--arg", "o=zeros:BF16[5,1500]", "--arg", "n=i32:1500", "--arg", "eps=f32:1e-6"},
	"matmul_bf16": {"--hsaco", foreign + "matmul_bf16.%s.hsaco", "--kernel", "k_matmul", "--grid", "3,3,1", "--block", "256,1,1", "--shared", "4096",
		"--arg", "a=" + foreign + "io.safetensors:matmul_bf16.a", "--arg", "b=" + foreign + "io.safetensors:matmul_bf16.b", "--arg", "c=zeros:F32[70,80]",
		"--arg", "M=i32:70", "--arg", "N=i32:80", "--arg", "K=i32:96"},
}

// launchLine is a whole command line; changes are pairs: a flag, or the name of an
// argument and "=", and its new value, or "" to leave it out.
func launchLine(chip, kernel, out string, changes ...string) []string {
	line := []string{"launch", "--device", "emu:" + chip}
	for _, word := range foreignLaunch[kernel] {
		line = append(line, strings.ReplaceAll(word, "%s", chip))
	}
	line = append(line, "--out", out)
	for i := 0; i < len(changes); i += 2 {
		key, value := changes[i], changes[i+1]
		at := slices.IndexFunc(line, func(s string) bool { return s == key || strings.HasSuffix(key, "=") && strings.HasPrefix(s, key) })
		if strings.HasSuffix(key, "=") {
			at-- // --arg
		}
		switch {
		case at < 0 && !strings.HasSuffix(key, "="):
			line = append(line, key, value)
		case value == "":
			line = slices.Delete(line, at, at+2)
		default:
			line[at+1] = value
		}
	}
	return line
}

// Outputs are those that the other compiler's kernels must have, bit by bit; with all
// sanitizers on, which find nothing.
func TestLaunchForeignObjects(t *testing.T) {
	needLLVM(t)
	want, err := weights.Open(foreign + "io.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	for kernel, pointers := range map[string][]string{"add": {"o", "x", "y"}, "rmsnorm": {"o", "w", "x"}, "matmul_bf16": {"a", "b", "c"}} {
		for _, chip := range []string{"gfx942", "gfx950"} {
			for _, extra := range [][]string{nil, {"--sanitize", "all", "--device", "emu:" + chip + ":xnack+"}} {
				dir := t.TempDir()
				out := filepath.Join(dir, "out.safetensors")
				r := kiln(t, launchLine(chip, kernel, out, append(extra, "--cache-dir", filepath.Join(dir, "cache"))...)...).ok(t)
				file, err := weights.Open(out)
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
				if diff := cmp.Diff(pointers, slices.Sorted(slices.Values(file.Names()))); diff != "" {
					t.Errorf("%s: names of --out differ (-want +got):\n%s", kernel, diff)
				}
				for _, name := range pointers {
					got, err := file.Lookup(name)
					if err != nil {
						t.Fatal(err)
					}
					w, err := want.Lookup(kernel + "." + name)
					if err != nil {
						t.Fatal(err)
					}
					if got.DType != w.DType || !slices.Equal(got.Shape, w.Shape) || !bytes.Equal(got.Data, w.Data) {
						t.Errorf("%s %s: %s is not what it must be", chip, kernel, name)
					}
				}
				if n := strings.Count(r.stderr, "is not given: a null pointer"); n != 2 {
					t.Errorf("%s: standard error %q, want two null pointers", kernel, r.stderr)
				}
			}
		}
	}
}

func TestLaunchErrors(t *testing.T) {
	needLLVM(t)
	dir := t.TempDir()
	cache := filepath.Join(dir, "cache")
	out := filepath.Join(dir, "out.safetensors")
	io := foreign + "io.safetensors"
	for _, tc := range []struct {
		name    string
		changes []string
		code    int
		parts   []string
	}{
		{"a device that is not emulated", []string{"--device", "host"}, exitRefused, []string{"--device host: kernels are launched on emulated devices only"}},
		{"an unknown chip", []string{"--device", "emu:gfx90a"}, exitRefused, []string{"unknown chip gfx90a"}},
		{"no chip", []string{"--device", "emu:"}, exitUsage, []string{"--device"}},
		{"a feature that is not known", []string{"--device", "emu:gfx942:foo+"}, exitUsage, []string{"foo"}},
		{"a setting that no chip has", []string{"--device", "emu:gfx942:sramecc-"}, exitRefused, []string{"always has SRAM ECC"}},
		{"code of another chip", []string{"--device", "emu:gfx950"}, exitRefused, []string{"add.gfx942.hsaco: no code object for this device", "gfx942", "need amdgcn-amd-amdhsa--gfx950:sramecc+:xnack-", "try: --device emu:gfx942"}},
		{"no file", []string{"--hsaco", filepath.Join(dir, "none.hsaco")}, exitFailed, []string{"none.hsaco"}},
		{"no code object", []string{"--hsaco", io}, exitFailed, []string{"io.safetensors: magic"}},
		{"no such kernel", []string{"--kernel", "k_sub"}, exitUsage, []string{"--kernel", "k_sub", "try: kiln inspect"}},
		{"a grid of two numbers", []string{"--grid", "5,1"}, exitUsage, []string{`--grid is "5,1", want three numbers X,Y,Z`}},
		{"a grid of nothing", []string{"--grid", "5,0,1"}, exitUsage, []string{`"0" is no number from 1`}},
		{"a block of words", []string{"--block", "256,one,1"}, exitUsage, []string{`"one" is no number from 1`}},
		{"a block that is too large", []string{"--block", "1024,1,1"}, exitUsage, []string{"a block of [1024 1 1] has more work-items than the 256 that the kernel takes"}},
		{"too much LDS", []string{"--shared", "65537"}, exitUsage, []string{"65537 bytes of LDS, a work-group can have 65536"}},
		{"negative LDS", []string{"--shared", "-1"}, exitUsage, []string{"--shared is -1"}},

		{"no argument", []string{"x=", "x"}, exitUsage, []string{"--arg x: want NAME="}},
		{"no name", []string{"x=", "=i32:1"}, exitUsage, []string{"--arg =i32:1: want NAME="}},
		{"a name twice", []string{"y=", "x=zeros:F32[5000]"}, exitUsage, []string{"the name x stands twice"}},
		{"neither tensor nor value", []string{"n=", "n=5000"}, exitUsage, []string{`--arg n=5000: "5000" is neither`}},
		{"an unknown type of value", []string{"n=", "n=i33:5000"}, exitUsage, []string{`"i33:5000" is neither`}},
		{"a value that is none", []string{"n=", "n=i32:many"}, exitUsage, []string{`"many" is no i32: invalid syntax`}},
		{"a value that is too large", []string{"n=", "n=i32:2147483648"}, exitUsage, []string{`"2147483648" is no i32: value out of range`}},
		{"a value of another size", []string{"n=", "n=i64:5000"}, exitUsage, []string{"--arg n=i64:5000: argument 4 has 4 bytes, not 8"}},
		{"a tensor for a value", []string{"n=", "n=zeros:I32[1]"}, exitUsage, []string{"argument 4 is a value of 4 bytes, not a pointer"}},
		{"a value for a pointer", []string{"y=", "y=i64:0"}, exitUsage, []string{"argument 2 is a pointer, want a tensor"}},
		{"too few arguments", []string{"n=", ""}, exitUsage, []string{"argument 4 of kernel k_add has no --arg: a by_value of 4 bytes"}},
		{"no file of a tensor", []string{"x=", "x=" + filepath.Join(dir, "none.safetensors") + ":t"}, exitFailed, []string{"--arg x=", "none.safetensors"}},
		{"no such tensor", []string{"x=", "x=" + io + ":add.z"}, exitFailed, []string{"--arg x=", "add.z"}},
		{"no name of a tensor", []string{"x=", "x=" + io + ":"}, exitUsage, []string{"is neither"}},
		{"zeros of no shape", []string{"o=", "o=zeros:F32"}, exitUsage, []string{`"F32" is not of the form F32[70,80]`}},
		{"zeros of no type", []string{"o=", "o=zeros:F33[1]"}, exitUsage, []string{`dtype "F33" is not supported`}},
		{"zeros of an extent 0", []string{"o=", "o=zeros:F32[0]"}, exitUsage, []string{`"0" of the shape is no number from 1`}},
		{"zeros without end", []string{"o=", "o=zeros:F32[1099511627776,1099511627776]"}, exitUsage, []string{"more than 1099511627776 bytes"}},

		{"an unknown sanitizer", []string{"--sanitize", "adress"}, exitUsage, []string{`--sanitize: unknown sanitizer "adress"`}},
		{"no instruction to trace", []string{"--trace", "0"}, exitUsage, []string{"--trace is 0"}},
		{"an access outside of all memory", []string{"o=", "o=zeros:F32[4096]"}, exitFailed, []string{"kernel k_add", "after the end of o"}},
		{"no place for the output", []string{"--out", filepath.Join(dir, "none", "o.safetensors")}, exitFailed, []string{"none"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			line := launchLine("gfx942", "add", out, append(tc.changes, "--cache-dir", cache)...)
			r := kiln(t, line...)
			r.stderr = nullNote.ReplaceAllString(r.stderr, "")
			r.failed(t, tc.code, tc.parts...)
			if _, err := os.Stat(out); err == nil {
				t.Error("there is an output")
			}
		})
	}
	t.Run("too many arguments", func(t *testing.T) {
		line := append(launchLine("gfx942", "add", out, "--cache-dir", cache), "--arg", "p=zeros:U8[1]", "--arg", "q=zeros:U8[1]", "--arg", "r=i32:1")
		kiln(t, line...).failed(t, exitUsage, "--arg r=i32:1: argument 7, kernel k_add has 6")
	})
	t.Run("without a required flag", func(t *testing.T) {
		for _, flag := range []string{"--hsaco", "--kernel", "--grid", "--block", "--out"} {
			kiln(t, launchLine("gfx942", "add", out, flag, "")...).failed(t, exitUsage, "launch needs "+flag)
		}
	})
}

// nullNote is the line on a pointer that is not given.
var nullNote = regexp.MustCompile(`(?m)^note: argument \d+ of k_add is not given: a null pointer\n`)

// A defect that a sanitizer finds is a line of the result.
func TestLaunchSanitizer(t *testing.T) {
	needLLVM(t)
	dir := t.TempDir()
	r := kiln(t, launchLine("gfx950", "add", filepath.Join(dir, "o.safetensors"), "o=", "o=zeros:F32[4096]", "--sanitize", "memory", "--cache-dir", filepath.Join(dir, "cache"))...)
	if r.code != exitCheck || !strings.Contains(r.stdout, "memory: out of bounds: kernel k_add+0x") || !strings.Contains(r.stderr, "kernel k_add: 4 reports of sanitizers") {
		t.Errorf("exit code %d, standard output %q, standard error %q", r.code, r.stdout, r.stderr)
	}
}

func TestLaunchCountersAndTrace(t *testing.T) {
	needLLVM(t)
	dir := t.TempDir()
	line := append(launchLine("gfx942", "add", filepath.Join(dir, "o.safetensors"), "--trace", "3", "--cache-dir", filepath.Join(dir, "cache")), "--counters")
	out := kiln(t, line...).ok(t).stdout
	if n := strings.Count(out, "\n+0x"); n != 3 {
		t.Errorf("%d instructions are traced, want 3:\n%s", n, out)
	}
	for _, want := range []string{"kernel k_add, work-group [0 0 0], wave 0\n", "k_add: 5 work-groups of 256 work-items, ", " wave instructions; 3 tensors to ", "launches", " k_add\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("standard output is %q, want %q in it", out, want)
		}
	}
}

// The tensors of --out, and values of every type, by a kernel that stores them.
func TestLaunchValues(t *testing.T) {
	for _, tc := range []struct {
		text string
		want string // bytes in hexadecimal, or an error
	}{
		{"i8:-1", "ff"}, {"i8:128", "value out of range"}, {"u8:0xff", "ff"}, {"i16:-2", "feff"}, {"u16:65535", "ffff"}, {"u16:-1", "invalid syntax"},
		{"i32:-2", "feffffff"}, {"u32:4294967295", "ffffffff"}, {"i64:-9223372036854775808", "0000000000000080"}, {"u64:1", "0100000000000000"},
		{"f16:1.5", "003e"}, {"f16:1.0004882812501", "013c"}, {"bf16:1", "803f"}, {"bf16:1.00390625000001", "813f"}, {"f32:1e-6", "bd378635"}, {"f32:1e39", "value out of range"}, {"f32:-inf", "000080ff"},
		{"f64:0.1", "9a9999999999b93f"},
	} {
		list, err := parseLaunchArgs([]string{"v=" + tc.text})
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("%x", list.list[0].value)
		}
		if got != tc.want && (err == nil || !strings.Contains(got, tc.want)) {
			t.Errorf("%s: %s, want %s", tc.text, got, tc.want)
		}
	}
}

// A result that nothing has written is a report beside those of the launch.
func TestLaunchUndefinedResult(t *testing.T) {
	args, err := parseLaunchArgs([]string{"n=i32:5", "x=zeros:F32[4]", "o=zeros:F32[4]"})
	if err != nil {
		t.Fatal(err)
	}
	var shadow emu.Shadow
	if err := args.undefined(&shadow, nil); err != nil {
		t.Errorf("all is defined: %v", err)
	}
	shadow.Undefine(emu.Address(args.list[2].tensor.Data)+6, 1)
	const want = "uninit: undefined result: the host reads byte 6 of o (16 bytes), which is undefined"
	if err := args.undefined(&shadow, nil); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	race := emu.Report{Check: emu.CheckRace, Kind: "groups write", Detail: "a detail"}
	if err := args.undefined(&shadow, &emu.SanitizerError{Reports: []emu.Report{race}}); err == nil || err.Error() != race.String()+"\n"+want {
		t.Errorf("error %v, want both reports", err)
	}
	if err := args.undefined(&shadow, io.ErrUnexpectedEOF); err != io.ErrUnexpectedEOF {
		t.Errorf("error %v of a launch that did not end, want it alone", err)
	}
}
