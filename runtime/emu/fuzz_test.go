package emu

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/object"
)

// seedLines are instructions of every family, with all forms of operands.
var seedLines = []string{
	"s_endpgm", "s_nop 0", "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_load_dwordx8 s[4:11], s[0:1], 0x8", "s_cbranch_execz 12", "s_add_u32 s0, s1, 0x12345678",
	"s_set_gpr_idx_on s2, gpr_idx(SRC0,DST)", "s_mov_b64 s[0:1], exec", "s_getpc_b64 s[4:5]", "s_swappc_b64 s[30:31], s[4:5]",
	"v_mov_b32_e32 v0, lit(0x0)", "v_add_f32_e64 v0, -|v1|, 1.0 clamp", "v_fma_f32 v0, v1, -v2, 0.15915494", "v_add_u32_sdwa v0, sext(v1), v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD",
	"v_add_f32_dpp v0, v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:1", "v_pk_fma_f16 v0, v1, v2, v3 op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[1,0,0]",
	"v_cmp_gt_u32_e64 s[0:1], v0, v1", "v_cndmask_b32_e32 v0, v1, v2, vcc", "v_bitop3_b32 v0, v1, v2, v3 bitop3:0x1e", "v_div_scale_f32 v0, vcc, v1, v2, v1",
	"v_mfma_f32_16x16x16_bf16 a[0:3], v[0:1], v[2:3], a[0:3] cbsz:1 abid:1 blgp:3", "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[20:23], v30, v31 op_sel:[1,0,0] op_sel_hi:[0,1,0] cbsz:4 blgp:2",
	"v_accvgpr_write_b32 a0, v1", "global_load_dwordx4 v[0:3], v4, s[0:1] offset:-16 sc0 sc1 nt", "global_atomic_add_f32 v[0:1], v2, off", "flat_load_dword v0, v[2:3]",
	"buffer_load_dword v0, v1, s[4:7], 0 offen offset:16 lds", "buffer_inv sc1", "buffer_wbl2 sc1", "ds_read2st64_b64 v[0:3], v4 offset0:1 offset1:255", "ds_swizzle_b32 v0, v1 offset:swizzle(SWAP,16)",
	"scratch_store_dword off, v0, s32 offset:8", "v_readlane_b32 s0, v1, 63", ".long 0x12345678", "v_smfmac_f32_16x16x32_bf16 v[0:3], v[4:5], v[8:11], v1",
}

// FuzzParseInst: any text is an instruction or an error that names its place, and what
// is parsed compiles or is refused, for every chip.
func FuzzParseInst(f *testing.F) {
	for _, l := range seedLines {
		f.Add(l)
	}
	f.Fuzz(func(t *testing.T, text string) {
		in, err := parseInst(object.Line{Offset: 0x40, Text: text, Words: []uint32{0}})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "+0x40: ") {
				t.Errorf("error %q does not name the place", err)
			}
			return
		}
		if in.Text != text || in.Op == "" && text != "" && !strings.HasPrefix(text, " ") && !strings.HasPrefix(text, "_") {
			t.Errorf("%q is instruction %q, text %q", text, in.Op, in.Text)
		}
		for _, o := range in.Args {
			if o.Kind <= AGPR && (o.Count < 1 || o.Reg < 0 || o.Reg+o.Count > max(numSGPRs, 256)) {
				t.Errorf("%q: operand %+v is out of range", text, o)
			}
		}
		for _, chip := range Chips {
			_, err := trySnippet(chip, text)
			if err != nil && !strings.Contains(err.Error(), "+0x0: ") {
				t.Errorf("%s: error %q does not name the place", chip, err)
			}
		}
	})
}

// fixedStore has one entry for every key.
type fixedStore []byte

func (s fixedStore) Get(string) ([]byte, bool) { return s, true }
func (s fixedStore) Put(string, []byte) error  { return errors.New("the entry is not the right one") }

// FuzzLoad: any file is a program or an error, and so is each of its kernels, with any
// disassembly.
func FuzzLoad(f *testing.F) {
	for _, name := range []string{"add.gfx942.hsaco", "rmsnorm.gfx950.hsaco", "matmul_bf16.gfx950.hsaco"} {
		code := golden(f, name)
		listing := disassembly{Kernels: map[string][]object.Line{}}
		for _, k := range []string{"k_add", "k_rmsnorm", "k_matmul"} {
			for i, text := range seedLines[:12] {
				listing.Kernels[k] = append(listing.Kernels[k], object.Line{Offset: uint64(4 * i), Text: text, Words: []uint32{0}})
			}
		}
		data, err := json.Marshal(listing)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(code, data)
		f.Add(code[:len(code)/2], data)
	}
	f.Add([]byte("\x7fELF"), []byte("{}"))
	f.Fuzz(func(t *testing.T, code, listing []byte) {
		l := Loader{ObjDump: "/nonexistent/llvm-objdump", Store: fixedStore(listing)}
		p, err := l.Load(t.Context(), code)
		if err != nil {
			return
		}
		for i := range p.object.Kernels {
			k, err := p.Kernel(p.object.Kernels[i].Name)
			if (k == nil) == (err == nil) {
				t.Errorf("kernel %v, error %v", k, err)
			}
		}
	})
}

// TestSegmentSize: a segment that a damaged file makes too large is an error.
func TestSegmentSize(t *testing.T) {
	for _, size := range []uint64{maxImage, 1 << 62} {
		code := golden(t, "add.gfx942.hsaco")
		patched := false
		for at := le.Uint64(code[32:]); at < le.Uint64(code[32:])+56*uint64(le.Uint16(code[56:])); at += 56 {
			if le.Uint32(code[at:]) == 1 && le.Uint64(code[at+16:]) > 0 { // PT_LOAD, not at address 0
				le.PutUint64(code[at+40:], size) // p_memsz
				patched = true
			}
		}
		_, err := Loader{ObjDump: "/nonexistent/llvm-objdump", Store: fixedStore("{}")}.Load(t.Context(), code)
		if !patched || err == nil || !strings.Contains(err.Error(), "segment") {
			t.Errorf("%d bytes: error %v, want one that names the segment", size, err)
		}
	}
}
