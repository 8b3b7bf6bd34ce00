package object

import (
	"fmt"
	"slices"
	"strings"
)

// Setting is what code assumes, or a device has, about a feature of a target.
type Setting uint8

// The settings. Code with SettingAny runs whether the feature is on or off.
const (
	SettingAny Setting = iota
	SettingOff
	SettingOn
	SettingUnsupported // the chip does not have the feature
)

func (s Setting) String() string {
	return [...]string{"any", "off", "on", "unsupported"}[s&3]
}

// suffix is how a target ID writes the setting of a feature.
func (s Setting) suffix(feature string) string {
	switch s {
	case SettingOff:
		return ":" + feature + "-"
	case SettingOn:
		return ":" + feature + "+"
	}
	return ""
}

// TargetID is a chip with the settings of its features (AMDGPUUsage, "Target
// ID"). Text cannot tell an unsupported feature from one that may be on or off;
// the flags of an ELF file can.
type TargetID struct {
	Chip    string // gfx942
	XNACK   Setting
	SRAMECC Setting
}

// idFeature is a feature that a target ID can name.
type idFeature struct {
	name string
	of   func(*TargetID) *Setting
}

// idFeatures lists them in the order of the canonical form.
var idFeatures = []idFeature{
	{"sramecc", func(t *TargetID) *Setting { return &t.SRAMECC }},
	{"xnack", func(t *TargetID) *Setting { return &t.XNACK }},
}

// String is the canonical form: gfx942:sramecc+:xnack-.
func (t TargetID) String() string {
	text := t.Chip
	for _, f := range idFeatures {
		text += f.of(&t).suffix(f.name)
	}
	return text
}

// Attributes are the settled features as LLVM takes them in -mattr:
// +sramecc,-xnack.
func (t TargetID) Attributes() string {
	var list []string
	for _, f := range idFeatures {
		switch *f.of(&t) {
		case SettingOff:
			list = append(list, "-"+f.name)
		case SettingOn:
			list = append(list, "+"+f.name)
		}
	}
	return strings.Join(list, ",")
}

// On is the target ID t of a chip that has the features of chip: what t leaves
// open is chip's setting. A feature that t names and the chip does not have is an
// error.
func (t TargetID) On(chip TargetID) (TargetID, error) {
	name := t.String()
	for _, f := range idFeatures {
		s, has := f.of(&t), *f.of(&chip)
		if has == SettingUnsupported && *s != SettingAny {
			return TargetID{}, fmt.Errorf("target ID %q: %s has no feature %q", name, chip.Chip, f.name)
		}
		if *s == SettingAny {
			*s = has
		}
	}
	return t, nil
}

// hsaTriple is the only platform whose code objects are read.
const hsaTriple = "amdgcn-amd-amdhsa-"

// Triple is the form that code object metadata and HIP use:
// amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-.
func (t TargetID) Triple() string { return hsaTriple + "-" + t.String() }

// RunsOn tells whether code for t runs on a device: same chip, or one that the
// generic processor of the code covers, and every feature that the code does not
// leave open has the device's setting.
func (t TargetID) RunsOn(device TargetID) bool {
	open := func(code, dev Setting) bool {
		return code == SettingAny || code == SettingUnsupported || code == dev
	}
	chip := t.Chip == device.Chip || slices.Contains(genericChips[t.Chip], device.Chip)
	return chip && open(t.XNACK, device.XNACK) && open(t.SRAMECC, device.SRAMECC)
}

// genericChips are the chips that run code of a generic processor (AMDGPUUsage,
// "AMDGPU Generic Processors").
var genericChips = map[string][]string{
	"gfx9-generic":    {"gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"},
	"gfx9-4-generic":  {"gfx942", "gfx950"},
	"gfx10-1-generic": {"gfx1010", "gfx1011", "gfx1012", "gfx1013"},
	"gfx10-3-generic": {"gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"},
	"gfx11-generic":   {"gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"},
	"gfx12-generic":   {"gfx1200", "gfx1201"},
}

// ParseDevice reads the target ID that a driver reports for a device
// (gcnArchName). A driver names every feature that the chip has, so one that is
// not named is SettingUnsupported.
func ParseDevice(s string) (TargetID, error) {
	t, err := ParseTargetID(s)
	if err != nil {
		return TargetID{}, err
	}
	if _, generic := genericChips[t.Chip]; generic {
		return TargetID{}, fmt.Errorf("target ID %q: %s is no chip of a device", s, t.Chip)
	}
	for _, f := range idFeatures {
		if setting := f.of(&t); *setting == SettingAny {
			*setting = SettingUnsupported
		}
	}
	return t, nil
}

// settled counts the features that are not left open, and more than those the
// chip, unless it is generic.
func (t TargetID) settled() int {
	n := 0
	if genericChips[t.Chip] == nil {
		n = len(idFeatures) + 1
	}
	for _, f := range idFeatures {
		if s := *f.of(&t); s == SettingOff || s == SettingOn {
			n++
		}
	}
	return n
}

