package emu

import (
	"fmt"
	"slices"
	"sync"
)

// Space is the memory of a device: blocks of the process's own memory, which keep
// their addresses. The zero Space is empty.
type Space struct {
	mu   sync.Mutex
	list regions
}

// Map makes a block of memory accessible to kernels at its own address. It must not
// move (not be on a goroutine's stack) until Unmap.
func (s *Space) Map(b []byte, label string) error {
	if len(b) == 0 {
		return fmt.Errorf("emu: %s has no bytes", label)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list, err := s.list.with(regionOf(b, label))
	if err == nil {
		s.list = list
	}
	return err
}

// Unmap takes a block away.
func (s *Space) Unmap(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lo := regionOf(b, "").lo
	s.list = slices.DeleteFunc(slices.Clone(s.list), func(r region) bool { return r.lo == lo })
}

// Address is what a kernel takes a block's first byte by.
func Address(b []byte) uint64 { return regionOf(b, "").lo }

// regions is the list as it is now; it does not change.
func (s *Space) regions() regions {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list
}
