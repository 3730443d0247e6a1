package mcp

import (
	"encoding/json"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/blocks"
	"slurmgate/visible"
)

// Texts written by others: programs, authors of tools, people who named a file. They are cut, made printable and set apart.

// cutter cuts the data of an answer that is too long.
type cutter struct {
	cell int // bytes of a cell that may remain, when cells are cut
}

// shorten cuts data in the structured content that an answer has no room for: what it quotes, and a table. false: there is nothing to cut.
func (c *cutter) shorten(d blocks.Document, out *sdk.CallToolResult) bool {
	structured, _ := out.StructuredContent.(json.RawMessage)
	for _, b := range d {
		switch q := b.(type) {
		case blocks.Quote:
			short, ok := shortQuote(q, structured)
			if ok {
				out.StructuredContent = short
			}
			return ok
		case blocks.Table:
			if !q.Quoted || size(out) <= MaxAnswer-added {
				continue
			}
			short, ok := c.shortTable(structured)
			if ok {
				out.StructuredContent = short
			}
			return ok
		}
	}
	return false
}

// shortQuote shortens the text that is quoted, to its beginning or to its end; false: it is short enough.
func shortQuote(q blocks.Quote, structured json.RawMessage) (json.RawMessage, bool) {
	var doc map[string]json.RawMessage
	var text string
	if json.Unmarshal(structured, &doc) != nil || json.Unmarshal(doc[q.Key], &text) != nil {
		return nil, false
	}
	s, shorter := visible.Text(text), head
	if q.End {
		shorter = tail
	}
	// JSON doubles line breaks, tabs and quotes; an answer counts bytes of JSON.
	cut, limit := shorter(s, maxQuoted), maxQuoted
	for b, _ := json.Marshal(cut); len(b) > maxQuoted+100 && limit > 300; b, _ = json.Marshal(cut) {
		limit -= 100
		cut = shorter(s, limit)
	}
	if q.List && cut != s { // whole lines, so that the next page begins with the next file
		cut = cut[:strings.LastIndexByte(cut, '\n')+1]
	}
	return edited(structured, func(doc map[string]any) {
		doc[q.Key] = cut
		if _, has := doc["truncated"]; has && cut != s {
			doc["truncated"] = true
		}
	}), cut != text
}

// beginnings shortens a document's quotes to at most limit bytes each, with a note.
func beginnings(d blocks.Document, limit int) (out blocks.Document) {
	for _, b := range d {
		if q, ok := b.(blocks.Quote); ok && len(q.Text) > limit {
			out = append(out, blocks.Quote{Text: head(visible.Text(q.Text), limit)}, blocks.Say("(the beginning of %v bytes)", len(q.Text)))
			continue
		}
		out = append(out, b)
	}
	return out
}

// head and tail return the beginning and the end of a text without a mark: the text around it states that it was cut.
func head(s string, n int) string { return s[:visible.Head(s, n)] }

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	if i := strings.IndexByte(s[len(s)-n:], '\n'); i >= 0 && i < n-1 {
		return s[len(s)-n+i+1:]
	}
	return s[visible.Tail(s, n):]
}

// fenced sets a program's text apart. A fence in the text cannot end it.
func fenced(text string) string {
	if text == "" {
		return "(nothing)"
	}
	return "```\n" + strings.ReplaceAll(strings.TrimRight(visible.Text(text), "\n"), "```", "'''") + "\n```"
}

// plain makes untrusted text safe to show: on one line, without hidden characters, bounded.
func plain(s string, limit int) string { return clip(visible.Line(s), limit) }

// plainLines is plain that preserves line breaks.
func plainLines(s string, limit int) string { return clip(visible.Text(s), limit) }

// cited is plain in quotation marks that the text cannot close.
func cited(s string, limit int) string {
	return `"` + strings.ReplaceAll(plain(s, limit), `"`, "'") + `"`
}

// because returns a run's reason: a word of ours, and the text of a program or of Slurm, cited.
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
