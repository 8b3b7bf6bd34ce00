package cli

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// stored is one tensor of a header.
type stored struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets []int  `json:"data_offsets"`
}

// checkpoint is the tiny model's safetensors file, taken apart.
type checkpoint struct {
	header map[string]stored
	data   []byte
}

var tinyCheckpoint = sync.OnceValues(func() (checkpoint, error) {
	c := checkpoint{header: map[string]stored{}}
	raw, err := os.ReadFile(tinyModel + "/model.safetensors")
	if err != nil {
		return c, err
	}
	n := binary.LittleEndian.Uint64(raw)
	var header map[string]json.RawMessage
	if err := json.Unmarshal(raw[8:8+n], &header); err != nil {
		return c, err
	}
	delete(header, "__metadata__")
	for _, name := range slices.Sorted(maps.Keys(header)) {
		var s stored
		if err := json.Unmarshal(header[name], &s); err != nil {
			return c, err
		}
		c.header[name] = s
	}
	c.data = raw[8+n:]
	return c, nil
})

// modelFolder copies the tiny model, with other files in place of its own; an
// empty one is left out.
func modelFolder(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} {
		if _, ok := files[name]; !ok {
			put(name, readFile(t, filepath.Join(tinyModel, name)))
		}
	}
	for name, data := range files {
		if data != nil {
			put(name, data)
		}
	}
	return dir
}

// damaged is a model folder whose checkpoint was edited.
func damaged(t *testing.T, edit func(c *checkpoint)) string {
	t.Helper()
	whole, err := tinyCheckpoint()
	if err != nil {
		t.Fatal(err)
	}
	c := checkpoint{maps.Clone(whole.header), append([]byte(nil), whole.data...)}
	edit(&c)
	header, err := json.Marshal(c.header)
	if err != nil {
		t.Fatal(err)
	}
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return modelFolder(t, map[string][]byte{"model.safetensors": append(append(file, header...), c.data...)})
}

// change edits one tensor's description.
func change(name string, edit func(s *stored)) func(*checkpoint) {
	return func(c *checkpoint) {
		s := c.header[name]
		s.Shape, s.Offsets = append([]int(nil), s.Shape...), append([]int(nil), s.Offsets...)
		edit(&s)
		c.header[name] = s
	}
}

// poison makes one bf16 element of a tensor NaN.
func poison(name string, element int) func(*checkpoint) {
	return func(c *checkpoint) {
		at := c.header[name].Offsets[0] + 2*element
		c.data[at], c.data[at+1] = 0xc0, 0x7f
	}
}

