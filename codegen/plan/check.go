package plan

import (
	"fmt"
	"strings"
)

// Check validates a plan that was read from a file: version, and every slice
// inside the memory it names. sizes of pools and weights come from the plan's
// own tensors.
func (p *Plan) Check() error {
	if p.Version != Version {
		return fmt.Errorf("plan %s: version %d, this kiln reads %d", p.Entry, p.Version, Version)
	}
	if p.Arena < 0 {
		return fmt.Errorf("plan %s: arena of %d bytes", p.Entry, p.Arena)
	}
	c := checker{p: p, size: map[string]int64{}}
	for _, list := range []struct {
		space Space
		ts    []Tensor
	}{{State, p.States}, {Weight, p.Weights}} {
		for _, t := range list.ts {
			if err := c.declare(list.space, t); err != nil {
				return err
			}
		}
	}
	for _, list := range [][]Tensor{p.Inputs, p.Outputs} {
		for _, t := range list {
			for _, s := range []*Slice{&t.Data, t.Scales} {
				if s == nil {
					continue
				}
				if err := c.slice("tensor "+t.Name, *s); err != nil {
					return err
				}
			}
		}
	}
	for i, l := range p.Launches {
		where := fmt.Sprintf("launch %d (%s)", i, l.Kernel)
		if l.Kernel == "" || l.Grid < 1 {
			return fmt.Errorf("plan %s: %s: grid %d", p.Entry, where, l.Grid)
		}
		for j, a := range l.Args {
			if a.Buf == nil {
				continue
			}
			if err := c.slice(fmt.Sprintf("%s argument %d", where, j), *a.Buf); err != nil {
				return err
			}
			if a.Mode != Read && a.Mode != Write && a.Mode != Update {
				return fmt.Errorf("plan %s: %s argument %d: mode %q", p.Entry, where, j, a.Mode)
			}
			if a.Buf.Space == Weight && a.Mode != Read {
				return fmt.Errorf("plan %s: %s argument %d writes weight %s", p.Entry, where, j, a.Buf.Name)
			}
		}
	}
	return nil
}

type checker struct {
	p    *Plan
	size map[string]int64
}

func key(s Space, name string, part int) string { return fmt.Sprintf("%s %s %d", s, name, part) }

func (c *checker) declare(space Space, t Tensor) error {
	for part, s := range []*Slice{&t.Data, t.Scales} {
		if s == nil {
			continue
		}
		if s.Space != space || s.Name != t.Name || s.Part != part || s.Offset != 0 || s.Bytes < 1 {
			return fmt.Errorf("plan %s: %s %s: its slice is not the whole of it", c.p.Entry, space, t.Name)
		}
		k := key(space, t.Name, part)
		if _, dup := c.size[k]; dup {
			return fmt.Errorf("plan %s: %s %s is declared twice", c.p.Entry, space, t.Name)
		}
		c.size[k] = s.Bytes
	}
	return nil
}

func (c *checker) slice(where string, s Slice) error {
	size := c.p.Arena
	if s.Space != Arena {
		var ok bool
		if size, ok = c.size[key(s.Space, s.Name, s.Part)]; !ok {
			return fmt.Errorf("plan %s: %s: no %s %q part %d", c.p.Entry, where, s.Space, s.Name, s.Part)
		}
	}
	if s.Offset < 0 || s.Bytes < 0 || s.Bytes > size || s.Offset > size-s.Bytes {
		return fmt.Errorf("plan %s: %s: bytes %d..%d are outside %s (%d bytes)", c.p.Entry, where, s.Offset, s.Offset+s.Bytes, strings.TrimSpace(string(s.Space)+" "+s.Name), size)
	}
	return nil
}
