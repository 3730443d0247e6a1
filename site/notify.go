package site

import (
	"fmt"
	"net/mail"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Notify configures who may be notified that a run or a batch has ended.
type Notify struct {
	// Origins that get webhooks: scheme, host and perhaps a port, for example https://hooks.example.org. A place is told nowhere else,
	// and redirects are not followed. With http an attacker on the network can read that a run has ended.
	Origins   []string         `yaml:"origins" is:"webhook"`
	Receivers []NotifyReceiver `yaml:"receivers,omitempty"` // webhooks whose URL is a secret; default: none
	Mail      NotifyMail       `yaml:"mail,omitempty"`      // how mail is sent; default: no mail
}

// NotifyReceiver is a webhook that callers know only by its name.
type NotifyReceiver struct {
	Name       string `yaml:"name"`                  // for callers: lower case letters, digits, - and _
	URLFile    string `yaml:"url_file"`              // absolute path of a file with the URL, readable only for its user and group
	SecretFile string `yaml:"secret_file,omitempty"` // absolute path of a file with whsec_BASE64 that also signs requests; default: none
	Body       string `yaml:"body,omitempty"`        // event or text: {"text":"…"}, for Slack, Mattermost and others; default event
}

// Bodies that a receiver gets.
const (
	EventBody = "event"
	TextBody  = "text"
)

// NotifyMail configures how mail is sent.
type NotifyMail struct {
	// Domains of addresses that get mail, for example [example.org]; empty: no mail is sent.
	Domains []string `yaml:"domains" is:"domain"`
	// The address that mail is from; required with domains.
	From string `yaml:"from"`
	// A program that takes the options of sendmail(8) and a mail on its standard input.
	Sendmail string `yaml:"sendmail" default:"/usr/sbin/sendmail"`
	// Mails in an hour; further ones wait.
	PerHour int `yaml:"per_hour" default:"100" min:"1" max:"100000"`
	// Of these, mails for each caller; a quarter where it is not given.
	PerCaller int `yaml:"per_caller"`
}

var receiverName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

func (c *checker) notify(n Notify) {
	for i, r := range n.Receivers {
		field := fmt.Sprintf("notify.receivers[%d]", i)
		if !receiverName.MatchString(r.Name) || slices.ContainsFunc(n.Receivers[:i], func(o NotifyReceiver) bool { return o.Name == r.Name }) {
			c.value("SITE-NAME", field+".name", r.Name, "lower case letters, digits, - and _, at most 64; each name once", "for example lab-slack")
		}
		for key, file := range map[string]string{"url_file": r.URLFile, "secret_file": r.SecretFile} {
			switch {
			case strings.Contains(file, "://"), strings.HasPrefix(file, "whsec_"):
				c.add("SITE-SECRET", field+"."+key, "the path of a file", "this looks like the secret itself",
					"write it to a file that only the gateway's user can read, and give its path")
			case !filepath.IsAbs(file) && (file != "" || key == "url_file"):
				c.value("SITE-PATH", field+"."+key, file, "an absolute path", "")
			}
		}
		if !slices.Contains([]string{"", EventBody, TextBody}, r.Body) {
			c.value("SITE-BODY", field+".body", r.Body, "event or text", "")
		}
	}
	c.bounds("notify.mail.per_caller", int64(n.Mail.PerCaller), 1, int64(n.Mail.PerHour))
	if !filepath.IsAbs(n.Mail.Sendmail) {
		c.value("SITE-PATH", "notify.mail.sendmail", n.Mail.Sendmail, "an absolute path", "")
	}
	if a, err := mail.ParseAddress(n.Mail.From); len(n.Mail.Domains) > 0 && (err != nil || a.Address != n.Mail.From) {
		c.value("SITE-MAIL", "notify.mail.from", n.Mail.From, "a mail address, as notify.mail.domains is given",
			"for example slurmgate@example.org")
	}
}