// Damaged checkpoints: exit code 1 (3 for what is well formed and not supported)
// and one line with the file and the tensor, from every command that reads
// weights.
func TestDamagedCheckpoints(t *testing.T) {
	const head = "head.weight"
	for _, tc := range []struct {
		name  string
		dir   string
		parts []string
	}{
		{"truncated data", damaged(t, func(c *checkpoint) { c.data = c.data[:len(c.data)-2] }), []string{"model.safetensors: header: tensor ", "data_offsets", "is past the data section"}},
		{"trailing data", damaged(t, func(c *checkpoint) { c.data = append(c.data, 0, 0) }), []string{"model.safetensors: "}},
		{"truncated header", modelFolder(t, map[string][]byte{"model.safetensors": readFile(t, tinyModel+"/model.safetensors")[:1000]}), []string{"model.safetensors: header length ", "reaches past the end of the file, 1000 bytes"}},
		{"empty", modelFolder(t, map[string][]byte{"model.safetensors": {}}), []string{"model.safetensors: file of 0 bytes is too short for a header length"}},
		{"huge header", modelFolder(t, map[string][]byte{"model.safetensors": []byte(strings.Repeat("\xff", 64))}), []string{"model.safetensors: header length 18446744073709551615 is above the limit"}},
		{"absent", modelFolder(t, map[string][]byte{"model.safetensors": nil}), []string{"folder has neither model.safetensors nor model.safetensors.index.json"}},
		{"overlap", damaged(t, change(head, func(s *stored) { s.Offsets[0] -= 2; s.Offsets[1] -= 2 })), []string{`model.safetensors: tensor "head.weight" at offset `, "overlaps tensor "}},
		{"overflow", damaged(t, change(head, func(s *stored) { s.Shape[0] = 1 << 62 })), []string{`model.safetensors: header: tensor "head.weight": shape [4611686018427387904 256]: size in bytes overflows`}},
		{"size", damaged(t, change(head, func(s *stored) { s.Shape[0]-- })), []string{`tensor "head.weight": data_offsets `, "BF16 of shape [2047 256] takes "}},
		{"unknown dtype", damaged(t, change(head, func(s *stored) { s.DType = "F6_E3M2" })), []string{`tensor "head.weight": dtype "F6_E3M2" is not supported`}},
		{"other dtype", damaged(t, change(head, func(s *stored) { s.DType = "F16" })), []string{"model.safetensors: tensor head.weight is F16 [2048 256], the model wants BF16 [2048 256]"}},
		{"shape", damaged(t, change(head, func(s *stored) { s.Shape[0], s.Shape[1] = 256, 2048 })), []string{"model.safetensors: tensor head.weight is BF16 [256 2048], the model wants BF16 [2048 256]"}},
		{"missing", damaged(t, func(c *checkpoint) { c.header["heaf.weight"] = c.header[head]; delete(c.header, head) }), []string{`no tensor "head`, `"head.weight"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code := exitFailed
			if tc.name == "unknown dtype" {
				code = exitRefused
			}
			kiln(t, "run", "--model", tc.dir, "--prompt-ids", "5", "--max-new-tokens", "2").failed(t, code, append(tc.parts, tc.dir)...)
			if tc.name == "missing" {
				out := filepath.Join(t.TempDir(), "x.safetensors")
				kiln(t, "logits", "--model", tc.dir, "--ids", "5", "--prefill", "1", "--out", out).failed(t, exitFailed, append(tc.parts, tc.dir)...)
				if _, err := os.Stat(out); err == nil {
					t.Error("a failed command left its output file")
				}
			}
		})
	}
}

// NaN never becomes a token.
func TestNaN(t *testing.T) {
	head := damaged(t, poison("head.weight", 7*256))
	for _, tc := range []struct {
		name  string
		dir   string
		args  []string
		parts []string
	}{
		{"one row of the head", head, []string{"--prompt", "func"}, []string{"kiln: position 1: a logit is NaN: the model's output is not usable", "try: kiln logits --model " + head + " --device ref --ids "}},
		{"sampled, as JSON", head, []string{"--prompt-ids", "5", "--temperature", "1", "--top-k", "1", "--json"}, []string{"kiln: position 0: a logit is NaN: the model's output is not usable"}},
		{"the prompt's embedding", damaged(t, poison("embed.weight", 5*256)), []string{"--prompt-ids", "5"}, []string{"kiln: position 0: every logit is NaN: the model's output is not usable"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kiln(t, append([]string{"run", "--model", tc.dir, "--max-new-tokens", "2"}, tc.args...)...).failed(t, exitFailed, tc.parts...)
		})
	}

	// Logits that no head chose from, by a bundle's code.
	b := benchBundle(t, hostTargetName(t))
	for _, more := range [][]string{nil, {"--startup-check=false"}} {
		kiln(t, append([]string{"run", "--model", head, "--bundle", b, "--device", "host", "--prompt", "func", "--max-new-tokens", "2"}, more...)...).
			failed(t, exitFailed, "kiln: position 1: logit of token 7 is NaN: the model's output is not usable\n  try: kiln logits --model "+head+" --device host --ids ")
	}
	kiln(t, "bench", b, "--model", head, "--device", "host", "--batch", "1", "--samples", "1").
		failed(t, exitFailed, "the step's results are of no use: output logits, element 7 is NaN\n  try: kiln bench "+b+" --random-weights: ")

	out := filepath.Join(t.TempDir(), "nan.safetensors")
	kiln(t, "logits", "--model", head, "--ids", "5,6,7", "--prefill", "1", "--out", out).
		failed(t, exitFailed, "kiln: "+out+": tensor prefill.logits: row 0: logit of token 7 is NaN", "try: kiln compare "+head+" DIR: ")
	if v := floats(t, out, "decode.logits"); v[7] == v[7] || v[8] != v[8] {
		t.Errorf("the file has %v and %v for tokens 7 and 8, want NaN and a number", v[7], v[8])
	}
	later := damaged(t, poison("embed.weight", 7*256))
	kiln(t, "logits", "--model", later, "--ids", "5,6,7", "--prefill", "1", "--out", out).
		failed(t, exitFailed, "kiln: "+out+": tensor decode.logits: row 1: logit of token 0 is NaN")
}

// The small files of a model folder.
func TestModelFolder(t *testing.T) {
	config := func(name, from, to string) map[string][]byte {
		text := string(readFile(t, filepath.Join(tinyModel, name)))
		if strings.Count(text, from) != 1 {
			t.Fatalf("%s has %q %d times", name, from, strings.Count(text, from))
		}
		return map[string][]byte{name: []byte(strings.Replace(text, from, to, 1))}
	}
	small := config("config.json", `"max_position_embeddings": 4096`, `"max_position_embeddings": 1024`)
	for _, tc := range []struct {
		name  string
		files map[string][]byte
		args  []string
		code  int
		parts []string
	}{
		{"no config", map[string][]byte{"config.json": nil}, nil, 1, []string{"kiln: model folder ", "config.json"}},
		{"config cut off", map[string][]byte{"config.json": []byte(`{"model_type": "deeps`)}, nil, 1, []string{"config.json: offset 21"}},
		{"another activation", config("config.json", `"silu"`, `"gelu"`), nil, 3, []string{"config.json: ", "hidden_act"}},
		{"more layers than weights", config("config.json", `"n_routed_experts": 8`, `"n_routed_experts": 9`), nil, 1, []string{"model.safetensors"}},
		{"vocabulary above the weights", config("config.json", `"vocab_size": 2048`, `"vocab_size": 2049`), nil, 1, []string{"model.safetensors"}},
		{"vocabulary below the tokenizer", config("config.json", `"vocab_size": 2048`, `"vocab_size": 2047`), nil, 3, []string{"the tokenizer has 2048 tokens, the model 2047"}},
		{"no tokenizer", map[string][]byte{"tokenizer.json": nil}, nil, 1, []string{"tokenizer.json"}},
		{"tokenizer cut off", map[string][]byte{"tokenizer.json": []byte(`{"version": "1.0"`)}, nil, 1, []string{"tokenizer.json: byte 17"}},
		{"no tokenizer config", map[string][]byte{"tokenizer_config.json": nil}, nil, 1, []string{"tokenizer_config.json"}},
		{"end added to the prompt", config("tokenizer_config.json", `"add_eos_token": false`, `"add_eos_token": true`), nil, 3, []string{"tokenizer_config.json: add_eos_token is true"}},
		{"begin token unknown", config("tokenizer_config.json", `"bos_token": "<`, `"bos_token": "<<`), nil, 3, []string{`bos_token "<<｜begin▁of▁sentence｜>" is not in the tokenizer`}},
		{"generation config with an unknown field", config("generation_config.json", `"do_sample"`, `"do_dream"`), nil, 3, []string{"generation_config.json: ", "do_dream"}},
		{"prompt of every position", small, []string{"--prompt-ids", strings.Repeat("5,", 1024), "--max-new-tokens", "1"}, 3, []string{"the prompt has 1024 tokens and max_position_embeddings is 1024, so at most 0 new tokens fit, not 1\n  try: a prompt of at most 1023 tokens\n"}},
		{"prompt longer than the positions", small, []string{"--prompt-ids", strings.Repeat("5,", 1025)}, 3, []string{"the prompt has 1025 tokens, max_position_embeddings is 1024\n  try: a prompt of at most 1023 tokens\n"}},
		{"more new tokens than positions", small, []string{"--prompt-ids", "5", "--max-new-tokens", "1024"}, 3, []string{"at most 1023 new tokens fit, not 1024\n  try: --max-new-tokens 1023\n"}},
		{"the most new tokens there are", small, []string{"--prompt-ids", "5", "--max-new-tokens", "9223372036854775807"}, 3, []string{"at most 1023 new tokens fit"}},
		{"an id beyond the vocabulary", nil, []string{"--prompt-ids", "5,2048"}, 3, []string{"--prompt-ids: id 2048 at index 1 is out of vocabulary (0..2047)\n  try: kiln tokenize --model "}},
		{"a negative id", nil, []string{"--prompt-ids", "-1"}, 3, []string{"--prompt-ids: id -1 at index 0 is out of vocabulary (0..2047)\n  try: kiln tokenize --model "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := tc.args
			if args == nil {
				args = []string{"--prompt", "x"}
			}
			kiln(t, append([]string{"run", "--model", modelFolder(t, tc.files)}, args...)...).failed(t, tc.code, tc.parts...)
		})
	}

	dir := modelFolder(t, small)
	out := filepath.Join(t.TempDir(), "x.safetensors")
	kiln(t, "logits", "--model", dir, "--ids", strings.Repeat("5,", 1025), "--prefill", "1", "--out", out).
		failed(t, exitRefused, "--ids: 1025 ids, max_position_embeddings is 1024\n  try: at most 1024 ids\n")
	kiln(t, "logits", "--model", dir, "--ids", "1,2048", "--prefill", "1", "--out", out).
		failed(t, exitRefused, "--ids: id 2048 at index 1 is out of vocabulary (0..2047)\n  try: kiln tokenize --model "+dir)
}
