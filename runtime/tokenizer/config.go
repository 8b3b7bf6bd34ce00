package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// A Config is the part of tokenizer_config.json that says what to put around an encoded text. [Tokenizer.Encode] itself
// adds nothing.
type Config struct {
	AddBOS, AddEOS bool   // add the token before, after the ids of a plain text; false if the file does not say
	BOS, EOS       string // the tokens; empty if the file names none
}

// LoadConfig reads tokenizer_config.json in the folder dir. Fields that bear on encoding are honoured or must have the
// value under which they have no effect; those in ignoredConfig are skipped; any other is an error naming it.
func LoadConfig(dir string) (Config, error) {
	path := filepath.Join(dir, "tokenizer_config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	c, err := parseConfig(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// ignoredConfig lists the fields that are skipped whatever their value, each with the reason why that is right.
var ignoredConfig = map[string]string{
	"added_tokens_decoder":          "repeats added_tokens of tokenizer.json, which is what counts",
	"additional_special_tokens":     "names tokens that added_tokens holds already",
	"backend":                       "names the implementation that wrote the file",
	"chat_template":                 "prompts are built in code, per model",
	"clean_up_tokenization_spaces":  "edits decoded text for display; Decode is exact",
	"extra_special_tokens":          "names tokens that added_tokens holds already",
	"legacy":                        "chooses between two ways of converting a SentencePiece model, and there is none",
	"mask_token":                    "not used in generation",
	"max_length":                    "a limit for training batches; Encode does not truncate",
	"model_input_names":             "names the tensors of another library",
	"model_max_length":              "the length limit is the model's own; Encode does not truncate",
	"name_or_path":                  "says where the file came from",
	"pad_token":                     "batches here are not padded",
	"padding_side":                  "batches here are not padded",
	"processor_class":               "names a class of another library",
	"sep_token":                     "not used in generation",
	"cls_token":                     "not used in generation",
	"sp_model_kwargs":               "options of SentencePiece, and there is no such model",
	"spaces_between_special_tokens": "edits decoded text for display; Decode is exact",
	"special_tokens_map_file":       "says where the file came from",
	"tokenizer_class":               "names a class of another library; tokenizer.json describes the tokenizer",
	"truncation_side":               "Encode does not truncate",
	"unk_token":                     "byte-level vocabularies have no unknown text",
	"use_default_system_prompt":     "prompts are built in code, per model",
}

func parseConfig(data []byte) (Config, error) {
	if err := ValidJSON(data); err != nil {
		return Config{}, err
	}
	var c Config
	rs := rules{
		"add_bos_token":        intoBool(&c.AddBOS),
		"add_eos_token":        intoBool(&c.AddEOS),
		"bos_token":            intoToken(&c.BOS),
		"eos_token":            intoToken(&c.EOS),
		"add_prefix_space":     must("false"), // true would put a space before every text
		"do_lower_case":        must("false"),
		"split_special_tokens": must("false"), // true would encode special tokens in the text as ordinary text
	}
	for name := range ignoredConfig {
		rs[name] = func(string, json.RawMessage) error { return nil }
	}
	if err := readObject("", bytes.TrimSpace(data), rs); err != nil {
		return Config{}, err
	}
	for _, end := range []struct {
		add         bool
		token       string
		flag, field string
	}{{c.AddBOS, c.BOS, "add_bos_token", "bos_token"}, {c.AddEOS, c.EOS, "add_eos_token", "eos_token"}} {
		if end.add && end.token == "" {
			return Config{}, fmt.Errorf("%s is true but %s is not given", end.flag, end.field)
		}
	}
	return c, nil
}

// intoToken reads a token given as a string, as an object with its text in "content", or as null. The other fields of
// the object say how an added token is found in a text, which tokenizer.json decides.
func intoToken(dst *string) rule {
	return func(where string, raw json.RawMessage) error {
		switch kind(raw) {
		case "null":
			return nil
		case "object":
			return readObject(where, raw, rules{
				"__type":      must(`"AddedToken"`),
				"content":     intoString(dst),
				"lstrip":      anyBool,
				"normalized":  anyBool,
				"rstrip":      anyBool,
				"single_word": anyBool,
				"special":     anyBool,
			}, "content")
		}
		return intoString(dst)(where, raw)
	}
}
