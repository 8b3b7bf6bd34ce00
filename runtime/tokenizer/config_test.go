package tokenizer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoadConfig(t *testing.T) {
	const bos, eos = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
	got, err := LoadConfig("../../testdata/tiny-dsv4")
	if want := (Config{AddBOS: true, BOS: bos, EOS: eos}); err != nil || got != want {
		t.Errorf("LoadConfig = %+v, %v, want %+v", got, err, want)
	}
	if _, err := LoadConfig(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestConfigForms(t *testing.T) {
	for _, c := range []struct {
		text string
		want Config
	}{
		{`{}`, Config{}},
		{`{"bos_token": null, "add_prefix_space": false}`, Config{}},
		{`{"eos_token": "x", "add_eos_token": true}`, Config{EOS: "x", AddEOS: true}},
		{`{"bos_token": {"__type": "AddedToken", "content": "b", "lstrip": false, "normalized": true, "rstrip": false,
		   "single_word": false}, "legacy": true, "model_max_length": 131072, "pad_token": {"content": "p"}, "unk_token": null,
		   "sp_model_kwargs": {}, "tokenizer_class": "LlamaTokenizerFast", "chat_template": "{{x}}",
		   "clean_up_tokenization_spaces": false, "added_tokens_decoder": {"0": {}}}`, Config{BOS: "b"}},
	} {
		if got, err := parseConfig([]byte(c.text)); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.text, got, err, c.want)
		}
	}
	for _, c := range []struct{ text, want string }{
		{`{"add_bos": true}`, "add_bos: unknown field"},
		{`{"auto_map": {}}`, "auto_map: unknown field"},
		{`{"add_bos_token": 1}`, "add_bos_token: must be true or false, is 1"},
		{`{"add_bos_token": true}`, "add_bos_token is true but bos_token is not given"},
		{`{"add_eos_token": true, "eos_token": ""}`, "add_eos_token is true but eos_token is not given"},
		{`{"bos_token": 3}`, "bos_token: must be a string, is 3"},
		{`{"bos_token": {}}`, "bos_token.content: missing field"},
		{`{"bos_token": {"content": "x", "id": 1}}`, "bos_token.id: unknown field"},
		{`{"bos_token": {"content": "x", "__type": "Other"}}`, `bos_token.__type: must be "AddedToken", is "Other"`},
		{`{"add_prefix_space": true}`, "add_prefix_space: must be false, is true"},
		{`{"split_special_tokens": true}`, "split_special_tokens: must be false, is true"},
		{`{"legacy": true, "legacy": true}`, "legacy: field given twice"},
		{`{"a"}`, "byte 5: invalid character"},
		{`[]`, "must be an object, is []"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadConfig(dir)
		if err == nil || !strings.Contains(err.Error(), "tokenizer_config.json: "+c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}
