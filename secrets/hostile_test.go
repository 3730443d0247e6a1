package secrets_test

import (
	"strings"
	"testing"
	"time"

	"slurmgate/secrets"
)

// What a job fills with the beginnings of secrets costs no more than a bounded multiple of its length.
func TestHostileTexts(t *testing.T) {
	s := secrets.Default()
	s.Redact("compile what is needed: api key token")
	for name, unit := range map[string]string{"percents": "%3d%3A", "urls": "a://b:c", "headers": "-----BEGIN PRIVATE KEY-----\n",
		"footers": strings.Repeat("QUJD", 16) + "\n-----END PRIVATE KEY-----\n", "names": "pass\"key='token", "names in a row": "password",
		"base64": strings.Repeat("cGFzc3dvcmQ", 2) + " ", "keywords": keywords(), "at signs": "a:b@", "quotes": "password: \""} {
		text := strings.Repeat(unit, (256<<10)/len(unit))
		begin := time.Now()
		s.Redact(text)
		if took := time.Since(begin); took > 8*time.Second {
			t.Errorf("%s: %s for %d KiB", name, took, len(text)>>10)
		} else {
			t.Logf("%s: %s", name, took.Round(time.Millisecond))
		}
	}
}

// keywords are those of many services.
func keywords() string {
	return "adafruit airtable algolia asana atlassian jira beamer bitbucket bittrex codecov coinbase confluent contentful databricks " +
		"datadog discord droneci " +
		"dropbox etsy facebook fastly finicity finnhub flickr freshbooks gitter gocardless hubspot intercom jfrog kraken kucoin launchdarkly " +
		"linkedin " +
		"lob mailchimp mailgun mapbox mattermost messagebird netlify newrelic nytimes okta plaid rapidapi sendbird sentry snyk square " +
		"squarespace " +
		"sumo telegram travis trello twitch twitter typeform yandex zendesk api key token secret auth "
}
