package codegen

import (
	"slices"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
)

// inlined is what runs inside of an op.
type inlined struct {
	label string // names of the ops, in order
	ops   int
	flops int64
}

// maxChain bounds the ops of one elementwise kernel, and so its parameters.
const maxChain = 16

// chain finds the ops of a list that run inside of their only user: elementwise ones, of
// which the values between them stay in registers, rounded as a store would, and rows
// that are written into a pool and nowhere else. Values
// that are kept have users elsewhere. An op that reads a pool stays where it is: a
// write may come before its user.
func (l *lowerer) chain(ops []*ir.Op, kept map[*ir.Value]bool) {
	n := 0
	for _, op := range ops {
		n += len(op.Args)
	}
	users := l.users
	if users == nil {
		users = make(map[*ir.Value][]*ir.Op, n)
		l.users = users
	}
	clear(users)
	firsts := make([]*ir.Op, n) // most values have one user: memory for that of all of them
	for _, op := range ops {
		for _, a := range op.Args {
			list, ok := users[a]
			if !ok {
				list, firsts = firsts[:0:1], firsts[1:]
			}
			users[a] = append(list, op)
		}
	}
	for _, op := range ops {
		r := op.Results[0]
		if kept[r] || len(users[r]) != 1 {
			continue
		}
		if user := users[r][0]; l.scatters(op, user) {
			reads := slices.ContainsFunc(op.Args, isPool)
			if reads && !l.ahead(op, user, users) {
				continue
			}
			if l.inside(op, user); reads {
				l.early[op] = user
			}
			continue
		}
		if !l.elementwise(op) {
			continue
		}
		user := users[r][0]
		mine, theirs := l.chains[op], l.chains[user]
		if !l.elementwise(user) || !kernels.Inlines(op, user) || mine.ops+theirs.ops+2 > maxChain {
			continue
		}
		l.inside(op, user)
	}
}

// inside has op run inside of its user.
func (l *lowerer) inside(op, user *ir.Op) {
	c, err := l.u.cost(op)
	if err != nil {
		l.fail("%v", err)
		return
	}
	mine, theirs := l.chains[op], l.chains[user]
	l.inline[op] = user
	l.chains[user] = inlined{theirs.label + mine.label + op.Def.Name + "+", theirs.ops + mine.ops + 1, theirs.flops + mine.flops + c.flops}
}

// scatters reports whether the rows that op makes go right to the pool that user writes
// in place.
func (l *lowerer) scatters(op, user *ir.Op) bool {
	if !kernels.ScattersRows(op, user) || !isPool(user.Args[0]) {
		return false
	}
	form, _ := l.choose(op)
	into, _ := l.choose(user)
	return form != nil && form.Name == op.Def.Name && into != nil && into.Name == "generic_scatter_rows"
}

// ahead reports whether a pool can be written where op stands, which reads others that
// are written later on: nothing else needs what the pool holds before, and where the rows
// go is an input.
func (l *lowerer) ahead(op, scatter *ir.Op, users map[*ir.Value][]*ir.Op) bool {
	pool, slots := scatter.Args[0], scatter.Args[1]
	return pool.Kind == ir.StateValue && slots.Kind == ir.InputValue && len(users[pool]) == 1 && !slices.Contains(op.Args, pool)
}

// elementwise reports whether op may be part of a chain: its form is the generic
// one, and it reads no pool.
func (l *lowerer) elementwise(op *ir.Op) bool {
	if !kernels.Elementwise(op) || slices.ContainsFunc(op.Args, isPool) {
		return false
	}
	form, _ := l.choose(op)
	return form != nil
}

// label names an op with what runs inside of it, for people.
func (l *lowerer) label(op *ir.Op) string { return l.chains[op].label + op.Def.Name }
