package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type object = map[string]any

// miniature is the JSON of a small tokenizer: 256 bytes, two merges, one added token.
func miniature() object {
	vocab := object{}
	for b, char := range byteText {
		vocab[char] = b
	}
	vocab["ab"], vocab["abc"] = 256, 257
	return object{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil, "post_processor": nil,
		"added_tokens": []any{addedSpec(258, "<x>", false)},
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []any{
			split(patternDigits),
			object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
		}},
		"decoder": object{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model": object{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
			"vocab": vocab, "merges": []any{"a b", "ab c"},
		},
	}
}

// reach walks into o by keys and indices.
func reach(o object, path []any) any {
	v := any(o)
	for _, p := range path {
		switch p := p.(type) {
		case string:
			v = v.(object)[p]
		case int:
			v = v.([]any)[p]
		}
	}
	return v
}

func TestLoadNeutralForms(t *testing.T) {
	for name, change := range map[string]func(object){
		"as is":               func(object) {},
		"merges as pairs":     func(o object) { o["model"].(object)["merges"] = []any{[]any{"a", "b"}, []any{"ab", "c"}} },
		"empty normalizer":    func(o object) { o["normalizer"] = object{"type": "Sequence", "normalizers": []any{}} },
		"offsets only":        func(o object) { o["post_processor"] = object{"type": "ByteLevel", "trim_offsets": false} },
		"empty affixes":       func(o object) { o["model"].(object)["end_of_word_suffix"] = "" },
		"no optional fields":  func(o object) { dropOptional(o) },
		"ignore_merges":       func(o object) { o["model"].(object)["ignore_merges"] = true },
		"normalized":          func(o object) { o["added_tokens"] = []any{addedSpec(258, "<x>", true)} },
		"added in vocabulary": func(o object) { o["model"].(object)["vocab"].(object)["<x>"] = 258 },
	} {
		t.Run(name, func(t *testing.T) {
			spec := miniature()
			change(spec)
			tok, err := loadJSON(t, spec)
			if err != nil {
				t.Fatal(err)
			}
			if ids := tok.Encode("abcab<x>12"); len(ids) != 5 || ids[0] != 257 || ids[1] != 256 || ids[2] != 258 {
				t.Errorf("Encode gives %v", ids)
			}
		})
	}
}

func dropOptional(o object) {
	for _, name := range []string{"truncation", "padding", "normalizer", "post_processor"} {
		delete(o, name)
	}
	model := o["model"].(object)
	maps.DeleteFunc(model, func(name string, _ any) bool { return name != "type" && name != "vocab" && name != "merges" })
}

