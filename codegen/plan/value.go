package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Value is what a range of the arena holds from one launch to another. Two values
// share bytes only if no launch needs both.
type Value struct {
	Name   string // the tensor's; else the op and the part of the model that make it
	Offset int64
	Bytes  int64
	// First is the launch that writes it, -1 for inputs. Last is the last launch that
	// needs it, the number of launches for outputs.
	First, Last int
}

// end is the first byte after the value.
func (v *Value) end() int64 { return v.Offset + v.Bytes }

// holds reports whether the value has all bytes of a slice of the arena.
func (v *Value) holds(s Slice) bool { return v.Offset <= s.Offset && s.Offset+s.Bytes <= v.end() }

// MarshalText implements encoding.TextMarshaler: "a+64:128 3..7 NAME".
func (v Value) MarshalText() ([]byte, error) { return v.append(nil), nil }

func (v *Value) append(b []byte) []byte {
	s := Slice{Space: Arena, Offset: v.Offset, Bytes: v.Bytes}
	b = append(integer(append(s.append(b), ' '), v.First), ".."...)
	return append(append(integer(b, v.Last), ' '), v.Name...)
}

// UnmarshalText implements encoding.TextUnmarshaler. It takes only what
// MarshalText writes.
func (v *Value) UnmarshalText(text []byte) error {
	*v = Value{}
	if err := v.parse(string(text)); err != nil {
		return fmt.Errorf("value %q: %w", text, err)
	}
	return nil
}

func (v *Value) parse(text string) error {
	where, rest, ok := strings.Cut(text, " ")
	life, name, named := strings.Cut(rest, " ")
	from, to, ranged := strings.Cut(life, "..")
	if !ok || !named || !ranged {
		return fmt.Errorf("want SLICE FIRST..LAST NAME")
	}
	var s Slice
	if err := s.parse(where); err != nil {
		return err
	}
	if s.Space != Arena {
		return fmt.Errorf("is not in the arena")
	}
	first, err := number(from)
	if err != nil {
		return err
	}
	last, err := number(to)
	*v = Value{Name: name, Offset: s.Offset, Bytes: s.Bytes, First: int(first), Last: int(last)}
	return err
}

// Sort brings values into the order of plans: by first launch, then by offset.
func Sort(values []Value) {
	slices.SortFunc(values, func(a, b Value) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Offset, b.Offset))
	})
}

// Lives follows a plan from launch to launch. It is for a plan that CheckPlan has
// passed.
type Lives struct {
	values []Value
	next   int   // the first value that has not begun
	live   []int // indices in values, by offset
}

// Lives starts before all launches.
func (p *Plan) Lives() *Lives { return &Lives{values: p.Values} }

// At goes to a launch, or to -1 or the number of launches; never back.
func (l *Lives) At(launch int) {
	l.live = slices.DeleteFunc(l.live, func(i int) bool { return l.values[i].Last < launch })
	for ; l.next < len(l.values) && l.values[l.next].First <= launch; l.next++ {
		if l.values[l.next].Last >= launch {
			l.live = slices.Insert(l.live, l.after(l.values[l.next].Offset), l.next)
		}
	}
}

// after counts the live values that begin at or below an offset.
func (l *Lives) after(offset int64) int {
	at, _ := slices.BinarySearchFunc(l.live, offset, func(i int, offset int64) int {
		if l.values[i].Offset <= offset {
			return -1
		}
		return 1
	})
	return at
}

// Find returns the index of the live value that holds a slice of the arena, or -1.
func (l *Lives) Find(s Slice) int {
	at := l.after(s.Offset) - 1
	if at < 0 || !l.values[l.live[at]].holds(s) {
		return -1
	}
	return l.live[at]
}

// overlap returns two live values that share bytes.
func (l *Lives) overlap() (a, b *Value) {
	for i := 1; i < len(l.live); i++ {
		a, b := &l.values[l.live[i-1]], &l.values[l.live[i]]
		if b.Offset < a.end() {
			return a, b
		}
	}
	return nil, nil
}

// checkValues finds values that are not where their launches are, that share bytes
// while both are needed, or that nothing writes before they are read; and slices
// that lie in no value.
func (p *Plan) checkValues() error {
	end := len(p.Launches)
	for i, v := range p.Values {
		s := Slice{Space: Arena, Offset: v.Offset, Bytes: v.Bytes}
		switch {
		case v.Offset < 0 || v.Bytes < 1 || v.Bytes > p.Arena || v.Offset > p.Arena-v.Bytes || v.Offset%Align != 0:
			return fmt.Errorf("value %s: no place %s in an arena of %d bytes", v.Name, s.append(nil), p.Arena)
		case v.First < -1 || v.Last < v.First || v.Last > end || v.First == end:
			return fmt.Errorf("value %s: no life from launch %d to %d of %d", v.Name, v.First, v.Last, end)
		case i > 0 && (v.First < p.Values[i-1].First || v.First == p.Values[i-1].First && v.Offset <= p.Values[i-1].Offset):
			return fmt.Errorf("value %s is out of order", v.Name)
		}
	}
	lives := p.Lives()
	at := func(launch int) error {
		lives.At(launch)
		if a, b := lives.overlap(); a != nil {
			return fmt.Errorf("values %s and %s share bytes at launch %d", a.Name, b.Name, launch)
		}
		return nil
	}
	tensors := func(list []Tensor, launch int) error {
		if err := at(launch); err != nil {
			return err
		}
		for _, t := range list {
			for _, s := range []*Slice{&t.Data, t.Scales} {
				if s != nil && s.Space == Arena && lives.Find(*s) < 0 {
					return fmt.Errorf("tensor %s: no value has its bytes %s", t.Name, s.append(nil))
				}
			}
		}
		return nil
	}
	if err := tensors(p.Inputs, -1); err != nil {
		return err
	}
	written := make([]bool, len(p.Values))
	for i := range lives.next {
		written[i] = true // the inputs
	}
	for i, l := range p.Launches {
		if err := at(i); err != nil {
			return err
		}
		for _, writes := range []bool{false, true} { // a launch reads before it writes
			for j, a := range l.Args {
				if a.Mode == "" || a.Buf.Space != Arena || (a.Mode == Write) != writes {
					continue
				}
				v := lives.Find(a.Buf)
				if v < 0 {
					return fmt.Errorf("launch %d (%s) argument %d: no value has its bytes %s", i, l.Op, j, a.Buf.append(nil))
				}
				if !writes && !written[v] {
					return fmt.Errorf("launch %d (%s) argument %d reads value %s, which nothing has written", i, l.Op, j, p.Values[v].Name)
				}
				written[v] = true
			}
		}
	}
	return tensors(p.Outputs, end)
}
