package object

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestTargetID(t *testing.T) {
	for _, tc := range []struct {
		text string
		want TargetID
		form string // "" if text itself
	}{
		{"gfx942", TargetID{Chip: "gfx942"}, ""},
		{"gfx942:sramecc+:xnack-", TargetID{"gfx942", SettingOff, SettingOn}, ""},
		{"gfx90a:xnack+:sramecc-", TargetID{"gfx90a", SettingOn, SettingOff}, "gfx90a:sramecc-:xnack+"},
		{"gfx1030", TargetID{Chip: "gfx1030"}, ""},
		{"gfx9-4-generic:xnack+", TargetID{"gfx9-4-generic", SettingOn, SettingAny}, ""},
		{"amdgcn-amd-amdhsa--gfx950:xnack-", TargetID{"gfx950", SettingOff, SettingAny}, "gfx950:xnack-"},
		{"amdgcn-amd-amdhsa-unknown-gfx950", TargetID{Chip: "gfx950"}, "gfx950"},
		{"amdgcn-amd-amdhsa--gfx9-4-generic", TargetID{Chip: "gfx9-4-generic"}, "gfx9-4-generic"},
	} {
		got, err := ParseTargetID(tc.text)
		if err != nil || got != tc.want {
			t.Errorf("%s: %+v, error %v, want %+v", tc.text, got, err, tc.want)
		}
		if tc.form == "" {
			tc.form = tc.text
		}
		if got.String() != tc.form || got.Triple() != "amdgcn-amd-amdhsa--"+tc.form {
			t.Errorf("%s: prints as %s and %s", tc.text, got, got.Triple())
		}
	}
	for text, want := range map[string]string{
		"":                         `"" is no AMDGPU processor`,
		"sm_90":                    `"sm_90" is no AMDGPU processor`,
		"gfx942:":                  `unknown feature ""`,
		"gfx942:tgsplit+":          `unknown feature "tgsplit+"`,
		"gfx942:xnack":             `feature "xnack" must end in + or -`,
		"gfx942:xnack+-":           `unknown feature "xnack+-"`,
		"gfx942:xnack+:xnack-":     `feature "xnack" is given twice`,
		"x86_64-unknown-linux-gnu": `is no AMDGPU processor`,
	} {
		if got, err := ParseTargetID(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, error %v, want %q in it", text, got, err, want)
		}
	}
}

func TestTargetIDFeatures(t *testing.T) {
	for _, tc := range []struct {
		id         TargetID
		attributes string
		on         string // of a chip with sramecc and without xnack; or the error
	}{
		{TargetID{Chip: "c"}, "", "{c unsupported any}"},
		{TargetID{"c", SettingAny, SettingOn}, "+sramecc", "{c unsupported on}"},
		{TargetID{"c", SettingAny, SettingOff}, "-sramecc", "{c unsupported off}"},
		{TargetID{"c", SettingUnsupported, SettingOn}, "+sramecc", `no feature "xnack"`},
		{TargetID{"c", SettingOff, SettingOn}, "+sramecc,-xnack", `target ID "c:sramecc+:xnack-": c has no feature "xnack"`},
		{TargetID{"c", SettingOn, SettingAny}, "+xnack", `no feature "xnack"`},
	} {
		if got := tc.id.Attributes(); got != tc.attributes {
			t.Errorf("%s: attributes %q, want %q", tc.id, got, tc.attributes)
		}
		type plain TargetID // without String
		on, err := tc.id.On(TargetID{"c", SettingUnsupported, SettingAny})
		if got := fmt.Sprint(plain(on), err); !strings.Contains(got, tc.on) {
			t.Errorf("%s: on a chip without xnack %s, want %s", tc.id, got, tc.on)
		}
	}
}

// All pairs of settings of one feature.
func TestRunsOn(t *testing.T) {
	for code := SettingAny; code <= SettingUnsupported; code++ {
		for device := SettingOff; device <= SettingUnsupported; device++ {
			want := code == SettingAny || code == SettingUnsupported || code == device
			for _, c := range [][2]TargetID{
				{{"gfx942", code, SettingAny}, {"gfx942", device, SettingOn}},
				{{"gfx942", SettingAny, code}, {"gfx942", SettingOn, device}},
			} {
				if got := c[0].RunsOn(c[1]); got != want {
					t.Errorf("code with %v on a device with %v: %t", code, device, got)
				}
				if c[1].Chip = "gfx950"; c[0].RunsOn(c[1]) {
					t.Error("gfx942 code on gfx950")
				}
			}
		}
	}
}

// Every machine that is generic covers chips that are machines, and no other
// does.
func TestGenericChips(t *testing.T) {
	known := map[string]bool{}
	for _, name := range machines {
		known[name] = true
	}
	for _, name := range machines {
		chips := genericChips[name]
		if strings.HasSuffix(name, "-generic") != (len(chips) > 0) {
			t.Errorf("%s covers %v", name, chips)
		}
		for _, chip := range chips {
			if !known[chip] {
				t.Errorf("%s covers %s, which is no machine", name, chip)
			}
		}
	}
	if len(genericChips) != 6 {
		t.Errorf("%d generic processors, want 6", len(genericChips))
	}
}

