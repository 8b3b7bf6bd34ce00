package dsv4

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// unsupportedFields are fields of messages, and of the object around them, that
// change the prompt in ways not implemented here.
var unsupportedFields = map[string]string{
	"tools":            "tool calling is not supported",
	"tool_calls":       "tool calling is not supported",
	"tool_call_id":     "tool calling is not supported",
	"tool_choice":      "tool calling is not supported",
	"response_format":  "response formats are not supported",
	"reasoning_effort": "reasoning effort is not supported",
	"task":             "task tokens are not supported",
	"content_blocks":   "content in blocks is not supported, only a string in content",
	"wo_eos":           "unfinished assistant messages are not supported",
	"prefix":           "unfinished assistant messages are not supported",
	"mask":             "training masks are not supported",
}

// ParseChat reads a chat from JSON: an array of messages, or an object with the
// array in "messages" and optionally "thinking_mode" and "drop_thinking". A
// message has "role", "content" and, from the assistant, "reasoning_content",
// all strings. Anything else is an error naming the field and the index of the
// message, or the byte offset; so is a chat that EncodeChat would refuse.
func ParseChat(data []byte) (Chat, error) {
	v, err := parseChatJSON(data)
	if err != nil {
		return Chat{}, fmt.Errorf("chat: %w", err)
	}
	c, err := readChat(v)
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return Chat{}, fmt.Errorf("chat: %w", err)
	}
	return c, nil
}

// parseChatJSON is parseJSONObject for a text that may also be an array, and
// that people and browsers write: half a surrogate pair is an error, not U+FFFD.
func parseChatJSON(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("text is not valid UTF-8")
	}
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			return nil, fmt.Errorf("offset %d: %w", syntax.Offset, err)
		}
		return nil, err
	}
	if at := unpairedSurrogate(data); at >= 0 {
		return nil, fmt.Errorf("offset %d: %s is half of a surrogate pair", at, data[at:at+6])
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return parseJSONValue(dec, "")
}

// unpairedSurrogate is the offset of the first \u escape in well-formed JSON
// that is half of a surrogate pair without the other half, or -1.
func unpairedSurrogate(data []byte) int {
	unit := func(at int) rune {
		if at+6 > len(data) || data[at] != '\\' || data[at+1] != 'u' {
			return utf8.RuneError
		}
		v, err := strconv.ParseUint(string(data[at+2:at+6]), 16, 16)
		if err != nil {
			return utf8.RuneError
		}
		return rune(v)
	}
	for at := 0; at < len(data); at++ {
		if data[at] != '\\' {
			continue
		}
		switch r := unit(at); {
		case !utf16.IsSurrogate(r):
			at++ // past the character that is escaped, which may be a backslash
		case utf16.DecodeRune(r, unit(at+6)) == utf8.RuneError:
			return at
		default:
			at += 11
		}
	}
	return -1
}

func readChat(v any) (Chat, error) {
	var c Chat
	switch v := v.(type) {
	case []any:
		return c, c.readMessages(v)
	case *jsonObject:
		if _, ok := v.values["messages"]; !ok {
			return c, fieldErrorf("messages", "is missing")
		}
		for _, name := range v.keys {
			val := v.values[name]
			switch name {
			case "messages":
				list, ok := val.([]any)
				if !ok {
					return c, fieldErrorf(name, "is %s, want an array", kindOf(val))
				}
				if err := c.readMessages(list); err != nil {
					return c, err
				}
			case "thinking_mode":
				mode, ok := val.(string)
				if !ok || mode == "" {
					return c, fieldErrorf(name, "is %s, want %q or %q", kindOf(val), modeChat, modeThinking)
				}
				c.ThinkingMode = mode
			case "drop_thinking":
				drop, ok := val.(bool)
				if !ok {
					return c, fieldErrorf(name, "is %s, want true or false", kindOf(val))
				}
				c.DropThinking = &drop
			default:
				return c, strangeField(name, name)
			}
		}
		return c, nil
	}
	return c, fmt.Errorf("text is %s, want an array of messages or an object", kindOf(v))
}

func (c *Chat) readMessages(list []any) error {
	for i, v := range list {
		obj, ok := v.(*jsonObject)
		if !ok {
			return fieldErrorf(fmt.Sprintf("messages[%d]", i), "is %s, want an object", kindOf(v))
		}
		var m Message
		into := map[string]*string{"role": &m.Role, "content": &m.Content, "reasoning_content": &m.ReasoningContent}
		for _, name := range obj.keys {
			dst, known := into[name]
			if !known {
				return strangeField(name, messageField(i, name))
			}
			s, ok := obj.values[name].(string)
			if !ok {
				return fieldErrorf(messageField(i, name), "is %s, want a string", kindOf(obj.values[name]))
			}
			*dst = s
		}
		for _, name := range []string{"role", "content"} {
			if _, ok := obj.values[name]; !ok {
				return fieldErrorf(messageField(i, name), "is missing")
			}
		}
		c.Messages = append(c.Messages, m)
	}
	return nil
}

func strangeField(name, path string) error {
	if why, ok := unsupportedFields[name]; ok {
		return fieldErrorf(path, "stands in the chat: %s", why)
	}
	return fieldErrorf(path, "is unknown")
}
