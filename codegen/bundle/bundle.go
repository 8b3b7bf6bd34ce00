// Package bundle reads and writes compiled models: a folder NAME.kiln with
//
//	manifest.json             what was compiled, from what, with what
//	config.json               the model's config, as it was
//	pack.kir                  what is computed from weights alone when they are bound
//	TARGET/plan-NNN.json      one plan per entry and bucket; TARGET is the name
//	                          that --target takes, features of a target ID included
//	TARGET/kernels.so         or kernels.hsaco: the code
//	TARGET/kernels.json       the kernels: symbol, form, static parameters
package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen/plan"
)

// Format is the version of the folder's layout.
const Format = 1

// Manifest is manifest.json. Two compilations of equal input write equal bytes.
type Manifest struct {
	Format   int      `json:"format"`
	Kiln     string   `json:"kiln"`
	LLVM     string   `json:"llvm"`
	Model    string   `json:"model"` // model_type
	Settings Settings `json:"settings"`
	Targets  []string `json:"targets"`
	// Files holds the SHA-256 of every other file of the bundle, by path.
	Files map[string]string `json:"files"`
	// OrderClass names, per entry, the class inside which the bits of a row do not
	// depend on the bucket.
	OrderClass map[string]string `json:"order_class"`
}

// Settings are the choices that a bundle was compiled with.
type Settings struct {
	Numerics  string `json:"numerics"`
	Taps      bool   `json:"taps"`
	Layers    int    `json:"layers"`
	MaxSeq    int    `json:"max_seq"`
	Speculate int    `json:"speculate"`
	Batch     []int  `json:"batch"`
	Prefill   []int  `json:"prefill"`
	// CodeObjectVersion is that of the AMDGPU targets; 0 without any.
	CodeObjectVersion int `json:"code_object_version,omitempty"`
}

// Code is what a bundle holds for one target.
type Code struct {
	Plans   []*plan.Plan
	Object  []byte
	Kernels []Kernel
}

// Kernel describes one kernel of the code object.
type Kernel struct {
	Symbol string `json:"symbol"`
	Form   string `json:"form"`
	Spec   string `json:"spec"`
}

// Bundle is a whole bundle in memory.
type Bundle struct {
	Manifest Manifest
	Config   []byte
	Pack     string // .kir text; "" if nothing is packed
	Code     map[string]*Code
}

// objectName is the code object's file for a target.
func objectName(target string) string {
	switch {
	case strings.HasPrefix(target, "gfx"):
		return "kernels.hsaco"
	case strings.HasPrefix(target, "sm_"):
		return "kernels.ptx"
	}
	return "kernels.so"
}

// Write makes the folder. It appears whole or not at all: a folder that is there
// already is replaced only if it is a bundle.
func (b *Bundle) Write(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err != nil {
			return fmt.Errorf("%s exists and is not a bundle", dir)
		}
	}
	tmp, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dir)), ".kiln-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := b.writeTo(tmp); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	old := tmp + ".old"
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	defer os.RemoveAll(old)
	return os.Rename(tmp, dir)
}

func (b *Bundle) writeTo(dir string) error {
	b.Manifest.Files = map[string]string{}
	put := func(name string, data []byte) error {
		if name != manifestName {
			b.Manifest.Files[filepath.ToSlash(name)] = digest(data)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.WriteFile(path, data, 0o644)
	}
	putJSON := func(name string, v any, indent bool) error {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if indent {
			enc.SetIndent("", "  ")
		}
		if err := enc.Encode(v); err != nil {
			return err
		}
		return put(name, buf.Bytes())
	}
	errs := []error{put("config.json", b.Config)}
	if b.Pack != "" {
		errs = append(errs, put("pack.kir", []byte(b.Pack)))
	}
	for _, t := range b.Manifest.Targets {
		c := b.Code[t]
		errs = append(errs, put(filepath.Join(t, objectName(t)), c.Object), putJSON(filepath.Join(t, "kernels.json"), c.Kernels, true))
		for i, p := range c.Plans {
			errs = append(errs, putJSON(filepath.Join(t, fmt.Sprintf("plan-%03d.json", i)), p, false))
		}
	}
	errs = append(errs, putJSON(manifestName, b.Manifest, true)) // last: it holds the digests
	return errors.Join(errs...)
}

const manifestName = "manifest.json"

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// read returns a file whose digest the manifest has.
func (b *Bundle) read(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, filepath.FromSlash(name))
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	want, ok := b.Manifest.Files[name]
	if !ok {
		return nil, fmt.Errorf("%s: the manifest does not list it", path)
	}
	if digest(data) != want {
		return nil, fmt.Errorf("%s: the content is not what was compiled: compile again", path)
	}
	return data, nil
}

// ReadManifest reads a bundle's manifest and config only.
func ReadManifest(dir string) (*Bundle, error) {
	b := &Bundle{Code: map[string]*Code{}}
	path := filepath.Join(dir, manifestName)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := decode(path, data, &b.Manifest); err != nil {
		return nil, err
	}
	if b.Manifest.Format != Format {
		return nil, fmt.Errorf("%s: format %d, this kiln reads %d: compile it again", dir, b.Manifest.Format, Format)
	}
	if b.Config, err = b.read(dir, "config.json"); err != nil {
		return nil, err
	}
	if _, packed := b.Manifest.Files["pack.kir"]; packed {
		pack, err := b.read(dir, "pack.kir")
		if err != nil {
			return nil, err
		}
		b.Pack = string(pack)
	}
	return b, nil
}

// ReadCode reads what a bundle holds for a target; every plan is checked.
func (b *Bundle) ReadCode(dir, target string) (*Code, error) {
	found := false
	for _, t := range b.Manifest.Targets {
		found = found || t == target
	}
	if !found {
		return nil, fmt.Errorf("%s: compiled for %v, not for %s", dir, b.Manifest.Targets, target)
	}
	c := &Code{}
	var err error
	if c.Object, err = b.read(dir, target+"/"+objectName(target)); err != nil {
		return nil, err
	}
	data, err := b.read(dir, target+"/kernels.json")
	if err == nil {
		err = decode(target+"/kernels.json", data, &c.Kernels)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(b.Manifest.Files)) {
		if !strings.HasPrefix(name, target+"/plan-") {
			continue
		}
		data, err := b.read(dir, name)
		if err != nil {
			return nil, err
		}
		p := &plan.Plan{}
		if err := decode(name, data, p); err != nil {
			return nil, err
		}
		if err := p.Check(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if p.Target != target {
			return nil, fmt.Errorf("%s: is for %s, not %s", name, p.Target, target)
		}
		c.Plans = append(c.Plans, p)
	}
	if len(c.Plans) == 0 {
		return nil, fmt.Errorf("%s: no plans for %s", dir, target)
	}
	b.Code[target] = c
	return c, nil
}

// decode refuses unknown fields and text after the value.
func decode(path string, data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%s: offset %d: %w", path, dec.InputOffset(), err)
	}
	if dec.More() {
		return fmt.Errorf("%s: text after the value", path)
	}
	return nil
}
