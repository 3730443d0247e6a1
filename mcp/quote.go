package mcp

import (
	"encoding/json"
	"strings"

	"slurmgate/visible"
)

// Texts written by others: programs, authors of tools, people who named a file. They are cut, made printable and set apart.

// quote shortens the text of a preview (to its beginning) or of a log (to its end); true if that changed it.
func (r *result) quote() bool {
	if r.Text == nil {
		return false
	}
	s, shorter := visible.Text(*r.Text), clip
	if r.Stream != "" {
		shorter = tail
	}
	// JSON doubles line breaks, tabs and quotes; an answer counts bytes of JSON.
	cut, limit := shorter(s, maxQuoted), maxQuoted
	for b, _ := json.Marshal(cut); len(b) > maxQuoted+100 && limit > 300; b, _ = json.Marshal(cut) {
		limit -= 100
		cut = shorter(s, limit)
	}
	if r.isList() && cut != s { // whole lines, so that the next page begins with the next file
		cut = cut[:strings.LastIndexByte(cut, '\n')+1]
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

// plain makes somebody else's text safe to show: on one line, without hidden characters, bounded.
func plain(s string, limit int) string { return clip(visible.Line(s), limit) }

// plainLines is plain that preserves line breaks.
func plainLines(s string, limit int) string { return clip(visible.Text(s), limit) }

// cited is plain in quotation marks that the text cannot close.
func cited(s string, limit int) string {
	return `"` + strings.ReplaceAll(plain(s, limit), `"`, "'") + `"`
}

// because is a run's reason: a word of ours, and what a program or Slurm said, cited.
func because(reason string, limit int) string {
	word, said, more := strings.Cut(reason, ": ")
	if strings.ContainsFunc(word, func(c rune) bool { return c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') }) {
		return cited(reason, limit)
	}
	if more {
		return clip(word, limit) + ": " + cited(said, max(0, limit-len(word)))
	}
	return clip(word, limit)
}
