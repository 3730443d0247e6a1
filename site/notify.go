package site

import (
	"fmt"
	"net/mail"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Notify says who may be told that a run or a batch is over.
type Notify struct {
	Origins   []string         `yaml:"origins"`             // https://host[:port] or http://host[:port] that get webhooks; default none
	Receivers []NotifyReceiver `yaml:"receivers,omitempty"` // webhooks whose URL is a secret; default none
	Mail      NotifyMail       `yaml:"mail,omitempty"`      // how mail is sent; default not at all
}

// NotifyReceiver is a webhook that callers know by its name only.
type NotifyReceiver struct {
	Name       string `yaml:"name"`                  // by which callers name it: lower case letters, digits, - and _
	URLFile    string `yaml:"url_file"`              // absolute path of a file with the URL, which others than its user and group cannot read
	SecretFile string `yaml:"secret_file,omitempty"` // absolute path of a file with whsec_BASE64: requests are signed with it too; default not
	Body       string `yaml:"body,omitempty"`        // event or text: {"text":"…"}, as Slack, Mattermost and others take it; default event
}

// Bodies that a receiver gets.
const (
	EventBody = "event"
	TextBody  = "text"
)

// NotifyMail says how mail is sent.
type NotifyMail struct {
	Domains  []string `yaml:"domains"`  // of addresses that get mail; default none
	From     string   `yaml:"from"`     // address that mail is from; required with domains
	Sendmail string   `yaml:"sendmail"` // absolute path of a program that takes sendmail's options; default /usr/sbin/sendmail
	PerHour  int      `yaml:"per_hour"` // 1..100000 mails, further ones wait; default 100
}

const (
	defaultSendmail = "/usr/sbin/sendmail"
	defaultMails    = 100
)

var receiverName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

var mailDomain = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)

func (c *checker) notify(n Notify) {
	const rule = "https:// or http://, a host in lower case and perhaps a port, and nothing after it"
	for i, text := range n.Origins {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Scheme+"://"+u.Host != text || hasUpper(u.Host) ||
			u.Scheme == "https" && u.Port() == "443" || u.Scheme == "http" && u.Port() == "80" {
			c.value("SITE-ORIGIN", fmt.Sprintf("notify.origins[%d]", i), text, rule,
				"for example https://hooks.example.org; without the scheme's own port")
		}
	}
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
	for i, d := range n.Mail.Domains {
		if !mailDomain.MatchString(d) {
			c.value("SITE-DOMAIN", fmt.Sprintf("notify.mail.domains[%d]", i), d, "the part of a mail address after @", "for example example.org")
		}
	}
	c.bounds("notify.mail.per_hour", int64(n.Mail.PerHour), 1, 100000)
	if !filepath.IsAbs(n.Mail.Sendmail) {
		c.value("SITE-PATH", "notify.mail.sendmail", n.Mail.Sendmail, "an absolute path", "")
	}
	if a, err := mail.ParseAddress(n.Mail.From); len(n.Mail.Domains) > 0 && (err != nil || a.Address != n.Mail.From) {
		c.value("SITE-MAIL", "notify.mail.from", n.Mail.From, "a mail address, as notify.mail.domains is given",
			"for example slurmgate@example.org")
	}
}

func hasUpper(s string) bool {
	return slices.ContainsFunc([]byte(s), func(b byte) bool { return b >= 'A' && b <= 'Z' })
}
