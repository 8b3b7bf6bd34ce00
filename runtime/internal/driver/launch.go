package driver

import (
	"errors"
	"fmt"
	"math"
	"unsafe"
)

// Param is where a parameter of a kernel lies in the argument block: bytes.
type Param struct{ Offset, Size int }

// Launch is one execution of a kernel.
type Launch struct {
	Function *Function
	Grid     [3]uint32 // workgroups
	Block    [3]uint32 // work-items of a workgroup
	Shared   uint32    // bytes of LDS beyond what the code declares
	Args     []byte    // the argument block
	Params   []Param   // what is in it, in the order of the kernel's parameters
	// Overlap lets a graph begin the launch before the one before has ended: the kernel
	// waits for that by itself (CUDA, "Programmatic Dependent Launch"). Streams that run
	// a list launch by launch do not.
	Overlap bool
}

// LaunchError says which launch of a list failed.
type LaunchError struct {
	Index  int // in the list
	Kernel string
	Err    error
}

func (e *LaunchError) Error() string {
	return fmt.Sprintf("launch %d (%s): %v", e.Index, e.Kernel, e.Err)
}

func (e *LaunchError) Unwrap() error { return e.Err }

// Sequence is a list of launches that do not change any more, prepared for the
// driver: what a stream runs, what a graph is built from and what a capture
// records is the same memory.
type Sequence struct {
	resource
	launches []prepared
	modules  []*resource
}

// prepared is a launch whose arguments are outside of the Go heap.
type prepared struct {
	Launch
	parameters uintptr           // void *[], one for each parameter
	node       uintptr           // the struct that GraphAddKernel takes
	config     *cudaLaunchConfig // of a launch that overlaps
}

const pointerBytes = 8

// Prepare checks launches and copies their arguments.
func (d *Device) Prepare(launches []Launch) (*Sequence, error) {
	q := &Sequence{launches: make([]prepared, len(launches))}
	return made(q, d.Do(func() error {
		size := 0
		seen := map[*Module]bool{}
		for i, l := range launches {
			if err := d.checkLaunch(l); err != nil {
				name := "no kernel"
				if l.Function != nil {
					name = l.Function.name
				}
				return &LaunchError{i, name, err}
			}
			if m := l.Function.module; !seen[m] {
				seen[m] = true
				q.modules = append(q.modules, &m.resource)
			}
			size += room(len(l.Args)) + room(pointerBytes*len(l.Params)) + room(d.nodeBytes())
			if l.Overlap {
				size += room(int(unsafe.Sizeof(cudaLaunchConfig{}))) + room(int(unsafe.Sizeof(cudaLaunchAttribute{})))
			}
		}
		memory, err := newBlock(size)
		if err != nil {
			return err
		}
		for i, l := range launches {
			q.launches[i] = d.prepare(l, memory)
		}
		d.own(&q.resource, fmt.Sprintf("list of %d launches", len(launches)), memory.free, q.modules...)
		return nil
	}))
}

// Len is the number of launches.
func (q *Sequence) Len() int { return len(q.launches) }

// checkLaunch refuses what drivers refuse with an error of little use, or by
// version.
func (d *Device) checkLaunch(l Launch) error {
	if l.Function == nil {
		return errors.New("the launch has no kernel")
	}
	if err := d.usable(&l.Function.module.resource); err != nil {
		return err
	}
	items := uint64(1)
	for axis, name := range [...]string{"x", "y", "z"} {
		grid, block := uint64(l.Grid[axis]), uint64(l.Block[axis])
		most := uint64(math.MaxUint32) // work-items: the dispatch packet has 32 bits for them
		switch {
		case grid == 0 || block == 0:
			return fmt.Errorf("grid %v, block %v: no dimension may be 0", l.Grid, l.Block)
		case d.lib.Kind == HIP && grid*block > most:
			return fmt.Errorf("grid %v of blocks %v: more than %d work-items along %s", l.Grid, l.Block, most, name)
		case d.lib.Kind == CUDA && grid > cudaMaxGrid[axis]:
			return fmt.Errorf("grid %v: more than %d blocks along %s", l.Grid, cudaMaxGrid[axis], name)
		}
		items *= block
		if items > uint64(d.info.MaxGroup) {
			return fmt.Errorf("block %v: more than %d work-items", l.Block, d.info.MaxGroup)
		}
	}
	if l.Overlap {
		if err := d.CanOverlap(); err != nil {
			return err
		}
	}
	if int64(l.Shared) > int64(d.info.MaxShared) {
		return fmt.Errorf("%d bytes of LDS: a workgroup has %d", l.Shared, d.info.MaxShared)
	}
	end := 0
	for i, p := range l.Params {
		if p.Size <= 0 || p.Offset < end || p.Offset > len(l.Args) || p.Size > len(l.Args)-p.Offset {
			return fmt.Errorf("parameter %d: %d bytes at offset %d do not follow the one before, within %d bytes of arguments", i, p.Size, p.Offset, len(l.Args))
		}
		end = p.Offset + p.Size
	}
	return nil
}

