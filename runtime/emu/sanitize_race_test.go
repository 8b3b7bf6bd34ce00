package emu

import "testing"

func TestRaceSanitizer(t *testing.T) {
	runSanitizerCases(t, []sanitizerCase{
		{"own bytes", CheckRace, 2, 2, `
			ds_write_b32 v1, v0
			ds_read_b32 v2, v1
			s_waitcnt lgkmcnt(0)
			ds_write_b32 v1, v2`, ""},
		{"read after write without a barrier", CheckRace, 2, 1, `
			ds_write_b32 v1, v0
			v_xor_b32_e32 v2, 0x100, v1
			ds_read_b32 v2, v2`, "lds race +0xc: writes byte 256 of LDS, which wave 0 read since the last barrier, at +0x14: ds_read_b32 v2, v2\nlds race +0x14: reads byte 0 of LDS, which wave 0 wrote since the last barrier, at +0xc: ds_write_b32 v1, v0"},
		{"read after write with a barrier", CheckRace, 2, 1, `
			ds_write_b32 v1, v0
			s_barrier
			v_xor_b32_e32 v2, 0x100, v1
			ds_read_b32 v2, v2`, ""},
		{"write after read without a barrier", CheckRace, 2, 1, `
			ds_read_b32 v2, v1
			v_xor_b32_e32 v2, 0x100, v1
			s_nop 0
			ds_write_b32 v2, v0`, "lds race +0xc: reads byte 256 of LDS, which wave 0 wrote since the last barrier, at +0x18: ds_write_b32 v2, v0\nlds race +0x18: writes byte 0 of LDS, which wave 0 read since the last barrier, at +0xc: ds_read_b32 v2, v1"},
		{"write after read by two waves", CheckRace, 2, 1, `
			v_mov_b32_e32 v2, 0
			ds_read_b32 v3, v2
			ds_write_b32 v1, v0 offset:256
			s_barrier`, ""},
		{"halves of a word", CheckRace, 2, 1, `
			v_lshrrev_b32_e32 v2, 6, v0
			v_lshlrev_b32_e32 v2, 1, v2
			ds_write_b16 v2, v0`, ""},
		{"write conflict", CheckRace, 2, 1, `
			v_mov_b32_e32 v2, 0
			ds_write_b8 v2, v0`, "lds race +0x10: writes byte 0 of LDS, which wave 0 wrote"},
		{"atomics of two waves", CheckRace, 2, 1, `
			v_mov_b32_e32 v2, 0
			ds_add_u32 v2, v0
			ds_add_rtn_u32 v3, v2, v0`, ""},
		{"an atomic and a write", CheckRace, 2, 1, `
			v_mov_b32_e32 v2, 0
			s_mov_b64 exec, 1
			ds_add_u32 v2, v0
			s_barrier
			v_readfirstlane_b32 s8, v0
			s_cmp_eq_u32 s8, 0
			s_cbranch_scc1 2
			ds_write_b32 v2, v0
			s_branch 1
			ds_add_u32 v2, v0`, "lds race +0x28: writes byte 0 of LDS, which wave 0 changed since the last barrier, at +0x30: ds_add_u32 v2, v0"},
		{"atomics of two groups", CheckRace, 1, 3, `
			v_mov_b32_e32 v2, s2
			global_atomic_add v1, v2, s[6:7]`, ""},
		{"stores past the caches of two groups", CheckRace, 1, 3, `
			v_mov_b32_e32 v2, s2
			global_store_dword v1, v2, s[6:7] sc0 sc1`, ""},
		{"groups write their own", CheckRace, 1, 2, `
			s_lshl_b32 s8, s2, 8
			v_add_u32_e32 v1, s8, v1
			global_store_dword v1, v1, s[6:7]`, ""},
		{"groups write the same", CheckRace, 1, 3, `
			global_store_dword v1, v0, s[6:7]`, ""},
		{"groups write different values", CheckRace, 1, 3, `
			v_mov_b32_e32 v2, s2
			global_store_dword v1, v2, s[6:7]`, "groups write +0x10: writes 0x01 to out+0, and work-group [0 0 0], wave 0 at +0x10: global_store_dword v1, v2, s[6:7] writes 0x00"},
		{"groups write different halves of a word", CheckRace, 1, 2, `
			s_lshl_b32 s8, s2, 1
			v_add_u32_e32 v1, s8, v1
			v_mov_b32_e32 v2, s2
			global_store_short v1, v2, s[6:7]`, ""},
		{"high halves differ", CheckRace, 1, 2, `
			s_lshl_b32 s8, s2, 16
			v_mov_b32_e32 v2, s8
			global_store_short_d16_hi v1, v2, s[6:7]`, "groups write +0x14"},
		{"high halves are the same", CheckRace, 1, 2, `
			v_mov_b32_e32 v2, s2
			global_store_short_d16_hi v1, v2, s[6:7]`, ""},
		{"group reads what another writes", CheckRace, 1, 2, `
			s_cmp_eq_u32 s2, 0
			s_cbranch_scc0 2
			global_store_dword v1, v0, s[6:7]
			s_endpgm
			global_load_dword v2, v1, s[6:7]`, "group reads what another writes +0x1c: reads out+0, which work-group [0 0 0], wave 0 at +0x14: global_store_dword v1, v0, s[6:7] writes"},
		{"group reads what it writes", CheckRace, 1, 1, `
			global_store_dword v1, v0, s[6:7]
			global_load_dword v2, v1, s[6:7]`, ""},
		{"group reads what no one writes", CheckRace, 1, 2, `
			global_load_dword v2, v1, s[4:5]
			global_load_dword v2, v1, s[6:7] offset:256
			global_store_dword v1, v0, s[6:7]`, ""},
		{"the last group reads after an acquire", CheckRace, 1, 2, `
			s_lshl_b32 s8, s2, 8
			v_add_u32_e32 v2, s8, v1
			global_store_dword v2, v2, s[6:7]
			buffer_inv sc1
			global_load_dword v3, v1, s[6:7]
			global_load_dword v3, v1, s[6:7] offset:256`, ""},
	}, "groups write the same", "groups write different values", "high halves differ", "high halves are the same", "group reads what another writes",
		"group reads what no one writes", "the last group reads after an acquire")
}
