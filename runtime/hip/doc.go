// Package hip runs code objects on AMD GPUs: the bindings of package driver, the
// load rule of code objects, and what is known about releases of ROCm.
//
// It reads no environment: paths and values of variables are parameters.
package hip
