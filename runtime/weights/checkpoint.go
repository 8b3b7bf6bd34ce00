package weights

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// Names of the files in a model folder.
const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
	fileSuffix = ".safetensors"
)

// Checkpoint is a set of tensors from one file or from the shards of a model
// folder. Its methods other than Close may be called concurrently.
type Checkpoint struct {
	path     string
	tensors  map[string]*Tensor // by canonical name
	names    []string           // canonical, sorted
	metadata map[string]string
	mappings []mapping
}

// Open maps a .safetensors file, or a model folder with either
// model.safetensors, which wins if both are there, or
// model.safetensors.index.json and the shards that it lists. Index and shards
// must agree: each tensor in exactly one shard, the one listed.
//
// Tensors go by their canonical names (see CanonicalName); two that share one
// are an error. The files must not change while the checkpoint is open.
func Open(path string) (*Checkpoint, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	c := &Checkpoint{path: path, tensors: map[string]*Tensor{}}
	if info.IsDir() {
		err = c.openFolder()
	} else if !strings.HasSuffix(path, fileSuffix) {
		err = fmt.Errorf("%s: neither a %s file nor a model folder", path, fileSuffix)
	} else {
		err = c.addFile(path)
	}
	if err != nil {
		if closeErr := c.Close(); closeErr != nil {
			err = fmt.Errorf("%w; %w", err, closeErr)
		}
		return nil, err
	}
	c.names = slices.Sorted(maps.Keys(c.tensors))
	return c, nil
}

// openFolder adds the file or the shards of the folder c.path.
func (c *Checkpoint) openFolder() error {
	single, index := filepath.Join(c.path, singleFile), filepath.Join(c.path, indexFile)
	_, err := os.Stat(single)
	if err == nil {
		return c.addFile(single)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("open checkpoint: %w", err)
	}
	weightMap, err := readIndex(index)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: folder has neither %s nor %s", c.path, singleFile, indexFile)
	}
	if err != nil {
		return err
	}
	for _, file := range slices.Compact(slices.Sorted(maps.Values(weightMap))) {
		if err := c.addFile(filepath.Join(c.path, file)); err != nil {
			return err
		}
	}
	return c.checkIndex(index, weightMap)
}

// readIndex returns the weight_map of an index: shard file by tensor name.
func readIndex(path string) (map[string]string, error) {
	f, _, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxHeader+1))
	if err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	weightMap, err := parseIndex(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return weightMap, nil
}

func parseIndex(text []byte) (map[string]string, error) {
	if len(text) > maxHeader {
		return nil, fmt.Errorf("index is above the limit of %d bytes", maxHeader)
	}
	r, err := newReader(text)
	if err != nil {
		return nil, err
	}
	var weightMap map[string]string
	err = r.object(func(key string) (err error) {
		switch key {
		case "metadata":
			err = r.skip() // sizes for display, which writers often get wrong
		case "weight_map":
			weightMap, err = r.strings()
		default:
			return fmt.Errorf("field %s is not known", quote(key))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err == nil {
		err = r.end()
	}
	if err == nil && weightMap == nil {
		err = errors.New("field weight_map is missing")
	}
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(weightMap)) {
		if file := weightMap[name]; !validShard(file) {
			return nil, fmt.Errorf("weight_map: tensor %s: shard %s is not the plain name of a %s file",
				quote(name), quote(file), fileSuffix)
		}
	}
	return weightMap, nil
}

// validShard reports whether file cannot lead out of the model folder, and fits
// on one line of an error message.
func validShard(file string) bool {
	return strings.HasSuffix(file, fileSuffix) && !strings.ContainsAny(file, `/\`) &&
		!strings.Contains(file, "..") && !strings.ContainsFunc(file, unicode.IsControl) && filepath.IsLocal(file)
}

// checkIndex verifies that the shards hold exactly what the index lists.
func (c *Checkpoint) checkIndex(index string, weightMap map[string]string) error {
	listed := map[string]string{} // spelling in the index by canonical name
	for _, name := range slices.Sorted(maps.Keys(weightMap)) {
		key := CanonicalName(name)
		if other, ok := listed[key]; ok {
			return fmt.Errorf("%s: tensors %s and %s are both %s", index, quote(other), quote(name), quote(key))
		}
		listed[key] = name
		file := filepath.Join(c.path, weightMap[name])
		if t := c.tensors[key]; t == nil {
			return fmt.Errorf("%s: tensor %s is not in its shard %s", index, quote(name), file)
		} else if t.File != file {
			return fmt.Errorf("%s: tensor %s is not in its shard %s but in %s", index, quote(name), file, t.File)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.tensors)) {
		if _, ok := listed[key]; !ok {
			return fmt.Errorf("%s: tensor %s of %s is not listed", index, quote(key), c.tensors[key].File)
		}
	}
	return nil
}

// addFile maps one file and adds its tensors.
func (c *Checkpoint) addFile(path string) error {
	m, err := mapFile(path)
	if err != nil {
		return err
	}
	c.mappings = append(c.mappings, m)
	s, err := parse(path, m)
	if err != nil {
		return err
	}
	m.advise(m, sequential)
	for _, t := range s.tensors {
		key := CanonicalName(t.Name)
		if other := c.tensors[key]; other != nil {
			return fmt.Errorf("%s: tensor %s is also in %s (canonical name %s)", path, quote(t.Name), other.File, quote(key))
		}
		t.Name = key
		c.tensors[key] = t
	}
	c.addMetadata(s.metadata)
	return nil
}

// addMetadata merges the metadata of the next file.
func (c *Checkpoint) addMetadata(m map[string]string) {
	if len(c.mappings) == 1 {
		c.metadata = maps.Clone(m)
		return
	}
	maps.DeleteFunc(c.metadata, func(k, v string) bool {
		other, ok := m[k]
		return !ok || other != v
	})
}

// Close unmaps the files. Tensors of the checkpoint must not be used any more;
// lookups after it fail. Closing twice is harmless.
func (c *Checkpoint) Close() error {
	var first error
	for _, m := range c.mappings {
		if err := m.unmap(); err != nil && first == nil {
			first = fmt.Errorf("close %s: %w", c.path, err)
		}
	}
	*c = Checkpoint{path: c.path}
	return first
}

// Names returns the canonical names of all tensors, sorted.
func (c *Checkpoint) Names() []string { return slices.Clone(c.names) }

// Has reports whether the checkpoint holds a tensor, in either spelling.
func (c *Checkpoint) Has(name string) bool { return c.tensors[CanonicalName(name)] != nil }

// Lookup returns the tensor with the given name, in either spelling. The error
// for a missing one names the checkpoint and the most similar name, if any. The
// result is shared: callers must not change it.
func (c *Checkpoint) Lookup(name string) (*Tensor, error) {
	if c.tensors == nil {
		return nil, fmt.Errorf("%s: tensor %s: checkpoint is closed", c.path, quote(name))
	}
	key := CanonicalName(name)
	if t := c.tensors[key]; t != nil {
		return t, nil
	}
	if near := nearest(key, c.names); near != "" {
		return nil, fmt.Errorf("%s: no tensor %s; the nearest name is %s", c.path, quote(key), quote(near))
	}
	return nil, fmt.Errorf("%s: no tensor %s", c.path, quote(key))
}

// Metadata returns the __metadata__ of the file. Of several shards, it holds
// the entries on which all agree.
func (c *Checkpoint) Metadata() map[string]string {
	if c.metadata == nil {
		return map[string]string{}
	}
	return maps.Clone(c.metadata)
}
