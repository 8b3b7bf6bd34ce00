package device

// Uploader is a Device whose memory is written fastest through memory of the host that
// it reads by itself.
type Uploader interface {
	// NewRing makes slots of that many bytes each.
	NewRing(slots int, bytes int64) (Ring, error)
}

// Ring is memory of the host in slots, from which copies to a device go on while the
// next slot is filled. It is used by one goroutine at a time, except that different
// slots may be filled concurrently.
type Ring interface {
	// Slot is the memory of a slot.
	Slot(i int) []byte
	// Send starts copies from a slot, after the work that was started before. The slot
	// must not change until Wait.
	Send(i int, list []Transfer) error
	// Wait waits for the copies of a slot.
	Wait(i int) error
	// Close waits for all copies and frees the slots.
	Close() error
}

// Transfer is a copy of a part of a slot to memory of the device.
type Transfer struct {
	To                  Memory
	Offset, From, Bytes int64
}

// plainRing is the ring of a device that has none: its copies are done at once.
type plainRing struct {
	memory []byte
	bytes  int64
}

// NewRing makes slots for a device, of memory that it reads by itself if it can.
func NewRing(dev Device, slots int, bytes int64) (Ring, error) {
	if u, ok := dev.(Uploader); ok {
		return u.NewRing(slots, bytes)
	}
	return &plainRing{make([]byte, int64(slots)*bytes), bytes}, nil
}

func (r *plainRing) Slot(i int) []byte { return r.memory[int64(i)*r.bytes:][:r.bytes] }

func (r *plainRing) Send(i int, list []Transfer) error {
	for _, t := range list {
		if err := t.To.Write(t.Offset, r.Slot(i)[t.From:][:t.Bytes]); err != nil {
			return err
		}
	}
	return nil
}

func (r *plainRing) Wait(int) error { return nil }
func (r *plainRing) Close() error   { return nil }