// The load rule for what drivers say about devices.
func TestLoadRule(t *testing.T) {
	devices := []string{
		"gfx942:sramecc+:xnack-", "gfx942:sramecc+:xnack+", "gfx942:sramecc-:xnack-", "gfx950:sramecc+:xnack-", "gfx90a:sramecc+:xnack-", "gfx1201",
	}
	for code, runs := range map[string]string{ // by device
		"gfx942":                 "yyy...",
		"gfx942:xnack-":          "y.y...",
		"gfx942:xnack+":          ".y....",
		"gfx942:sramecc+":        "yy....",
		"gfx942:sramecc-":        "..y...",
		"gfx942:sramecc+:xnack-": "y.....",
		"gfx942:sramecc-:xnack+": "......",
		"gfx950":                 "...y..",
		"gfx950:xnack+":          "......",
		"gfx9-4-generic":         "yyyy..",
		"gfx9-4-generic:xnack-":  "y.yy..",
		"gfx9-4-generic:xnack+":  ".y....",
		"gfx9-generic":           "......",
		"gfx90a:sramecc+":        "....y.",
		"gfx12-generic":          ".....y",
		"gfx1201":                ".....y",
		"gfx1201:xnack-":         "......", // the device has no such feature
	} {
		id, err := ParseTargetID(code)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, text := range devices {
			device, err := ParseDevice(text)
			if err != nil {
				t.Fatal(err)
			}
			if id.RunsOn(device) {
				got.WriteByte('y')
			} else {
				got.WriteByte('.')
			}
		}
		if got.String() != runs {
			t.Errorf("%s runs on %v: %s, want %s", code, devices, &got, runs)
		}
	}
	for _, text := range []string{"gfx9-4-generic", "sm_90", ""} {
		if d, err := ParseDevice(text); err == nil {
			t.Errorf("device %q: %v", text, d)
		}
	}
}

// The more specific of two objects that both run, whatever their order.
func TestForDevice(t *testing.T) {
	device := TargetID{"gfx942", SettingOff, SettingOn}
	list := []TargetID{{Chip: "gfx9-4-generic"}, {"gfx9-4-generic", SettingOff, SettingOn}, {Chip: "gfx942"}, {"gfx942", SettingOff, SettingAny}}
	for best := range list {
		f := &File{}
		for _, id := range list[:best+1] {
			f.Entries = append([]Entry{{Object: &CodeObject{Target: id}}}, f.Entries...)
		}
		for range 2 {
			if o, err := f.ForDevice(device); err != nil || o.Target != list[best] {
				t.Errorf("of %d: error %v, %v, want %s", best+1, err, o, list[best])
			}
			slices.Reverse(f.Entries)
		}
	}
}

// The flags that LLVM 22.1.8 writes, as its llvm-readelf shows them.
func TestFlags(t *testing.T) {
	const none, any = SettingUnsupported, SettingAny
	for _, tc := range []struct {
		flags   uint32
		version int
		want    TargetID
		generic int
	}{
		{0x54c, 5, TargetID{"gfx942", any, any}, 0},
		{0x54f, 4, TargetID{"gfx950", any, any}, 0},
		{0xe4c, 5, TargetID{"gfx942", SettingOff, SettingOn}, 0},
		{0xb4c, 6, TargetID{"gfx942", SettingOn, SettingOff}, 0},
		{0x53f, 6, TargetID{"gfx90a", any, any}, 0},
		{0x12c, 6, TargetID{"gfx900", any, none}, 0},
		{0x36, 6, TargetID{"gfx1030", none, none}, 0},
		{0x100055f, 6, TargetID{"gfx9-4-generic", any, any}, 1},
		{0x1000054, 6, TargetID{"gfx11-generic", none, none}, 1},
	} {
		got, generic, err := targetOfFlags(tc.flags, tc.version)
		if err != nil || got != tc.want || generic != tc.generic {
			t.Errorf("0x%x: %+v, generic %d, error %v; want %+v, %d", tc.flags, got, generic, err, tc.want, tc.generic)
		}
	}
	seen := map[string]uint32{}
	for code, name := range machines {
		if old, ok := seen[name]; ok {
			t.Errorf("%s is 0x%x and 0x%x", name, old, code)
		}
		seen[name] = code
	}
	for s, want := range map[Setting]string{SettingAny: "any", SettingOff: "off", SettingOn: "on", SettingUnsupported: "unsupported"} {
		if fmt.Sprint(s) != want {
			t.Errorf("setting %d prints as %v", uint8(s), s)
		}
	}
}

func FuzzTargetID(f *testing.F) {
	for _, s := range []string{"gfx942:sramecc+:xnack-", "amdgcn-amd-amdhsa--gfx9-4-generic:xnack+", "amdgcn-amd-amdhsa-unknown-gfx90a", "gfx942:xnack+:xnack-", ":"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseTargetID(text)
		if err != nil {
			return
		}
		for _, form := range []string{id.String(), id.Triple()} {
			if again, err := ParseTargetID(form); err != nil || again != id {
				t.Errorf("%q is %+v, written as %q, which is %+v (%v)", text, id, form, again, err)
			}
		}
	})
}
