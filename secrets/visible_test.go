package secrets_test

import (
	"encoding/json"
	"strings"
	"testing"

	"slurmgate/secrets"
	"slurmgate/secrets/corpus"
)

// A secret is found as a reader sees it: behind characters without a shape, in full-width letters, in a terminal's colours.
func TestDisguisedSecrets(t *testing.T) {
	s := secrets.Default()
	for _, text := range []string{"pass\u200bword: hunter2hunter2", "password\u200d=\u2060hunter2hunter2", "ｐａｓｓｗｏｒｄ：hunter2hunter2",
		"password: ｈｕｎｔｅｒ２ｈｕｎｔｅｒ２", "pass\u00adword=hunter2hunter2", "pa\x1b[1mss\x1b[0mword: hunter2hunter2", "\ufeffpassword=hunter2hunter2",
		"password\x1b[0m=\x1b[31mhunter2hunter2\x1b[0m", `password\u001b[0m: \u001b[31mhunter2hunter2`, `pass\x1b[1mword: hunter2hunter2`,
		"pass\x1b(Bword: hunter2hunter2", "\x1b]0;title\apass\x1b]8;;\x1b\\word: hunter2hunter2", "pass\ufe0fword: hunter2hunter2",
		"p\bpa\bas\bss\bsword: hunter2hunter2", "passx\bword: hunter2hunter2", "pass\u009b1mword: hunter2hunter2", "pass\x1bPno\x1b\\word: hunter2hunter2",
		`{"pass\u200Bword":"hunter2hunter2"}`, "pass\x0eword\x0f=hunter2hunter2",
		"κωδικός: hunter2hunter2", "Κωδικός : hunter2", "ΚΩΔΙΚΟΣ=hunter2", "ΚΩΔΙΚΌΣ ΠΡΌΣΒΑΣΗΣ: hunter2", "κωδικο\u0301ς: hunter2"} {
		got := s.Redact(text)
		if strings.Contains(got, "hunter2") || strings.Contains(got, "ｈｕｎｔｅｒ") || !strings.Contains(got, secrets.Redacted) {
			t.Errorf("Redact(%q) = %q, want the password redacted", text, got)
		}
		if raw, err := json.Marshal(map[string]string{"note": text}); err != nil || !s.Suspicious(raw) {
			t.Errorf("Suspicious(%s) = false, want true (%v)", raw, err)
		}
	}
	token := "sl.u.AFb1" + strings.Repeat("Xk9_q2WzR7-mT4vNc8", 8)
	if got := s.Redact("curl -d " + token + " x"); got != "curl -d "+secrets.Redacted+" x" && got != "curl -d sl.u."+secrets.Redacted+" x" {
		t.Errorf("Redact of a Dropbox token = %q", got)
	}
	if got := s.Redact("\x1b[1mé ｐassword=hunter2hunter2\x1b[0m end"); got != "\x1b[1mé ｐassword="+secrets.Redacted+"\x1b[0m end" {
		t.Errorf("Redact keeps %q around the secret", got)
	}
	for _, key := range []string{"ｐａｓｓｗｏｒｄ", "api\u200b_key", "ap\u200bi_key"} {
		if secrets.Name(key) != secrets.Strong {
			t.Errorf("Name(%q) = %d, want Strong", key, secrets.Name(key))
		}
	}
}

// FuzzRedact checks that any text can be redacted, and that the spans found are within it, in order.
func FuzzRedact(f *testing.F) {
	for _, text := range []string{"…", "x…: …", "ﷺ=hunter2hunter2", "password: hunter2…", "각\u200b각", "\xffpassword=\xe2\x80", "e\u0301\u0301",
		"½ ﬀ ㎏ password：ｈｕｎｔｅｒ２ｈｕｎｔｅｒ２…", "\x1b[1m…\x1b"} {
		f.Add(text)
	}
	scanner := secrets.Default()
	f.Fuzz(func(t *testing.T, text string) {
		end := 0
		for _, span := range scanner.Find(text) {
			if span.Start < end || span.End <= span.Start || span.End > len(text) {
				t.Fatalf("Find(%q) has a span from %d to %d after one that ended at %d, of %d bytes", text, span.Start, span.End, end, len(text))
			}
			end = span.End
		}
	})
}

// The same secrets are found when a character without a shape is in the middle of each word of the text.
func TestPlantedAndDisguised(t *testing.T) {
	s := secrets.Default()
	for _, p := range corpus.Planted(11) {
		if strings.Contains(s.Redact(p.Text), p.Core) {
			continue
		}
		hidden := strings.NewReplacer(p.Core[:2], p.Core[:1]+"\u200b"+p.Core[1:2]).Replace(p.Text)
		if got := s.Redact(hidden); strings.Contains(got, p.Core[2:]) {
			t.Errorf("%s: a zero-width character hides it: %q", p.Kind, got)
		}
	}
}

// Addresses, keys of calls and Greek labels that hold no secret.
func TestMailAddresses(t *testing.T) {
	for _, text := range []string{"Contact:jane.doe@uni.edu", "mailto:jane.doe@uni.edu", "mailto:jdoe42@uni.edu",
		"E-Mail:anna.schmidt3@uni-koeln.de",
		"user:anna@uni.edu", "Author:jdoe42@lab.org", "PI:m.mustermann@x.de", "notify=mailto:jane.doe+runs@uni.edu", "cc:anna@x.de,bert@y.de",
		"@RG\tID:1\tCN:sequencing-core@uni.edu", "contact_email:x1234@uni.edu", "key-" + strings.Repeat("0123456789abcdef", 2),
		"Κωδικός δείγματος: GR12345", "10\u207b\u2079 µm, ½ of it…", "naïve café Ångström"} {
		if x := secrets.Default().Find(text); len(x) > 0 {
			t.Errorf("Find(%q) = %q by the rule %s, want nothing", text, text[x[0].Start:x[0].End], x[0].Rule)
		}
	}
	for _, text := range []string{"scp lab:hunter2@host.example.org:/x .", "lab:Sommer2024!@db.example.org", "mailgun: key-" +
		strings.Repeat("0123456789abcdef", 2)} {
		if len(secrets.Default().Find(text)) == 0 {
			t.Errorf("Find(%q) = nothing, want its password", text)
		}
	}
}
