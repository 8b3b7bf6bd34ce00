// Package weights reads and writes safetensors files and opens the model
// folders that hold them, sharded or not.
//
// Reading is strict. The format asks for tensors that cover the data section
// exactly, without overlap, hole or trailing bytes, and everything here that
// departs from it, or uses a dtype or field this package does not know, is
// refused with a one-line error that names the file and the tensor, field or
// offset. Nothing is allocated in proportion to a number read from a file, only
// to the bytes present. Files are mapped, not read: Tensor.Data points into the
// mapping.
package weights
