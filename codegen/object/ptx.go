package object

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"regexp"
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
func IsPTX(data []byte) bool {
	if bytes.IndexByte(data, 0) >= 0 {
		return false
	}
	for _, line := range ptxDirectives(data) {
		if ptxVersion.Match(line) {
			return true
		}
	}
	return false
}

// Each is matched against what one directive has of the text, not against all of it: a
// module has megabytes.
var (
	ptxVersion     = regexp.MustCompile(`^\.version[ \t]+([0-9]+\.[0-9]+)[ \t]*$`)
	ptxTarget      = regexp.MustCompile(`^\.target[ \t]+(sm_[0-9]+[af]?)\b.*$`)
	ptxAddressSize = regexp.MustCompile(`^\.address_size[ \t]+([0-9]+)[ \t]*$`)
	ptxEntry       = regexp.MustCompile(`^(?:\.visible[ \t]+)?\.entry[ \t]+([\w$%]+)[ \t]*(?:\(([^)]*)\))?([^{]*)\{$`)
	ptxParam       = regexp.MustCompile(`^\.param[ \t]+(?:\.align[ \t]+[0-9]+[ \t]+)?\.([busf])([0-9]+)((?:[ \t]+\.[a-z]+(?:[ \t]+[0-9]+)?)*)[ \t]+[\w$%]+(?:\[([0-9]+)\])?$`)
	ptxBlock       = regexp.MustCompile(`\.reqntid[ \t]+([0-9]+)(?:[ \t]*,[ \t]*([0-9]+))?(?:[ \t]*,[ \t]*([0-9]+))?`)
	ptxMemory      = regexp.MustCompile(`^\.(shared|local)[ \t]+(?:\.align[ \t]+[0-9]+[ \t]+)?\.[busf]([0-9]+)[ \t]+([\w$%]+)(?:\[([0-9]+)\])?`)
	ptxPool        = regexp.MustCompile(`^\.extern[ \t]+\.shared[ \t]+(?:\.align[ \t]+[0-9]+[ \t]+)?\.b8[ \t]+([\w$%]+)\[\][ \t]*;`)
	ptxExtern      = regexp.MustCompile(`^\.extern\s+(?:\.func\s+(?:\([^)]*\)\s*)?([\w$%]+)|\.(?:shared|global|const)[^;]*?([\w$%]+)\s*(?:\[[0-9]*\])?\s*;)`)
	ptxDefinition  = regexp.MustCompile(`^(?:\.visible[ \t]+|\.weak[ \t]+)?\.(?:entry|func|global|shared|const)[ \t]+(?:\.[a-z0-9]+[ \t]+(?:[0-9]+[ \t]+)?)*([\w$%]+)`)
)

// ptxDirectives are the lines of text that begin with a dot, but for blanks, which are
// left out, and where they begin.
func ptxDirectives(text []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for at := 0; at < len(text); {
			line := text[at:]
			next := len(text)
			if n := bytes.IndexByte(line, '\n'); n >= 0 {
				line, next = line[:n], at+n+1
			}
			own := bytes.TrimLeft(line, " \t")
			if bytes.HasPrefix(own, []byte(".")) && !yield(at+len(line)-len(own), own) {
				return
			}
			at = next
		}
	}
}

// withoutComments is PTX text without what no assembler reads.
func withoutComments(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for {
		at := bytes.IndexByte(text, '/')
		if at < 0 || at+1 == len(text) {
			return append(out, text...)
		}
		length := 0
		switch text[at+1] {
		case '/':
			if length = bytes.IndexByte(text[at:], '\n'); length < 0 {
				length = len(text) - at
			}
		case '*':
			if n := bytes.Index(text[at+2:], []byte("*/")); n >= 0 {
				length = n + 4
			}
		}
		out = append(out, text[:at]...)
		if length == 0 {
			out, length = append(out, '/'), 1
		}
		text = text[at+length:]
	}
}

