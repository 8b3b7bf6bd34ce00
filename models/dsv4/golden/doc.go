// Package golden checks an executor of the DeepSeek-V4 graphs against golden
// tensors of the reference implementation, and against small cases computed by
// hand where no golden tensor shows a mistake.
//
// A Suite is one pair of model folder and golden folder in one numeric variant,
// over whatever computes: the oracle by default. Every comparison is held to a
// row of one table of limits, which repeats docs/dsv4.md section 9; there are no
// limits for particular checks. The package's tests also break each rule of
// section 8 in turn and require that a check notices (docs/mutations.md).
package golden
