package conformance

import (
	"fmt"
	"strings"
)

// Secret is a planted secret: how it is called, the text itself, and what of it must be found nowhere.
type Secret struct{ Kind, Text, Core string }

// Revealed is a secret that a tool of the suite answers with, as token.create does.
const Revealed = "correct-horse-battery-staple-4711"

// Secrets are fifty secrets of several kinds. None is real.
func Secrets() []Secret {
	var out []Secret
	fill := func(n, i int, alphabet string) string {
		var b strings.Builder
		for k := range n {
			b.WriteByte(alphabet[(k*7+i*13+k*k)%len(alphabet)])
		}
		return b.String()
	}
	const upper, low, mixed = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789", "abcdefghijklmnopqrstuvwxyz0123456789",
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	forms := []struct {
		kind string
		make func(i int) (text, core string)
	}{
		{"AWS key id", func(i int) (string, string) { s := "AKIA" + fill(16, i, upper); return s, s }},
		{"GitHub token", func(i int) (string, string) { s := "ghp_" + fill(36, i, mixed); return s, s }},
		{"GitLab token", func(i int) (string, string) { s := "glpat-" + fill(20, i, mixed); return s, s }},
		{"Slack token", func(i int) (string, string) {
			s := "xoxb-" + fill(12, i, "0123456789") + "-" + fill(24, i, mixed)
			return s, s
		}},
		{"JSON web token", func(i int) (string, string) {
			s := "eyJ" + fill(30, i, mixed) + ".eyJ" + fill(40, i, mixed) + "." + fill(43, i, mixed)
			return s, s
		}},
		{"private key", func(i int) (string, string) {
			core := fill(64, i, mixed)
			return "-----BEGIN OPENSSH PRIVATE KEY-----\n" + core + "\n-----END OPENSSH PRIVATE KEY-----\n", core
		}},
		{"API key", func(i int) (string, string) { s := "sk-" + fill(40, i, mixed); return s, s }},
		{"password in a URL", func(i int) (string, string) {
			p := fill(16, i, low)
			return "postgres://lab:" + p + "@db.example.org/x", p
		}},
		{"bearer header", func(i int) (string, string) { p := fill(32, i, low) + "7a9"; return "Authorization: Bearer " + p, p }},
		{"assignment", func(i int) (string, string) { p := fill(14, i, mixed) + "9"; return "export DB_PASSWORD=" + p, p }},
	}
	for i := range 5 {
		for _, f := range forms {
			text, core := f.make(i)
			out = append(out, Secret{fmt.Sprintf("%s %d", f.kind, i), text, core})
		}
	}
	return out
}
