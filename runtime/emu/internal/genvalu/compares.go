package main

// compared are the types of v_cmp.
var compared = []string{"i32", "u32", "f32", "i16", "u16", "f16", "i64", "u64", "f64"}

type relation struct{ name, expr string }

// integerRelations and floatRelations are the relations of v_cmp: lg is less or
// greater, o ordered, u unordered, n... the negation, which holds for a NaN. f and t
// (tru) ignore their operands.
var (
	integerRelations = []relation{
		{"lt", "a < b"}, {"eq", "a == b"}, {"le", "a <= b"}, {"gt", "a > b"}, {"ne", "a != b"}, {"ge", "a >= b"},
	}
	floatRelations = []relation{
		{"lt", "a < b"}, {"eq", "a == b"}, {"le", "a <= b"}, {"gt", "a > b"}, {"lg", "a < b || a > b"}, {"ge", "a >= b"},
		{"o", "a == a && b == b"}, {"u", "a != a || b != b"},
		{"nge", "!(a >= b)"}, {"nlg", "!(a < b || a > b)"}, {"ngt", "!(a > b)"}, {"nle", "!(a <= b)"}, {"neq", "a != b"}, {"nlt", "!(a < b)"},
	}
)
