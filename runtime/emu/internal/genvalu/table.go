package main

var unary = []row{
	{"v_mov_b32", "b32", "a", ""},
	{"v_not_b32", "b32", "^a", ""},
	{"v_bfrev_b32", "b32", "bits.Reverse32(a)", ""},
	{"v_cvt_f32_i32", "b32", "math.Float32bits(float32(int32(a)))", ""},
	{"v_cvt_f32_u32", "b32", "math.Float32bits(float32(a))", ""},
}

var binary = []row{
	{"v_add_f32", "f32", "a + b", ""},
	{"v_sub_f32", "f32", "a - b", ""},
	{"v_subrev_f32", "f32", "b - a", ""},
	{"v_mul_f32", "f32", "a * b", ""},
	{"v_add_u32", "b32", "a + b", ""},
	{"v_sub_u32", "b32", "a - b", ""},
	{"v_subrev_u32", "b32", "b - a", ""},
	{"v_and_b32", "b32", "a & b", ""},
	{"v_or_b32", "b32", "a | b", ""},
	{"v_xor_b32", "b32", "a ^ b", ""},
	{"v_lshlrev_b32", "b32", "b << (a & 31)", ""},
	{"v_lshrrev_b32", "b32", "b >> (a & 31)", ""},
	{"v_ashrrev_i32", "b32", "uint32(int32(b) >> (a & 31))", ""},
	{"v_mul_lo_u32", "b32", "a * b", ""},
}

var ternary = []row{
	{"v_add3_u32", "b32", "a + b + c", ""},
	{"v_lshl_add_u32", "b32", "a<<(b&31) + c", ""},
	{"v_lshl_or_b32", "b32", "a<<(b&31) | c", ""},
	{"v_add_lshl_u32", "b32", "(a + b) << (c & 31)", ""},
	{"v_and_or_b32", "b32", "a&b | c", ""},
	{"v_or3_b32", "b32", "a | b | c", ""},
}
