// Package dsv4 is the DeepSeek-V4 model: its config, its checkpoint table, its
// chat encoding, and its forward pass as tensor IR.
//
// One step builder makes the entries prefill, decode and verify, which differ
// only in what their symbols are bound to; draft is the MTP (multi-token
// prediction) step. docs/dsv4.md specifies the arithmetic.
package dsv4
