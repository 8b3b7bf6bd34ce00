package cli

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
)

const dumpHelp = `Prints the graph of an entry as .kir text, from config.json alone.

  prefill  T token rows of B requests, logits of O of them
  decode   one token of each of B requests (T = O = B)
  verify   K drafts after one token of each request (T = O = B*(K+1))
  draft    the MTP step
  speculateK
           a whole speculative step with K drafts of each request (T = O = B*(K+1))
  pack     what is computed from weights alone, once, when they are bound`

func runDump(e *env, f *flags, _ []string) error {
	o, err := options(f, false)
	if err != nil {
		return err
	}
	config, err := passConfig(f)
	if err != nil {
		return err
	}
	c, err := loadConfig(f.text("model"))
	if err != nil {
		return err
	}
	name := f.text("entry")
	drafts, err := draftsOfEntry(f, c, name, &o)
	if err != nil {
		return err
	}
	m, err := entriesOf(c, o, passes.Target{}, config, drafts...)
	if err != nil {
		return err
	}
	g := entryGraph(m, name)
	if g == nil {
		if name == string(dsv4.Draft) || name == passes.PackGraph {
			return noGraph(f, name)
		}
		return usagef("kiln dump --help", "--entry: unknown entry %q: want %s or pack", name, entryNames)
	}
	bind, err := dumpBinding(name, f.number("tokens"), f.number("batch"))
	if err != nil {
		return err
	}
	if k := bind["K"]; k > o.MaxDraft {
		return refuse(fmt.Errorf("entry verify: --tokens %d and --batch %d make %d drafts per request, the rings have room for %d", f.number("tokens"), f.number("batch"), k, o.MaxDraft),
			fmt.Sprintf("kiln dump --entry verify --tokens %d --batch %d", f.number("batch")*(o.MaxDraft+1), f.number("batch")))
	}
	if len(bind) > 0 {
		if g, err = ir.Bind(g, bind); err != nil {
			return usagef("kiln dump --help", "%s: %w", f.origins("tokens", "batch"), err)
		}
	}
	return ir.Print(e.stdout, g)
}

// dumpBinding turns --tokens and --batch into the entry's symbols; 0 is unbound.
func dumpBinding(entry string, tokens, batch int) (map[string]int, error) {
	if tokens < 0 || batch < 0 {
		return nil, usagef("kiln dump --help", "--tokens is %d and --batch %d, want at least 0", tokens, batch)
	}
	bind := map[string]int{}
	set := func(sym string, n int) {
		if n > 0 {
			bind[sym] = n
		}
	}
	switch entry {
	case string(dsv4.Decode):
		if tokens > 0 && batch > 0 && tokens != batch {
			return nil, usagef(fmt.Sprintf("kiln dump --entry decode --batch %d", batch), "entry decode has one token per request: --tokens %d and --batch %d differ", tokens, batch)
		}
		set("B", max(tokens, batch))
	case string(dsv4.Verify):
		set("B", batch)
		if tokens > 0 {
			if batch == 0 || tokens%batch != 0 || tokens == batch {
				return nil, usagef("kiln dump --entry verify --tokens 8 --batch 2", "entry verify has K+1 tokens per request, K >= 1: --tokens %d needs a --batch that divides it", tokens)
			}
			set("K", tokens/batch-1)
		}
	case passes.PackGraph:
		if tokens > 0 || batch > 0 {
			return nil, usagef("kiln dump --entry pack", "entry pack has no token rows: --tokens and --batch do not apply")
		}
	default:
		if k := engine.DraftsOf(entry); k > 0 {
			if tokens%(k+1) != 0 || tokens > 0 && batch > 0 && tokens != batch*(k+1) {
				return nil, usagef(fmt.Sprintf("kiln dump --entry %s --batch %d", entry, max(batch, 1)), "entry %s has %d tokens per request: --tokens %d and --batch %d do not fit", entry, k+1, tokens, batch)
			}
			set("B", max(tokens/(k+1), batch))
			break
		}
		set("T", tokens)
		set("B", batch)
	}
	return bind, nil
}
