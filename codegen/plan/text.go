package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// Slices and arguments are short texts in JSON: a plan has tens of thousands.
//
//	a+64:128      128 bytes of the arena from byte 64
//	s3+0:4096     of pool 3
//	w17.1+0:64    of the scales of weight 17
//	r a+64:128    an argument that is read; w and rw are written and updated
//	i 37          an integer argument

// MarshalText implements encoding.TextMarshaler.
func (s Slice) MarshalText() ([]byte, error) { return s.append(nil), nil }

func (s Slice) append(b []byte) []byte {
	b = append(b, byte(s.Space))
	if s.Space != Arena {
		b = strconv.AppendInt(b, int64(s.Index), 10)
		if s.Part != 0 {
			b = strconv.AppendInt(append(b, '.'), int64(s.Part), 10)
		}
	}
	b = strconv.AppendInt(append(b, '+'), s.Offset, 10)
	return strconv.AppendInt(append(b, ':'), s.Bytes, 10)
}

// UnmarshalText implements encoding.TextUnmarshaler. It takes only what
// MarshalText writes.
func (s *Slice) UnmarshalText(text []byte) error {
	if err := s.parse(string(text)); err != nil {
		return fmt.Errorf("slice %q: %w", text, err)
	}
	return nil
}

func (s *Slice) parse(text string) error {
	*s = Slice{}
	if text == "" {
		return fmt.Errorf("empty")
	}
	s.Space = Space(text[0])
	where, run, ok := strings.Cut(text[1:], "+")
	if !ok {
		return fmt.Errorf("no offset")
	}
	switch s.Space {
	case Arena:
		if where != "" {
			return fmt.Errorf("the arena has no index")
		}
	case State, Weight:
		index, part, parts := strings.Cut(where, ".")
		n, err := number(index)
		if err != nil {
			return err
		}
		s.Index = int(n)
		if parts {
			if part != "1" {
				return fmt.Errorf("part %q: want 1", part)
			}
			s.Part = 1
		}
	default:
		return fmt.Errorf("unknown memory %q", text[:1])
	}
	offset, bytes, ok := strings.Cut(run, ":")
	if !ok {
		return fmt.Errorf("no length")
	}
	var err error
	if s.Offset, err = number(offset); err != nil {
		return err
	}
	s.Bytes, err = number(bytes)
	return err
}

// number reads a decimal number as strconv writes it.
func number(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("%q is no number", s)
	}
	return n, nil
}

// MarshalText implements encoding.TextMarshaler.
func (a Arg) MarshalText() ([]byte, error) { return a.append(nil), nil }

func (a *Arg) append(b []byte) []byte {
	if a.Mode == "" {
		return strconv.AppendInt(append(b, "i "...), a.Int, 10)
	}
	return a.Buf.append(append(append(b, a.Mode...), ' '))
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Arg) UnmarshalText(text []byte) error {
	*a = Arg{}
	mode, rest, ok := strings.Cut(string(text), " ")
	var err error
	switch {
	case !ok:
		err = fmt.Errorf("no mode")
	case mode == "i":
		a.Int, err = number(rest)
	default:
		if a.Mode = Mode(mode); a.Mode != Read && a.Mode != Write && a.Mode != Update {
			err = fmt.Errorf("mode %q: want r, w, rw or i", mode)
			break
		}
		err = a.Buf.parse(rest)
	}
	if err != nil {
		return fmt.Errorf("argument %q: %w", text, err)
	}
	return nil
}
