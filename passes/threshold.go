package passes

import (
	"fmt"
	"slices"
)

// Threshold is one row of the threshold table: a number that decides whether a
// rewrite, or a way to run an op, pays, for one target or, without one, for all that have no row of
// their own.
type Threshold struct {
	Key    string // pass.name or op.name, as --set takes it
	Target string
	Value  int
	Origin Origin
	Source string
	Doc    string
}

// Origin says where a threshold's value comes from. A number measured on one chip
// is never another chip's.
type Origin string

// The origins.
const (
	Published Origin = "published" // by the maker or a paper
	Modelled  Origin = "modelled"  // from bytes, flops and launches
	Measured  Origin = "measured"  // by us, on that chip
)

// FusedHCTokens is the key of the number of tokens up to which fuse-hc fuses. Fused and
// apart have different bits: it ends an order class.
const FusedHCTokens = "fuse-hc.max_tokens"

// NoSplitTokens is the key of the number of tokens from which on one launch takes all
// keys of a query, where fewer tokens split them. Both have the same bits.
const NoSplitTokens = "attention.no_split_tokens"

// SliceParts and NoSliceTokens are the keys of how many parts of keys there are at least,
// of all tokens and 64 heads each, and of the number of tokens from which on no more, where
// attention on NVIDIA's matrix units multiplies slices of rows in a launch of its own. They
// change no bits.
const SliceParts, NoSliceTokens = "attention.slice_parts", "attention.no_slice_tokens"

// AttentionGroups is the key of the number of groups that attention on NVIDIA's matrix
// units wants. It changes no bits.
const AttentionGroups = "attention.groups"

// Thresholds is the table; --set KEY=VALUE overrides a key for any target.
var Thresholds = []Threshold{
	{
		Key: FusedHCTokens, Value: 1 << 30, Origin: Modelled, Doc: "hc_post, hc_pre and the norm are fused up to so many tokens",
		Source: "at any T it is one launch for three (on matrix units two for four), with as many groups as each has, and reads the new streams and y back while they are in a cache",
	},
	{
		Key: FusedHCTokens, Target: "gfx950", Value: 64, Origin: Published, Doc: "hc_post, hc_pre and the norm are fused up to so many tokens",
		Source: "MI355X value published for the fused hc kernel",
	},
	{
		Key: NoSplitTokens, Value: 16, Origin: Modelled, Doc: "sparse_attention on matrix units splits the keys of fewer tokens over groups",
		Source: "of 64 heads of 512, parts of 64 keys are 131 kB to write and read for a token, 0.07 us at 4 TB/s; one group after the other takes about 1 us for each part",
	},
	{
		Key: NoSplitTokens, Target: "gfx950", Value: 256, Origin: Published, Doc: "sparse_attention on matrix units splits the keys of fewer tokens over groups",
		Source: "MI355X value published for attention without a split",
	},
	{
		Key: SliceParts, Value: 128, Origin: Measured, Doc: "sparse_attention on NVIDIA's matrix units multiplies slices of rows in a launch of its own, if there are so many parts of 64 keys and 64 heads",
		Source: "H200, bf16 rows: 64 heads and 640 keys at 4 and 16 tokens 9.2 us and 14.0, otherwise 8.5 and 18.0; 128 and 1152 at 1, 4 and 16 tokens 13.7 us, 16.2 and 25.1, otherwise 8.7, 23.0 and 30.9",
	},
	{
		Key: NoSliceTokens, Value: 32, Origin: Measured, Doc: "sparse_attention on NVIDIA's matrix units multiplies slices of rows in a launch of its own for fewer tokens",
		Source: "H200, bf16 rows: 64 heads and 640 keys at 32 tokens 19.0 us, otherwise 18.5; 128 and 1152 at 32 and 64 tokens 45.2 us and 86.6, otherwise 48.4 and 57.0",
	},
	{
		Key: AttentionGroups, Value: 128, Origin: Modelled, Doc: "sparse_attention on NVIDIA's matrix units shares rows among more heads, as long as there are so many groups",
		Source: "an H200 has 132 processors",
	},
}

func thresholdKeys() []string {
	var keys []string
	for _, t := range Thresholds {
		if !slices.Contains(keys, t.Key) {
			keys = append(keys, t.Key)
		}
	}
	return keys
}

// ThresholdOf returns the row that holds for a target.
func ThresholdOf(key, target string) (Threshold, error) {
	var row *Threshold
	for i, t := range Thresholds {
		if t.Key == key && (t.Target == target || t.Target == "" && row == nil) {
			row = &Thresholds[i]
		}
	}
	if row == nil {
		return Threshold{}, fmt.Errorf("no threshold %q for target %q", key, target)
	}
	return *row, nil
}
