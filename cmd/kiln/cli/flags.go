package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/kiln-project/kiln/codegen"
)

// flagDef is one row of the flag table: the only place where a flag, its
// KILN_ variable and its default exist.
type flagDef struct {
	name     string // --max-new-tokens, and so KILN_MAX_NEW_TOKENS
	def      any    // default: string, []string, repeated, int, uint64, float64 or bool
	commands []string
	required bool
	arg      string // placeholder in the help text
	short    string // one-letter form, without the dash
	doc      string
}

// repeated is the type of a flag that is given several times, each time one value.
type repeated []string

// flagTable lists every flag of every command.
var flagTable = []flagDef{
	{name: "model", def: "", commands: []string{"run", "logits", "dump", "compile", "explain"}, required: true, arg: "DIR", doc: "model folder as Hugging Face ships it: config.json, *.safetensors, tokenizer.json"},
	{name: "model", def: "", commands: []string{"check"}, arg: "DIR", doc: "model folder; or give a FILE.kir"},
	{name: "model", def: "", commands: []string{"tokenize"}, arg: "DIR", doc: "model folder with tokenizer.json"},
	{name: "model", def: "", commands: []string{"view"}, arg: "DIR", doc: "model folder; config.json is enough"},
	{name: "tokenizer", def: "", commands: []string{"tokenize"}, arg: "FILE", doc: "tokenizer.json, instead of --model"},

	{name: "prompt", def: "", commands: []string{"run"}, arg: "TEXT", doc: "text to complete; tokenizer_config.json says whether the begin-of-sentence token is added"},
	{name: "prompt-ids", def: "", commands: []string{"run"}, arg: "1,2,3", doc: "token ids to complete, used as given; also @FILE, or F.safetensors:NAME"},
	{name: "chat", def: "", commands: []string{"run"}, arg: "FILE.json", doc: "messages to answer: an array, or {messages, thinking_mode, drop_thinking}"},
	{name: "thinking", def: false, commands: []string{"run"}, doc: "answer --chat in thinking mode"},
	{name: "max-new-tokens", def: 128, commands: []string{"run"}, arg: "N", doc: "new tokens at most"},
	{name: "ignore-eos", def: false, commands: []string{"run"}, doc: "go on after the end-of-sentence token"},
	{name: "temperature", def: 0.0, commands: []string{"run"}, arg: "T", doc: "0 is greedy: the largest logit, ties to the lowest id; else the device draws"},
	{name: "top-k", def: 0, commands: []string{"run"}, arg: "N", doc: "sample from the N largest logits; 0: all"},
	{name: "top-p", def: 0.0, commands: []string{"run"}, arg: "P", doc: "sample from the smallest set with probability P; 0: all"},
	{name: "speculate", def: 0, commands: []string{"run"}, arg: "K", doc: "draft K tokens a step by the MTP block and verify them together; 0: none"},
	{name: "draft-tree", def: 1, commands: []string{"run"}, arg: "W", doc: "drafts at each place: 1, drafts are a chain and there is nothing for more"},
	{name: "seed", def: uint64(0), commands: []string{"run"}, arg: "S", doc: "of the sampling; equal seeds give equal text where logits are equal"},

	{name: "ids", def: "", commands: []string{"logits"}, required: true, arg: "1,2,3", doc: "token ids; also @FILE, or F.safetensors:NAME"},
	{name: "prefill", def: 0, commands: []string{"logits"}, required: true, arg: "N", doc: "how many ids are the prompt; each further one is a decode step"},
	{name: "mtp", def: false, commands: []string{"logits"}, doc: "also run the MTP block at every position whose next id is known"},
	{name: "out", def: "", commands: []string{"logits"}, required: true, arg: "F.safetensors", doc: "file to write"},

	{name: "device", def: "", commands: []string{"run", "logits"}, arg: "D", doc: "auto, hip[:N], cuda[:N], host, emu[:CHIP] or ref; if empty: auto"},
	{name: "device", def: "ref", commands: []string{"check"}, arg: "D", doc: "ref: what passes do; host, hip[:N], cuda[:N], emu[:CHIP]: what compiled code does"},
	{name: "graph", def: "auto", commands: []string{"run", "logits", "check", "bench", "tune"}, arg: "G", doc: "on GPUs: on, off, or auto, which is on unless a fault of the driver is known"},
	{name: "graph-build", def: "explicit", commands: []string{"run", "logits", "check", "bench", "tune"}, arg: "B", doc: "on GPUs: explicit makes graphs node by node, capture records a stream"},
	{name: "overlap", def: "auto", commands: []string{"run", "logits", "check", "bench", "tune"}, arg: "O", doc: "on GPUs: let a kernel of a graph begin while the one before ends: on, off, or auto"},
	{name: "strict", def: false, commands: []string{"run", "logits"}, doc: "a start-up check that does not hold is an error, exit code 4"},
	{name: "startup-check", def: false, commands: []string{"run", "logits"}, doc: "run the start-up checks on emu, too, where they take long; =false: nowhere"},
	{name: "watchdog", def: "", commands: []string{"run"}, arg: "30s", doc: "on GPUs: a step that takes longer is an error; with --graph off it names the kernel"},
	{name: "hip-lib", def: "", commands: []string{"run", "logits", "check", "bench", "tune", "doctor"}, arg: "FILE", doc: "load this libamdhip64; if empty: one from the usual places"},
	{name: "cuda-lib", def: "", commands: []string{"run", "logits", "check", "bench", "tune", "doctor"}, arg: "FILE", doc: "load this libcuda; if empty: one from the usual places"},
	{name: "sanitize", def: "", commands: []string{"run", "logits", "check"}, arg: "C,C2", doc: "on emu: memory, race, uninit, waitcnt or all; a report ends the command with exit code 4"},
	{name: "counters", def: "", commands: []string{"run", "logits", "check"}, arg: "text|F.json", doc: "on emu: what each kernel executes, as a table to standard error or to a file"},
	{name: "numerics", def: "production", commands: []string{"run", "logits", "dump", "check", "compile", "explain", "view", "tune"}, arg: "N", doc: "production rounds caches to fp8 and fp4 as the model was trained; unrounded keeps bf16"},

	{name: "decode", def: "", commands: []string{"tokenize"}, arg: "IDS", doc: "decode these ids instead of reading text; also @FILE, or F.safetensors:NAME"},
	{name: "json", def: false, commands: []string{"run", "tokenize", "check", "compile", "inspect", "plan", "bench", "doctor", "passes", "explain", "bisect"}, doc: "print one JSON object on one line and nothing else"},

	{name: "requests", def: "", commands: []string{"run"}, arg: "F.jsonl", doc: "run the requests of this file beside each other, one JSON object a line"},
	{name: "out", def: "", commands: []string{"run"}, arg: "F.jsonl", doc: "with --requests: file to write, one result a line"},
	{name: "max-batch", def: 0, commands: []string{"run"}, arg: "N", doc: "with --requests: requests that run at a time; 0: 16, or as the bundle was compiled"},
	{name: "kv-tokens", def: 0, commands: []string{"run"}, arg: "N", doc: "with --requests: positions that all of them hold at a time; 0: --max-batch of the longest"},

	{name: "device-memory", def: "", commands: []string{"plan"}, arg: "288GiB", doc: "memory of the device: bytes, or with KiB, MiB, GiB, TiB, kB, MB, GB, TB"},
	{name: "max-batch", def: 0, commands: []string{"plan"}, arg: "B", doc: "requests at a time; 0: the largest batch that was compiled"},
	{name: "max-seq", def: 0, commands: []string{"plan"}, arg: "N", doc: "positions per request; 0: as compiled"},
	{name: "dry-run", def: false, commands: []string{"run"}, doc: "with --bundle: say what it takes of the device's memory, and read no weights"},

	{name: "prefix", def: "", commands: []string{"compare"}, arg: "P", doc: "names in B are P + the names in A"},
	{name: "max-rel", def: -1.0, commands: []string{"compare"}, arg: "X", doc: "exit 4 if a relative Frobenius error is above X"},

	{name: "entry", def: "", commands: []string{"dump"}, required: true, arg: "E", doc: "prefill, decode, verify, draft, speculateK or pack"},
	{name: "tokens", def: 0, commands: []string{"dump"}, arg: "T", doc: "bind the number of token rows; 0 leaves it symbolic"},
	{name: "batch", def: 0, commands: []string{"dump"}, arg: "B", doc: "bind the number of requests; 0 leaves it symbolic"},

	{name: "entry", def: "", commands: []string{"check"}, arg: "E", doc: "prefill, decode, verify, draft or speculateK; of a FILE.kir with one graph, that one"},
	{name: "op", def: "", commands: []string{"check"}, arg: "NAME|LOC", doc: "only ops of this name, or at this loc or below it; also against their decompositions"},
	{name: "seeds", def: 1, commands: []string{"check"}, arg: "N", doc: "how many times numbers are chosen"},
	{name: "weights", def: "", commands: []string{"check"}, arg: "W", doc: "checkpoint or random; if empty: checkpoint where there is one"},
	{name: "layers", def: 0, commands: []string{"check"}, arg: "N", doc: "check the first N layers only; 0: all"},

	{name: "kernel", def: "", commands: []string{"inspect"}, arg: "NAME", doc: "show this kernel only, with its arguments"},
	{name: "asm", def: false, commands: []string{"inspect"}, doc: "print the instructions of the kernels, by llvm-objdump"},
	{name: "ll", def: false, commands: []string{"inspect"}, doc: "print the LLVM IR of the kernels; the bundle must have been compiled with --emit ll"},
	{name: "profile", def: "", commands: []string{"inspect"}, arg: "F.json", doc: "counters of an emulated run (--counters F.json), beside the floor times of a bundle"},
	{name: "target", def: "", commands: []string{"compile"}, arg: "T,T2", doc: "gfx942, gfx950 (also gfx942:sramecc+:xnack-), sm_90, sm_90a, x86-64-v3, x86-64-v2 (empty: this CPU)"},
	{name: "batch", def: "1,2,4,8,16,32,64,128,256", commands: []string{"compile"}, arg: "B,B2", doc: "numbers of requests that decode and verify steps are compiled for"},
	{name: "prefill", def: "16,128,512", commands: []string{"compile"}, arg: "T,T2", doc: "numbers of prompt tokens that prefill steps are compiled for"},
	{name: "max-seq", def: 0, commands: []string{"compile"}, arg: "N", doc: "positions per request; 0: max_position_embeddings, at most 8192"},
	{name: "speculate", def: 3, commands: []string{"compile"}, arg: "K", doc: "largest number of draft tokens: sizes the rings, and verify and draft steps for 1..K"},
	{name: "layers", def: 0, commands: []string{"compile"}, arg: "N", doc: "compile the first N layers only; 0: all"},
	{name: "taps", def: "", commands: []string{"compile"}, arg: "hidden", doc: "also output the residual streams after every layer"},
	{name: "head", def: "logits", commands: []string{"dump", "check", "compile", "explain", "view", "tune"}, arg: "H", doc: "what the heads give: logits; sample: a token, drawn or greedy; greedy: the greedy token"},
	{name: "emit", def: "", commands: []string{"compile"}, arg: "kir,ll,s", doc: "also keep graphs after the passes, LLVM IR, instructions, below TARGET/ir"},
	{name: "code-object-version", def: codegen.CodeObjectVersions[0], commands: []string{"compile"}, arg: "V", doc: "of AMD targets: 5, or 6, which needs a recent ROCm"},
	{name: "no-fallback", def: false, commands: []string{"compile"}, doc: "leave out what start-up checks run, and the plans that run where a fused kernel is wrong"},
	{name: "check-determinism", def: false, commands: []string{"compile"}, doc: "compile 5 times without the cache, in random orders: exit 4 if the bytes differ"},
	{name: "timings", def: false, commands: []string{"compile"}, doc: "say what passes, codegen, LLVM and link took"},
	{name: "out", def: "", commands: []string{"compile"}, required: true, arg: "OUT.kiln", short: "o", doc: "bundle to write"},

	{name: "device", def: "", commands: []string{"launch"}, required: true, arg: "emu[:CHIP]", doc: "emu:gfx942, or emu:gfx950, which is emu"},
	{name: "hsaco", def: "", commands: []string{"launch"}, required: true, arg: "F", doc: "a code object for AMD GPUs"},
	{name: "kernel", def: "", commands: []string{"launch"}, required: true, arg: "SYM", doc: "kernel of it"},
	{name: "grid", def: "", commands: []string{"launch"}, required: true, arg: "X,Y,Z", doc: "work-groups"},
	{name: "block", def: "", commands: []string{"launch"}, required: true, arg: "X,Y,Z", doc: "work-items of a work-group"},
	{name: "shared", def: 0, commands: []string{"launch"}, arg: "BYTES", doc: "dynamic LDS, beside what the kernel declares"},
	{name: "arg", def: repeated{}, commands: []string{"launch"}, arg: "NAME=WHAT", doc: "the kernel's next argument; repeated"},
	{name: "out", def: "", commands: []string{"launch"}, required: true, arg: "OUT.safetensors", doc: "file to write: what each pointer argument points to after the launch"},
	{name: "sanitize", def: "", commands: []string{"launch"}, arg: "X,Y", doc: "memory, race, uninit, waitcnt, or all: exit 4 if one of them finds something"},
	{name: "counters", def: false, commands: []string{"launch"}, doc: "print what was executed: instructions, memory accesses, LDS conflicts"},
	{name: "trace", def: 0, commands: []string{"launch"}, arg: "N", doc: "print the first N instructions of the first wave, with registers"},

	{name: "bundle", def: "", commands: []string{"view"}, arg: "F.kiln", doc: "show a plan of this bundle"},
	{name: "entry", def: "", commands: []string{"view"}, arg: "E", doc: "prefill, decode, verify, draft, speculateK or pack; a graph of FILE.kir if it has several"},
	{name: "target", def: "", commands: []string{"view"}, arg: "T", doc: "plan and compile for it; if empty: passes only, or the first one of the bundle"},
	{name: "out", def: "", commands: []string{"view"}, required: true, arg: "PAGE.html", short: "o", doc: "page to write"},

	{name: "model", def: "", commands: []string{"bench"}, arg: "DIR", doc: "model folder whose weights are used; or --random-weights"},
	{name: "random-weights", def: false, commands: []string{"bench"}, doc: "make weights on the device, from --seed"},
	{name: "seed", def: uint64(0), commands: []string{"bench"}, arg: "S", doc: "of random weights, pools and tokens"},
	{name: "device", def: "", commands: []string{"bench"}, arg: "D", doc: "auto, hip[:N], cuda[:N] or host; if empty: auto"},
	{name: "entry", def: "decode", commands: []string{"bench"}, arg: "E", doc: "decode or prefill"},
	{name: "batch", def: "", commands: []string{"bench"}, arg: "B,B2", doc: "numbers of requests of decode steps; if empty: those that were compiled"},
	{name: "prefill", def: "", commands: []string{"bench"}, arg: "T,T2", doc: "numbers of tokens of prefill steps; if empty: those that were compiled"},
	{name: "ctx", def: "", commands: []string{"bench"}, arg: "N,N2", doc: "tokens of each request that are cached; if empty: 1024, or as many as fit"},
	{name: "speculate", def: 0, commands: []string{"bench"}, arg: "K", doc: "time steps that verify K drafts of each request; 0: decode steps"},
	{name: "cold", def: false, commands: []string{"bench"}, doc: "on GPUs: write twice the L2 cache before each sample"},
	{name: "seconds", def: 20.0, commands: []string{"bench"}, arg: "S", doc: "about how long to time each step and its launches, in seconds; if not given: 20"},
	{name: "samples", def: 0, commands: []string{"bench"}, arg: "N", doc: "take so many samples of everything; 0: what fits --seconds"},
	{name: "window", def: 64, commands: []string{"bench"}, arg: "N", doc: "launches that are timed together, behind untimed ones; 0: always from the first"},
	{name: "steps-only", def: false, commands: []string{"bench"}, doc: "time whole steps, not their launches"},
	{name: "trace", def: "", commands: []string{"bench"}, arg: "F.json", doc: "write the launches of the steps as a trace for Chrome's viewer"},

	{name: "model", def: "", commands: []string{"tune"}, arg: "DIR", doc: "compile candidates for the plans of this model; config.json is enough; or --from"},
	{name: "target", def: "", commands: []string{"tune"}, arg: "T", doc: "with --model: the target, sm_90"},
	{name: "batch", def: "1,8,64", commands: []string{"tune"}, arg: "B,B2", doc: "with --model: numbers of requests of decode and verify steps"},
	{name: "prefill", def: "128", commands: []string{"tune"}, arg: "T,T2", doc: "with --model: numbers of prompt tokens of prefill steps"},
	{name: "max-seq", def: 0, commands: []string{"tune"}, arg: "N", doc: "with --model: positions per request; 0: max_position_embeddings, at most 8192"},
	{name: "speculate", def: 0, commands: []string{"tune"}, arg: "K", doc: "with --model: largest number of draft tokens of verify and draft steps"},
	{name: "layers", def: 0, commands: []string{"tune"}, arg: "N", doc: "with --model: look at the first N layers only; 0: all"},
	{name: "out", def: "", commands: []string{"tune"}, arg: "DIR", short: "o", doc: "with --model: folder to write"},
	{name: "from", def: "", commands: []string{"tune"}, arg: "DIR", doc: "measure the candidates in this folder; or --model"},
	{name: "device", def: "", commands: []string{"tune"}, arg: "D", doc: "with --from: auto, hip[:N] or cuda[:N]; if empty: auto"},
	{name: "samples", def: 15, commands: []string{"tune"}, arg: "N", doc: "with --from: how often each candidate is timed"},

	{name: "pipeline", def: "default", commands: passCommands, arg: "P", doc: "passes that run: default, or required for those that nothing works without"},
	{name: "passes", def: []string{}, commands: passCommands, arg: "X,Y", doc: "run these optional passes instead, in the order of the pass table"},
	{name: "disable-pass", def: []string{}, commands: passCommands, arg: "X,Y", doc: "optional passes that do not run"},
	{name: "set", def: []string{}, commands: passCommands, arg: "KEY=N,...", doc: "thresholds, as kiln passes lists them; may be repeated"},
	{name: "bisect", def: 0, commands: passCommands, arg: "N", doc: "run the first N applications of optional passes only; see kiln bisect --help"},
	{name: "bisect-log", def: "", commands: passCommands, arg: "FILE", doc: "append the number, pass and graph of each application of an optional pass"},
	{name: "shuffle", def: uint64(0), commands: passCommands, arg: "SEED", doc: "reorder the ops of each graph before every pass: no result may depend on it; 0: no"},
	{name: "print-before", def: []string{}, commands: dumpCommands, arg: "X,Y", doc: "print the graphs before these passes, to standard error"},
	{name: "print-after", def: []string{}, commands: dumpCommands, arg: "X,Y", doc: "print the graphs after these passes, or after all, to standard error"},
	{name: "print-changed", def: false, commands: dumpCommands, doc: "print each graph after each pass that changed it, to standard error"},
	{name: "dump-dir", def: "", commands: dumpCommands, arg: "DIR", doc: "write the graphs after each pass to files NN-PASS.kir, in place of those of an earlier dump"},
	{name: "remarks", def: "", commands: dumpCommands, arg: "F", doc: "what passes did and did not do, and why, to standard error: text, or json for lines of it"},
	{name: "time-passes", def: false, commands: dumpCommands, doc: "a table of times and numbers of ops, to standard error"},
	{name: "verify-each", def: false, commands: []string{"opt"}, doc: "verify all graphs after each pass, not only what it made, and that it left its input alone"},
	{name: "split-input", def: false, commands: []string{"opt"}, doc: `take the parts between lines "// -----" as inputs of their own`},
	{name: "bind", def: []string{}, commands: []string{"opt", "explain", "view", "check"}, arg: "T=8,B=8", doc: "give symbols their integers"},
	{name: "entry", def: "decode", commands: []string{"explain"}, arg: "E", doc: "prefill, decode, verify, draft or speculateK"},
	{name: "op", def: "", commands: []string{"explain"}, arg: "LOC", doc: "only what is at this place, such as layers.3.attn, with its launches"},
	{name: "target", def: "", commands: []string{"explain"}, arg: "T", doc: "gfx942, gfx950, sm_90, sm_90a, x86-64-v3, x86-64-v2; if empty: this CPU"},
	{name: "target", def: "", commands: []string{"opt"}, arg: "T", doc: "what passes may know the target of; if empty: none in particular"},
	{name: "check", def: "", commands: []string{"bisect"}, required: true, arg: "CMD", doc: "shell command that works or fails"},
	{name: "disable-kernel", def: []string{}, commands: kernelCommands, arg: "F,F2", doc: "kernel forms that must not be chosen, as kiln passes lists them"},

	{name: "tp", def: 1, commands: []string{"run"}, arg: "N", doc: "devices that share the matrices of a model: 1, there is nothing for more"},
	{name: "ep", def: 1, commands: []string{"run"}, arg: "N", doc: "devices that share the experts of a model: 1, there is nothing for more"},
	{name: "stats", def: false, commands: []string{"run"}, doc: "say how many steps there were, what they took, and what memory is used"},
	{name: "bundle", def: "", commands: []string{"run", "logits"}, arg: "F.kiln", doc: "run this bundle; if empty, what is needed is compiled for the device"},
	{name: "cache-dir", def: "", commands: []string{"run", "logits", "check", "compile", "bench", "tune", "launch", "view", "cache", "doctor"}, arg: "DIR", doc: "where compiled kernels are kept; if empty: kiln in the user's cache folder"},
	{name: "llvm", def: "", commands: []string{"run", "logits", "check", "compile", "tune", "launch", "view", "inspect", "doctor"}, arg: "DIR", doc: "folder of the LLVM programs; if empty: .toolchain/llvm, PATH, then ROCm"},

	{name: "verbose", def: false, commands: logCommands, short: "v", doc: "also say what was tried and chosen, on standard error"},
	{name: "quiet", def: false, commands: logCommands, doc: "say nothing on standard error but errors, and what other flags ask for"},
	{name: "log-format", def: "text", commands: logCommands, arg: "F", doc: "of standard error: text, or json for an object on each line"},
}

