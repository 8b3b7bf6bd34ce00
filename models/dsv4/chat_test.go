package dsv4

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// chatCase is a case of testdata/golden/tokens/chat.json. Its name and prompt
// are the test's, the rest is what ParseChat reads.
type chatCase struct {
	chat         map[string]any
	name, prompt string
}

func chatCases(t testing.TB) []chatCase {
	t.Helper()
	data, err := os.ReadFile("../../testdata/golden/tokens/chat.json")
	if err != nil {
		t.Fatal(err)
	}
	var raw []map[string]any
	if err := json.Unmarshal(data, &raw); err != nil {
		t.Fatal(err)
	}
	if len(raw) != 10 {
		t.Fatalf("%d cases, want 10", len(raw))
	}
	var cases []chatCase
	for _, c := range raw {
		cases = append(cases, chatCase{chat: c, name: c["name"].(string), prompt: c["prompt"].(string)})
		delete(c, "name")
		delete(c, "prompt")
	}
	return cases
}

func toJSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestChatGolden(t *testing.T) {
	for _, c := range chatCases(t) {
		chat, err := ParseChat(toJSON(t, c.chat))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		prompt, err := EncodeChat(chat)
		if diff := cmp.Diff(c.prompt, prompt); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", c.name, err, diff)
		}
	}
}

