package drivertest

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Step runs the launch if its kernel is a step's prologue or epilogue, for devices
// that cannot run code: what codegen/kernels/step.go makes, in Go.
func (l *Launch) Step() (ran bool, err error) {
	prologue := strings.HasPrefix(l.Kernel.Name, "step_prologue_")
	if !prologue && !strings.HasPrefix(l.Kernel.Name, "step_epilogue_") {
		return false, nil
	}
	defer func() { // a table that leads outside of the blocks
		if r := recover(); r != nil {
			err = fmt.Errorf("kernel %s: %v", l.Kernel.Name, r)
		}
	}()
	host, rows, state := l.block(0), l.block(1), l.block(2)
	for g := range int(l.Grid[0]) {
		row := rows[8*stepRow*g:]
		address, at, n, stamp := number(row, 0), int(number(row, 1)), int64(number(row, 2)), int(number(row, 3))
		memory := []byte{} // a row of nothing has no address
		if n > 0 {
			if memory, err = l.Memory(address, n); err != nil {
				return true, err
			}
		}
		if prologue {
			copy(memory, host[8*at:])
			setNumber(state, stamp, number(host, 0))
			setNumber(state, 0, number(state, 1)+1)
			continue
		}
		copy(host[8*at:], memory)
		setNumber(host, stamp, number(state, 0))
		setNumber(state, 1, number(state, 0))
	}
	return true, nil
}

// Zero writes up to n zeros where the last buffer of the launch begins, which kernels of
// plans write: a result in place of one, where what others left in its bytes may be none.
func (l *Launch) Zero(n int) {
	for i := len(l.Kernarg)/8 - 1; i >= 0; i-- {
		if b := l.block(i); b != nil {
			clear(b[:min(n, len(b))])
			return
		}
	}
}

// stepRow is how many words a row of the table has.
const stepRow = 4

// block is the allocation that an argument points into, from there on.
func (l *Launch) block(arg int) []byte {
	address := number(l.Kernarg, arg)
	for _, base := range sortedKeys(l.fake.blocks) {
		b := l.fake.blocks[base].bytes
		if at := uintptr(address) - base; uintptr(address) >= base && at < uintptr(len(b)) {
			return b[at:]
		}
	}
	return nil
}

func number(b []byte, word int) uint64       { return binary.LittleEndian.Uint64(b[8*word:]) }
func setNumber(b []byte, word int, v uint64) { binary.LittleEndian.PutUint64(b[8*word:], v) }
