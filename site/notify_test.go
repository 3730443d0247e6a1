package site

import (
	"strings"
	"testing"

	"slurmgate/fault"
)

// A receiver has a name of its own and files; a secret in the place of a file's path is refused, and not repeated.
func TestReceivers(t *testing.T) {
	for entry, want := range map[string]string{
		"{name: lab-slack, url_file: /etc/x.url, body: text, secret_file: /etc/x.secret}": "",
		"{name: Lab, url_file: /etc/x.url}":                                               "SITE-NAME notify.receivers[0].name",
		"{name: a, url_file: /etc/x.url}, {name: a, url_file: /etc/x.url}":                "SITE-NAME notify.receivers[1].name",
		"{name: a, url_file: x.url}":                                                      "SITE-PATH notify.receivers[0].url_file",
		"{name: a, url_file: 'https://hooks.example.org/T0/TOKENTOKENTOKEN'}":             "SITE-SECRET notify.receivers[0].url_file",
		"{name: a, url_file: /etc/x.url, secret_file: whsec_TOKENTOKENTOKEN}":             "SITE-SECRET notify.receivers[0].secret_file",
		"{name: a, url_file: /etc/x.url, body: xml}":                                      "SITE-BODY notify.receivers[0].body",
	} {
		_, err := Parse("site.yaml", []byte(least+"notify: {receivers: ["+entry+"]}\n"))
		var got string
		for _, p := range fault.ProblemsOf(err) {
			got = p.Code + " " + p.Field
		}
		if got != want || (err == nil) != (want == "") || err != nil && strings.Contains(fault.Prose(err), "TOKENTOKEN") {
			t.Errorf("%s: %q, want %q (%v)", entry, got, want, err)
		}
	}
}
