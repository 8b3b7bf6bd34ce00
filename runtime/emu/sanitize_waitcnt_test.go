package emu

import "testing"

func TestWaitcntSanitizer(t *testing.T) {
	runSanitizerCases(t, []sanitizerCase{
		{"load waited for", CheckWaitcnt, 1, 1, `
			global_load_dword v2, v1, s[4:5]
			s_waitcnt vmcnt(0)
			v_add_u32_e32 v3, v2, v2`, ""},
		{"load read", CheckWaitcnt, 1, 1, `
			global_load_dword v2, v1, s[4:5]
			s_waitcnt lgkmcnt(0)
			v_add_u32_e32 v3, 1, v2`, "pending register +0x14: reads v2, which +0xc: global_load_dword v2, v1, s[4:5] is to write"},
		{"load overwritten", CheckWaitcnt, 1, 1, `
			global_load_dwordx2 v[2:3], v1, s[4:5] offset:-64
			v_mov_b32_e32 v3, 0`, "pending register +0x10: writes v[2:3], which +0xc"},
		{"load after load into the same register", CheckWaitcnt, 1, 1, `
			global_load_dword v2, v1, s[4:5]
			global_load_dword v2, v1, s[4:5]
			s_waitcnt vmcnt(0)
			v_mov_b32_e32 v3, v2`, ""},
		{"loads come in order", CheckWaitcnt, 1, 1, `
			global_load_dword v2, v1, s[4:5]
			global_load_dword v3, v1, s[4:5]
			s_waitcnt vmcnt(1)
			v_mov_b32_e32 v4, v2`, ""},
		{"the younger of two", CheckWaitcnt, 1, 1, `
			global_load_dword v2, v1, s[4:5]
			global_load_dword v3, v1, s[4:5]
			s_waitcnt vmcnt(1)
			v_mov_b32_e32 v4, v3`, "pending register +0x18: reads v3"},
		{"stores count", CheckWaitcnt, 1, 1, `
			global_load_dword v2, v1, s[4:5]
			global_store_dword v1, v1, s[6:7]
			s_waitcnt vmcnt(1)
			v_mov_b32_e32 v4, v2`, ""},
		{"a store's data may be overwritten", CheckWaitcnt, 1, 1, `
			v_mov_b32_e32 v2, 7
			global_store_dword v1, v2, s[6:7]
			v_mov_b32_e32 v2, 8`, ""},
		{"a store reads what is pending", CheckWaitcnt, 1, 1, `
			global_load_dword v2, v1, s[4:5]
			global_store_dword v1, v2, s[6:7]`, "pending register +0x10: reads v2"},
		{"scalar loads have no order", CheckWaitcnt, 1, 1, `
			s_load_dword s8, s[4:5], 0x0
			s_load_dword s9, s[4:5], 0x4
			s_waitcnt lgkmcnt(1)
			s_mov_b32 s10, s8`, "pending register +0x18: reads s8"},
		{"scalar loads waited for", CheckWaitcnt, 1, 1, `
			s_load_dword s8, s[4:5], 0x0
			s_load_dword s9, s[4:5], 0x4
			s_waitcnt lgkmcnt(0)
			s_add_u32 s10, s8, s9`, ""},
		{"scalar load overwritten", CheckWaitcnt, 1, 1, `
			s_load_dword s8, s[4:5], 0x0
			s_mov_b32 s8, 0`, "pending register +0x10: writes s8"},
		{"a scalar load mixed in hides LDS", CheckWaitcnt, 1, 1, `
			ds_read_b32 v2, v1
			s_load_dword s8, s[4:5], 0x0
			s_waitcnt lgkmcnt(1)
			v_mov_b32_e32 v3, v2`, "pending register +0x18: reads v2"},
		{"LDS comes in order", CheckWaitcnt, 1, 1, `
			ds_read_b32 v2, v1
			ds_read_b32 v3, v1 offset:4
			s_waitcnt lgkmcnt(1)
			v_mov_b32_e32 v4, v2`, ""},
		{"permutes count too", CheckWaitcnt, 1, 1, `
			ds_bpermute_b32 v2, v1, v1
			v_mov_b32_e32 v4, v2`, "pending register +0x10: reads v2"},
		{"barrier without a wait", CheckWaitcnt, 2, 1, `
			ds_write_b32 v1, v0
			s_barrier
			s_waitcnt lgkmcnt(0)`, "pending lds at barrier +0x10: +0xc: ds_write_b32 v1, v0 is under way"},
		{"an exchange between lanes may pass a barrier", CheckWaitcnt, 2, 1, `
			ds_bpermute_b32 v2, v1, v0
			s_barrier
			s_waitcnt lgkmcnt(0)
			v_mov_b32_e32 v3, v2`, ""},
		{"barrier with a wait", CheckWaitcnt, 2, 1, `
			ds_write_b32 v1, v0
			s_waitcnt lgkmcnt(0)
			s_barrier`, ""},
		{"a permute may pass a barrier", CheckWaitcnt, 2, 1, `
			ds_bpermute_b32 v2, v1, v1
			s_barrier
			s_waitcnt lgkmcnt(0)`, ""},
		{"a global load may pass a barrier", CheckWaitcnt, 2, 1, `
			global_load_dword v2, v1, s[4:5]
			s_barrier
			s_waitcnt vmcnt(0)
			v_mov_b32_e32 v4, v2`, ""},
		{"flat loads need both counters", CheckWaitcnt, 1, 1, `
			v_mov_b32_e32 v2, s4
			v_mov_b32_e32 v3, s5
			flat_load_dword v4, v[2:3]
			s_waitcnt vmcnt(0)
			v_mov_b32_e32 v5, v4`, "pending register +0x1c: reads v4"},
		{"flat loads waited for", CheckWaitcnt, 1, 1, `
			v_mov_b32_e32 v2, s4
			v_mov_b32_e32 v3, s5
			flat_load_dword v4, v[2:3]
			s_waitcnt vmcnt(0) lgkmcnt(0)
			v_mov_b32_e32 v5, v4`, ""},
		{"release in order", CheckWaitcnt, 1, 1, `
			global_store_dword v1, v1, s[6:7]
			buffer_wbl2 sc1
			s_waitcnt vmcnt(0)
			global_atomic_add v1, v1, s[6:7] sc1`, ""},
		{"release too early", CheckWaitcnt, 1, 1, `
			global_store_dword v1, v1, s[6:7]
			buffer_wbl2 sc1
			global_atomic_add v1, v1, s[6:7] sc1`, "release too early +0x14: +0x10: buffer_wbl2 sc1 is under way"},
		{"released store too early", CheckWaitcnt, 1, 1, `
			buffer_wbl2 sc1
			global_store_dword v1, v1, s[6:7] sc1`, "release too early +0x10"},
		{"acquire in order", CheckWaitcnt, 1, 1, `
			global_atomic_add v2, v1, v1, s[6:7] sc0
			s_waitcnt vmcnt(0)
			buffer_inv sc1`, ""},
		{"acquire too early", CheckWaitcnt, 1, 1, `
			global_atomic_add v2, v1, v1, s[6:7] sc0
			buffer_inv sc1
			s_waitcnt vmcnt(0)`, "acquire too early +0x10: +0xc: global_atomic_add v2, v1, v1, s[6:7] sc0 is under way"},
		{"plain loads do not hold up an acquire", CheckWaitcnt, 1, 1, `
			global_load_dword v2, v1, s[4:5]
			buffer_inv sc1
			s_waitcnt vmcnt(0)`, ""},
		{"an atomic's result", CheckWaitcnt, 1, 1, `
			global_atomic_add v2, v1, v1, s[6:7] sc0
			v_mov_b32_e32 v3, v2`, "pending register +0x10: reads v2"},
		{"load into LDS read too early", CheckWaitcnt, 1, 1, `
			s_mov_b32 m0, 0
			v_lshlrev_b32_e32 v2, 2, v0
			global_load_lds_dword v2, s[4:5]
			ds_read_b32 v3, v1
			s_waitcnt vmcnt(0) lgkmcnt(0)`, "pending lds +0x18: accesses 4 bytes at offset 0 of LDS, which +0x14: global_load_lds_dword v2, s[4:5] of wave 0 is to write"},
		{"load into LDS waited for", CheckWaitcnt, 1, 1, `
			s_mov_b32 m0, 0
			global_load_lds_dword v1, s[4:5]
			ds_read_b32 v3, v1 offset:256
			s_waitcnt vmcnt(0) lgkmcnt(0)
			ds_read_b32 v3, v1`, ""},
	})
}