func TestLoadRefusals(t *testing.T) {
	// Each case sets one value, given by its path, or deletes it.
	type remove struct{}
	for _, c := range []struct {
		want  string
		value any
		path  []any
	}{
		{`version: must be "1.0", is "2.0"`, "2.0", []any{"version"}},
		{`version: missing field`, remove{}, []any{"version"}},
		{`surprise: unknown field`, 1, []any{"surprise"}},
		{`truncation: must be null, is {`, object{"max_length": 5}, []any{"truncation"}},
		{`padding: must be null, is {`, object{}, []any{"padding"}},
		{`normalizer: type "NFC" is not supported; supported: Sequence`, object{"type": "NFC"}, []any{"normalizer"}},
		{`normalizer: type "" is not supported`, object{}, []any{"normalizer"}},
		{`normalizer: must be an object, is 3`, 3, []any{"normalizer"}},
		{`normalizer.normalizers: missing field`, object{"type": "Sequence"}, []any{"normalizer"}},
		{`normalizer.normalizers[0]: type "NFKC" is not supported`, object{"type": "Sequence", "normalizers": []any{object{"type": "NFKC"}}}, []any{"normalizer"}},
		{`post_processor: type "TemplateProcessing" is not supported`, object{"type": "TemplateProcessing"}, []any{"post_processor"}},
		{`post_processor.x: unknown field`, object{"type": "ByteLevel", "x": 1}, []any{"post_processor"}},
		{`decoder: missing field`, remove{}, []any{"decoder"}},
		{`decoder: must be an object, is null`, nil, []any{"decoder"}},
		{`decoder: type "Fuse" is not supported; supported: ByteLevel`, "Fuse", []any{"decoder", "type"}},
		{`decoder.use_regex: must be true or false, is 1`, 1, []any{"decoder", "use_regex"}},

		{`pre_tokenizer: must be an object, is null`, nil, []any{"pre_tokenizer"}},
		{`pre_tokenizer: type "ByteLevel" is not supported; supported: Sequence`, "ByteLevel", []any{"pre_tokenizer", "type"}},
		{`pre_tokenizer: ByteLevel is missing`, []any{}, []any{"pre_tokenizer", "pretokenizers"}},
		{`pretokenizers[0]: type "Digits" is not supported; supported: ByteLevel, Split`, object{"type": "Digits"}, []any{"pre_tokenizer", "pretokenizers", 0}},
		{`pretokenizers[1]: nothing may follow ByteLevel`, object{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}, []any{"pre_tokenizer", "pretokenizers", 0}},
		{`pretokenizers[0].behavior: must be "Isolated", is "Removed"`, "Removed", []any{"pre_tokenizer", "pretokenizers", 0, "behavior"}},
		{`pretokenizers[0].invert: must be false, is true`, true, []any{"pre_tokenizer", "pretokenizers", 0, "invert"}},
		{`pretokenizers[0].invert: missing field`, remove{}, []any{"pre_tokenizer", "pretokenizers", 0, "invert"}},
		{`pretokenizers[0].pattern.String: unknown field`, object{"String": " "}, []any{"pre_tokenizer", "pretokenizers", 0, "pattern"}},
		{`pretokenizers[0].pattern.Regex: pattern "\\w+", byte 0: escape \w is not supported`, `\w+`, []any{"pre_tokenizer", "pretokenizers", 0, "pattern", "Regex"}},
		{`pretokenizers[1].add_prefix_space: must be false, is true`, true, []any{"pre_tokenizer", "pretokenizers", 1, "add_prefix_space"}},
		{`pretokenizers[1].use_regex: must be false, is true`, true, []any{"pre_tokenizer", "pretokenizers", 1, "use_regex"}},
		{`pretokenizers[1].use_regex: missing field`, remove{}, []any{"pre_tokenizer", "pretokenizers", 1, "use_regex"}},

		{`added_tokens[0].single_word: must be false, is true`, true, []any{"added_tokens", 0, "single_word"}},
		{`added_tokens[0].lstrip: must be false, is true`, true, []any{"added_tokens", 0, "lstrip"}},
		{`added_tokens[0].rstrip: must be false, is true`, true, []any{"added_tokens", 0, "rstrip"}},
		{`added_tokens[0].normalized: must be true or false, is "no"`, "no", []any{"added_tokens", 0, "normalized"}},
		{`added_tokens[0].normalized: missing field`, remove{}, []any{"added_tokens", 0, "normalized"}},
		{`added_tokens[0]: content is empty`, "", []any{"added_tokens", 0, "content"}},
		{`added_tokens[0].content: must be a string, is null`, nil, []any{"added_tokens", 0, "content"}},
		{`added_tokens[0].id: must be a token id, is 1.5`, 1.5, []any{"added_tokens", 0, "id"}},
		{`added_tokens[0].id: must be a token id, is -1`, -1, []any{"added_tokens", 0, "id"}},
		{`added_tokens[0]: token "<x>" must have id 258, has 259`, 259, []any{"added_tokens", 0, "id"}},
		{`added_tokens[0]: token "<x>" must have id 258, has 3`, 3, []any{"added_tokens", 0, "id"}},
		{`added_tokens[0]: token "ab" must have id 256, has 258`, "ab", []any{"added_tokens", 0, "content"}},
		{`added_tokens[1]: token "<x>" given twice`, []any{addedSpec(258, "<x>", false), addedSpec(259, "<x>", false)}, []any{"added_tokens"}},
		{`added_tokens: must be an array, is {}`, object{}, []any{"added_tokens"}},

		{`model: missing field`, remove{}, []any{"model"}},
		{`model.type: must be "BPE", is "Unigram"`, "Unigram", []any{"model", "type"}},
		{`model.dropout: must be null, is 0.1`, 0.1, []any{"model", "dropout"}},
		{`model.unk_token: must be null, is "unk"`, "unk", []any{"model", "unk_token"}},
		{`model.continuing_subword_prefix: must be null or "", is "##"`, "##", []any{"model", "continuing_subword_prefix"}},
		{`model.end_of_word_suffix: must be null or "", is "\u003c/w\u003e"`, "</w>", []any{"model", "end_of_word_suffix"}},
		{`model.fuse_unk: must be false, is true`, true, []any{"model", "fuse_unk"}},
		{`model.byte_fallback: must be false, is true`, true, []any{"model", "byte_fallback"}},
		{`model.ignore_merges: must be true or false, is null`, nil, []any{"model", "ignore_merges"}},
		{`model.cache_capacity: unknown field`, 1, []any{"model", "cache_capacity"}},
		{`model.vocab: missing field`, remove{}, []any{"model", "vocab"}},
		{`model.vocab: no token has id 258, but "hole" has 259`, 259, []any{"model", "vocab", "hole"}},
		{`model.vocab: tokens "abc" and "twin" both have id 257`, 257, []any{"model", "vocab", "twin"}},
		{`model.vocab["odd"]: must be a token id, is "7"`, "7", []any{"model", "vocab", "odd"}},
		{`model.vocab["odd"]: must be a token id, is 1e+30`, 1e30, []any{"model", "vocab", "odd"}},
		{`model.merges[0]: token "xy" is not in model.vocab`, "x y", []any{"model", "merges", 0}},
		{`model.merges[0]: token "xx" is not in model.vocab`, "xx y", []any{"model", "merges", 0}},
		{`model.merges[1]: merge of "a" and "b" given twice`, "a b", []any{"model", "merges", 1}},
		{`model.merges[1]: merges mix strings and arrays`, []any{"ab", "c"}, []any{"model", "merges", 1}},
		{`model.merges[1]: must be two tokens, as "a b" or ["a", "b"], is "ab c d"`, "ab c d", []any{"model", "merges", 1}},
		{`model.merges[1]: must be two tokens, as "a b" or ["a", "b"], is "abc"`, "abc", []any{"model", "merges", 1}},
		{`model.merges[0]: must be two tokens, as "a b" or ["a", "b"], is 5`, 5, []any{"model", "merges", 0}},
		{`model.merges[0]: must be two tokens, as "a b" or ["a", "b"], is ["a"]`, []any{"a"}, []any{"model", "merges", 0}},
		{`model.merges[0][1]: must be a string, is 1`, []any{"a", 1}, []any{"model", "merges", 0}},
		{`model.merges[0]: merge "#version: 0.2" looks like a file header`, "#version: 0.2", []any{"model", "merges", 0}},
	} {
		spec := miniature()
		last := len(c.path) - 1
		switch in := reach(spec, c.path[:last]).(type) {
		case object:
			in[c.path[last].(string)] = c.value
			if c.value == (any(remove{})) {
				delete(in, c.path[last].(string))
			}
		case []any:
			in[c.path[last].(int)] = c.value
		}
		_, err := loadJSON(t, spec)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "tokenizer.json: ") {
			t.Errorf("%v: %v\nwant %s", c.path, err, c.want)
		}
	}
}