// cudaMaxGrid: of every compute capability since 3.0.
var cudaMaxGrid = [3]uint64{math.MaxInt32, 65535, 65535}

func (d *Device) nodeBytes() int {
	if d.lib.Kind == HIP {
		return int(unsafe.Sizeof(hipKernelNodeParams{}))
	}
	return int(unsafe.Sizeof(cudaKernelNodeParams{}))
}

func (d *Device) prepare(l Launch, memory *block) prepared {
	args := memory.take(len(l.Args))
	copy(args, l.Args)
	list := memory.take(pointerBytes * len(l.Params))
	parameters := unsafe.Slice((*uintptr)(unsafe.Pointer(unsafe.SliceData(list))), len(l.Params))
	for i, p := range l.Params {
		parameters[i] = at(args[p.Offset:])
	}
	node := memory.take(d.nodeBytes())
	if d.lib.Kind == HIP {
		*(*hipKernelNodeParams)(unsafe.Pointer(&node[0])) = hipKernelNodeParams{
			blockDim: l.Block, function: l.Function.handle, gridDim: l.Grid, kernelParams: at(list), sharedMemBytes: l.Shared,
		}
	} else {
		*(*cudaKernelNodeParams)(unsafe.Pointer(&node[0])) = cudaKernelNodeParams{
			function: l.Function.handle, gridDim: l.Grid, blockDim: l.Block, sharedMemBytes: l.Shared, kernelParams: at(list),
		}
	}
	var config *cudaLaunchConfig
	if l.Overlap {
		attr := memory.take(int(unsafe.Sizeof(cudaLaunchAttribute{})))
		a := (*cudaLaunchAttribute)(unsafe.Pointer(&attr[0]))
		a.id, a.value[0] = cudaProgrammaticLaunch, 1
		config = (*cudaLaunchConfig)(unsafe.Pointer(&memory.take(int(unsafe.Sizeof(cudaLaunchConfig{})))[0]))
		*config = cudaLaunchConfig{gridDim: l.Grid, blockDim: l.Block, sharedMemBytes: l.Shared, attrs: at(attr), numAttrs: 1}
	}
	l.Args, l.Params = args, nil
	return prepared{l, at(list), at(node), config}
}

// CanOverlap is an error if launches cannot overlap: with ROCm, or a driver that is too
// old.
func (d *Device) CanOverlap() error {
	if d.lib.Kind != CUDA {
		return fmt.Errorf("%s has no launches that overlap", d.lib.Kind)
	}
	for _, f := range []*function{&d.lib.fn.LaunchKernelEx, &d.lib.fn.GraphDependAfter} {
		if f.address == 0 {
			return fmt.Errorf("launches that overlap need %s, which %s lacks", f.name, d.lib.Path)
		}
	}
	return nil
}

// record launches one kernel into a stream that is captured: a node of a graph, the
// first of which has none to overlap with.
func (d *Device) record(i int, p *prepared, stream uintptr) error {
	if p.config == nil || i == 0 {
		return d.enqueue(i, p, stream)
	}
	p.config.stream = stream
	if err := d.try(&d.lib.fn.LaunchKernelEx, uintptr(unsafe.Pointer(p.config)), p.Function.handle, p.parameters, 0); err != nil {
		return &LaunchError{i, p.Function.name, err}
	}
	return nil
}

// enqueue launches one kernel, on the device's thread.
func (d *Device) enqueue(i int, p *prepared, stream uintptr) error {
	d.args = [...]uintptr{p.Function.handle,
		uintptr(p.Grid[0]), uintptr(p.Grid[1]), uintptr(p.Grid[2]),
		uintptr(p.Block[0]), uintptr(p.Block[1]), uintptr(p.Block[2]),
		uintptr(p.Shared), stream, p.parameters, 0}
	if err := d.try(&d.lib.fn.LaunchKernel, d.args[:]...); err != nil {
		return &LaunchError{i, p.Function.name, err}
	}
	return nil
}
