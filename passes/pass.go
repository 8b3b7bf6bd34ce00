package passes

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
)

// Pass is one row of the pass table. Its name is part of the user interface.
type Pass struct {
	Name string
	Doc  string
	// Required passes cannot be left out: what follows does not work without.
	Required bool
	// Off passes run only when they are named.
	Off bool
	// Limit is how far the results of a graph may be from those without the pass;
	// the zero Limit: not at all. kiln check holds every application to it.
	Limit ir.Limit
	// On says what the pass works on.
	On Stage
	// Graph rewrites one graph: it returns the graph given when there is nothing to
	// do, and never changes it. Module works on everything at once. A pass has one
	// of the two.
	Graph  func(*Context, *ir.Graph) (*ir.Graph, error)
	Module func(*Context) error
	// Apart says that Graph looks at its graph alone, and may do so for several entries at
	// once.
	Apart bool
	// Each says that a Module pass on steps treats each by itself, so that it need not
	// have all of them at once.
	Each bool
}

// Stage is a part of the pipeline.
type Stage uint8

// The stages, in order.
const (
	Graphs Stage = iota // entries with symbolic extents, and the pack graph
	Steps               // entries bound to a bucket, made by bind, for one target
)

// Order is a constraint on the pass table.
type Order struct {
	Before, After string // Before runs before After
	Why           string
}

// Register adds a pass of one's own to the table, right before a pass of the same
// stage, or behind the stage's last optional pass that rewrites graphs if next is empty. Call it
// before any pass runs, from an init function or the start of main.
func Register(p Pass, next string, orders ...Order) error {
	at := -1
	for i, q := range Table {
		if q.Name == p.Name {
			return fmt.Errorf("pass %s is in the table already", p.Name)
		}
		if q.Name == next || next == "" && q.On == p.On && !q.Required && q.Graph != nil {
			at = i
			if next == "" {
				at++
			}
		}
	}
	if at < 0 {
		return fmt.Errorf("pass %s: no pass %q to run before", p.Name, next)
	}
	if next != "" && Table[at].On != p.On {
		return fmt.Errorf("pass %s is of another stage than %s", p.Name, next)
	}
	table := append(append(append([]Pass{}, Table[:at]...), p), Table[at:]...)
	all := append(append([]Order{}, Orders...), orders...)
	if err := checkTable(table, all); err != nil {
		return err
	}
	Table, Orders = table, all
	return nil
}

// checkTable finds rows that are no passes, and order constraints that the table
// does not keep.
func checkTable(table []Pass, orders []Order) error {
	index := map[string]int{}
	for i, p := range table {
		switch {
		case p.Name == "" || p.Doc == "":
			return fmt.Errorf("pass %d %q: want a name and a doc", i, p.Name)
		case (p.Graph == nil) == (p.Module == nil):
			return fmt.Errorf("pass %s: want one of Graph and Module", p.Name)
		case i > 0 && p.On < table[i-1].On:
			return fmt.Errorf("pass %s comes after %s, which is of a later stage", p.Name, table[i-1].Name)
		}
		if _, dup := index[p.Name]; dup {
			return fmt.Errorf("pass %s is in the table twice", p.Name)
		}
		index[p.Name] = i
	}
	for _, o := range orders {
		before, ok := index[o.Before]
		after, ok2 := index[o.After]
		switch {
		case !ok || !ok2:
			return fmt.Errorf("order of %s and %s: no such pass", o.Before, o.After)
		case o.Why == "":
			return fmt.Errorf("order of %s and %s: no reason", o.Before, o.After)
		case before >= after:
			return fmt.Errorf("pass %s must run before %s: %s", o.Before, o.After, o.Why)
		}
	}
	return nil
}

func init() {
	if err := checkTable(Table, Orders); err != nil {
		panic("passes: " + err.Error())
	}
}
