package object

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// PTX is what a module of PTX text says about itself. There is no metadata: the
// directives are read (PTX ISA, "Directives").
type PTX struct {
	Version string // of the instruction set: 7.8
	Target  string // sm_90, with a suffix a or f if the code runs nowhere else
	Entries []PTXEntry
	// Undefined are functions and variables that the text declares and leaves to
	// others.
	Undefined []string
}

// PTXEntry is a kernel.
type PTXEntry struct {
	Name   string
	Params []PTXParam
	Block  int // work-items of a group, along x; 0 if any number will do
	Shared int // bytes of shared memory that the body declares
	// Pool: the body uses shared memory whose size the launch gives.
	Pool  bool
	Local int // bytes of stack of a work-item
	// Waits: the body waits for the end of the launches that it follows
	// (griddepcontrol.wait) before it reads or writes memory, on every path.
	Waits bool
}

// PTXParam is a parameter of a kernel.
type PTXParam struct {
	Bytes   int
	Pointer bool // declared to be an address
}

// IsPTX reports whether data looks like PTX text rather than an ELF file.
func IsPTX(data []byte) bool { return ptxVersion.Match(data) && !bytes.ContainsRune(data, 0) }

var (
	ptxVersion     = regexp.MustCompile(`(?m)^[ \t]*\.version[ \t]+([0-9]+\.[0-9]+)[ \t]*$`)
	ptxTarget      = regexp.MustCompile(`(?m)^[ \t]*\.target[ \t]+(sm_[0-9]+[af]?)\b[^\n]*$`)
	ptxAddressSize = regexp.MustCompile(`(?m)^[ \t]*\.address_size[ \t]+([0-9]+)[ \t]*$`)
	ptxEntry       = regexp.MustCompile(`(?m)^[ \t]*(?:\.visible[ \t]+)?\.entry[ \t]+([\w$%]+)[ \t]*(?:\(([^)]*)\))?([^{]*)\{`)
	ptxParam       = regexp.MustCompile(`^\.param[ \t]+(?:\.align[ \t]+[0-9]+[ \t]+)?\.([busf])([0-9]+)((?:[ \t]+\.[a-z]+(?:[ \t]+[0-9]+)?)*)[ \t]+[\w$%]+(?:\[([0-9]+)\])?$`)
	ptxBlock       = regexp.MustCompile(`\.reqntid[ \t]+([0-9]+)(?:[ \t]*,[ \t]*([0-9]+))?(?:[ \t]*,[ \t]*([0-9]+))?`)
	ptxMemory      = regexp.MustCompile(`(?m)^[ \t]*\.(shared|local)[ \t]+(?:\.align[ \t]+[0-9]+[ \t]+)?\.[busf]([0-9]+)[ \t]+([\w$%]+)(?:\[([0-9]+)\])?`)
	ptxBodyEnd     = regexp.MustCompile(`(?m)^\}`)
	ptxPool        = regexp.MustCompile(`(?m)^[ \t]*\.extern[ \t]+\.shared[ \t]+(?:\.align[ \t]+[0-9]+[ \t]+)?\.b8[ \t]+([\w$%]+)\[\][ \t]*;`)
	ptxExtern      = regexp.MustCompile(`\.extern\s+(?:\.func\s+(?:\([^)]*\)\s*)?([\w$%]+)|\.(?:shared|global|const)[^;]*?([\w$%]+)\s*(?:\[[0-9]*\])?\s*;)`)
	ptxDefinition  = regexp.MustCompile(`(?m)^(?:\.visible[ \t]+|\.weak[ \t]+)?\.(?:entry|func|global|shared|const)[ \t]+(?:\.[a-z0-9]+[ \t]+(?:[0-9]+[ \t]+)?)*([\w$%]+)`)
	ptxComment     = regexp.MustCompile(`//[^\n]*|(?s:/\*.*?\*/)`)
)

// ReadPTX reads PTX text.
func ReadPTX(data []byte) (*PTX, error) {
	if bytes.IndexByte(data, 0) >= 0 {
		return nil, errors.New("no PTX text: it has a zero byte")
	}
	text := ptxComment.ReplaceAll(data, nil)
	p := &PTX{}
	for _, d := range []struct {
		name string
		re   *regexp.Regexp
		into *string
	}{{".version", ptxVersion, &p.Version}, {".target", ptxTarget, &p.Target}} {
		all := d.re.FindAllSubmatch(text, -1)
		if len(all) != 1 {
			return nil, fmt.Errorf("no PTX text: %d lines %s, want one", len(all), d.name)
		}
		*d.into = string(all[0][1])
	}
	if m := ptxAddressSize.FindSubmatch(text); m == nil || string(m[1]) != "64" {
		return nil, errors.New("PTX text without .address_size 64")
	}
	var pools []string
	for _, m := range ptxPool.FindAllSubmatch(text, -1) {
		pools = append(pools, string(m[1]))
	}
	for _, m := range ptxEntry.FindAllSubmatchIndex(text, -1) {
		part := func(n int) string {
			if m[2*n] < 0 {
				return ""
			}
			return string(text[m[2*n]:m[2*n+1]])
		}
		body := text[m[1]:]
		if end := ptxBodyEnd.FindIndex(body); end != nil {
			body = body[:end[0]]
		}
		e, err := readPTXEntry(part(1), part(2), part(3), body)
		if err != nil {
			return nil, fmt.Errorf("entry %s: %w", part(1), err)
		}
		e.Pool = slices.ContainsFunc(pools, func(name string) bool { return names(body, name) })
		if slices.ContainsFunc(p.Entries, func(o PTXEntry) bool { return o.Name == e.Name }) {
			return nil, fmt.Errorf("entry %s is there twice", e.Name)
		}
		p.Entries = append(p.Entries, e)
	}
	for _, m := range ptxExtern.FindAllSubmatch(text, -1) {
		if name := string(m[1]) + string(m[2]); !slices.Contains(pools, name) {
			p.Undefined = append(p.Undefined, name)
		}
	}
	return p, nil
}

