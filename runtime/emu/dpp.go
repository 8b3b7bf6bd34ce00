package emu

import (
	"strconv"
	"strings"
)

// dpp is data-parallel primitives: source 0 of a lane comes from another lane. All
// of it is read before the destination is written.
//
// A lane whose source is out of range, or switched off by EXEC, gets 0 with
// bound_ctrl and is not written without. row_mask and bank_mask switch off the
// writing of rows of 16 lanes, and of groups of 4 in every row.
type dpp struct {
	from    [Lanes]uint8 // the source lane; itself if there is none
	inRange uint64       // lanes that have a source
	lanes   uint64       // of row_mask and bank_mask
	zero    bool         // bound_ctrl
}

// available are the lanes whose source has a value.
func (d *dpp) available(exec uint64) uint64 {
	if exec == ^uint64(0) {
		return d.inRange
	}
	m := uint64(0)
	for i, j := range d.from {
		m |= exec >> (j & 63) & 1 << i
	}
	return m & d.inRange
}

// gather makes source 0.
func (d *dpp) gather(q, p *Vec, exec uint64) {
	for i, j := range d.from {
		q[i] = p[j&63]
	}
	if m := d.available(exec); m != ^uint64(0) && d.zero {
		for i := range q {
			q[i] &= -uint32(m >> i & 1)
		}
	}
}

// written are the lanes that the instruction writes.
func (d *dpp) written(exec uint64) uint64 {
	m := exec & d.lanes
	if !d.zero {
		m &= d.available(exec)
	}
	return m
}

// dppControl returns the source lane of lane i, or one outside of 0..63.
type dppControl func(i, n int) int

const noLane = -1

// inRow stays inside the row of lane i, or has no source.
func inRow(i, j int) int {
	if i>>4 != j>>4 || j < 0 {
		return noLane
	}
	return j
}

// dppControls are the permutations that have a number, and its largest value; the
// smallest is 1 unless the name is that of a lane.
var dppControls = map[string]struct {
	least, most int
	from        dppControl
}{
	"row_shl":      {1, 15, func(i, n int) int { return inRow(i, i+n) }},
	"row_shr":      {1, 15, func(i, n int) int { return inRow(i, i-n) }},
	"row_ror":      {1, 15, func(i, n int) int { return i&^15 | (i-n)&15 }},
	"row_newbcast": {0, 15, func(i, n int) int { return i&^15 | n }},
	"wave_shl":     {1, 1, func(i, _ int) int { return i + 1 }},
	"wave_rol":     {1, 1, func(i, _ int) int { return (i + 1) & 63 }},
	"wave_shr":     {1, 1, func(i, _ int) int { return i - 1 }},
	"wave_ror":     {1, 1, func(i, _ int) int { return (i - 1) & 63 }},
	// The last lane of each row goes to all of the next; the first row has no source.
	"row_bcast": {15, 31, func(i, n int) int {
		if n == 15 {
			return i&^15 - 1
		}
		return i&^31 - 1
	}},
}

// dppFlags are the permutations without a number.
var dppFlags = map[string]dppControl{
	"row_mirror":      func(i, _ int) int { return i ^ 15 },
	"row_half_mirror": func(i, _ int) int { return i ^ 7 },
}

// dpp compiles the modifiers of the DPP encoding.
func (c *compiler) dpp() *dpp {
	d := &dpp{}
	var from dppControl
	n := 0
	for _, m := range c.in.Mods {
		var f dppControl
		switch row, ok := dppControls[m.Key]; {
		case ok:
			n = c.number(m.Key, 0)
			f = row.from
			if n < row.least || n > row.most || m.Key == "row_bcast" && n != 15 && n != 31 {
				c.fail("modifier %s:%s is out of range", m.Key, m.Value)
			}
		case dppFlags[m.Key] != nil && c.flag(m.Key):
			f = dppFlags[m.Key]
		case m.Key == "quad_perm":
			f = c.quadPerm()
		default:
			continue
		}
		if from != nil {
			c.fail("modifier %s: there is another permutation", m.Key)
		}
		from = f
	}
	if from == nil {
		c.fail("no permutation of lanes is known among the modifiers")
		return d
	}
	for i := range Lanes {
		j := from(i, n)
		d.from[i] = uint8(i)
		if j >= 0 && j < Lanes {
			d.from[i] = uint8(j)
			d.inRange |= 1 << i
		}
	}
	rows, banks := c.number("row_mask", 15), c.number("bank_mask", 15)
	for i := range Lanes {
		if rows>>(i>>4)&1 != 0 && banks>>(i>>2&3)&1 != 0 {
			d.lanes |= 1 << i
		}
	}
	// The bit is printed as 1, and was as 0 by older versions of LLVM.
	switch v := c.value("bound_ctrl", ""); v {
	case "":
	case "0", "1":
		d.zero = true
	default:
		c.fail("modifier bound_ctrl:%s is not known", v)
	}
	return d
}

// quadPerm compiles quad_perm:[a,b,c,d]: the lanes of a group of four.
func (c *compiler) quadPerm() dppControl {
	v := c.value("quad_perm", "")
	inner, _ := wrapped(v, "[", "]")
	var quad [4]int
	list := strings.Split(inner, ",")
	for i := range quad {
		ok := len(list) == len(quad)
		if ok {
			n, err := strconv.Atoi(strings.TrimSpace(list[i]))
			quad[i], ok = n, err == nil && n >= 0 && n < 4
		}
		if !ok {
			c.fail("modifier quad_perm:%s: not four lanes", v)
			break
		}
	}
	return func(i, _ int) int { return i&^3 | quad[i&3] }
}
