// Package cuda runs PTX on NVIDIA GPUs: the bindings of package driver, and the
// load rule of PTX.
//
// Its tests of a real GPU have the build tag gpu:
//
//	CGO_ENABLED=0 go test -c -tags gpu ./runtime/cuda
//	./cuda.test -test.v
//
// They need the driver (libcuda.so.1) and nothing else, fail without a GPU, and
// print measurements as JSON.
package cuda
