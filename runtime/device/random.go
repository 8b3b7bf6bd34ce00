package device

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/codegen/plan"
)

// Random says what weights and pools hold that nobody gave: numbers from a seed, of
// sizes for which activations stay finite.
type Random struct {
	Seed uint64
	// IDs is below which number the ids of a weight of integers are; 0 if the weight
	// is not known.
	IDs func(weight string) int
}

// BindRandom makes the module's weights on the device, by a kernel of its code. The
// bytes depend on the seed and on the module, not on the device.
func (m *Model) BindRandom(r Random) error {
	if len(m.weights) > 0 {
		return fmt.Errorf("%d weights are bound already", len(m.weights))
	}
	var list []Launch
	for i, w := range m.mod.Weights {
		exponent, err := plan.RandomExponent(w.Type)
		if err == nil {
			err = m.bindRandom(i, w, exponent, r, &list)
		}
		if err != nil {
			return fmt.Errorf("weight %s: %w", w.Name, err)
		}
	}
	return m.launch(list)
}

// bindRandom allocates a weight and adds the launches that write it.
func (m *Model) bindRandom(index int, w plan.Storage, exponent int, r Random, list *[]Launch) error {
	parts, err := plan.RandomOf(w.Type, exponent, r.IDs(w.Name))
	if err != nil {
		return err
	}
	s := stored{}
	if s.typ, err = ParseType(w.Type); err != nil {
		return err
	}
	for part, words := range parts {
		bytes := w.Bytes[part]
		if s.parts[part], err = m.dev.Alloc(wholeWords(bytes)); err != nil {
			return errors.Join(err, s.free())
		}
		l, err := m.randomLaunch(s.parts[part], words, plan.RandomKey(r.Seed, index, part), "weight "+w.Name)
		if err != nil {
			return errors.Join(err, s.free())
		}
		*list = append(*list, l)
	}
	m.weights = append(m.weights, s)
	return nil
}

// wholeWords are the bytes of the words that hold some bytes.
func wholeWords(bytes int64) int64 { return (bytes + 7) / 8 * 8 }

// RandomState makes pools for a plan that hold numbers of about 1, or packed rows of
// small ones.
func (m *Model) RandomState(p *plan.Plan, r Random) (*State, error) {
	st, err := m.NewState(p)
	if err != nil {
		return nil, err
	}
	var list []Launch
	for n, i := range p.States {
		s := m.mod.States[i]
		parts, err := plan.RandomOf(s.Type, 0, 0)
		if err == nil && s.Bytes[0]%8 != 0 {
			err = fmt.Errorf("%d bytes are no whole words", s.Bytes[0])
		}
		var l Launch
		if err == nil {
			l, err = m.randomLaunch(st.pools[s.Name].parts[0], parts[0], plan.RandomKey(r.Seed, len(m.mod.Weights)+n, 0), "state "+s.Name)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("state %s: %w", s.Name, err), st.Close())
		}
		list = append(list, l)
	}
	if err := m.launch(list); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return st, nil
}

// randomLaunch writes random words to a block of memory.
func (m *Model) randomLaunch(to Memory, r plan.RandomWords, key uint64, label string) (Launch, error) {
	form, ints := plan.FormRandomFill, []uint64{r.Mask, r.Add}
	if r.Columns != 0 {
		form, ints = plan.FormRandomIDs, []uint64{uint64(r.Columns), uint64(r.Limit)}
	}
	k := slices.IndexFunc(m.mod.Kernels, func(k plan.Kernel) bool { return k.Form == form })
	if k < 0 {
		return Launch{}, fmt.Errorf("the code has no kernel of form %s: it was compiled by an older kiln, compile it again", form)
	}
	bytes := wholeWords(to.Size())
	words := bytes / 8
	l := Launch{
		Kernel: k, Symbol: m.mod.Kernels[k].Symbol, Form: form, Op: form, Loc: label, Grid: int((words + plan.RandomChunk - 1) / plan.RandomChunk), Block: m.mod.Block, Work: 8 * words,
		Args: []Arg{{Address: to.Address(), Bytes: bytes, Mode: plan.Write, Label: label}, {Int: words}, {Int: int64(key)}},
	}
	for _, n := range ints {
		l.Args = append(l.Args, Arg{Int: int64(n)})
	}
	return l, nil
}

// launch runs launches once and waits for them.
func (m *Model) launch(list []Launch) error {
	seq, err := m.lib.Prepare(list)
	if err != nil {
		return err
	}
	return errors.Join(seq.Run(), m.dev.Sync(), seq.Close())
}