// envPrefix starts every environment variable of kiln.
const envPrefix = "KILN_"

func (d flagDef) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(d.name, "-", "_"))
}

// flags are the values of one command's flags.
type flags struct {
	command string
	set     *pflag.FlagSet
	defs    []flagDef
	fromEnv map[string]bool
	bundle  string // of a command that takes it as its argument
}

// flagsOf are the flags of a command, in the order of its help.
func flagsOf(command string) []flagDef {
	var defs []flagDef
	for _, d := range flagTable {
		if slices.Contains(d.commands, command) {
			defs = append(defs, d)
		}
	}
	return defs
}

func newFlags(command string, set *pflag.FlagSet) *flags {
	f := &flags{command: command, set: set, defs: flagsOf(command), fromEnv: map[string]bool{}}
	for _, d := range f.defs {
		switch v := d.def.(type) {
		case string:
			set.StringP(d.name, d.short, v, d.doc)
		case []string:
			set.StringSliceP(d.name, d.short, v, d.doc)
		case repeated:
			set.StringArrayP(d.name, d.short, v, d.doc)
		case int:
			set.IntP(d.name, d.short, v, d.doc)
		case uint64:
			set.Uint64P(d.name, d.short, v, d.doc)
		case float64:
			set.Float64P(d.name, d.short, v, d.doc)
		case bool:
			set.BoolP(d.name, d.short, v, d.doc)
		default:
			panic(fmt.Sprintf("flag table: --%s has a default of type %T", d.name, v))
		}
	}
	return f
}