// TestLoadNeedsEveryByte: Hugging Face drops bytes without a token from the text.
func TestLoadNeedsEveryByte(t *testing.T) {
	spec := miniature()
	vocab := spec["model"].(object)["vocab"].(object)
	delete(vocab, byteText[' '])
	vocab["spare"] = int(' ') // keeps the ids dense
	const want = `model.vocab: no token for byte 0x20 ("Ġ")`
	if _, err := loadJSON(t, spec); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// TestLoadMalformed covers what no Go value marshals to.
func TestLoadMalformed(t *testing.T) {
	good, err := json.Marshal(miniature())
	if err != nil {
		t.Fatal(err)
	}
	replace := func(old, new string) string {
		if !strings.Contains(string(good), old) {
			t.Fatalf("%s is not in the file", old)
		}
		return strings.Replace(string(good), old, new, 1)
	}
	for _, c := range []struct{ text, want string }{
		{"", "unexpected end of JSON input"},
		{"[]", "must be an object, is []"},
		{"null", "must be an object, is null"},
		{string(good) + "x", "invalid character 'x' after top-level value"},
		{string(good[:len(good)-1]), "unexpected end of JSON input"},
		{replace(`"version"`, "\"v\xff\""), "not UTF-8"},
		{replace(`"\u003cx\u003e"`, `"\ud800x"`), `unpaired surrogate escape \ud800`},
		{replace(`"\u003cx\u003e"`, `"\udc00\ud800"`), `unpaired surrogate escape \udc00`},
		{replace(`"\u003cx\u003e"`, `"\ud800\u0041"`), `unpaired surrogate escape \ud800`},
		{replace(`"abc":257`, `"abc":257,"abc":258`), `model.vocab: token "abc" given twice`},
		{replace(`"version":"1.0"`, `"version":"1.0","version":"1.0"`), "version: field given twice"},
		{replace(`"type":"BPE"`, `"type":"BPE","type":"BPE"`), "model.type: field given twice"},
		{replace(`"type":"ByteLevel"`, `"type":"ByteLevel","type":"ByteLevel"`), ".type: field given twice"},
		{replace(`"version"`, `"Version"`), "Version: unknown field"},
		{replace(`"abc":257`, `"abc":257.0`), "must be a token id, is 257.0"},
	} {
		path := filepath.Join(t.TempDir(), "tokenizer.json")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\nwant %s", err, c.want)
		}
	}
	// A pair of surrogates is a character, and white space around the document is fine.
	tok, err := parse([]byte(" \n" + replace(`"\u003cx\u003e"`, `"\ud83d\ude42"`) + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := tok.ID("🙂"); id != 258 || !ok {
		t.Errorf("ID = %d, %v", id, ok)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

// FuzzLoad fuzzes a file whose 256 byte tokens are abbreviated, so that mutations fall on the rest of it.
func FuzzLoad(f *testing.F) {
	const abbreviated = `"BYTES":0`
	var bytes []string
	for b, char := range byteText {
		name, err := json.Marshal(char)
		if err != nil {
			f.Fatal(err)
		}
		bytes = append(bytes, fmt.Sprintf("%s:%d", name, b))
	}
	spec := miniature()
	vocab := spec["model"].(object)["vocab"].(object)
	for _, char := range byteText {
		delete(vocab, char)
	}
	vocab["BYTES"] = 0
	add := func() {
		data, err := json.Marshal(spec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	add()
	spec["model"].(object)["merges"] = []any{[]any{"a", "b"}}
	spec["model"].(object)["ignore_merges"] = true
	spec["normalizer"] = object{"type": "Sequence", "normalizers": []any{}}
	spec["added_tokens"] = []any{addedSpec(258, "<x>", true), addedSpec(259, "｜y", false)}
	spec["pre_tokenizer"].(object)["pretokenizers"].([]any)[0] = split(`[^\r\n\p{L}-]?(?:a|b+)(?!\S)|\s{1,3}`)
	add()
	for _, s := range []string{"", "{}", "[", `{"version":"1.0","model":{"vocab":{"a":0}}}`, `{"version":"\ud800"}`, "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tok, err := parse([]byte(strings.Replace(text, abbreviated, strings.Join(bytes, ","), 1)))
		if err != nil {
			return
		}
		got, err := tok.Decode(tok.Encode("ab 1"))
		if err != nil || got != "ab 1" {
			t.Errorf("Decode(Encode) = %q, %v", got, err)
		}
	})
}
