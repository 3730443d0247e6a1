package site

import (
	"fmt"
	"net/mail"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
)

// Notify says who may be told that a run is over.
type Notify struct {
	Origins []string   `yaml:"origins"`        // https://host[:port] or http://host[:port] that get webhooks; default none
	Mail    NotifyMail `yaml:"mail,omitempty"` // how mail is sent; default not at all
}

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
