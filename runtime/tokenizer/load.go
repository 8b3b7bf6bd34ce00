package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Load reads a tokenizer.json. Supported is byte-level BPE:
//
//	normalizer      null, or a Sequence of none
//	pre_tokenizer   Sequence of Split (Regex, Isolated, not inverted) and one final ByteLevel without prefix space and regex
//	model           BPE without dropout, unknown token, affixes or byte fallback, whose vocabulary covers all 256 bytes
//	added_tokens    any, unless they ask for single_word, lstrip or rstrip
//	decoder         ByteLevel
//	post_processor  null, or ByteLevel, which only moves offsets
//	truncation, padding  null
//
// Anything else is an error that names the file and the field, as are fields not known here, repeated keys, text that
// is not UTF-8, and a vocabulary with holes or with two tokens of one id.
//
// The Split patterns of the DeepSeek tokenizers have matchers of their own. Other regular expressions may use literals,
// ".", \s \d \p{X} \P{X} with general categories, classes, alternatives, groups, look-ahead, and the greedy quantifiers
// ? * + {n,m} on single characters or classes. The rest is refused, because it does not mean the same to every engine.
func Load(path string) (*Tokenizer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// An addedToken is one element of added_tokens.
type addedToken struct {
	id         int32
	content    string
	normalized bool
}

// file is the content of a tokenizer.json, field by field, before it is put together.
type file struct {
	added     []addedToken
	splitters []splitter
	model     model
}

type model struct {
	vocab        map[string]int32
	merges       [][2]string
	ignoreMerges bool
}

func parse(data []byte) (*Tokenizer, error) {
	if err := ValidJSON(data); err != nil {
		return nil, err
	}
	var f file
	err := readObject("", bytes.TrimSpace(data), rules{
		"version":        must(`"1.0"`),
		"truncation":     must("null"),
		"padding":        must("null"),
		"added_tokens":   f.readAddedTokens,
		"normalizer":     readNormalizer,
		"pre_tokenizer":  f.readPreTokenizer,
		"post_processor": readPostProcessor,
		"decoder":        readDecoder,
		"model":          f.model.read,
	}, "version", "pre_tokenizer", "decoder", "model")
	if err != nil {
		return nil, err
	}
	return f.build()
}

// A variant is one of the components an object may describe. Fields that are not required have a default that the
// rules accept too.
type variant struct {
	rules    rules
	required []string
}

// component reads an object that says by its field "type" which variant it is.
func component(kinds map[string]variant) rule {
	return func(where string, raw json.RawMessage) error {
		var typ string
		err := eachField(where, raw, func(name string, val json.RawMessage) (err error) {
			if name == "type" {
				typ, err = stringAt(join(where, name), val)
			}
			return err
		})
		if err != nil {
			return err
		}
		v, ok := kinds[typ]
		if !ok {
			return fmt.Errorf("%s: type %q is not supported; supported: %s", where, typ, names(kinds))
		}
		rs := maps.Clone(v.rules)
		rs["type"] = must(fmt.Sprintf("%q", typ)) // a repeated "type" is found as any repeated field
		return readObject(where, raw, rs, v.required...)
	}
}

// byteLevelDecoding are the fields of a ByteLevel decoder or post-processor: they choose a regular expression and move
// offsets, neither of which a decoder or an encoder of ids looks at.
var byteLevelDecoding = map[string]variant{"ByteLevel": {
	rules: rules{"add_prefix_space": anyBool, "trim_offsets": anyBool, "use_regex": anyBool},
}}

var readDecoder = component(byteLevelDecoding)

func readPostProcessor(where string, raw json.RawMessage) error {
	if kind(raw) == "null" {
		return nil
	}
	return component(byteLevelDecoding)(where, raw)
}

func readNormalizer(where string, raw json.RawMessage) error {
	if kind(raw) == "null" {
		return nil
	}
	return component(map[string]variant{"Sequence": {
		rules:    rules{"normalizers": func(where string, raw json.RawMessage) error { return eachElement(where, raw, component(nil)) }},
		required: []string{"normalizers"},
	}})(where, raw)
}

func (f *file) readPreTokenizer(where string, raw json.RawMessage) error {
	byteLevel := false
	element := func(where string, raw json.RawMessage) error {
		if byteLevel {
			return fmt.Errorf("%s: nothing may follow ByteLevel", where)
		}
		var pattern string
		var patternAt string
		err := component(map[string]variant{
			"Split": {
				rules: rules{
					"pattern": func(where string, raw json.RawMessage) error {
						patternAt = join(where, "Regex")
						return readObject(where, raw, rules{"Regex": intoString(&pattern)}, "Regex")
					},
					"behavior": must(`"Isolated"`),
					"invert":   must("false"),
				},
				required: []string{"pattern", "behavior", "invert"},
			},
			"ByteLevel": {
				rules: rules{
					"add_prefix_space": must("false"),
					"trim_offsets":     anyBool, // offsets are not computed
					"use_regex":        must("false"),
				},
				required: []string{"add_prefix_space", "use_regex"},
			},
		})(where, raw)
		if err != nil {
			return err
		}
		if patternAt == "" {
			byteLevel = true
			return nil
		}
		s, err := newSplitter(pattern)
		if err != nil {
			return at(patternAt, err)
		}
		f.splitters = append(f.splitters, s)
		return nil
	}
	err := component(map[string]variant{"Sequence": {
		rules:    rules{"pretokenizers": func(where string, raw json.RawMessage) error { return eachElement(where, raw, element) }},
		required: []string{"pretokenizers"},
	}})(where, raw)
	if err == nil && !byteLevel {
		err = fmt.Errorf("%s: ByteLevel is missing", where)
	}
	return err
}

func (f *file) readAddedTokens(where string, raw json.RawMessage) error {
	return eachElement(where, raw, func(where string, raw json.RawMessage) error {
		var t addedToken
		err := readObject(where, raw, rules{
			"id":          intoID(&t.id),
			"content":     intoString(&t.content),
			"single_word": must("false"),
			"lstrip":      must("false"),
			"rstrip":      must("false"),
			"normalized":  intoBool(&t.normalized),
			"special":     anyBool, // decides only what a decoder told to skip special tokens leaves out
		}, "id", "content", "single_word", "lstrip", "rstrip", "normalized", "special")
		if err != nil {
			return err
		}
		if t.content == "" {
			return fmt.Errorf("%s: content is empty", where)
		}
		f.added = append(f.added, t)
		return nil
	})
}

func (m *model) read(where string, raw json.RawMessage) error {
	return readObject(where, raw, rules{
		"type":                      must(`"BPE"`),
		"dropout":                   must("null"),
		"unk_token":                 must("null"),
		"continuing_subword_prefix": must("null", `""`),
		"end_of_word_suffix":        must("null", `""`),
		"fuse_unk":                  must("false"),
		"byte_fallback":             must("false"),
		"ignore_merges":             intoBool(&m.ignoreMerges),
		"vocab":                     m.readVocab,
		"merges":                    m.readMerges,
	}, "type", "vocab", "merges")
}

func (m *model) readVocab(where string, raw json.RawMessage) error {
	m.vocab = map[string]int32{}
	return eachField(where, raw, func(name string, val json.RawMessage) error {
		if _, twice := m.vocab[name]; twice {
			return fmt.Errorf("%s: token %q given twice", where, name)
		}
		id, err := idAt("", val)
		if err != nil {
			return fmt.Errorf("%s[%q]: %w", where, name, err)
		}
		m.vocab[name] = id
		return nil
	})
}

// readMerges reads merges in either spelling, "a b" or ["a", "b"]; a file uses one of them throughout.
func (m *model) readMerges(where string, raw json.RawMessage) error {
	spelling := ""
	return eachElement(where, raw, func(where string, raw json.RawMessage) error {
		if spelling == "" {
			spelling = kind(raw)
		}
		if kind(raw) != spelling {
			return fmt.Errorf("%s: merges mix strings and arrays", where)
		}
		var parts []string
		switch spelling {
		case "string":
			s, err := stringAt(where, raw)
			if err != nil {
				return err
			}
			// Hugging Face skips such lines as a file header, which would shift every rank after it.
			if strings.HasPrefix(s, "#version") {
				return fmt.Errorf("%s: merge %q looks like a file header", where, s)
			}
			parts = strings.Split(s, " ")
		case "array":
			err := eachElement(where, raw, func(where string, raw json.RawMessage) error {
				s, err := stringAt(where, raw)
				parts = append(parts, s)
				return err
			})
			if err != nil {
				return err
			}
		}
		if len(parts) != 2 {
			return wrongKind(where, `two tokens, as "a b" or ["a", "b"]`, raw)
		}
		m.merges = append(m.merges, [2]string(parts))
		return nil
	})
}

// build checks the parts of the file against each other and puts the tokenizer together.
func (f *file) build() (*Tokenizer, error) {
	tokens, err := byID(f.model.vocab)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{splitters: f.splitters, id: maps.Clone(f.model.vocab)}
	if err := f.model.build(&t.model); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for i, a := range f.added {
		where := fmt.Sprintf("added_tokens[%d]", i)
		if seen[a.content] {
			return nil, fmt.Errorf("%s: token %q given twice", where, a.content)
		}
		seen[a.content] = true
		// Hugging Face numbers added tokens itself, whatever the file says: by the vocabulary, or from its end on.
		want, known := f.model.vocab[a.content]
		if !known {
			want = int32(len(tokens))
			tokens = append(tokens, a.content)
			t.id[a.content] = want
		}
		if a.id != want {
			return nil, fmt.Errorf("%s: token %q must have id %d, has %d", where, a.content, want, a.id)
		}
		if a.normalized {
			t.normalized.add(a.content, a.id)
		} else {
			t.raw.add(a.content, a.id)
		}
	}
	t.bytes = make([]string, len(tokens))
	for id, token := range tokens {
		t.bytes[id], _ = tokenBytes(token)
	}
	t.encoders.New = func() any { return &encoder{bpe: &t.model, cache: map[string][]int32{}} }
	return t, nil
}

// byID lists the tokens of a vocabulary by id. Ids must be 0 .. len(vocab)-1, each once.
func byID(vocab map[string]int32) ([]string, error) {
	tokens := slices.Collect(maps.Keys(vocab))
	slices.SortFunc(tokens, func(a, b string) int {
		return cmp.Or(cmp.Compare(vocab[a], vocab[b]), strings.Compare(a, b))
	})
	for i, token := range tokens {
		switch id := int(vocab[token]); {
		case id < i:
			return nil, fmt.Errorf("model.vocab: tokens %q and %q both have id %d", tokens[i-1], token, id)
		case id > i:
			return nil, fmt.Errorf("model.vocab: no token has id %d, but %q has %d", i, token, id)
		}
	}
	return tokens, nil
}

func (m *model) build(out *bpe) error {
	for b, char := range byteText {
		id, ok := m.vocab[char]
		if !ok {
			return fmt.Errorf("model.vocab: no token for byte 0x%02x (%q)", b, char)
		}
		out.byteID[b] = id
	}
	out.merges = make(map[uint64]merge, len(m.merges))
	for rank, parts := range m.merges {
		where := fmt.Sprintf("model.merges[%d]", rank)
		var ids [3]int32
		for i, token := range []string{parts[0], parts[1], parts[0] + parts[1]} {
			id, ok := m.vocab[token]
			if !ok {
				return fmt.Errorf("%s: token %q is not in model.vocab", where, token)
			}
			ids[i] = id
		}
		key := pair(ids[0], ids[1])
		if _, twice := out.merges[key]; twice {
			return fmt.Errorf("%s: merge of %q and %q given twice", where, parts[0], parts[1])
		}
		out.merges[key] = merge{rank: uint32(rank), id: ids[2]}
	}
	if m.ignoreMerges {
		out.whole = make(map[string]int32, len(m.vocab))
		for token, id := range m.vocab {
			if text, ok := tokenBytes(token); ok {
				out.whole[text] = id
			}
		}
	}
	return nil
}
