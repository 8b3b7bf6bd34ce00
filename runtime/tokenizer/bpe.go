package tokenizer

import (
	"math"
	"strings"
)

// A merge is what becomes of two adjacent tokens. rank is its line in the file: lower ranks merge first.
type merge struct {
	rank uint32
	id   int32
}

// noMerge is the rank of a pair that does not merge. The loader keeps real ranks below it.
const noMerge = math.MaxUint32

// bpe is the byte-pair-encoding model: it encodes one piece of text, a word, at a time.
type bpe struct {
	byteID [256]int32
	merges map[uint64]merge // by pair(left, right)
	// whole is the vocabulary by the bytes of the token if a word that is a token is not to be built by merges
	// ("ignore_merges"), else nil.
	whole map[string]int32
}

func pair(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

func (m *bpe) lookup(left, right int32) merge {
	if v, ok := m.merges[pair(left, right)]; ok {
		return v
	}
	return merge{rank: noMerge}
}

// Bounds of an encoder's cache: at most cacheWords words of at most cacheWordLen bytes each, so a few megabytes. When
// full it is emptied; the vocabulary of a text is quickly back.
const (
	cacheWords   = 1 << 15
	cacheWordLen = 64
)

// An encoder is a bpe with the scratch memory and the word cache of one goroutine.
type encoder struct {
	*bpe
	symbols []node
	queue   heap
	cache   map[string][]int32
}

// A node is one token of a word under construction, in a doubly linked list over the slice. rank is that of the pair
// it forms with next; a heap entry with another rank is stale.
type node struct {
	id         int32
	prev, next int32 // -1 at the ends
	rank       uint32
	merged     int32 // the id the pair becomes
}

// encode appends the ids of word to ids.
func (e *encoder) encode(ids []int32, word string) []int32 {
	if len(word) == 1 {
		return append(ids, e.byteID[word[0]])
	}
	if id, ok := e.whole[word]; ok {
		return append(ids, id)
	}
	if len(word) > cacheWordLen {
		return e.merge(ids, word)
	}
	if known, ok := e.cache[word]; ok {
		return append(ids, known...)
	}
	start := len(ids)
	ids = e.merge(ids, word)
	if len(e.cache) >= cacheWords {
		clear(e.cache)
	}
	// Clones, because word would keep the whole text alive.
	e.cache[strings.Clone(word)] = append([]int32(nil), ids[start:]...)
	return ids
}

// merge applies merges to the bytes of word, always the one of lowest rank and of those the leftmost, until none
// applies. With a heap of candidate pairs that takes O(n log n) for n bytes.
func (e *encoder) merge(ids []int32, word string) []int32 {
	syms := e.symbols[:0]
	for i := range len(word) {
		syms = append(syms, node{id: e.byteID[word[i]], prev: int32(i) - 1, next: int32(i) + 1})
	}
	syms[len(syms)-1].next = -1
	e.symbols = syms

	e.queue = e.queue[:0]
	for i := range syms {
		e.consider(int32(i))
	}
	for len(e.queue) > 0 {
		rank, at := e.queue.pop()
		s := &syms[at]
		if s.rank != rank {
			continue
		}
		gone := &syms[s.next]
		gone.rank = noMerge
		s.id, s.next = s.merged, gone.next
		if s.next >= 0 {
			syms[s.next].prev = at
		}
		e.consider(at)
		if s.prev >= 0 {
			e.consider(s.prev)
		}
	}
	for i := int32(0); i >= 0; i = syms[i].next {
		ids = append(ids, syms[i].id)
	}
	return ids
}

// consider looks up the pair that starts at symbol at and queues it if it merges.
func (e *encoder) consider(at int32) {
	s := &e.symbols[at]
	s.rank = noMerge
	if s.next < 0 {
		return
	}
	m := e.lookup(s.id, e.symbols[s.next].id)
	s.rank, s.merged = m.rank, m.id
	if m.rank != noMerge {
		e.queue.push(m.rank, at)
	}
}

// A heap is a binary min-heap of (rank, position), packed so that one comparison orders by rank, then position.
type heap []uint64

func (h *heap) push(rank uint32, at int32) {
	q := append(*h, uint64(rank)<<32|uint64(uint32(at)))
	i := len(q) - 1
	for i > 0 {
		up := (i - 1) / 2
		if q[up] <= q[i] {
			break
		}
		q[up], q[i] = q[i], q[up]
		i = up
	}
	*h = q
}

func (h *heap) pop() (rank uint32, at int32) {
	q := *h
	top := q[0]
	last := len(q) - 1
	q[0] = q[last]
	q = q[:last]
	for i := 0; ; {
		least, l := i, 2*i+1
		if l < last && q[l] < q[least] {
			least = l
		}
		if l+1 < last && q[l+1] < q[least] {
			least = l + 1
		}
		if least == i {
			break
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
	*h = q
	return uint32(top >> 32), int32(uint32(top))
}
