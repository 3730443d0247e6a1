package gate

import (
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/secrets"
)

// The gateway's own errors keep their field paths, file names, ids and digests.
func TestRedactKeepsOwnErrors(t *testing.T) {
	const sum = "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
	for _, p := range []fault.Problem{
		{Field: "io.inputs[0].checksum_sha256", Msg: "it is not the checksum of the artifact, " + sum},
		{Field: "args.api_key", Msg: "a number is wanted"}, {Field: "args.access_token", Msg: "it is missing", Rule: "required"},
		{Field: "http.client_secret", Msg: "unknown key"},
		{File: "/data/site/credentials", Line: 12, Column: 3, Field: "gateway.token", Msg: "unknown key"}, {File: "/d/my.secret",
			Msg: "it cannot be read"},
		{File: "packs/private_key.tool.yaml", Line: 4, Field: "inputs[0].password", Msg: "expected a string"}, {File: "/d/secret", Line: 1,
			Column: 814, Msg: "the key \"version\" appears twice"},
		{Field: "path", Msg: "/data/token/" + sum[7:] + "/secrets is not a regular file"},
		{Field: "run_id", Msg: "run_0X8Z4D1X467KV94K4TXG0D9BXT has no job sg-0x8z4d1x467kv94k4txg0d9bxt"},
	} {
		err := fault.Invalid("a rule is broken", p)
		if got := ScrubMessage(err.Error(), fault.ProblemsOf(err)); got != err.Error() {
			t.Errorf("%s → %s", err, got)
		}
	}
	for _, text := range []string{
		"open /etc/slurmgate/credentials: permission denied", "open /data/my-secret: no such file or directory",
		"read /d/api_key: is a directory",
		"art_183BZJHEYXMKZBB4A0X74BNFSS is not an input; tok_1 has no capability", "cannot read the plan \"/home/a/token.json\"",
	} {
		if got := ScrubMessage(text, nil); got != text {
			t.Errorf("%s → %s", text, got)
		}
	}
}

// Secrets in the same messages are still found.
func TestRedactFindsSecretsInErrors(t *testing.T) {
	for _, c := range []struct {
		p      fault.Problem
		secret string
	}{
		{fault.Problem{Field: "args.api_key", Msg: "got password: hunter2hunter2"}, "hunter2hunter2"},
		{fault.Problem{Field: "args.x", Msg: "got AKIAIOSFODNN7EXAMPLE"}, "AKIAIOSFODNN7EXAMPLE"},
		{fault.Problem{Field: "args.ghp_abcdefghijklmnopqrstuvwxyz0123456789", Msg: "unknown key"}, "ghp_abc"},
		{fault.Problem{Field: "args.a", File: "/d/secret=hunter2hunter2", Msg: "no"}, "hunter2"},
		{fault.Problem{Field: "secret", Msg: "api_key=hunter2hunter2", Rule: "secret: hunter3hunter3"}, "hunter2"},
		{fault.Problem{Field: "a", Msg: "b", Rule: "secret: hunter3hunter3"}, "hunter3"},
		{fault.Problem{Field: "https://u:hunter2@example.org/x", Msg: "no"}, "hunter2"},
	} {
		err := fault.Invalid("a rule is broken", c.p)
		if got := ScrubMessage(err.Error(), fault.ProblemsOf(err)); strings.Contains(got, c.secret) || !strings.Contains(got, Redacted) {
			t.Errorf("%s → %s", err, got)
		}
	}
	if got := ScrubMessage("open /d/x: password: hunter2hunter2", nil); strings.Contains(got, "hunter2") {
		t.Error(got)
	}
}

// Most answers have a key that could name a secret, such as exit_code, and hold none. They are searched once, and not copied.
func TestDocumentWithoutSecretsIsNotCopied(t *testing.T) {
	doc, err := plan.Read([]byte(`{"state":"queued","exit_code":null,"waits":{"n":1,"list":["a","b"]},"token_id":"tok_1"}`))
	if err != nil {
		t.Fatal(err)
	}
	g := &Gate{secrets: secrets.Default()}
	if !g.secrets.Suspicious(doc.Bytes) {
		t.Error("the document is not worth a look, so this tests nothing")
	}
	clean, found, err := g.redact(document{Doc: doc}, false)
	if err != nil || len(found) > 0 || !clean.harmless {
		t.Errorf("found %v in it, harmless is %t: %v", found, clean.harmless, err)
	}
	r := redactor{secrets: g.secrets, keys: &g.keys, byName: true}
	if n := testing.AllocsPerRun(100, func() { r.walk(doc.Value) }); n != 0 {
		t.Errorf("walking it makes %v allocations", n)
	}
}
