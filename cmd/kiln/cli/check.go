package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kiln-project/kiln/check"
	rt "github.com/kiln-project/kiln/runtime/device"
)

const checkHelp = `Compares what should be equal, and exits with 4 if a limit does not hold.

On ref, the default, it runs the entry before and after each pass that changes it:
outputs and pools must be equal bit for bit, unless the pass declares a limit.

On host and emu it compiles every different op of the entry after the passes, once, and
runs it with the evaluator's values of its operands: what comes out is held to the
op table's limit, of the liberty that its kernel takes if any, choices by validity.
Then each op runs on made-up operands, and the whole entry as one plan: its outputs and
pools must be, bit for bit, what its ops give when the device runs them one by one.
With --op it compares some ops only, with their decompositions on the device as
well, and no whole entry.

A model takes its checkpoint's weights if the folder has them, else random ones;
a graph of a FILE.kir has random ones. --bind gives every symbol its integer.`

// checkResult is the JSON of check.
type checkResult struct {
	Entry   string              `json:"entry"`
	Bind    map[string]int      `json:"bind"`
	Device  string              `json:"device"`
	Weights string              `json:"weights"`
	Seeds   int                 `json:"seeds"`
	Cases   []string            `json:"cases"`
	Passes  []check.PassResult  `json:"passes,omitempty"`
	Ops     []*check.OpResult   `json:"ops,omitempty"`
	Layers  []*check.Layer      `json:"layers,omitempty"`
	Decomp  []*check.Decomposed `json:"decomposed,omitempty"`
	Whole   *check.Whole        `json:"whole,omitempty"`
	Note    string              `json:"note,omitempty"`
	Breach  []check.Breach      `json:"breaches"`
	OK      bool                `json:"ok"`
}

func runCheck(e *env, f *flags, args []string) error {
	dev, err := checkDevice(e, f)
	if err != nil {
		return err
	}
	defer func() { dev.close() }() // an error of the check counts more
	cfg, err := passConfig(f)
	if err != nil {
		return err
	}
	s, err := readSubject(f, args, cfg)
	if err != nil {
		return err
	}
	defer s.close()
	progress := newProgress(e, f)
	defer progress.close()
	s.Progress = progress.say
	res := checkResult{Entry: s.Entry, Bind: s.Bind, Device: dev.name, Weights: s.weights, Seeds: s.Seeds, Breach: []check.Breach{}}
	for _, c := range check.Cases {
		res.Cases = append(res.Cases, c.Name)
	}
	if dev.name == "ref" {
		var breaches []check.Breach
		res.Passes, breaches, err = check.Passes(e.ctx, &s.Subject)
		res.Breach = append(res.Breach, breaches...)
	} else {
		err = checkOps(e, f, dev, s, &res, progress)
	}
	if err != nil {
		return checkFailure(f, err)
	}
	progress.clear()
	return concludeCheck(e, f, args, res)
}

// concludeCheck prints what was found and turns breaches into the exit code.
func concludeCheck(e *env, f *flags, args []string, res checkResult) error {
	res.OK = len(res.Breach) == 0
	var err error
	if f.boolean("json") {
		err = printJSON(e.stdout, res)
	} else {
		err = printCheck(e, res)
	}
	if err != nil || res.OK {
		return err
	}
	first := res.Breach[0]
	return &codedError{exitCheck, fmt.Errorf("%d beyond their limit: first %s", len(res.Breach), first), showAgain(f, args, first, res)}
}

// checkDevice reads --device. On ref an op is its decomposition.
func checkDevice(e *env, f *flags) (device, error) {
	return e.deviceFirst(func() (device, error) {
		d, err := parseDevice(e, f, f.text("device"))
		if err != nil {
			return d, err
		}
		if d.name == "ref" && f.text("op") != "" {
			return device{}, usagef("--device host --op "+f.text("op"), "%s: on ref an op is its decomposition: there is nothing to compare it with", f.origins("op"))
		}
		err = d.watch(f)
		return d, err
	})
}

func checkOps(e *env, f *flags, dev device, s *subject, res *checkResult, progress *progress) error {
	t, err := dev.target()
	if err != nil {
		return err
	}
	disabled, err := disabledKernels(f)
	if err != nil {
		return err
	}
	c, done, err := newCompiler(e, f)
	if err != nil {
		return fmt.Errorf("device %s (%s): %w", dev.name, dev.why, err)
	}
	defer done()
	dev.tell(progress)
	r, err := check.Ops(e.ctx, &s.Subject, check.OpsConfig{
		Compiler: c, Target: t, Only: f.text("op"), Disable: disabled,
		Open: func() (rt.Device, error) { return dev.open(e, f) }, Spread: dev.spread,
	})
	if err != nil {
		return err
	}
	progress.clear()
	if err := dev.tellCounters(e.stderr); err != nil {
		return err
	}
	res.Ops, res.Layers, res.Decomp, res.Whole, res.Breach, res.Note = r.Ops, r.Layers, r.Decomposed, r.Whole, r.Breaches, r.Generated
	return nil
}

// checkFailure tells what to do about errors of the check itself.
func checkFailure(f *flags, err error) error {
	var unknown *check.UnknownOp
	switch {
	case errors.As(err, &unknown):
		return usagef("kiln check --help", "%s: %w", f.origins("op"), err)
	case check.TooLarge(err) && f.text("op") != "":
		return refuse(err, "--model testdata/tiny-dsv4, or a smaller --bind")
	case check.TooLarge(err):
		return refuse(err, "--device host --op NAME, which makes operands up; or --layers N")
	}
	return err
}

// showAgain is the command line that shows a breach again, and little else.
func showAgain(f *flags, args []string, b check.Breach, res checkResult) string {
	line := []string{"kiln", "check"}
	line = append(line, args...)
	for _, name := range []string{"model", "entry", "layers", "weights", "numerics", "head", "pipeline", "bisect", "shuffle"} {
		if f.given(name) {
			line = append(line, "--"+name, f.text(name))
		}
	}
	for _, name := range []string{"passes", "disable-pass", "set", "disable-kernel"} {
		if f.given(name) {
			line = append(line, "--"+name, strings.Join(f.list(name), ","))
		}
	}
	if len(res.Bind) > 0 {
		line = append(line, "--bind", bindingText(res.Bind))
	}
	line = append(line, "--device", res.Device)
	if res.Device != "ref" && b.What != check.WholeGraph { // of the whole graph there is no part to run
		line = append(line, "--op", b.What)
	}
	return strings.Join(append(line, "--seeds", fmt.Sprint(b.Seed+1)), " ")
}
