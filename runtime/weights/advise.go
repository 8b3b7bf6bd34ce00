package weights

import "unsafe"

// Position is where bytes of a tensor lie in the checkpoint, whose files follow one
// another in the order of their names: whoever reads by it reads from front to back.
// ok is false for bytes that are not of the checkpoint.
func (c *Checkpoint) Position(b []byte) (at int64, ok bool) {
	_, at, ok = c.find(b)
	return at, ok
}

// find is the mapping that holds b, and b's position.
func (c *Checkpoint) find(b []byte) (mapping, int64, bool) {
	p, at := uintptr(unsafe.Pointer(unsafe.SliceData(b))), int64(0)
	for _, m := range c.mappings {
		from := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
		if p >= from && p-from <= uintptr(len(m)) && uintptr(len(b)) <= uintptr(len(m))-(p-from) {
			return m, at + int64(p-from), true
		}
		at += int64(len(m))
	}
	return nil, 0, false
}

// Ahead has the system read bytes of tensors that will be used soon. It does not wait.
func (c *Checkpoint) Ahead(b []byte) { c.advise(b, willNeed) }

// Behind says that bytes of tensors will not be used again soon: they stay in the
// system's cache, if that has room, and no longer count as memory of this process.
func (c *Checkpoint) Behind(b []byte) { c.advise(b, dontNeed) }

// advise passes on what is known of whole pages of the mapping around b. Advice
// changes no content: a mapping is read-only and shared, so that what was dropped is
// read again. It is of no consequence where the system does not take it.
func (c *Checkpoint) advise(b []byte, what advice) {
	m, _, ok := c.find(b)
	if !ok || len(b) == 0 {
		return
	}
	from := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(m))))
	first := from / pageSize * pageSize // a mapping starts at a page
	m.advise(m[first:from+len(b)], what)
}