// checkEnvironment refuses KILN_ variables that no flag has.
func checkEnvironment(e *env) error {
	known := map[string]bool{}
	for _, d := range flagTable {
		known[d.env()] = true
	}
	vars := slices.Clone(e.getenv)
	slices.Sort(vars)
	for _, kv := range vars {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, envPrefix) && !known[name] {
			return usagef("unset "+name, "environment variable %s: no flag of that name", name)
		}
	}
	return nil
}

// readEnvironment fills in flags that the command line does not give.
func (f *flags) readEnvironment(environ []string) error {
	for _, d := range f.defs {
		if f.set.Changed(d.name) {
			continue
		}
		for _, kv := range environ {
			name, val, _ := strings.Cut(kv, "=")
			if name != d.env() {
				continue
			}
			if err := f.set.Set(d.name, val); err != nil {
				return usagef("kiln "+f.command+" --help", "environment variable %s: %v", name, err)
			}
			f.fromEnv[d.name] = true
		}
	}
	return nil
}

func (f *flags) required() error {
	for _, d := range f.defs {
		if d.required && (!f.given(d.name) || f.text(d.name) == "") {
			return usagef("kiln "+f.command+" --help", "%s needs --%s", f.command, d.name)
		}
	}
	return nil
}

func (f *flags) given(name string) bool { return f.set.Changed(name) }

