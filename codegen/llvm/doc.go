// Package llvm drives LLVM: it finds one, compiles textual LLVM IR to objects or
// assembly, and links objects to what a device loads.
//
// LLVM aborts the process on some inputs ("Cannot select") and exits on others,
// so it never runs in the process of the caller. A [Compiler] has one of two
// forms behind the same interface, which give the same bytes:
//
//   - [Worker]: child processes of this same binary that load libLLVM through its
//     C API, without cgo. A job costs no process start.
//   - [Programs]: opt and llc, one process each per job.
//
// A program that compiles calls [MaybeServeWorker] at the start of main, and a
// test package that compiles calls it in TestMain.
//
//	tc, err := llvm.Find(ctx, llvm.FindOptions{})
//	c, err := llvm.New(ctx, tc, llvm.Options{})
//	defer c.Close()
//	r, err := c.Compile(ctx, llvm.Job{Name: "rmsnorm", IR: text, Triple: llvm.AMDGPU, CPU: "gfx950", OptPasses: "default<O3>"})
//	code, err := tc.Link(ctx, "kernels", [][]byte{r.Output})
//
// Nothing here reads KILN_ variables or writes a log; processes inherit the
// environment, and PATH is searched as os/exec does.
package llvm
