package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// Texts written by others: programs, authors of tools, people who named a file. They are cut, made printable and set apart.

// quote shortens the text of a preview (to its beginning) or of a log (to its end); true if that changed it.
func (r *result) quote() bool {
	if r.Text == nil {
		return false
	}
	s, shorter := escape(*r.Text, true), clip
	if r.Stream != "" {
		shorter = tail
	}
	// JSON doubles line breaks, tabs and quotes; an answer counts bytes of JSON.
	cut, limit := shorter(s, maxQuoted), maxQuoted
	for b, _ := json.Marshal(cut); len(b) > maxQuoted+100 && limit > 300; b, _ = json.Marshal(cut) {
		limit -= 100
		cut = shorter(s, limit)
	}
	changed := cut != *r.Text
	r.cut, r.Text = cut != s, &cut
	return changed
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	if i := strings.IndexByte(s, '\n'); i >= 0 && i < len(s)-1 {
		return s[i+1:]
	}
	return strings.ToValidUTF8(s, "")
}

// replaceText puts the shortened text into the structured content.
func (r *result) replaceText(structured json.RawMessage) json.RawMessage {
	return edited(structured, func(doc map[string]any) {
		doc["text"] = *r.Text
		if _, has := doc["truncated"]; has && r.cut {
			doc["truncated"] = true
		}
	})
}

// quoteText sets a program's text apart. A fence in the text cannot end it.
func quoteText(b *strings.Builder, text *string) {
	if text == nil || *text == "" {
		b.WriteString("\n(nothing)")
		return
	}
	b.WriteString("\n```\n" + strings.ReplaceAll(strings.TrimRight(*text, "\n"), "```", "'''") + "\n```")
}

// plain makes somebody else's text safe to show: no control characters, no invisible ones, bounded.
func plain(s string, limit int) string { return clip(escape(s, false), limit) }

// plainLines is plain that preserves line breaks.
func plainLines(s string, limit int) string { return clip(escape(s, true), limit) }

// escape makes invisible characters visible: control characters, those that change the direction of text, and the tag
// characters in which a text can hide another.
func escape(s string, lines bool) string {
	hidden := func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Co, r) || r == unicode.ReplacementChar ||
			r == '\u2028' || r == '\u2029'
	}
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' && !lines:
			b.WriteByte(' ')
		case hidden(r) && r != '\n' && r != '\t':
			fmt.Fprintf(&b, "<U+%04X>", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