// origins lists those of the flags that are given, as they were given: --seed or
// KILN_SEED.
func (f *flags) origins(names ...string) string {
	var list []string
	for _, d := range f.defs {
		switch {
		case !slices.Contains(names, d.name) || !f.given(d.name):
		case f.fromEnv[d.name]:
			list = append(list, d.env())
		default:
			list = append(list, "--"+d.name)
		}
	}
	return strings.Join(list, ", ")
}

// oneOf checks that exactly one of the flags is given. On the command line a
// flag wins over the environment variables of the others.
func (f *flags) oneOf(names ...string) (string, error) {
	var cmd, env []string
	for _, n := range names {
		if f.given(n) && f.fromEnv[n] {
			env = append(env, n)
		} else if f.given(n) {
			cmd = append(cmd, n)
		}
	}
	if len(cmd) == 0 {
		cmd = env
	}
	if len(cmd) != 1 {
		list := "--" + strings.Join(names, ", --")
		return "", usagef("kiln "+f.command+" --help", "%s needs exactly one of %s, got %d", f.command, list, len(cmd))
	}
	return cmd[0], nil
}

// text is a flag's value; that of a flag which the command lacks is empty.
func (f *flags) text(name string) string {
	if x := f.set.Lookup(name); x != nil {
		return x.Value.String()
	}
	return ""
}

