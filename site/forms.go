package site

import (
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"slurmgate/plan"
)

// form is the allowed form of a text in the site file, and the problem of a text without it.
type form struct {
	code, rule, hint string
	ok               func(string) bool
}

// forms has the forms that the tag is names.
var forms = map[string]form{
	"path": {"SITE-PATH", "an absolute path without . or .. or double slashes", "", isPath},
	"plain": {"SITE-PATH", "an absolute path of letters, digits and _ . + @ ~ = -, without . or .. or double slashes",
		"other characters have a meaning in options of Slurm and Apptainer; use a symbolic link with a plain name to the folder", isPlain},
	"slurm": {"SITE-SLURM-NAME", "a Slurm name: starts with a letter or digit, then letters, digits, _ . + -, at most 64", "",
		plan.IsSlurmName},
	"module": {"SITE-MODULE", "a module's name: letters, digits and _ . + / -", "", moduleName.MatchString},
	"mount": {"SITE-NO-MOUNT", "sys, devpts or an absolute path",
		"hostfs, bind-paths, home and cwd are never mounted; proc, dev and tmp always are", isMount},
	"user":     {"SITE-USER", "the name of a user", "", isAccount},
	"group":    {"SITE-USER", "the name of a group", "", isAccount},
	"tool":     {"SITE-TOOL", "the id of a tool", "for example seqkit.stats", toolID.MatchString},
	"registry": {"SITE-HOST", "host:port", "for example registry.example.org:5000", plan.IsHostPort},
	"host":     {"SITE-HTTP-HOST", "a host name in lower case, with or without a port", "", hostName.MatchString},
	"origin":   {"SITE-HTTP-ORIGIN", "https://host or https://host:port in lower case, without a path", "", isLowerOrigin},
	"url":      {"SITE-HTTP-URL", "https://host or https://host:port, without a path", "", isOrigin},
	"network":  {"SITE-HTTP-PROXY", "an IP address, or a network such as 10.0.0.0/8", "", isNetwork},
	"webhook": {"SITE-ORIGIN", "https:// or http://, a host in lower case and perhaps a port, and nothing after it",
		"for example https://hooks.example.org; without the scheme's own port", isWebhook},
	"unit":   {"SITE-SERVICE", "the name of a systemd service", "for example slurmgate.service", unitName.MatchString},
	"domain": {"SITE-DOMAIN", "the part of a mail address after @", "for example example.org", mailDomain.MatchString},
}

// plainPath is the form of a path used in options of Slurm and Apptainer, which expand %, split at blanks, colons and commas, and treat
// backslashes as escapes.
var (
	plainPath  = regexp.MustCompile(`^(/[A-Za-z0-9_.+@~=-]+)+$`)
	moduleName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.+/-]{0,127}$`)
	toolID     = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)+$`)
	unitName   = regexp.MustCompile(`^[A-Za-z0-9@._:-]{1,247}\.service$`)
	hostName   = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?$`)
	mailDomain = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)
)

// is refuses a text that does not have the form.
func (c *checker) is(name, field, got string) {
	if f := forms[name]; !f.ok(got) {
		c.value(f.code, field, got, f.rule, f.hint)
	}
}

// path checks a path that only this program opens.
func (c *checker) path(field, got string, required bool) {
	if got != "" || required {
		c.is("path", field, got)
	}
}

// plain checks a path that is used in options of Slurm or Apptainer.
func (c *checker) plain(field, got string) { c.is("plain", field, got) }

func isPath(s string) bool {
	odd := !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl)
	return filepath.IsAbs(s) && filepath.Clean(s) == s && s != "/" && !odd
}

func isPlain(s string) bool { return plainPath.MatchString(s) && filepath.Clean(s) == s }

func isMount(s string) bool { return s == "sys" || s == "devpts" || plainPath.MatchString(s) }

func isAccount(s string) bool {
	return s != "" && len(s) <= 64 && !strings.HasPrefix(s, "-") && !strings.ContainsFunc(s, unicode.IsControl)
}

// isOrigin reports whether s is a scheme, http or https, and a host, with or without a port, and nothing else.
func isOrigin(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && s == u.Scheme+"://"+u.Host
}

func isLowerOrigin(s string) bool { return isOrigin(s) && s == strings.ToLower(s) }

// isWebhook accepts each origin in one form only.
func isWebhook(s string) bool {
	u, err := url.Parse(s)
	own := map[string]string{"https": "443", "http": "80"}
	return err == nil && isOrigin(s) && u.Hostname() != "" && u.Port() != own[u.Scheme] &&
		!slices.ContainsFunc([]byte(u.Host), func(b byte) bool { return b >= 'A' && b <= 'Z' })
}

func isNetwork(s string) bool {
	_, err := ParseNetwork(s)
	return err == nil
}
