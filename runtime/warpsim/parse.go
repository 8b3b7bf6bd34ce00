package warpsim

import (
	"fmt"
	"slices"
	"strings"
)

// Warp is the number of lanes that act together.
const Warp = 32

// program is the kernels of some modules.
type program struct {
	kernels map[string]*function
}

// function is a kernel. Values live in slots, one for each scalar of them.
type function struct {
	name   string
	params []int // slots
	blocks []*block
	slots  int
	shared int  // bytes of the variables
	pool   bool // it has shared memory that the launch gives
}

// block is a basic block. Of two that lanes of a warp are at, the one with the lower
// order is run first, so that lanes meet again where branches join.
type block struct {
	name   string
	order  int
	phis   []phi
	insts  []inst
	branch branch
}

// phi takes values over from the block that the lane comes from.
type phi struct {
	to   operand
	from map[*block]operand
}

// branch ends a block: a return if it goes nowhere.
type branch struct {
	cond *operand
	to   []*block // then and else, or one
}

// operand is a constant or a value in slots.
type operand struct {
	t     *typ
	slot  int
	bits  []uint64        // of a constant
	lanes []*[Warp]uint64 // the same for every lane
}

// constantOf is an operand that all lanes have.
func constantOf(t *typ, bits []uint64) operand {
	o := operand{t: t, bits: bits}
	for _, b := range bits {
		var x [Warp]uint64
		for lane := range x {
			x[lane] = b
		}
		o.lanes = append(o.lanes, &x)
	}
	return o
}

// all is scalar i of all lanes.
func (o *operand) all(w *warp, i int) *[Warp]uint64 {
	if o.bits != nil {
		return o.lanes[i]
	}
	return (*[Warp]uint64)(w.slots[(o.slot+i)*Warp:])
}

// get is scalar i of a lane.
func (o *operand) get(w *warp, lane, i int) uint64 {
	if o.bits != nil {
		return o.bits[i]
	}
	return w.slots[(o.slot+i)*Warp+lane]
}

// set writes scalar i of a lane.
func (o *operand) set(w *warp, lane, i int, x uint64) { w.slots[(o.slot+i)*Warp+lane] = x }

// inst is an instruction, for the lanes of active.
type inst func(w *warp, active uint32) error

// parse reads modules that were joined.
func parse(text string) (*program, error) {
	p := &program{kernels: map[string]*function{}}
	globals := map[string]shared{}
	var f *parser
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		c := &cursor{line}
		var err error
		switch {
		case line == "" || strings.HasPrefix(line, "target ") || strings.HasPrefix(line, "declare "):
		case strings.HasPrefix(line, "@"):
			err = variable(c, globals)
		case c.take("define ptx_kernel void @"):
			f = &parser{kernel: &function{name: c.word()}, globals: globals, names: map[string]operand{}, blocks: map[string]*block{}, places: map[string]int{}}
			err = f.begin(c)
		case f == nil:
			err = fmt.Errorf("outside of a function")
		case line == "}":
			err = f.end()
			p.kernels[f.kernel.name], f = f.kernel, nil
		case strings.HasSuffix(line, ":"):
			f.cur = f.block(strings.TrimSuffix(line, ":"))
			f.kernel.blocks = append(f.kernel.blocks, f.cur)
		default:
			f.lines = append(f.lines, located{f.cur, line})
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
	}
	return p, nil
}

// shared is a variable in shared memory, or, a pool, what the launch gives.
type shared struct {
	kernel string
	bytes  int
	pool   bool
}

// poolBase is where a pool begins: behind all variables.
const poolBase = 1 << 20

func variable(c *cursor, globals map[string]shared) error {
	name := c.word()
	pool := c.take("= external addrspace(3) global")
	if !pool && !c.take("= internal addrspace(3) global") {
		return fmt.Errorf("variables are shared, and internal or a pool")
	}
	t, err := c.typ()
	if err != nil {
		return err
	}
	if pool && t.size() != 0 {
		return fmt.Errorf("a pool of %d bytes: the launch says how many", t.size())
	}
	of, _, _ := strings.Cut(name[1:], ".")
	globals[name] = shared{of, t.size(), pool}
	return nil
}

// parser reads one function. Instructions are read when all names are known, since
// a phi may name what comes later.
type parser struct {
	kernel  *function
	globals map[string]shared
	names   map[string]operand
	places  map[string]int // of shared variables
	blocks  map[string]*block
	cur     *block
	lines   []located
}

type located struct {
	at   *block
	text string
}

func (f *parser) block(name string) *block {
	if f.blocks[name] == nil {
		f.blocks[name] = &block{name: name}
	}
	return f.blocks[name]
}

// define makes slots for a value.
func (f *parser) define(name string, t *typ) operand {
	o := operand{t: t, slot: f.kernel.slots}
	f.kernel.slots += t.lanes()
	f.names[name] = o
	return o
}

