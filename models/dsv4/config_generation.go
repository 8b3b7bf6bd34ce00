package dsv4

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Generation holds the sampling defaults of a model folder, from its
// generation_config.json. A field absent from the file keeps the value that
// DefaultGeneration gives it.
type Generation struct {
	EOS         []int32 // eos_token_id: generation stops at these; nil: use Config.EOS
	DoSample    bool    // do_sample: false takes the most likely token
	Temperature float64 // temperature, >= 0; 0 is greedy whatever DoSample says
	TopP        float64 // top_p: cumulated probability kept, in (0, 1]
	TopK        int     // top_k: tokens kept, 0 = all
}

// DefaultGeneration returns what holds for a folder that says nothing: greedy,
// and for those who switch sampling on, the unmodified distribution.
func DefaultGeneration() Generation {
	return Generation{Temperature: 1, TopP: 1}
}

var generationFields = []jsonField[Generation]{
	{name: "eos_token_id", optional: true, read: func(g *Generation, name string, v any) (err error) {
		g.EOS, err = asTokenIDs(name, v)
		return err
	}},
	{name: "do_sample", optional: true, read: func(g *Generation, name string, v any) error {
		b, ok := v.(bool)
		if !ok {
			return fieldErrorf(name, "is %s, want true or false", kindOf(v))
		}
		g.DoSample = b
		return nil
	}},
	{name: "temperature", optional: true, read: floatField(func(g *Generation) *float64 { return &g.Temperature }, notNegative)},
	{name: "top_p", optional: true, read: floatField(func(g *Generation) *float64 { return &g.TopP }, fraction)},
	{name: "top_k", optional: true, read: intField(func(g *Generation) *int { return &g.TopK }, 0, maxVocab)},
}

// generationIgnored lists the fields of generation_config.json that are read
// over, each with the reason why that is right.
var generationIgnored = []ignoredField{
	{"_from_model_config", "says how the file was made"},
	{"transformers_version", "says what wrote the file"},
	{"bos_token_id", "config.json has it, and the chat encoding writes the token itself"},
	{"pad_token_id", "padding rows carry slot -1, no token stands for them"},
	{"use_cache", "switches the cache of the Python model; Kiln always keeps one"},
}

// LoadGeneration reads generation_config.json in the model folder dir. A folder
// without the file has DefaultGeneration.
func LoadGeneration(dir string) (*Generation, error) {
	file := filepath.Join(dir, "generation_config.json")
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		g := DefaultGeneration()
		return &g, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read generation config: %w", err)
	}
	return ParseGeneration(data, file)
}

// ParseGeneration reads the text of a generation_config.json; file names it in
// errors. Unknown, repeated and ill-typed fields are errors naming the field.
// Token ids are not compared with a vocabulary, which is in another file.
func ParseGeneration(data []byte, file string) (*Generation, error) {
	obj, err := parseJSONObject(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	g := DefaultGeneration()
	if err := readFields(&g, obj, generationFields, generationIgnored); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &g, nil
}
