package object

import "slices"

// check compares what the metadata says about a kernel with its descriptor, and
// with itself.
func (k *Kernel) check(o *CodeObject, p *problems) {
	for _, key := range k.unknown {
		p.add("kernel %s: metadata key %q is not known", k.Name, key)
	}
	k.checkArgs(p)
	if n := k.MaxWorkgroup; n < 1 || n > 1024 {
		p.add("kernel %s: metadata .max_flat_workgroup_size is %d, want 1 to 1024", k.Name, n)
	}
	if n := k.Wavefront; n != 32 && n != 64 {
		p.add("kernel %s: metadata .wavefront_size is %d, want 32 or 64", k.Name, n)
	}
	if w := k.RequiredWorkgroup; w != nil {
		if n := int64(w[0]) * int64(w[1]); n == 0 || w[2] == 0 || n > int64(k.MaxWorkgroup) || n*int64(w[2]) > int64(k.MaxWorkgroup) {
			p.add("kernel %s: metadata .reqd_workgroup_size %v does not go with .max_flat_workgroup_size %d", k.Name, w, k.MaxWorkgroup)
		}
	}
	if c, ok := chips[o.Target.Chip]; ok && (k.VGPRs > c.vgprs || k.LDSBytes > c.ldsBytes) {
		p.add("kernel %s: %d VGPRs and %d LDS bytes, where %s has %d and %d", k.Name, k.VGPRs, k.LDSBytes, o.Target.Chip, c.vgprs, c.ldsBytes)
	}
	d := k.Descriptor
	if d == nil {
		return
	}
	mismatch := func(what string, descriptor, metadata any) {
		p.add("kernel %s: %s: descriptor has %v, metadata has %v", k.Name, what, descriptor, metadata)
	}
	for _, c := range []struct {
		what string
		d    uint32
		m    int
	}{
		{"LDS bytes", d.LDSBytes, k.LDSBytes},
		{"scratch bytes", d.ScratchBytes, k.ScratchBytes},
		{"kernarg bytes", d.KernargBytes, k.KernargBytes},
	} {
		if int64(c.d) != int64(c.m) {
			mismatch(c.what, c.d, c.m)
		}
	}
	if k.DynamicStack != nil && *k.DynamicStack != d.Has(UsesDynamicStack) {
		mismatch("dynamic stack", d.Has(UsesDynamicStack), *k.DynamicStack)
	}
	if d.Has(Wavefront32) != (k.Wavefront == 32) {
		mismatch("wave size 32", d.Has(Wavefront32), k.Wavefront == 32)
	}
	if d.reserved != "" {
		p.add("kernel %s: descriptor: reserved %s are not zero", k.Name, d.reserved)
	}
	if r := d.Properties & reservedProperties; r != 0 {
		p.add("kernel %s: descriptor: reserved bits 0x%x of kernel_code_properties are set", k.Name, r)
	}
	if first, n := 4*d.PreloadOffset(), 4*d.PreloadLength(); n > 0 && first+n > roundUp(k.KernargBytes, 4) {
		p.add("kernel %s: descriptor preloads %d bytes at offset %d of %d kernarg bytes", k.Name, n, first, k.KernargBytes)
	}
	if !o.Relocatable && k.Code != nil {
		if entry := d.Address + uint64(d.EntryOffset); entry != k.Address {
			p.add("kernel %s: descriptor's entry is 0x%x, the function's symbol is at 0x%x", k.Name, entry, k.Address)
		}
	}
	if k.Code != nil && k.Address%256 != 0 {
		p.add("kernel %s: code at 0x%x is not aligned to 256 bytes", k.Name, k.Address)
	}
	if c, ok := chips[o.Target.Chip]; ok {
		k.checkRegisters(c, p)
	}
}

// checkRegisters knows the register file of gfx90a, gfx942 and gfx950. A
// descriptor may allocate more than is used, to bound the number of waves.
func (k *Kernel) checkRegisters(c chip, p *problems) {
	d := k.Descriptor
	if have := d.VGPRGranules() * c.vgprGranule; have < k.VGPRs {
		p.add("kernel %s: VGPRs: descriptor allocates %d, metadata counts %d", k.Name, have, k.VGPRs)
	}
	if have := d.SGPRGranules() * 8; have < k.SGPRs {
		p.add("kernel %s: SGPRs: descriptor allocates %d, metadata counts %d", k.Name, have, k.SGPRs)
	}
	if k.AGPRs == nil {
		p.add("kernel %s: metadata .agpr_count is missing", k.Name)
	} else if n := *k.AGPRs; n > 0 && d.AccumOffset()+n != k.VGPRs {
		p.add("kernel %s: AGPRs: descriptor places them at %d, metadata counts %d of %d registers", k.Name, d.AccumOffset(), n, k.VGPRs)
	} else if n == 0 && d.AccumOffset() < k.VGPRs {
		p.add("kernel %s: VGPRs: descriptor places the AGPRs at %d, metadata counts %d VGPRs and no AGPR", k.Name, d.AccumOffset(), k.VGPRs)
	}
	if r := d.Rsrc3 &^ (1<<16 | 63); r != 0 {
		p.add("kernel %s: descriptor: reserved bits 0x%x of compute_pgm_rsrc3 are set", k.Name, r)
	}
}

// checkArgs checks that arguments lie in the segment and do not overlap.
func (k *Kernel) checkArgs(p *problems) {
	if n := k.KernargAlign; n < 1 || n&(n-1) != 0 {
		p.add("kernel %s: metadata .kernarg_segment_align is %d, want a power of 2", k.Name, n)
	}
	for i, a := range k.Args {
		if !valueKinds[a.ValueKind] {
			p.add("kernel %s: argument %d: value kind %q is not known", k.Name, i, a.ValueKind)
		}
		if a.Size == 0 || int64(a.Offset)+int64(a.Size) > int64(k.KernargBytes) {
			p.add("kernel %s: argument %d: %d bytes at offset %d of %d kernarg bytes", k.Name, i, a.Size, a.Offset, k.KernargBytes)
		}
	}
	order := slices.Clone(k.Args)
	slices.SortStableFunc(order, func(a, b Arg) int { return a.Offset - b.Offset })
	for i := 1; i < len(order); i++ {
		if before, a := order[i-1], order[i]; int64(before.Offset)+int64(before.Size) > int64(a.Offset) {
			p.add("kernel %s: arguments at offsets %d (%d bytes) and %d overlap", k.Name, before.Offset, before.Size, a.Offset)
		}
	}
}
