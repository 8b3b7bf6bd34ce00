package drivertest

import (
	"encoding/binary"
	"slices"
)

// launch reads a launch as C has it. params is void *[], which is read now.
func (c *callbacks) launch(call string, function, params, extra uintptr, grid, block [3]uint32, shared uint32) (*node, int32) {
	k, ok := get[*kernel](c.fake, call, function)
	if !ok {
		return nil, codeInvalidFunction
	}
	items := uint64(block[0]) * uint64(block[1]) * uint64(block[2])
	if slices.Contains(grid[:], 0) || items == 0 || items > maxGroup || int(shared) > c.fake.maxShared(k) || k.pool && shared == 0 || extra != 0 {
		return nil, codeInvalidValue
	}
	l := &Launch{Device: c.fake.device(), Object: k.object, Kernel: k.kernel, Grid: grid, Block: block, Shared: shared, Kernarg: make([]byte, k.kernel.KernargBytes), waits: k.waits}
	at := 0
	for _, a := range k.kernel.Args {
		if a.Hidden() {
			continue
		}
		from := *wordAt(params + uintptr(wordBytes*at))
		copy(l.Kernarg[a.Offset:], bytesAt(from, a.Size))
		at++
	}
	return &node{launch: l}, 0
}

func (c *callbacks) HipModuleLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, handle, params, extra uintptr) int32 {
	grid, block := [3]uint32{uint32(gx), uint32(gy), uint32(gz)}, [3]uint32{uint32(bx), uint32(by), uint32(bz)}
	n, code := c.launch("hipModuleLaunchKernel", function, params, extra, grid, block, uint32(shared))
	if code != 0 {
		return code
	}
	return c.fake.submit("hipModuleLaunchKernel", handle, n)
}

func (c *callbacks) HipStreamBeginCapture(handle, mode uintptr) int32 {
	s, ok := get[*stream](c.fake, "hipStreamBeginCapture", handle)
	if !ok || s.capture != nil || mode > 2 {
		return codeInvalidValue
	}
	s.capture = &capture{graph: &graph{}}
	return 0
}

func (c *callbacks) HipStreamIsCapturing(handle, to uintptr) int32 {
	s, ok := get[*stream](c.fake, "hipStreamIsCapturing", handle)
	switch {
	case !ok:
		return codeInvalidHandle
	case s.capture == nil:
		*int32At(to) = 0
	case s.capture.invalid:
		*int32At(to) = 2
	default:
		*int32At(to) = 1
	}
	return 0
}

func (c *callbacks) HipStreamEndCapture(handle, to uintptr) int32 {
	s, ok := get[*stream](c.fake, "hipStreamEndCapture", handle)
	if !ok || s.capture == nil {
		return codeInvalidValue
	}
	done := s.capture
	s.capture = nil
	if done.invalid {
		c.fake.forget(done.graph)
		*wordAt(to) = 0
		return codeCaptureInvalidated
	}
	*wordAt(to) = c.fake.put(done.graph)
	return 0
}

// forget drops the nodes of a graph.
func (f *Fake) forget(g *graph) {
	for _, n := range g.nodes {
		delete(f.handles, n.handle)
	}
}

func (c *callbacks) HipGraphCreate(to, flags uintptr) int32 {
	*wordAt(to) = c.fake.put(&graph{})
	return 0
}

func (c *callbacks) HipGraphDestroy(handle uintptr) int32 {
	g, ok := get[*graph](c.fake, "hipGraphDestroy", handle)
	if !ok {
		return codeInvalidValue
	}
	c.fake.forget(g)
	delete(c.fake.handles, handle)
	return 0
}

func (c *callbacks) HipGraphAddKernelNode(to, handle, after, count, params uintptr) int32 {
	return c.addKernel("hipGraphAddKernelNode", c.fake.headers, "hipKernelNodeParams", to, handle, after, count, params)
}

// addKernel reads the struct of a kernel node by its layout.
func (c *callbacks) addKernel(call string, l Layout, name string, to, handle, after, count, params uintptr) int32 {
	g, ok := get[*graph](c.fake, call, handle)
	if !ok {
		return codeInvalidValue
	}
	b := bytesAt(params, l["sizeof "+name])
	at := func(field string) []byte { return b[l["offset "+name+"."+field]:] }
	word := func(name string) uintptr { return uintptr(binary.LittleEndian.Uint64(at(name))) }
	size := func(name string) (v [3]uint32) {
		for i := range v {
			v[i] = binary.LittleEndian.Uint32(at(name)[4*i:])
		}
		return v
	}
	n, code := c.launch(call, word("func"), word("kernelParams"), word("extra"), size("gridDim"), size("blockDim"),
		binary.LittleEndian.Uint32(at("sharedMemBytes")))
	if code != 0 {
		return code
	}
	for i := range count {
		before := *wordAt(after + wordBytes*i)
		if !slices.ContainsFunc(g.nodes, func(n *node) bool { return n.handle == before }) {
			return codeInvalidValue
		}
		n.after = append(n.after, before)
	}
	c.fake.add(g, n)
	*wordAt(to) = n.handle
	return 0
}

func (c *callbacks) HipGraphGetNodes(handle, list, count uintptr) int32 {
	g, ok := get[*graph](c.fake, "hipGraphGetNodes", handle)
	if !ok {
		return codeInvalidValue
	}
	if list != 0 {
		for i, n := range g.nodes[:min(len(g.nodes), int(*wordAt(count)))] {
			*wordAt(list + uintptr(wordBytes*i)) = n.handle
		}
	}
	*wordAt(count) = uintptr(len(g.nodes))
	return 0
}

func (c *callbacks) HipGraphInstantiateWithFlags(to, handle, flags uintptr) int32 {
	g, ok := get[*graph](c.fake, "hipGraphInstantiateWithFlags", handle)
	if !ok || flags != 0 {
		return codeInvalidValue
	}
	for i, n := range g.nodes {
		if i > 0 && !slices.Equal(n.after, []uintptr{g.nodes[i-1].handle}) {
			c.fake.problem("graph node %d does not follow exactly node %d", i, i-1)
		}
	}
	*wordAt(to) = c.fake.put(&exec{slices.Clone(g.nodes)})
	return 0
}

func (c *callbacks) HipGraphExecDestroy(handle uintptr) int32 {
	if _, ok := get[*exec](c.fake, "hipGraphExecDestroy", handle); !ok {
		return codeInvalidValue
	}
	delete(c.fake.handles, handle)
	return 0
}

func (c *callbacks) HipGraphLaunch(handle, on uintptr) int32 {
	x, isExec := get[*exec](c.fake, "hipGraphLaunch", handle)
	_, isStream := get[*stream](c.fake, "hipGraphLaunch", on)
	if !isExec || !isStream {
		return codeInvalidValue
	}
	for _, n := range x.nodes {
		c.fake.run(n, true)
		if c.fake.lost != 0 {
			break
		}
	}
	return 0
}
