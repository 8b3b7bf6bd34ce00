package tokenizer

// A Stream decodes tokens one at a time, for printing while generating. A character may be spread over several tokens:
// a Stream holds its first bytes back until the rest has arrived. The texts of all calls of Push and the one of Flush
// concatenate to what [Tokenizer.Decode] gives for the same ids. A Stream is for one goroutine.
type Stream struct {
	t    *Tokenizer
	held []byte // an incomplete UTF-8 sequence, at most 3 bytes
	err  error
}

// NewStream starts a stream.
func (t *Tokenizer) NewStream() *Stream { return &Stream{t: t} }

// Push gives the text that id completes, possibly none. After an id outside the vocabulary, Push and Flush give nothing
// more and Err tells why.
func (s *Stream) Push(id int32) string {
	if s.err == nil {
		s.err = s.t.check(id)
	}
	if s.err != nil {
		return ""
	}
	text, rest := appendLossy(nil, append(s.held, s.t.bytes[id]...), false)
	s.held = append([]byte(nil), rest...)
	return string(text)
}

// Flush ends the stream: an incomplete character still held back comes out as U+FFFD. The stream can then be used
// again, for a new text.
func (s *Stream) Flush() string {
	if s.err != nil {
		return ""
	}
	text, _ := appendLossy(nil, s.held, true)
	s.held = nil
	return string(text)
}

// Err is the first error of Push, nil if there was none.
func (s *Stream) Err() error { return s.err }
