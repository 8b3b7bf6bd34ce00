package object

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// goodListing is llvm-objdump's text for goodObject.
const goodListing = `
<stdin>:	file format elf64-amdgpu

Disassembly of section .other:

0000000000002000 <x>:
	something else entirely

Disassembly of section .text:

0000000000002000 <k>:
	s_nop 0                                                    // 000000002000: BF800000
	s_endpgm                                                   // 000000002004: BF810000
	s_nop 0                                                    // 000000002008: BF800000
`

func TestParseListing(t *testing.T) {
	o := mustRead(t, goodObject()).Object
	swap := func(old, new string) string {
		if !strings.Contains(goodListing, old) {
			t.Fatalf("the listing has no %q", old)
		}
		return strings.ReplaceAll(goodListing, old, new)
	}
	for _, tc := range []struct {
		name, listing string
		want          []Line
		err           string
	}{
		{"good", goodListing, []Line{{0, "s_nop 0", []uint32{0xbf800000}}, {4, "s_endpgm", []uint32{0xbf810000}}}, ""},
		{"branch target and label", swap("2000: BF800000", "2000: BF800000 <k+0x4>") + "\n0000000000003000 <l>:\n",
			[]Line{{0, "s_nop 0", []uint32{0xbf800000}}, {4, "s_endpgm", []uint32{0xbf810000}}}, ""},
		{"one long instruction", swap("BF800000\n\ts_endpgm                                                   // 000000002004: BF810000", "BF800000 BF810000"),
			[]Line{{0, "s_nop 0", []uint32{0xbf800000, 0xbf810000}}}, ""},
		{"undecodable", swap("s_nop 0 ", ".long 0xbf800000"), []Line{{0, ".long 0xbf800000", []uint32{0xbf800000}}, {4, "s_endpgm", []uint32{0xbf810000}}}, ""},
		{"no line", "", nil, "kernel k: the listing has 0x0 of 0x8 bytes"},
		{"cut", goodListing[:strings.Index(goodListing, "\ts_endpgm")], nil, "kernel k: the listing has 0x4 of 0x8 bytes"},
		{"gap", swap("000000002000:", "000000003000:"), nil, "kernel k: the listing goes on at +0x4 instead of +0x0"},
		{"other code", swap("BF810000", "BF810001"), nil, "kernel k: the listing has 0xbf810001 at +0x4, which is not the code there"},
		{"too long", swap("2004: BF810000", "2004: BF810000 BF810000"), nil, "kernel k: the listing has 0xbf810000 at +0x8, which is not the code there"},
		{"twice", goodListing + goodListing[strings.Index(goodListing, "Disassembly of section .text"):], nil, "kernel k: the listing goes on at +0x0 instead of +0x8"},
		{"abbreviated", swap("\ts_endpgm ", "\t\t...\n\ts_endpgm"), nil, `line 13 of the listing is not understood: "\t\t..."`},
		{"no encoding", swap(" // 000000002000: BF800000", ""), nil, "line 12 of the listing is not understood"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseListing(strings.NewReader(tc.listing), o)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q in it", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string][]Line{"k": tc.want}, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestTrim(t *testing.T) {
	lines := func(texts ...string) []Line {
		var out []Line
		for _, text := range texts {
			out = append(out, Line{Text: text})
		}
		return out
	}
	for _, tc := range []struct{ in, want []Line }{
		{lines("s_endpgm", "s_nop 0", "s_nop 0"), lines("s_endpgm")},
		{lines("s_nop 1", "s_endpgm", "s_code_end"), lines("s_nop 1", "s_endpgm")},
		{lines("s_endpgm", "s_nop 0", "s_endpgm", "s_nop 0"), lines("s_endpgm", "s_nop 0", "s_endpgm")},
		{lines("s_branch 3", "s_nop 0"), lines("s_branch 3", "s_nop 0")},
		{lines("s_nop 0"), lines("s_nop 0")},
		{nil, nil},
	} {
		if diff := cmp.Diff(tc.want, trim(tc.in)); diff != "" {
			t.Errorf("%v: -want +got:\n%s", tc.in, diff)
		}
	}
}

func TestCountMFMA(t *testing.T) {
	lines := []Line{
		{0, "v_mfma_f32_16x16x16_bf16 a[0:3], v[2:3], v[2:3], 0", []uint32{1, 2}},
		{8, "v_smfmac_f32_16x16x32_bf16 v[0:3], v[4:5], v[6:9], v10", []uint32{1, 2}},
		{16, "v_accvgpr_read_b32 v0, a0", []uint32{1, 2}},
		{24, ".long 0xffffffff", []uint32{0xffffffff}},
		{28, "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[0:7], v[8:15], v[0:3], v16, v17", []uint32{1, 2, 3, 4}},
		{44, ".byte 1", []uint32{1}},
	}
	if n := CountMFMA(lines); n != 3 {
		t.Errorf("%d matrix instructions", n)
	}
	want := []string{"kernel k: no instruction at +0x18: .long 0xffffffff", "kernel k: no instruction at +0x2c: .byte 1"}
	if diff := cmp.Diff(want, Undecodable("k", lines)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := Undecodable("k", lines[:3]); got != nil {
		t.Errorf("problems %q", got)
	}
}

// Programs that are no disassembler.
func TestDisassembleErrors(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the programs of this test are shell scripts")
	}
	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "objdump")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	listing := filepath.Join(t.TempDir(), "listing")
	if err := os.WriteFile(listing, []byte(goodListing), 0o644); err != nil {
		t.Fatal(err)
	}
	print := fmt.Sprintf("cat >/dev/null; cat %s\n", listing)
	for _, tc := range []struct{ name, program, want string }{
		{"good", script(print), ""},
		{"arguments", script(`test "$*" = "-d -z --mcpu=gfx942 -" || exit 9` + "\n" + print), ""},
		{"warning", script(print + "echo \"'gfx942' is not a recognized processor\" >&2\necho more >&2\n"), "'gfx942' is not a recognized processor"},
		{"failure", script("cat >/dev/null; exit 3\n"), "exit status 3"},
		{"failure with a word", script("cat >/dev/null; echo 'cannot get target' >&2; exit 1\n"), "exit status 1: cannot get target"},
		{"reads nothing", script("exec 0<&-; echo nonsense\n"), "the listing has 0x0 of 0x8 bytes"},
		{"garbage", script("cat >/dev/null; echo 'Disassembly of section .text:'; echo nonsense; yes | head -n 200000\n"), `line 2 of the listing is not understood: "nonsense"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Disassemble(context.Background(), tc.program, goodObject(), "")
			if tc.want == "" {
				if err != nil || len(got["k"]) != 2 {
					t.Errorf("%v, error %v", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %q in it, on one line", err, tc.want)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		_, err := Disassemble(context.Background(), filepath.Join(t.TempDir(), "none"), goodObject(), "")
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v", err)
		}
		if _, err := Disassemble(context.Background(), "no-such-program-in-path", goodObject(), ""); !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("host object", func(t *testing.T) {
		if _, err := Disassemble(context.Background(), script(print), readTestFile(t, "testdata/host.so"), ""); !errors.Is(err, ErrUnsupported) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("damaged object", func(t *testing.T) {
		if _, err := Disassemble(context.Background(), script(print), goodObject()[:100], ""); err == nil {
			t.Error("no error")
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if _, err := Disassemble(ctx, script("exec sleep 60\n"), goodObject(), ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

// Kernels whose code overlaps have no listing of their own.
func TestOverlappingCode(t *testing.T) {
	o := mustRead(t, goodObject()).Object
	o.Kernels = append(o.Kernels, o.Kernels[0])
	o.Kernels[1].Name = "l"
	if _, err := parseListing(strings.NewReader(goodListing), o); err == nil || !strings.Contains(err.Error(), "the code of the kernels k and l overlaps") {
		t.Errorf("error %v", err)
	}
}

// An LLVM compiles the fixture again: what its own remarks say is what Read
// says, and a word that is no instruction is found.
func TestAgainstLLVM(t *testing.T) {
	llc, lld, objdump := tool(t, "llc"), tool(t, "ld.lld"), tool(t, "llvm-objdump")
	for i, cpu := range []string{"gfx90a", "gfx942", "gfx950"} {
		version := 4 + i
		dir := t.TempDir()
		obj, linked := filepath.Join(dir, "o"), filepath.Join(dir, "hsaco")
		run := func(name string, args ...string) string {
			out, err := exec.Command(name, args...).CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, out)
			}
			return string(out)
		}
		remarks := run(llc, "-O3", "-mcpu="+cpu, fmt.Sprintf("--amdhsa-code-object-version=%d", version), "-filetype=obj",
			"-pass-remarks-analysis=kernel-resource-usage", "testdata/fixture.ll", "-o", obj)
		run(lld, "-shared", obj, "-o", linked)
		for _, file := range []string{obj, linked} {
			data := readTestFile(t, file)
			o := mustRead(t, data).Object
			if o.Problems != nil || o.Target.Chip != cpu || o.Version != version || o.Relocatable != (file == obj) {
				t.Errorf("%s version %d: target %s, version %d, problems %q", cpu, version, o.Target, o.Version, o.Problems)
			}
			if diff := cmp.Diff(parseRemarks(t, remarks), facts(o)); diff != "" {
				t.Errorf("%s version %d: -remarks +Read:\n%s", cpu, version, diff)
			}
			found, err := Disassemble(context.Background(), objdump, data, "")
			if err != nil {
				t.Fatal(err)
			}
			if n := CountMFMA(found["mfma"]); n != 2 || len(found) != 4 {
				t.Errorf("%s version %d: %d MFMA in mfma, %d kernels", cpu, version, n, len(found))
			}
		}
	}

	// An undecodable word in the middle of a kernel.
	data := readTestFile(t, "testdata/fixture.gfx942.hsaco")
	k, err := mustRead(t, data).Object.Kernel("mfma")
	if err != nil {
		t.Fatal(err)
	}
	le.PutUint32(k.Code[8:], 0xffffffff) // Code is a part of data
	found, err := Disassemble(context.Background(), objdump, data, "gfx942")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"kernel mfma: no instruction at +0x8: .long 0xffffffff"}
	if diff := cmp.Diff(want, Undecodable("mfma", found["mfma"])); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := Disassemble(context.Background(), objdump, data, "gfx9999"); err == nil || !strings.Contains(err.Error(), "gfx9999") {
		t.Errorf("unknown processor: error %v", err)
	}
}

// facts are what both the remarks and the object know, by kernel.
func facts(o *CodeObject) map[string]map[string]int {
	out := map[string]map[string]int{}
	for _, k := range o.Kernels {
		out[k.Name] = map[string]int{
			"TotalSGPRs": k.SGPRs, "AGPRs": *k.AGPRs, "ScratchSize [bytes/lane]": k.ScratchBytes, "Occupancy [waves/SIMD]": *k.Occupancy,
			"SGPRs Spill": *k.SGPRSpills, "VGPRs Spill": *k.VGPRSpills, "LDS Size [bytes/block]": k.LDSBytes, "VGPRs": k.VGPRs,
		}
		if *k.AGPRs > 0 { // the remark's count is without them
			out[k.Name]["VGPRs"] = k.Descriptor.AccumOffset()
		}
	}
	return out
}

func parseRemarks(t *testing.T, text string) map[string]map[string]int {
	out := map[string]map[string]int{}
	var now map[string]int
	for line := range strings.Lines(text) {
		_, line, ok := strings.Cut(strings.TrimSpace(line), "remark: <unknown>:0:0: ")
		name, value, ok2 := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || !ok2 {
			t.Fatalf("remark %q is not understood", line)
		}
		if name == "Function Name" {
			now = map[string]int{}
			out[value] = now
			continue
		}
		n := 0
		if _, err := fmt.Sscan(value, &n); err != nil {
			continue // Dynamic Stack: False
		}
		now[name] = n
	}
	for _, m := range out {
		if m["AGPRs"] > 0 { // AGPRs begin at a multiple of 4
			m["VGPRs"] = roundUp(m["VGPRs"], 4)
		}
	}
	return out
}

func FuzzListing(f *testing.F) {
	f.Add(goodListing)
	f.Add("Disassembly of section .text:\n\t.long 0xffffffff // 000000002000: BF800000 BF810000 <k+0x100>\n")
	f.Add("Disassembly of section .text:\n\t // 000000002000: BF80000\n")
	o, err := Read(goodObject())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		found, err := parseListing(strings.NewReader(text), o.Object)
		if err != nil {
			return
		}
		if len(found) != 1 || len(found["k"]) == 0 || found["k"][0].Offset != 0 || found["k"][0].Words[0] != 0xbf800000 {
			t.Errorf("%q is read as %+v", text, found)
		}
	})
}