func TestChatForms(t *testing.T) {
	no := false
	messages := []Message{{Role: "system", Content: "s"}, {Role: "user", Content: "é\n🙂"}, {Role: "assistant", Content: "a", ReasoningContent: "r"}}
	const list = `[{"role":"system","content":"s"},{"content":"\u00e9\n\ud83d\ude42","role":"user"},
		{"role":"assistant","content":"a","reasoning_content":"r"}]`
	for text, want := range map[string]Chat{
		list:                         {Messages: messages},
		` {"messages":` + list + `}`: {Messages: messages},
		`{"drop_thinking":false,"messages":` + list + `,"thinking_mode":"thinking"}`: {Messages: messages, ThinkingMode: "thinking", DropThinking: &no},
	} {
		got, err := ParseChat([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// TestChatPrompts covers turns that the golden cases leave out.
func TestChatPrompts(t *testing.T) {
	const bos, eos, user, assistant = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"
	yes, no := true, false
	u := func(s string) Message { return Message{Role: "user", Content: s} }
	a := func(s, r string) Message { return Message{Role: "assistant", Content: s, ReasoningContent: r} }
	for _, c := range []struct {
		name string
		chat Chat
		want string
	}{
		{"mode defaults to chat", Chat{Messages: []Message{u("x")}}, bos + user + "x" + assistant + "</think>"},
		{"reasoning in chat mode is not written", Chat{Messages: []Message{u("x"), a("y", "r"), u("z")}, ThinkingMode: "chat", DropThinking: &no},
			bos + user + "x" + assistant + "</think>y" + eos + user + "z" + assistant + "</think>"},
		{"answer without reasoning", Chat{Messages: []Message{u("x"), a("y", "")}, ThinkingMode: "thinking"},
			bos + user + "x" + assistant + "<think></think>y" + eos},
		{"only reasoning after the last user turn stays", Chat{Messages: []Message{u("x"), a("y", "r"), u("z"), a("w", "q")}, ThinkingMode: "thinking", DropThinking: &yes},
			bos + user + "x" + assistant + "</think>y" + eos + user + "z" + assistant + "<think>q</think>w" + eos},
		{"merged users count as one turn", Chat{Messages: []Message{u("x"), u(""), u("y"), a("z", "r"), u("w"), u("v")}, ThinkingMode: "thinking"},
			bos + user + "x\n\n\n\ny" + assistant + "</think>z" + eos + user + "w\n\nv" + assistant + "<think>"},
	} {
		got, err := EncodeChat(c.chat)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", c.name, err, diff)
		}
	}
}

func TestEncodeChatLeavesMessagesAlone(t *testing.T) {
	messages := []Message{{Role: "user", Content: "a"}, {Role: "user", Content: "b"}}
	if _, err := EncodeChat(Chat{Messages: messages}); err != nil || messages[0].Content != "a" {
		t.Errorf("after EncodeChat (%v) the first message is %q", err, messages[0].Content)
	}
}

func TestChatTokens(t *testing.T) {
	u := Message{Role: "user", Content: "<think>"}
	a := Message{Role: "assistant", Content: "y", ReasoningContent: "r"}
	for _, c := range []struct {
		chat Chat
		want []string
	}{
		{Chat{Messages: []Message{u}}, []string{tokenBOS, tokenUser, tokenAssistant, tokenThinkEnd}},
		{Chat{Messages: []Message{u}, ThinkingMode: "thinking"}, []string{tokenBOS, tokenUser, tokenAssistant, tokenThink}},
		{Chat{Messages: []Message{u, a, u}, ThinkingMode: "thinking"},
			[]string{tokenBOS, tokenUser, tokenAssistant, tokenThinkEnd, tokenEOS, tokenThink}},
	} {
		got, err := ChatTokens(c.chat)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%v: %v (-want +got):\n%s", c.chat, err, diff)
		}
	}
	const want = "chat: no user message"
	if _, err := ChatTokens(Chat{}); err == nil || err.Error() != want {
		t.Errorf("empty chat: %v, want %s", err, want)
	}
	if _, err := EncodeChat(Chat{}); err == nil || err.Error() != want {
		t.Errorf("empty chat: %v, want %s", err, want)
	}
}

func TestChatRefusals(t *testing.T) {
	const user = `{"role":"user","content":"x"}`
	const assistant = `{"role":"assistant","content":"y"}`
	for _, c := range []struct{ text, want string }{
		{``, "offset 0: unexpected end of JSON input"},
		{`[` + user, "offset 30: unexpected end of JSON input"},
		{`[` + user + `] x`, "offset 33: invalid character 'x' after top-level value"},
		{"[\"\xff\"]", "text is not valid UTF-8"},
		{`[{"role":"user","content":"\ud83d!"}]`, `offset 27: \ud83d is half of a surrogate pair`},
		{`[{"role":"user","content":"\\\ude42"}]`, `offset 29: \ude42 is half of a surrogate pair`},
		{`3`, "text is the number 3, want an array of messages or an object"},
		{`[]`, "no user message"},
		{`{"messages":[]}`, "no user message"},
		{`{}`, `field "messages" is missing`},
		{`{"messages":{}}`, `field "messages" is an object, want an array`},
		{`{"messages":[` + user + `],"name":"n"}`, `field "name" is unknown`},
		{`{"messages":[` + user + `],"prompt":"p"}`, `field "prompt" is unknown`},
		{`{"messages":[` + user + `],"tools":[]}`, `field "tools" stands in the chat: tool calling is not supported`},
		{`{"messages":[` + user + `],"response_format":{}}`, `field "response_format" stands in the chat: response formats`},
		{`{"messages":[` + user + `],"reasoning_effort":"max"}`, `field "reasoning_effort" stands in the chat: reasoning effort`},
		{`{"messages":[` + user + `],"thinking_mode":"think"}`, `field "thinking_mode" is "think", want "chat" or "thinking"`},
		{`{"messages":[` + user + `],"thinking_mode":""}`, `field "thinking_mode" is the string "", want "chat" or "thinking"`},
		{`{"messages":[` + user + `],"thinking_mode":null}`, `field "thinking_mode" is null, want "chat" or "thinking"`},
		{`{"messages":[` + user + `],"drop_thinking":"no"}`, `field "drop_thinking" is the string "no", want true or false`},
		{`{"messages":[` + user + `],"drop_thinking":null}`, `field "drop_thinking" is null, want true or false`},
		{`{"messages":[` + user + `],"messages":[]}`, `field "messages" stands twice`},
		{`["x"]`, `field "messages[0]" is the string "x", want an object`},
		{`[` + user + `,{"role":"assistant","content":null}]`, `field "messages[1].content" is null, want a string`},
		{`[{"role":"user","content":[{"type":"text"}]}]`, `field "messages[0].content" is an array, want a string`},
		{`[{"role":"user"}]`, `field "messages[0].content" is missing`},
		{`[{"content":"x"}]`, `field "messages[0].role" is missing`},
		{`[{"role":"user","content":"x","role":"user"}]`, `field "role" stands twice, again at offset 36`},
		{`[{"role":"user","Content":"x"}]`, `field "messages[0].Content" is unknown`},
		{`[` + user + `,{"role":"assistant","content":"","tool_calls":[]}]`, `field "messages[1].tool_calls" stands in the chat: tool calling`},
		{`[{"role":"user","content":"x","task":"title"}]`, `field "messages[0].task" stands in the chat: task tokens`},
		{`[{"role":"user","content":"x","name":"bob"}]`, `field "messages[0].name" is unknown`},
		{`[{"role":"user","content":"x","reasoning_content":"r"}]`, `field "messages[0].reasoning_content" stands in a message of role "user", want "assistant"`},
		{`[` + user + `,{"role":"assistant","content":"x","reasoning_content":null}]`, `field "messages[1].reasoning_content" is null, want a string`},
		{`[{"role":"tool","content":"x"}]`, `field "messages[0].role" is "tool": tool calling is not supported`},
		{`[{"role":"latest_reminder","content":"x"}]`, `field "messages[0].role" is "latest_reminder": reminders are not supported`},
		{`[{"role":"developer","content":"x"}]`, `field "messages[0].role" is "developer": developer messages`},
		{`[{"role":"User","content":"x"}]`, `field "messages[0].role" is "User", want "system", "user" or "assistant"`},
		{`[` + assistant + `]`, `field "messages[0].role" is "assistant", which must follow a user message`},
		{`[` + user + `,` + assistant + `,` + assistant + `]`, `field "messages[2].role" is "assistant", which must follow a user message`},
		{`[{"role":"system","content":"x"},` + assistant + `]`, `field "messages[1].role" is "assistant", which must follow a user message`},
		{`[` + user + `,{"role":"system","content":"x"}]`, `field "messages[1].role" is "system", which only the first message can be`},
		{`[{"role":"system","content":"x"}]`, "no user message"},
	} {
		_, err := ParseChat([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), "chat: "+c.want) {
			t.Errorf("%s\n%v\nwant %s", c.text, err, c.want)
		}
	}
}

func FuzzParseChat(f *testing.F) {
	for _, c := range chatCases(f) {
		f.Add(toJSON(f, c.chat))
		f.Add(toJSON(f, c.chat["messages"]))
	}
	f.Add([]byte(`[{"role":"tool","content":"\ud800\\u"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		chat, err := ParseChat(data)
		if err != nil {
			return
		}
		prompt, err := EncodeChat(chat)
		if err != nil {
			t.Fatalf("a parsed chat has no prompt: %v", err)
		}
		tokens, err := ChatTokens(chat)
		if err != nil || !slices.Contains(tokens, tokenUser) || !strings.HasPrefix(prompt, tokenBOS) {
			t.Fatalf("tokens %q (%v) of prompt %q", tokens, err, prompt)
		}
		at := 0
		for _, m := range chat.Messages {
			n := strings.Index(prompt[at:], m.Content)
			if n < 0 {
				t.Fatalf("message %q is missing or out of order in %q", m.Content, prompt)
			}
			at += n + len(m.Content)
		}
		// Written out again, it parses to the same chat.
		var messages []map[string]string
		for _, m := range chat.Messages {
			fields := map[string]string{"role": m.Role, "content": m.Content}
			if m.ReasoningContent != "" {
				fields["reasoning_content"] = m.ReasoningContent
			}
			messages = append(messages, fields)
		}
		object := map[string]any{"messages": messages}
		if chat.ThinkingMode != "" {
			object["thinking_mode"] = chat.ThinkingMode
		}
		if chat.DropThinking != nil {
			object["drop_thinking"] = *chat.DropThinking
		}
		again, err := ParseChat(toJSON(t, object))
		if diff := cmp.Diff(chat, again); err != nil || diff != "" {
			t.Errorf("%v (-first +second):\n%s", err, diff)
		}
	})
}
