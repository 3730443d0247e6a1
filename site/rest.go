package site

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// REST configures how slurmrestd is reached, and as which user. It names files and commands; the site file never has
// a token.
type REST struct {
	URL          string   `yaml:"url"`           // unix:/absolute/path, https://host:port, or http:// to a loopback address; or command
	Command      []string `yaml:"command"`       // argv of a slurmrestd that is started as a child and speaks HTTP on its pipes
	User         string   `yaml:"user"`          // owner of the jobs, X-SLURM-USER-NAME; default: the name of the gateway's own user
	TokenFile    string   `yaml:"token_file"`    // absolute path of a file with a JWT. At most one of token_file and token_command
	TokenCommand []string `yaml:"token_command"` // argv of a command that prints a JWT
	CA           string   `yaml:"ca"`            // absolute path of a PEM file with the authorities of an https server; default: the system's
	Version      string   `yaml:"version"`       // of slurmrestd's API, such as v0.0.42; default: the newest that both sides support
}

// Local reports whether slurmrestd knows the caller by the socket or the pipes, so that no token is needed.
func (r REST) Local() bool { return len(r.Command) > 0 || strings.HasPrefix(r.URL, unixScheme) }

// Where names slurmrestd, for messages.
func (r REST) Where() string {
	if len(r.Command) > 0 {
		return r.Command[0]
	}
	return r.URL
}

// OverREST reports whether Slurm is reached through slurmrestd, without Slurm's commands.
func (s *Site) OverREST() bool { return s.Slurm.Transport == TransportREST }

// restVersions are the versions of slurmrestd's API that the gateway speaks.
var restVersions = []string{"v0.0.40", "v0.0.41", "v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"}

const unixScheme = "unix:"

// tokenText matches the start of a JWT, alone or as scontrol token prints it.
var tokenText = regexp.MustCompile(`^(SLURM_JWT=|eyJ[A-Za-z0-9_-]*\.)`)

// rest checks slurm.rest.
func (c *checker) rest(r REST) {
	switch {
	case r.URL == "" && len(r.Command) == 0:
		c.add("SITE-MISSING", "slurm.rest.url", "url, or command", "neither url nor command says how slurmrestd is reached",
			"for example url: unix:/run/slurmrestd/slurmrestd.sock, or https://slurm.cluster.example:6820")
	case r.URL != "" && len(r.Command) > 0:
		c.add("SITE-TRANSPORT", "slurm.rest.command", "either url or command", "url and command are both given", "remove one of them")
	case r.URL != "":
		c.restURL(r.URL)
	}
	c.argv("slurm.rest.command", r.Command)
	if r.User == "root" {
		c.add("SITE-USER", "slurm.rest.user", "not root", "slurmrestd refuses root, and jobs of root are no jobs of the gateway",
			"name the user that the jobs belong to")
	} else {
		c.user("slurm.rest.user", r.User)
	}
	c.tokenFile(r.TokenFile)
	c.argv("slurm.rest.token_command", r.TokenCommand)
	switch {
	case r.TokenFile != "" && len(r.TokenCommand) > 0:
		c.add("SITE-TRANSPORT", "slurm.rest.token_command", "token_file or token_command, not both",
			"token_file and token_command are both given", "remove one of them")
	case r.URL != "" && !r.Local() && r.TokenFile == "" && len(r.TokenCommand) == 0:
		c.add("SITE-MISSING", "slurm.rest.token_file", "token_file or token_command, unless url is a unix socket",
			"over TCP slurmrestd knows the gateway by a token only",
			"write a token to a file that only the gateway's user can read (scontrol token username=USER lifespan=SECONDS), and name it here")
	}
	c.path("slurm.rest.ca", r.CA, false)
	if r.CA != "" && !strings.HasPrefix(r.URL, "https:") {
		c.add("SITE-TRANSPORT", "slurm.rest.ca", "only with an https url", "url is not https, so there is no certificate to check", "remove ca")
	}
	if r.Version != "" && !slices.Contains(restVersions, r.Version) {
		c.value("SITE-VALUE", "slurm.rest.version", r.Version, "empty, or one of "+strings.Join(restVersions, ", "),
			"leave it out: the gateway picks the newest version that both sides know")
	}
}

// restURL checks the address of slurmrestd. A URL with credentials in it is not repeated in the message.
func (c *checker) restURL(text string) {
	const field, rule = "slurm.rest.url", "unix:/absolute/path, https://host:port, or http://127.0.0.1:port"
	if path, is := strings.CutPrefix(text, unixScheme); is {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" || strings.ContainsFunc(path, unicode.IsControl) {
			c.value("SITE-URL", field, text, rule, "for example unix:/run/slurmrestd/slurmrestd.sock")
		} else if len(path) > maxSocketBytes {
			c.add("SITE-SOCKET", field, fmt.Sprintf("at most %d bytes, the limit of Unix sockets", maxSocketBytes),
				fmt.Sprintf("the path has %d bytes, which is too long", len(path)), "use a symbolic link with a short path to its folder")
		}
		return
	}
	u, err := url.Parse(text)
	if err == nil && u.User != nil {
		c.add("SITE-URL", field, rule, "the url has credentials in it (it is not shown here)",
			"remove them: slurmrestd knows the gateway by token_file or token_command; replace a password that was in a readable file")
		return
	}
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || !isHost(u.Hostname()):
		c.value("SITE-URL", field, text, rule, "")
	case u.Port() == "":
		c.value("SITE-URL", field, text, rule, "add the port: slurmrestd's own default is 6820")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || strings.Contains(text, "#"):
		c.value("SITE-URL", field, text, rule, "leave out what follows the port: the gateway adds the paths of slurmrestd's API")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		c.value("SITE-URL", field, text, rule,
			"anyone on the network could read the token and change what is sent: use https, or a tunnel that ends on this host")
	}
}

func isHost(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || remoteHost.MatchString(host)
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// argv checks a command that the gateway starts without a shell. A token among its words is not repeated in the message.
func (c *checker) argv(field string, argv []string) {
	for i, word := range argv {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case tokenText.MatchString(word):
			c.secretToken(at, "a word of a command")
		case i == 0:
			c.path(at, word, true)
		case strings.ContainsFunc(word, unicode.IsControl):
			c.value("SITE-COMMAND", at, word, "a word without control characters", "")
		}
	}
}

func (c *checker) tokenFile(got string) {
	if tokenText.MatchString(got) {
		c.secretToken("slurm.rest.token_file", "the path of a file")
		return
	}
	c.path("slurm.rest.token_file", got, false)
}

func (c *checker) secretToken(field, rule string) {
	c.add("SITE-KEY", field, rule, "this is a token (it is not shown here)",
		"write it to a file that only the gateway's user can read, and give its path in slurm.rest.token_file; replace the token")
}