// ReadPTX reads PTX text.
func ReadPTX(data []byte) (*PTX, error) {
	if bytes.IndexByte(data, 0) >= 0 {
		return nil, errors.New("no PTX text: it has a zero byte")
	}
	text := withoutComments(data)
	p := &PTX{}
	heads := []struct {
		name  string
		re    *regexp.Regexp
		into  *string
		times int
	}{{".version", ptxVersion, &p.Version, 0}, {".target", ptxTarget, &p.Target, 0}, {".address_size", ptxAddressSize, new(string), 0}}
	pools := map[string]bool{}
	var entries []int
	for at, line := range ptxDirectives(text) {
		for i := range heads {
			if h := &heads[i]; bytes.HasPrefix(line, []byte(h.name)) {
				if m := h.re.FindSubmatch(line); m != nil {
					*h.into = string(m[1])
					h.times++
				}
			}
		}
		switch {
		case bytes.HasPrefix(line, []byte(".extern")):
			if m := ptxPool.FindSubmatch(line); m != nil {
				pools[string(m[1])] = true
			}
		case bytes.HasPrefix(line, []byte(".visible")), bytes.HasPrefix(line, []byte(".entry")):
			entries = append(entries, at)
		}
	}
	for _, h := range heads[:2] {
		if h.times != 1 {
			return nil, fmt.Errorf("no PTX text: %d lines %s, want one", h.times, h.name)
		}
	}
	if size := heads[2]; size.times == 0 || *size.into != "64" {
		return nil, errors.New("PTX text without .address_size 64")
	}
	known := map[string]bool{}
	for _, at := range entries {
		head, body, ok := bytes.Cut(text[at:], []byte("{"))
		m := ptxEntry.FindSubmatch(text[at:min(at+len(head)+1, len(text))])
		if !ok || m == nil {
			continue // a function or variable that others see
		}
		if end := bytes.Index(body, []byte("\n}")); end >= 0 {
			body = body[:end+1]
		}
		name := string(m[1])
		e, err := readPTXEntry(name, string(m[2]), string(m[3]), body)
		if err != nil {
			return nil, fmt.Errorf("entry %s: %w", name, err)
		}
		e.Pool = uses(body, pools)
		if known[name] {
			return nil, fmt.Errorf("entry %s is there twice", name)
		}
		known[name] = true
		p.Entries = append(p.Entries, e)
	}
	for rest := text; ; {
		at := bytes.Index(rest, []byte(".extern"))
		if at < 0 {
			return p, nil
		}
		rest = rest[at:]
		declared, after, _ := bytes.Cut(rest, []byte(";"))
		if m := ptxExtern.FindSubmatch(rest[:min(len(declared)+1, len(rest))]); m != nil {
			if name := string(m[1]) + string(m[2]); !pools[name] {
				p.Undefined = append(p.Undefined, name)
			}
		}
		rest = after
	}
}

// uses reports whether one of the names occurs in text.
func uses(text []byte, names map[string]bool) bool {
	if len(names) == 0 {
		return false
	}
	start := 0
	for i := 0; i <= len(text); i++ {
		if i < len(text) && identifies(text[i]) {
			continue
		}
		if start < i && names[string(text[start:i])] {
			return true
		}
		start = i + 1
	}
	return false
}

// identifies reports whether c may stand in an identifier of PTX.
func identifies(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '$' || c == '%'
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
	for _, line := range ptxDirectives(body) {
		m := ptxMemory.FindSubmatch(line)
		if m == nil {
			continue
		}
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
	ptxTouches = regexp.MustCompile(`(?m)(?:^|[\s;{}])(?:ld(?:u|matrix)?\.|st(?:matrix)?\.|atom|red|cp\.|multimem|mbarrier|wgmma|tensormap|call|ret|exit|trap|brx)`)
	ptxParamLd = regexp.MustCompile(`\bld\.param\.`)
	ptxBranch  = regexp.MustCompile(`\bbra(?:\.uni)?[ \t]+([\w$%]+)[ \t]*;`)
)

func ptxWaits(body []byte) bool {
	at := ptxWait(body)
	if at < 0 {
		return false
	}
	before := ptxParamLd.ReplaceAll(body[:at], nil)
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

// ptxWait is where the first wait stands that has no predicate, -1 if none does.
func ptxWait(body []byte) int {
	const wait = "griddepcontrol.wait"
	for from := 0; ; {
		n := bytes.Index(body[from:], []byte(wait))
		if n < 0 {
			return -1
		}
		at := from + n
		from = at + len(wait)
		line := body[bytes.LastIndexByte(body[:at], '\n')+1 : at]
		if len(bytes.Trim(line, " \t")) == 0 && bytes.HasPrefix(bytes.TrimLeft(body[from:], " \t"), []byte(";")) {
			return at
		}
	}
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
		text := withoutComments(part)
		for at, line := range ptxDirectives(text) {
			m := ptxDefinition.FindSubmatch(line)
			if m == nil || at > 0 && text[at-1] != '\n' { // what is indented is a body's own
				continue
			}
			if other, ok := defined[string(m[1])]; ok {
				return nil, fmt.Errorf("parts %d and %d both define %s", other, i, m[1])
			}
			defined[string(m[1])] = i
		}
		for line := range bytes.Lines(text) {
			line = bytes.TrimRight(line, " \t\r\n")
			own := bytes.TrimLeft(line, " \t")
			if len(own) == 0 || ptxVersion.Match(own) || ptxTarget.Match(own) || ptxAddressSize.Match(own) {
				continue
			}
			out.Write(line)
			out.WriteByte('\n')
		}
	}
	return out.Bytes(), nil
}