// ParseTargetID reads gfx942:sramecc+:xnack-, with or without the triple
// amdgcn-amd-amdhsa-- before it. A feature that is not named is SettingAny.
func ParseTargetID(s string) (TargetID, error) {
	text := s
	if rest, ok := strings.CutPrefix(text, hsaTriple); ok {
		text = strings.TrimPrefix(strings.TrimPrefix(rest, "unknown"), "-")
	}
	chip, features, more := strings.Cut(text, ":")
	t := TargetID{Chip: chip}
	if !strings.HasPrefix(chip, "gfx") || strings.ContainsAny(chip, " \t\n") {
		return TargetID{}, fmt.Errorf("target ID %q: %q is no AMDGPU processor", s, chip)
	}
	for more {
		var f string
		f, features, more = strings.Cut(features, ":")
		name, setting := f, SettingAny
		if n, ok := strings.CutSuffix(f, "+"); ok {
			name, setting = n, SettingOn
		} else if n, ok := strings.CutSuffix(f, "-"); ok {
			name, setting = n, SettingOff
		}
		known := slices.IndexFunc(idFeatures, func(row idFeature) bool { return row.name == name })
		if known < 0 {
			return TargetID{}, fmt.Errorf("target ID %q: unknown feature %q", s, f)
		}
		into := idFeatures[known].of(&t)
		if setting == SettingAny {
			return TargetID{}, fmt.Errorf("target ID %q: feature %q must end in + or -", s, f)
		}
		if *into != SettingAny {
			return TargetID{}, fmt.Errorf("target ID %q: feature %q is given twice", s, name)
		}
		*into = setting
	}
	return t, nil
}

// machines names the values of EF_AMDGPU_MACH, the low byte of e_flags
// (AMDGPUUsage, "ELF Header"). LLVM 22 writes each of them.
var machines = map[uint32]string{
	0x20: "gfx600", 0x21: "gfx601", 0x22: "gfx700", 0x23: "gfx701", 0x24: "gfx702", 0x25: "gfx703", 0x26: "gfx704",
	0x28: "gfx801", 0x29: "gfx802", 0x2a: "gfx803", 0x2b: "gfx810", 0x2c: "gfx900", 0x2d: "gfx902", 0x2e: "gfx904",
	0x2f: "gfx906", 0x30: "gfx908", 0x31: "gfx909", 0x32: "gfx90c", 0x33: "gfx1010", 0x34: "gfx1011", 0x35: "gfx1012",
	0x36: "gfx1030", 0x37: "gfx1031", 0x38: "gfx1032", 0x39: "gfx1033", 0x3a: "gfx602", 0x3b: "gfx705", 0x3c: "gfx805",
	0x3d: "gfx1035", 0x3e: "gfx1034", 0x3f: "gfx90a", 0x41: "gfx1100", 0x42: "gfx1013", 0x43: "gfx1150", 0x44: "gfx1103",
	0x45: "gfx1036", 0x46: "gfx1101", 0x47: "gfx1102", 0x48: "gfx1200", 0x49: "gfx1250", 0x4a: "gfx1151", 0x4c: "gfx942",
	0x4e: "gfx1201", 0x4f: "gfx950", 0x51: "gfx9-generic", 0x52: "gfx10-1-generic", 0x53: "gfx10-3-generic",
	0x54: "gfx11-generic", 0x55: "gfx1152", 0x58: "gfx1153", 0x59: "gfx12-generic", 0x5a: "gfx1251", 0x5f: "gfx9-4-generic",
}

// The feature fields of e_flags, code object version 4 and later.
var (
	xnackSettings   = [4]Setting{SettingUnsupported, SettingAny, SettingOff, SettingOn} // bits 9:8
	srameccSettings = xnackSettings                                                     // bits 11:10
)

// targetOfFlags decodes e_flags. The generic version is 0 for a chip of its
// own, and at least 1 for a generic processor (version 6).
func targetOfFlags(flags uint32, version int) (t TargetID, generic int, err error) {
	const where = "elf e_flags at offset 0x30"
	chip, ok := machines[flags&0xff]
	if !ok {
		return t, 0, fmt.Errorf("%s is 0x%x: machine 0x%x is no known AMDGPU processor: %w", where, flags, flags&0xff, ErrUnsupported)
	}
	known := uint32(0xfff)
	if version >= 6 {
		known |= 0xff << 24
		generic = int(flags >> 24)
	}
	if flags&^known != 0 {
		return t, 0, fmt.Errorf("%s is 0x%x: bits 0x%x have no meaning in code object version %d", where, flags, flags&^known, version)
	}
	if isGeneric := strings.HasSuffix(chip, "-generic"); isGeneric != (generic > 0) {
		return t, 0, fmt.Errorf("%s is 0x%x: generic version %d does not go with %s in code object version %d", where, flags, generic, chip, version)
	}
	return TargetID{chip, xnackSettings[flags>>8&3], srameccSettings[flags>>10&3]}, generic, nil
}
