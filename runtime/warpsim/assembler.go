package warpsim

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Inline assembler: the few PTX instructions that kernels have in it.

// assembly reads a call of assembler. Operands of the text are the results, then the
// arguments.
func (f *parser) assembly(to operand, c *cursor) (inst, error) {
	c.take("sideeffect")
	text, err := c.quoted()
	if err != nil {
		return nil, err
	}
	c.take(",")
	constraints, err := c.quoted()
	if err != nil {
		return nil, err
	}
	args, err := f.arguments(c)
	if err != nil {
		return nil, err
	}
	a := &assembler{to: to, args: args}
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "{") {
		text = strings.TrimSuffix(text[1:], "}")
	}
	var list []inst
	for s := range strings.SplitSeq(text, ";") {
		if s = strings.TrimSpace(s); s == "" || strings.HasPrefix(s, ".reg") {
			continue
		}
		do, err := a.statement(s)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", s, err)
		}
		list = append(list, do)
	}
	tied := map[int]int{} // results that begin as arguments
	for i, s := range strings.Split(constraints, ",") {
		if n, err := strconv.Atoi(s); err == nil {
			if tied[n] = i - a.results(); n >= a.results() || tied[n] >= len(args) {
				return nil, fmt.Errorf("constraints %q", constraints)
			}
		}
	}
	return func(w *warp, active uint32) error {
		for n, i := range tied {
			for lane := range lanesOf(active) {
				to.set(w, lane, n, args[i].get(w, lane, 0))
			}
		}
		w.registers = map[string]*[Warp]uint64{}
		for _, do := range list {
			if err := do(w, active); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func (c *cursor) quoted() (string, error) {
	if !c.take(`"`) {
		return "", fmt.Errorf("want a string, at %q", c.s)
	}
	s, rest, ok := strings.Cut(c.s, `"`)
	if !ok || strings.Contains(s, `\`) {
		return "", fmt.Errorf("string %q", c.s)
	}
	c.s = rest
	return s, nil
}

type assembler struct {
	to   operand
	args []operand
}

// source is an operand of a statement: a number, an argument, or a register.
func (a *assembler) source(s string) (func(w *warp, lane int) uint64, error) {
	if n, err := strconv.ParseInt(s, 0, 64); err == nil {
		return func(*warp, int) uint64 { return uint64(n) }, nil
	}
	if at, ok := strings.CutPrefix(s, "$"); ok {
		i, err := strconv.Atoi(at)
		if i -= a.results(); err != nil || i < 0 || i >= len(a.args) {
			return nil, fmt.Errorf("operand %s", s)
		}
		return func(w *warp, lane int) uint64 { return a.args[i].get(w, lane, 0) }, nil
	}
	return func(w *warp, lane int) uint64 {
		if w.registers[s] == nil {
			return 0
		}
		return w.registers[s][lane]
	}, nil
}

func (a *assembler) results() int {
	if a.to.t == nil {
		return 0
	}
	return a.to.t.lanes()
}

// wgmmaText is a product of a warpgroup with A in memory or, four words, in registers.
var wgmmaText = regexp.MustCompile(`^m64n(\d+)k16\.f32\.bf16\.bf16 \{([^}]*)\}, (?:(\w+), (\w+), (\w+), 1, 1, 0|\{([^}]*)\}, (\w+), (\w+), 1, 1), ([01])$`)

func (a *assembler) statement(s string) (inst, error) {
	op, rest, _ := strings.Cut(s, " ")
	fields := strings.Split(rest, ", ")
	to := fields[0]
	var in []func(w *warp, lane int) uint64
	for _, x := range fields[1:] {
		f, err := a.source(strings.Trim(x, "{}"))
		if err != nil && !strings.HasPrefix(op, "wgmma") {
			return nil, err
		}
		in = append(in, f)
	}
	set := func(of func(w *warp, lane int) uint64) inst {
		return func(w *warp, active uint32) error {
			var x [Warp]uint64
			for lane := range lanesOf(active) {
				x[lane] = of(w, lane)
			}
			w.registers[to] = &x
			return nil
		}
	}
	truth := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	switch {
	case op == "mov.b32" && len(in) == 1:
		return set(in[0]), nil
	case op == "add.s64" && len(in) == 2:
		return set(func(w *warp, lane int) uint64 { return in[0](w, lane) + in[1](w, lane) }), nil
	case op == "setp.ne.b32" && len(in) == 2:
		return set(func(w *warp, lane int) uint64 { return truth(in[0](w, lane) != in[1](w, lane)) }), nil
	case op == "setp.eq.b32" && len(in) == 2:
		return set(func(w *warp, lane int) uint64 { return truth(in[0](w, lane) == in[1](w, lane)) }), nil
	case op == "set.ge.u32.bf16x2" && len(in) == 2 && to == "$0" && a.results() == 1:
		return func(w *warp, active uint32) error {
			for lane := range lanesOf(active) {
				x, y, out := in[0](w, lane), in[1](w, lane), uint64(0)
				for half := 0; half < 32; half += 16 {
					number := func(word uint64) float32 { return math.Float32frombits(uint32(word>>half) << 16) }
					if number(x) >= number(y) {
						out |= 0xFFFF << half
					}
				}
				a.to.set(w, lane, 0, out)
			}
			return nil
		}, nil
	case op == "griddepcontrol.wait":
		return func(w *warp, active uint32) error {
			w.waited |= active
			return nil
		}, nil
	case op == "griddepcontrol.launch_dependents":
		return func(*warp, uint32) error { return nil }, nil
	case op == "prefetch.global.L2":
		at, err := a.source(strings.Trim(s[len(op):], " []"))
		if err != nil {
			return nil, err
		}
		return func(w *warp, active uint32) error {
			for lane := range lanesOf(active) {
				if !w.has(at(w, lane)) {
					return fmt.Errorf("lane %d: prefetch of %#x, outside of the arguments", w.first+lane, at(w, lane))
				}
			}
			return nil
		}, nil
	case op == "fence.proxy.async.shared::cta":
		return func(w *warp, active uint32) error {
			for lane := range lanesOf(active) {
				w.fence(lane)
			}
			return nil
		}, nil
	case op == "wgmma.fence.sync.aligned":
		return func(_ *warp, active uint32) error { return all(op, active) }, nil
	case op == "wgmma.commit_group.sync.aligned":
		return func(w *warp, active uint32) error {
			w.products = append(w.products, nil)
			return all(op, active)
		}, nil
	case op == "wgmma.wait_group.sync.aligned":
		n, err := strconv.Atoi(to)
		if err != nil {
			return nil, err
		}
		return func(w *warp, active uint32) error {
			if err := all(op, active); err != nil {
				return err
			}
			return w.waitProducts(n)
		}, nil
	case strings.HasPrefix(op, "wgmma.mma_async.sync.aligned."):
		m := wgmmaText.FindStringSubmatch(strings.TrimPrefix(s, "wgmma.mma_async.sync.aligned."))
		if m == nil {
			break
		}
		n, err := strconv.Atoi(m[1])
		sums := strings.Split(m[2], ", ")
		if err != nil || n%8 != 0 || len(sums) != n/2 {
			break
		}
		p := groupProduct{n: n, across: m[9] == "1"}
		for _, s := range sums {
			i, err := strconv.Atoi(strings.TrimPrefix(s, "$"))
			if err != nil || i >= a.results() {
				return nil, fmt.Errorf("result %s", s)
			}
			p.sums = append(p.sums, i)
		}
		p.to = a.to
		operands := []*func(w *warp, lane int) uint64{&p.a, &p.b, &p.add}
		of := m[3:6]
		if words := strings.Split(m[6], ", "); m[3] == "" {
			operands, of = operands[1:], m[7:9]
			if len(words) != 4 {
				break
			}
			p.words = make([]func(w *warp, lane int) uint64, len(words))
			for i, x := range words {
				if p.words[i], err = a.source(x); err != nil {
					return nil, err
				}
			}
		}
		for i, x := range operands {
			if *x, err = a.source(of[i]); err != nil {
				return nil, err
			}
		}
		return p.run, nil
	}
	return nil, fmt.Errorf("instruction %s is not known here", op)
}