// list is the value of a flag that takes several, separated by commas or repeated.
func (f *flags) list(name string) []string { v, _ := f.set.GetStringSlice(name); return v }

// repeated are the values of a flag that takes one each time.
func (f *flags) repeated(name string) []string { v, _ := f.set.GetStringArray(name); return v }

func (f *flags) boolean(name string) bool { v, _ := f.set.GetBool(name); return v }
func (f *flags) number(name string) int   { v, _ := f.set.GetInt(name); return v }
func (f *flags) float(name string) float64 {
	v, _ := f.set.GetFloat64(name)
	return v
}
func (f *flags) seed(name string) uint64 { v, _ := f.set.GetUint64(name); return v }

// parseIDs reads "1,2,3" (spaces and newlines separate too, and a JSON array's
// brackets are allowed).
func parseIDs(text string) ([]int32, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		text = text[1 : len(text)-1]
	}
	text = strings.TrimSuffix(strings.TrimSpace(text), ",") // a list may end in a comma
	if strings.Contains(text, ",") {
		for i, part := range strings.Split(text, ",") {
			if strings.TrimSpace(part) == "" {
				return nil, fmt.Errorf("id %d: nothing between two commas", i)
			}
		}
	}
	var ids []int32
	for i, s := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' || r == '\r' }) {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("id %d: %q is not a 32-bit integer", i, s)
		}
		ids = append(ids, int32(n))
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("no ids")
	}
	return ids, nil
}

// commandWith is the command line with the flags that were given, one of them with
// another value.
func (f *flags) commandWith(name, value string) string {
	words := []string{"kiln", f.command}
	for _, d := range f.defs {
		text := f.text(d.name)
		if _, ok := d.def.([]string); ok {
			text = strings.Join(f.list(d.name), ",")
		}
		switch {
		case d.name == name:
			text = value
		case !f.given(d.name):
			continue
		}
		word := "--" + d.name + "=" + text
		if strings.ContainsFunc(text, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:,+@%", r)
		}) {
			word = "--" + d.name + "='" + strings.ReplaceAll(text, "'", `'\''`) + "'"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}
