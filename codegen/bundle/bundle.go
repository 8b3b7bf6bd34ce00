// Package bundle reads and writes compiled models: a folder NAME.kiln with
//
//	manifest.json             what was compiled, from what, with what
//	config.json               the model's config, as it was
//	TARGET/pack.kir           what is computed from weights alone when they are bound
//	TARGET/module.json        pools, weights and kernels, which all plans share
//	TARGET/plan-NNN.json      one plan per entry and bucket; TARGET is the name
//	                          that --target takes, features of a target ID included
//	TARGET/kernels.so         or kernels.hsaco, kernels.ptx: the code
//	TARGET/probes/            plans of single fused ops, in graphs.kir, and of what they
//	                          decompose into: start-up checks compare them
//	TARGET/unfused/           the plans without fused kernels
//	TARGET/ir/                with --emit: graphs, LLVM IR and instructions
package bundle

import (
	"bytes"
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
const Format = 2

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
	// Head says what the heads give in place of logits; "" is logits.
	Head string `json:"head,omitempty"`
	// CodeObjectVersion is that of the AMDGPU targets; 0 without any.
	CodeObjectVersion int `json:"code_object_version,omitempty"`
	// Passes is nil for the default pipeline with every kernel form.
	Passes *Passes `json:"passes,omitempty"`
}

// Passes says how passes and kernel forms were chosen. Names are sorted.
type Passes struct {
	Pipeline       string         `json:"pipeline,omitempty"`
	Only           []string       `json:"only,omitempty"`
	Disable        []string       `json:"disable,omitempty"`
	DisableKernels []string       `json:"disable_kernels,omitempty"`
	Set            map[string]int `json:"set,omitempty"` // thresholds
	Bisect         *int           `json:"bisect,omitempty"`
	Shuffle        uint64         `json:"shuffle,omitempty"`
}

// Bundle is a whole bundle in memory.
type Bundle struct {
	Manifest Manifest
	Config   []byte
	Code     map[string]Files // by target
}

// ObjectName is the code object's file in a target's folder.
func ObjectName(target string) string {
	switch {
	case strings.HasPrefix(target, "gfx"):
		return "kernels.hsaco"
	case strings.HasPrefix(target, "sm_"):
		return "kernels.ptx"
	}
	return "kernels.so"
}

// isBundle reports whether a folder's manifest is one, of any version.
func isBundle(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, manifestName))
	var m struct {
		Format int
		Kiln   string
		Files  map[string]string
	}
	return err == nil && json.Unmarshal(data, &m) == nil && m.Format > 0 && m.Kiln != "" && m.Files != nil
}

const manifestName = "manifest.json"

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
	b := &Bundle{Code: map[string]Files{}}
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
	return b, nil
}

// ReadCode reads what a bundle holds for a target; every plan is checked. What seldom
// runs, ReadUnfused reads, but damage to it is found here. What --emit kept is left alone.
func (b *Bundle) ReadCode(dir, target string) (*Code, error) {
	if !slices.Contains(b.Manifest.Targets, target) {
		return nil, fmt.Errorf("%s: compiled for %v, not for %s", dir, b.Manifest.Targets, target)
	}
	files, err := b.files(dir, target, runs)
	if err != nil {
		return nil, err
	}
	if err := b.verify(dir, func(name string) bool { return strings.HasPrefix(name, target+"/"+unfusedFolder) }); err != nil {
		return nil, err
	}
	b.Code[target] = files
	c, err := files.Decode(target)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", dir, target, err)
	}
	return c, nil
}

// ReadUnfused reads the plans without fused kernels, nil if the bundle has none. They go
// with the module that ReadCode gave.
func (b *Bundle) ReadUnfused(dir string, m *plan.Module) (*Side, error) {
	files, err := b.files(dir, m.Target, func(name string) bool { return strings.HasPrefix(name, unfusedFolder) })
	if err != nil {
		return nil, err
	}
	s, err := files.side(unfusedFolder, m.Target, m)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", dir, m.Target, err)
	}
	return s, nil
}

// Verify compares every file with its digest. The error names all that are damaged or
// missing.
func (b *Bundle) Verify(dir string) error { return b.verify(dir, func(string) bool { return true }) }

func (b *Bundle) verify(dir string, want func(name string) bool) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(b.Manifest.Files)) {
		if want(name) {
			_, err := b.read(dir, name)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// runs tells of a target's file whether it is one that runs from the first step on:
// neither of the plans without fused kernels nor for people.
func runs(name string) bool {
	return !strings.HasPrefix(name, emitFolder) && !strings.HasPrefix(name, unfusedFolder)
}

// CodeDigest identifies what of a target's files runs, by the manifest alone: it is the
// Digest of Files.
func (b *Bundle) CodeDigest(target string) string {
	files := map[string]string{}
	for name, sum := range b.Manifest.Files {
		if rest, ok := strings.CutPrefix(name, target+"/"); ok && runs(rest) {
			files[rest] = sum
		}
	}
	return digestOf(files)
}

// Digest identifies what of the files runs.
func (f Files) Digest() string {
	files := map[string]string{}
	for _, x := range f {
		if runs(x.Name) {
			files[x.Name] = x.sum()
		}
	}
	return digestOf(files)
}

// digestOf is the digest of names and of what is behind them.
func digestOf(files map[string]string) string {
	var list []byte
	for _, name := range slices.Sorted(maps.Keys(files)) {
		list = fmt.Appendf(list, "%s  %s\n", files[name], name)
	}
	return digest(list)
}

// files reads those of a target's files that are wanted.
func (b *Bundle) files(dir, target string, want func(name string) bool) (Files, error) {
	var files Files
	for _, name := range slices.Sorted(maps.Keys(b.Manifest.Files)) {
		rest, ok := strings.CutPrefix(name, target+"/")
		if !ok || !want(rest) {
			continue
		}
		data, err := b.read(dir, name)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Name: rest, Data: data})
	}
	return files, nil
}

// Emitted returns a file that was kept with --emit, such as "ll/NAME.ll".
func (b *Bundle) Emitted(dir, target, name string) ([]byte, error) {
	path := target + "/" + emitFolder + name
	if _, ok := b.Manifest.Files[path]; !ok {
		return nil, fmt.Errorf("%s has no %s", dir, path)
	}
	return b.read(dir, path)
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
