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

// SliceTokens and NoSliceTokens are the keys of the number of tokens from which on, and
// from which on no more, attention on NVIDIA's matrix units multiplies with slices of rows
// in a launch of its own. They change no bits.
const SliceTokens, NoSliceTokens = "attention.slice_tokens", "attention.no_slice_tokens"

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
		Key: SliceTokens, Value: 2, Origin: Modelled, Doc: "sparse_attention on NVIDIA's matrix units multiplies with slices of rows apart from so many tokens on",
		Source: "",
	},
	{
		Key: NoSliceTokens, Value: 33, Origin: Modelled, Doc: "sparse_attention on NVIDIA's matrix units multiplies with slices of rows apart for fewer tokens",
		Source: "",
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
