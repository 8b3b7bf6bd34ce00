package dsv4

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// DeepSeek-V4 ships no chat template: its prompts are built by code, here.
// docs/dsv4.md, section 7, describes the whole encoding. This file covers
// conversations of system, user and assistant messages; the rest of it (tools,
// response formats, reasoning effort, reminders and task tokens) is refused by
// name.

// Message is one message of a conversation.
type Message struct {
	Role             string // "system", "user" or "assistant"
	Content          string
	ReasoningContent string // of an assistant message: what it thought before answering
}

// Chat is a conversation and how to continue it. Its messages are an optional
// system message, then one or more user messages before each assistant message.
// It may end with either: after a user message the prompt asks for an answer.
type Chat struct {
	Messages     []Message
	ThinkingMode string // "chat" (also if empty): answer at once; "thinking": reason first
	// DropThinking leaves the reasoning of assistant messages before the last
	// user message out of a prompt in thinking mode; nil means true. In chat
	// mode no reasoning is written at all.
	DropThinking *bool
}

// The special tokens of a prompt. The bars are U+FF5C, the word separators
// U+2581.
const (
	tokenBOS       = "<｜begin▁of▁sentence｜>"
	tokenEOS       = "<｜end▁of▁sentence｜>"
	tokenUser      = "<｜User｜>"
	tokenAssistant = "<｜Assistant｜>"
	tokenThink     = "<think>"
	tokenThinkEnd  = "</think>"
)

const (
	roleSystem    = "system"
	roleUser      = "user"
	roleAssistant = "assistant"

	modeChat     = "chat"
	modeThinking = "thinking"
)

// unsupportedRoles are roles the model knows that are not implemented here.
var unsupportedRoles = map[string]string{
	"tool":            "tool calling is not supported",
	"developer":       "developer messages are not supported",
	"latest_reminder": "reminders are not supported",
}

// EncodeChat gives the prompt of c as one string, starting with the token that
// begins a sentence: a tokenizer must not add another. The texts of the messages
// go into it as they are. A text that spells a special token will be encoded as
// that token.
//
// The errors are those of a chat that breaks the rules given at Chat; they name
// the message by its index.
func EncodeChat(c Chat) (string, error) {
	pieces, err := chatPieces(c)
	if err != nil {
		return "", err
	}
	var prompt strings.Builder
	for _, p := range pieces {
		prompt.WriteString(p.text)
	}
	return prompt.String(), nil
}

// ChatTokens lists the special tokens in the prompt of c, each once, in the
// order of their first use. A tokenizer lacking one of them would spell it out
// in ordinary tokens, which the model does not understand. Errors are those of
// EncodeChat.
func ChatTokens(c Chat) ([]string, error) {
	pieces, err := chatPieces(c)
	if err != nil {
		return nil, err
	}
	var tokens []string
	for _, p := range pieces {
		if p.special && !slices.Contains(tokens, p.text) {
			tokens = append(tokens, p.text)
		}
	}
	return tokens, nil
}

// A chatPiece is a stretch of a prompt: one special token or the text of a
// message.
type chatPiece struct {
	text    string
	special bool
}

func chatPieces(c Chat) ([]chatPiece, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("chat: %w", err)
	}
	var pieces []chatPiece
	token := func(t string) { pieces = append(pieces, chatPiece{t, true}) }
	text := func(t string) { pieces = append(pieces, chatPiece{t, false}) }

	turns := mergeUsers(c.Messages)
	lastUser := 0
	for i, m := range turns {
		if m.Role == roleUser {
			lastUser = i
		}
	}
	thinking := c.ThinkingMode == modeThinking
	drop := c.DropThinking == nil || *c.DropThinking

	token(tokenBOS)
	for i, m := range turns {
		switch m.Role {
		case roleSystem:
			text(m.Content)
		case roleUser:
			token(tokenUser)
			text(m.Content)
			token(tokenAssistant)
			// A turn whose answer has its reasoning dropped looks as in chat mode.
			if thinking && (!drop || i == lastUser) {
				token(tokenThink)
			} else {
				token(tokenThinkEnd)
			}
		case roleAssistant:
			if thinking && (!drop || i > lastUser) {
				text(m.ReasoningContent)
				token(tokenThinkEnd)
			}
			text(m.Content)
			token(tokenEOS)
		}
	}
	return pieces, nil
}

// mergeUsers joins the contents of adjacent user messages by a blank line: the
// model was trained on one user turn before each answer.
func mergeUsers(messages []Message) []Message {
	var turns []Message
	for _, m := range messages {
		if n := len(turns); m.Role == roleUser && n > 0 && turns[n-1].Role == roleUser {
			turns[n-1].Content += "\n\n" + m.Content
			continue
		}
		turns = append(turns, m)
	}
	return turns
}

// check reports the first thing in c that has no prompt.
func (c Chat) check() error {
	switch c.ThinkingMode {
	case "", modeChat, modeThinking:
	default:
		return fieldErrorf("thinking_mode", "is %q, want %q or %q", c.ThinkingMode, modeChat, modeThinking)
	}
	users := 0
	for i, m := range c.Messages {
		before := ""
		if i > 0 {
			before = c.Messages[i-1].Role
		}
		if err := checkMessage(m, i, before); err != nil {
			return err
		}
		if m.Role == roleUser {
			users++
		}
	}
	if users == 0 {
		return errors.New("no user message")
	}
	return nil
}

// checkMessage checks message i, which follows one of role before ("" if none).
func checkMessage(m Message, i int, before string) error {
	role := messageField(i, "role")
	switch m.Role {
	case roleSystem:
		if i > 0 {
			return fieldErrorf(role, "is %q, which only the first message can be", m.Role)
		}
	case roleUser:
	case roleAssistant:
		if before != roleUser {
			return fieldErrorf(role, "is %q, which must follow a user message", m.Role)
		}
	default:
		if why, ok := unsupportedRoles[m.Role]; ok {
			return fieldErrorf(role, "is %q: %s", m.Role, why)
		}
		return fieldErrorf(role, "is %q, want %q, %q or %q", m.Role, roleSystem, roleUser, roleAssistant)
	}
	if m.ReasoningContent != "" && m.Role != roleAssistant {
		return fieldErrorf(messageField(i, "reasoning_content"), "stands in a message of role %q, want %q", m.Role, roleAssistant)
	}
	return nil
}

func messageField(i int, name string) string { return fmt.Sprintf("messages[%d].%s", i, name) }
