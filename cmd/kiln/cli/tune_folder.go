package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
)

// tuneFormat is the version of the folder that kiln tune compiles to: another one is
// refused.
const tuneFormat = 1

const tuneName = "tune.json"

// tuneFolder is what kiln tune --model leaves for kiln tune --from: tune.json, and beside
// it an archive of plans and code for each contest.
type tuneFolder struct {
	Format   int           `json:"format"`
	Kiln     string        `json:"kiln"`
	LLVM     string        `json:"llvm"`
	Target   string        `json:"target"`
	Compiled string        `json:"compiled"` // the command
	Contests []tuneContest `json:"contests"`

	dir      string
	archives [][]byte // to be written
}

// tuneContest is a choice and its candidates, in the order of their plans.
type tuneContest struct {
	File       string   `json:"file"`
	SHA256     string   `json:"sha256"`
	Form       string   `json:"form"`
	Key        string   `json:"key"`
	Rows       int      `json:"rows"`
	Op         string   `json:"op"`
	Candidates []string `json:"candidates"`
	Model      string   `json:"cost_model"`
	Copies     int      `json:"copies"`
	Graph      string   `json:"graph"`
}

func (c *tuneContest) String() string {
	return fmt.Sprintf("%s, %s, %s", c.Form, c.Key, count(int64(c.Rows), "row"))
}

// canWriteTune refuses a folder that has something in it.
func canWriteTune(dir string) error {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && len(list) > 0 {
		err = fmt.Errorf("folder %s is not empty", dir)
	}
	if err != nil {
		return &codedError{exitFailed, fmt.Errorf("--out: %w", err), "-o OTHER"}
	}
	return nil
}

// add adds a contest.
func (w *tuneFolder) add(d codegen.Decision, x *codegen.Contest) error {
	files, err := x.Code.Encode()
	if err != nil {
		return err
	}
	data, err := files.Archive()
	if err != nil {
		return err
	}
	w.archives = append(w.archives, data)
	w.Contests = append(w.Contests, tuneContest{
		File: fmt.Sprintf("%03d.tar", len(w.Contests)), SHA256: sha256Text(data), Form: d.Form, Key: d.Key, Rows: d.Rows,
		Op: d.Op.Def.Name, Candidates: d.Candidates, Model: d.Model, Copies: x.Copies, Graph: x.Graph,
	})
	return nil
}

func sha256Text(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// write writes the folder, the index last, and says how many bytes it has.
func (w *tuneFolder) write(dir string) (size int, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	index, err := json.MarshalIndent(w, "", "  ")
	if err != nil {
		return 0, err
	}
	put := func(name string, data []byte) {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
		size += len(data)
	}
	for i, c := range w.Contests {
		put(c.File, w.archives[i])
	}
	put(tuneName, append(index, '\n'))
	return size, err
}

// readTune reads the index of a folder.
func readTune(dir string) (*tuneFolder, error) {
	path := filepath.Join(dir, tuneName)
	data, err := os.ReadFile(path)
	w := &tuneFolder{dir: dir}
	if err == nil {
		if err = json.Unmarshal(data, w); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	switch {
	case err != nil:
	case w.Format != tuneFormat:
		err = fmt.Errorf("%s: format %d, this kiln reads %d", path, w.Format, tuneFormat)
	case len(w.Contests) == 0:
		err = fmt.Errorf("%s: no contests", path)
	}
	if err != nil {
		return nil, &codedError{exitFailed, err, "kiln tune --model DIR --target T -o OTHER"}
	}
	return w, nil
}

// code reads the plans and the code of a contest.
func (w *tuneFolder) code(c *tuneContest) (*bundle.Code, error) {
	path := filepath.Join(w.dir, filepath.Base(c.File))
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if sha256Text(data) != c.SHA256 {
		return nil, fmt.Errorf("%s is damaged: its digest is not that of %s", path, tuneName)
	}
	files, err := bundle.FromArchive(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	code, err := files.Decode(w.Target)
	if err == nil && (len(code.Module.Plans) != len(c.Candidates) || len(c.Candidates) == 0 || c.Copies < 1) {
		err = fmt.Errorf("%d plans of %d copies for %d candidates", len(code.Module.Plans), c.Copies, len(c.Candidates))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return code, nil
}
