// Package tokenizer turns text into token ids and back for models whose tokenizer.json is a byte-level BPE, with the
// same ids and the same text as Hugging Face tokenizers gives for that file.
//
// A tokenizer.json can describe far more than this package implements. [Load] therefore knows every field by name and
// refuses a file with a setting that it would otherwise have to ignore.
package tokenizer

import (
	"fmt"
	"sync"
)

// A Tokenizer encodes and decodes text. It is immutable after [Load] and may be used by several goroutines.
type Tokenizer struct {
	bytes []string         // bytes each token stands for, by id
	id    map[string]int32 // ids by the file's spelling

	// Added tokens are found in two passes over the text, as Hugging Face does: first those marked "normalized":
	// false in the raw text, then the others in what is left, after a normalizer that here changes nothing.
	raw, normalized addedTokens

	splitters []splitter
	model     bpe
	encoders  sync.Pool // of *encoder
}

// Encode gives the token ids of text. Added tokens, special or not, are recognised wherever their text occurs, so text
// from an untrusted source can contain them; nothing (no bos, no eos) is added. A byte that is not UTF-8 is treated as
// the symbol U+FFFD when splitting into words, but encoded as itself.
func (t *Tokenizer) Encode(text string) []int32 {
	e := t.encoders.Get().(*encoder)
	defer t.encoders.Put(e)
	// Text in the languages of the vocabulary has three to four bytes to a token.
	ids := make([]int32, 0, len(text)/3+1)
	word := func(w string) { ids = e.encode(ids, w) }
	token := func(id int32) { ids = append(ids, id) }
	t.raw.split(text, func(s string) {
		t.normalized.split(s, func(s string) { pretokenize(t.splitters, s, word) }, token)
	}, token)
	return ids
}

// Decode gives the text of ids, special tokens included. Bytes that do not form UTF-8 become U+FFFD, one for each
// maximal ill-formed part. An id outside the vocabulary is an error naming it and its index.
func (t *Tokenizer) Decode(ids []int32) (string, error) {
	var b []byte
	for i, id := range ids {
		if err := t.check(id); err != nil {
			return "", fmt.Errorf("ids[%d]: %w", i, err)
		}
		b = append(b, t.bytes[id]...)
	}
	text, _ := appendLossy(make([]byte, 0, len(b)), b, true)
	return string(text), nil
}

func (t *Tokenizer) check(id int32) error {
	if id < 0 || int(id) >= len(t.bytes) {
		return fmt.Errorf("token id %d is not in the vocabulary of %d tokens", id, len(t.bytes))
	}
	return nil
}

// ID looks a token up by its spelling in tokenizer.json: added tokens as they appear in text, others in the byte-level
// alphabet (where "Ġ" is a space).
func (t *Tokenizer) ID(token string) (id int32, ok bool) {
	id, ok = t.id[token]
	return id, ok
}

// VocabSize is the number of tokens, added ones included; ids run from 0 to VocabSize()-1. A model's logits may be
// longer: the vocab_size of its config is often padded.
func (t *Tokenizer) VocabSize() int { return len(t.bytes) }
