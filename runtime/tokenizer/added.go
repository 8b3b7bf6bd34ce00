package tokenizer

// An addedTokens finds the added tokens in a text, leftmost first and of those the longest, by a byte trie. Several
// hundred added tokens share long prefixes, and few texts hold even a prefix, so the first byte alone decides mostly.
type addedTokens struct {
	nodes []trieNode // nodes[0] is the root; nil without any token
}

type trieNode struct {
	children map[byte]int32
	id       int32 // the token that ends here, or -1
}

func (a *addedTokens) add(token string, id int32) {
	if a.nodes == nil {
		a.nodes = []trieNode{{id: -1}}
	}
	at := int32(0)
	for i := range len(token) {
		child, ok := a.nodes[at].children[token[i]]
		if !ok {
			child = int32(len(a.nodes))
			if a.nodes[at].children == nil {
				a.nodes[at].children = map[byte]int32{}
			}
			a.nodes[at].children[token[i]] = child
			a.nodes = append(a.nodes, trieNode{id: -1})
		}
		at = child
	}
	a.nodes[at].id = id
}

// longestAt gives the longest token that starts at s[i:].
func (a *addedTokens) longestAt(s string, i int) (end int, id int32, ok bool) {
	at := int32(0)
	for j := i; j < len(s); j++ {
		child, more := a.nodes[at].children[s[j]]
		if !more {
			break
		}
		at = child
		if a.nodes[at].id >= 0 {
			end, id, ok = j+1, a.nodes[at].id, true
		}
	}
	return end, id, ok
}

// split calls text for the stretches between added tokens and token for each of them, in order.
func (a *addedTokens) split(s string, text func(string), token func(id int32)) {
	done := 0
	if a.nodes != nil {
		var starts [256]bool
		for b := range a.nodes[0].children {
			starts[b] = true
		}
		for i := 0; i < len(s); {
			if !starts[s[i]] {
				i++
				continue
			}
			end, id, ok := a.longestAt(s, i)
			if !ok {
				i++
				continue
			}
			if i > done {
				text(s[done:i])
			}
			token(id)
			done, i = end, end
		}
	}
	if done < len(s) {
		text(s[done:])
	}
}