// names reports whether an identifier occurs in text.
func names(text []byte, identifier string) bool {
	return regexp.MustCompile(`(?:^|[^\w$%])` + regexp.QuoteMeta(identifier) + `(?:$|[^\w$%])`).Match(text)
}

func readPTXEntry(name, params, directives string, body []byte) (PTXEntry, error) {
	e := PTXEntry{Name: name}
	for _, text := range strings.Split(params, ",") {
		if text = strings.Join(strings.Fields(text), " "); text == "" {
			continue
		}
		m := ptxParam.FindStringSubmatch(text)
		if m == nil {
			return e, fmt.Errorf("parameter %d is not understood: %q", len(e.Params), text)
		}
		n, err := ptxBytes(m[2], m[4])
		if err != nil {
			return e, err
		}
		e.Params = append(e.Params, PTXParam{n, strings.Contains(m[3], ".ptr")})
	}
	if m := ptxBlock.FindStringSubmatch(directives); m != nil {
		if m[2] != "" && m[2] != "1" || m[3] != "" && m[3] != "1" {
			return e, fmt.Errorf("%s: groups with more than one dimension", m[0])
		}
		e.Block, _ = strconv.Atoi(m[1]) // digits
	}
	for _, m := range ptxMemory.FindAllSubmatch(body, -1) {
		n, err := ptxBytes(string(m[2]), string(m[4]))
		if err != nil {
			return e, err
		}
		if string(m[1]) == "shared" {
			e.Shared += n
		} else {
			e.Local += n
		}
	}
	e.Waits = ptxWaits(body)
	return e, nil
}

// What may stand before a wait: nothing that reads or writes memory but parameters, that
// leaves the kernel, or that goes past the wait.
var (
	ptxWait    = regexp.MustCompile(`(?m)^[ \t]*griddepcontrol\.wait[ \t]*;`)
	ptxTouches = regexp.MustCompile(`(?m)(?:^|[\s;{}])(?:ld(?:u|matrix)?\.|st(?:matrix)?\.|atom|red|cp\.|multimem|mbarrier|wgmma|tensormap|call|ret|exit|trap|brx)`)
	ptxParamLd = regexp.MustCompile(`\bld\.param\.`)
	ptxBranch  = regexp.MustCompile(`\bbra(?:\.uni)?[ \t]+([\w$%]+)[ \t]*;`)
)

func ptxWaits(body []byte) bool {
	at := ptxWait.FindIndex(body)
	if at == nil {
		return false
	}
	before := ptxParamLd.ReplaceAll(body[:at[0]], nil)
	if ptxTouches.Match(before) {
		return false
	}
	for _, m := range ptxBranch.FindAllSubmatch(before, -1) {
		if !regexp.MustCompile(`(?m)^[ \t]*` + regexp.QuoteMeta(string(m[1])) + `:`).Match(before) {
			return false
		}
	}
	return true
}

// ptxBytes is the size of an element of that many bits, or of an array.
func ptxBytes(bits, count string) (int, error) {
	n, err := strconv.Atoi(bits)
	if err == nil && count != "" {
		var c int
		c, err = strconv.Atoi(count)
		n *= c
	}
	return n / 8, err
}

// Entry finds a kernel.
func (p *PTX) Entry(name string) (*PTXEntry, error) {
	for i := range p.Entries {
		if p.Entries[i].Name == name {
			return &p.Entries[i], nil
		}
	}
	return nil, fmt.Errorf("no kernel %s in the PTX text, which has %d entries", name, len(p.Entries))
}

// JoinPTX makes one module of several, which must agree about version and target
// and define different names. Comments of the parts go.
func JoinPTX(parts [][]byte) ([]byte, error) {
	var out bytes.Buffer
	var head string
	defined := map[string]int{}
	for i, part := range parts {
		p, err := ReadPTX(part)
		if err != nil {
			return nil, fmt.Errorf("part %d: %w", i, err)
		}
		own := fmt.Sprintf(".version %s\n.target %s\n.address_size 64\n", p.Version, p.Target)
		if i == 0 {
			head = own
			out.WriteString(own)
		}
		if own != head {
			return nil, fmt.Errorf("part %d is for %s, PTX %s, unlike part 0", i, p.Target, p.Version)
		}
		text := ptxComment.ReplaceAll(part, nil)
		for _, m := range ptxDefinition.FindAllSubmatch(text, -1) {
			if other, ok := defined[string(m[1])]; ok {
				return nil, fmt.Errorf("parts %d and %d both define %s", other, i, m[1])
			}
			defined[string(m[1])] = i
		}
		for _, re := range []*regexp.Regexp{ptxVersion, ptxTarget, ptxAddressSize} {
			text = re.ReplaceAll(text, nil)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimRight(line, " \t\r\n"); line != "" {
				out.WriteString(line + "\n")
			}
		}
	}
	return out.Bytes(), nil
}