func (f *parser) begin(c *cursor) error {
	c.take("(")
	for !c.take(")") {
		t, err := c.typ()
		if err != nil {
			return err
		}
		for !strings.HasPrefix(strings.TrimLeft(c.s, " "), "%") {
			if c.word() == "" {
				return fmt.Errorf("parameter at %q", c.s)
			}
		}
		f.kernel.params = append(f.kernel.params, f.define(c.word(), t).slot)
		c.take(",")
	}
	return nil
}

// end reads the instructions and orders the blocks.
func (f *parser) end() error {
	for _, l := range f.lines {
		name, text, named := strings.Cut(l.text, " = ")
		if !named || !strings.HasPrefix(name, "%") {
			continue
		}
		t, err := resultType(text)
		if err != nil {
			return fmt.Errorf("%q: %w", l.text, err)
		}
		f.define(name, t)
	}
	for _, l := range f.lines {
		f.cur = l.at
		if err := f.instruction(l.text); err != nil {
			return fmt.Errorf("kernel %s: %q: %w", f.kernel.name, l.text, err)
		}
	}
	var list []*block
	seen := map[*block]bool{}
	var visit func(b *block)
	visit = func(b *block) {
		if seen[b] {
			return
		}
		seen[b] = true
		// What a condition leads to comes before what is behind it: a loop's body before
		// its end.
		for _, n := range slices.Backward(b.branch.to) {
			visit(n)
		}
		list = append(list, b)
	}
	visit(f.kernel.blocks[0])
	slices.Reverse(list)
	for i, b := range list {
		b.order = i
	}
	f.kernel.blocks = list
	return nil
}

// operand reads a value of a known type.
func (f *parser) operand(c *cursor, t *typ) (operand, error) {
	bits, ok, err := c.constant(t)
	if err != nil {
		return operand{}, err
	}
	if ok {
		return constantOf(t, bits), nil
	}
	name := c.word()
	if g, ok := f.globals[name]; ok && g.pool {
		f.kernel.pool = true
		return constantOf(t, []uint64{poolBase}), nil
	} else if ok {
		at, ok := f.places[name]
		if !ok {
			at = (f.kernel.shared + 15) / 16 * 16
			f.places[name], f.kernel.shared = at, at+g.bytes
		}
		return constantOf(t, []uint64{uint64(at)}), nil
	}
	o, ok := f.names[name]
	if !ok {
		return operand{}, fmt.Errorf("unknown value %s", name)
	}
	return operand{t: t, slot: o.slot}, nil
}

// typed reads a type and a value.
func (f *parser) typed(c *cursor) (operand, error) {
	t, err := c.typ()
	if err != nil {
		return operand{}, err
	}
	return f.operand(c, t)
}

// list reads typed values between commas.
func (f *parser) list(c *cursor, n int) ([]operand, error) {
	var out []operand
	for i := range n {
		if i > 0 && !c.take(",") {
			return nil, fmt.Errorf("want %d operands, at %q", n, c.s)
		}
		o, err := f.typed(c)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

// resultType is the type of the value that an instruction defines.
func resultType(text string) (*typ, error) {
	c := &cursor{text}
	boolean := func(t *typ) *typ {
		one := &typ{bits: 1}
		if t.kind == vector {
			return &typ{kind: vector, n: t.n, elem: one}
		}
		return one
	}
	switch op := c.word(); op {
	case "icmp", "fcmp":
		c.word()
		t, err := c.typ()
		if err != nil {
			return nil, err
		}
		return boolean(t), nil
	case "zext", "sext", "trunc", "fpext", "fptrunc", "fptosi", "sitofp", "uitofp", "bitcast", "inttoptr", "ptrtoint":
		_, to, ok := strings.Cut(text, " to ")
		if !ok {
			return nil, fmt.Errorf("no type to convert to")
		}
		return (&cursor{to}).typ()
	case "getelementptr":
		c.take("inbounds")
		if _, err := c.typ(); err != nil {
			return nil, err
		}
		c.take(",")
		return c.typ() // that of the base: element types of pointers do not matter here
	case "load":
		c.take("atomic")
		return c.typ()
	case "alloca":
		return c.typ()
	case "select":
		_, rest, _ := strings.Cut(text, ", ")
		return (&cursor{rest}).typ()
	case "extractelement", "extractvalue":
		t, err := c.typ()
		if err != nil {
			return nil, err
		}
		return t.scalar(), nil
	case "shufflevector":
		t, err := c.typ()
		if err != nil {
			return nil, err
		}
		at := strings.LastIndex(text, ", <")
		n, err := (&cursor{text[at+1:]}).typ()
		if err != nil {
			return nil, err
		}
		return &typ{kind: vector, n: n.n, elem: t.elem}, nil
	default:
		return c.typ()
	}
}
