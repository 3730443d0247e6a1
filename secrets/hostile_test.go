package secrets_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"slurmgate/secrets"
)

// What a job fills with the beginnings of secrets costs no more than a bounded multiple of its length.
//
// no race: each of its millions of steps is like the one before
// slow: searches a million texts
func TestHostileTexts(t *testing.T) {
	s := secrets.Default()
	s.Redact("compile what is needed: api key token")
	for name, unit := range map[string]string{"percents": "%3d%3A", "urls": "a://b:c", "headers": "-----BEGIN PRIVATE KEY-----\n",
		"footers": strings.Repeat("QUJD", 16) + "\n-----END PRIVATE KEY-----\n", "names": "pass\"key='token", "names in a row": "password",
		"base64": strings.Repeat("cGFzc3dvcmQ", 2) + " ", "keywords": keywords(), "at signs": "a:b@", "quotes": "password: \"",
		"zero widths": "pass\u200bword", "full width": "ｐａｓｓ：", "titles": "\x1b]", "colours": "\x1b[1;1;1;",
		"marks": "e\u0301\u0323", "backspaces": "x\b"} {
		cost := func(size int) time.Duration {
			text := strings.Repeat(unit, size/len(unit))
			begin := processorTime(t)
			s.Redact(text)
			return processorTime(t) - begin
		}
		few, many := cost(64<<10), cost(256<<10)
		if t.Logf("%s: %s and %s", name, few, many); many > 10*few+100*time.Millisecond { // the square would be 16
			t.Errorf("%s: four times the text costs %s, not %s", name, many, few)
		}
	}
}

// processorTime returns the CPU time of this process, which other load on the machine hardly changes.
func processorTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// keywords returns the keywords of many services.
func keywords() string {
	return "adafruit airtable algolia asana atlassian jira beamer bitbucket bittrex codecov coinbase confluent contentful databricks " +
		"datadog discord droneci " +
		"dropbox etsy facebook fastly finicity finnhub flickr freshbooks gitter gocardless hubspot intercom jfrog kraken kucoin launchdarkly " +
		"linkedin " +
		"lob mailchimp mailgun mapbox mattermost messagebird netlify newrelic nytimes okta plaid rapidapi sendbird sentry snyk square " +
		"squarespace " +
		"sumo telegram travis trello twitch twitter typeform yandex zendesk api key token secret auth "
}
