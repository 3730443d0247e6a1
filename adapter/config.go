package adapter

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// Config is the adapter's configuration, one strict YAML file.
//
//	listen: 127.0.0.1:9100            (the default)
//	base_url: http://adapter:9100     (how the gateway reaches it, for the manifest; http:// and listen if absent)
//	upstream:                         (one of command and url)
//	  command: [/usr/bin/mcp-server, --stdio]
//	  dir: /var/lib/mcp               (where it runs)
//	  env: [GITHUB_TOKEN]             (variables of the adapter that it gets, besides PATH, HOME, LANG, TMPDIR)
//	  url: https://mcp.example.org/mcp
//	  key_env: EXAMPLE_KEY            (the variable with the key, sent as Authorization: Bearer)
//	  key_header: X-Api-Key           (the key alone, in this header instead)
//	tools:
//	  - {tool: get-sum, tool_id: everything.sum}
//	calls: 8                          (at a time)
//	answer_bytes: 4194304             (of an answer)
//	image_bytes: 1048576              (of all its images, sound and files together; more are left out)
//	recheck_seconds: 0                (how long the upstream's list of tools counts; 0: it is read before each call)
//	stop_seconds: 30                  (how long calls may continue when the adapter stops)
type Config struct {
	Listen, BaseURL string
	Upstream        Upstream
	Tools           []Tool
	Calls           int
	AnswerBytes     int
	ImageBytes      int
	Recheck, Stop   time.Duration
}

// Upstream is a foreign MCP server: a command that speaks on standard input and output, or a URL.
type Upstream struct {
	Command []string
	Dir     string
	Env     []string // names
	URL     string
	KeyEnv  string
	Header  string // of the key

	key string
}

// Tool is a tool of the upstream and the id it has in the manifest.
type Tool struct{ Name, ID string }

var (
	toolIDForm = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)+$`)
	headerForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,63}$`)
	hostForm   = regexp.MustCompile(`^[A-Za-z0-9.\[\]:_-]+:[0-9]{1,5}$`)
)

const (
	maxConfigBytes = 1 << 20
	maxAnswerBytes = 8 << 20 // what the gateway reads
)

// Load reads a configuration and the key it names. All mistakes come in one Validation fault.
func Load(file string, env func(string) (string, bool)) (Config, error) {
	f, err := os.Open(file)
	if err != nil {
		return Config{}, fault.Wrap(fault.NotFound, "adapter_config", "the adapter's configuration cannot be read", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err != nil {
		return Config{}, fault.Wrap(fault.Transport, "adapter_config", "the adapter's configuration cannot be read", err)
	}
	return parse(file, data, env)
}

func parse(file string, data []byte, env func(string) (string, bool)) (Config, error) {
	r := &yamldoc.Reader{File: file, Prefix: "ADAPTER"}
	o := r.Parse(data).Object("listen", "base_url", "upstream", "tools", "calls", "answer_bytes", "image_bytes", "recheck_seconds",
		"stop_seconds")
	number := func(name string, low, high, absent int64) int64 {
		if v := o.Opt(name); v.Exists() {
			return v.Int(low, high)
		}
		return absent
	}
	c := Config{Listen: "127.0.0.1:9100", Calls: int(number("calls", 1, 1000, 8)),
		AnswerBytes: int(number("answer_bytes", 1<<10, maxAnswerBytes, 4<<20)), ImageBytes: int(number("image_bytes", 0, maxAnswerBytes, 1<<20)),
		Recheck: time.Duration(number("recheck_seconds", 0, 3600, 0)) * time.Second,
		Stop:    time.Duration(number("stop_seconds", 0, 3600, 30)) * time.Second}
	if v := o.Opt("listen"); v.Exists() {
		c.Listen = v.Match(hostForm, "LISTEN", "host:port, such as 127.0.0.1:9100")
	}
	c.BaseURL = "http://" + c.Listen
	if v := o.Opt("base_url"); v.Exists() {
		c.BaseURL = strings.TrimSuffix(v.Text(), "/")
		checkURL(v, c.BaseURL, "BASE-URL")
	}
	c.Upstream.read(o.Need("upstream"), env)
	seen := map[string]bool{}
	for _, v := range o.Opt("tools").List() {
		e := v.Object("tool", "tool_id")
		t := Tool{Name: e.Need("tool").Text(),
			ID: e.Need("tool_id").Match(toolIDForm, "TOOL-ID", "a tool id of the manifest, such as web.search")}
		if seen[t.ID] && t.ID != "" {
			e.Opt("tool_id").Fail("TOOL-ID", "each id once", t.ID+" is already the id of another tool", "choose another one")
		}
		seen[t.ID] = true
		c.Tools = append(c.Tools, t)
	}
	if bad := r.Problems(); len(bad) > 0 {
		return Config{}, fault.Invalid("the adapter's configuration "+file+" is invalid", bad...)
	}
	return c, nil
}

func (u *Upstream) read(v yamldoc.Value, env func(string) (string, bool)) {
	o := v.Object("command", "dir", "env", "url", "key_env", "key_header")
	for _, e := range o.Opt("command").List() {
		u.Command = append(u.Command, e.Text())
	}
	at, command := o.Opt("url"), o.Opt("command")
	u.URL, u.Dir = at.Text(), o.Opt("dir").Text()
	u.Env = o.Opt("env").Words("ENV", "names of variables", plan.IsEnvName)
	switch {
	case v.Exists() && at.Exists() == command.Exists():
		v.Fail("UPSTREAM", "either command or url", "command and url are both given, or both missing", "give one of the two")
	case command.Exists() && (len(u.Command) == 0 || u.Command[0] == ""):
		command.Fail("UPSTREAM", "a list: the program and its arguments", "the list is empty", "")
	case command.Exists() && strings.Contains(u.Command[0], "/") && !filepath.IsAbs(u.Command[0]):
		command.Fail("UPSTREAM", "the absolute path of a program, or a name in PATH", "the path is relative", "write the absolute path")
	case at.Exists():
		checkURL(at, u.URL, "UPSTREAM")
	}
	for _, name := range []string{"key_env", "key_header"} {
		if f := o.Opt(name); f.Exists() && !at.Exists() {
			f.Fail("UPSTREAM", "only for an upstream with a url", "a command has no header for a key", "list the variable in env instead")
		}
	}
	if h := o.Opt("key_header"); h.Exists() {
		u.Header = h.Match(headerForm, "UPSTREAM", "the name of a header")
		if !o.Opt("key_env").Exists() {
			h.Fail("UPSTREAM", "only with key_env", "there is no key to send in this header", "add key_env, or remove it")
		}
	}
	k := o.Opt("key_env")
	if !k.Exists() {
		return
	}
	u.KeyEnv = k.Text()
	key, set := env(u.KeyEnv)
	switch u.key = key; {
	case !set || key == "":
		k.Fail("KEY", "the name of a variable in the adapter's environment", "the variable "+fault.Clip(u.KeyEnv)+" is not set",
			"set it for the adapter, never in this file")
	case strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }):
		k.Fail("KEY", "printable characters without blanks", "the key in "+fault.Clip(u.KeyEnv)+" has other characters", "correct the variable")
	case at.Exists() && !strings.HasPrefix(u.URL, "https:") && !loopback(u.URL):
		at.Fail("UPSTREAM", "https, since a key is sent to it", "the key would travel unencrypted", "write https")
	}
}

func checkURL(v yamldoc.Value, s, code string) {
	u, err := url.Parse(s)
	if v.Exists() && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "") {
		v.Fail(code, "an http or https URL without user or fragment", `"`+fault.Clip(s)+`" is not such a URL`, "")
	}
}

func loopback(s string) bool {
	u, err := url.Parse(s)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// find returns the tool with an id.
func (c Config) find(id string) (Tool, bool) {
	i := slices.IndexFunc(c.Tools, func(t Tool) bool { return t.ID == id })
	if i < 0 {
		return Tool{}, false
	}
	return c.Tools[i], true
}

// Bind opens the port.
func (c Config) Bind() (net.Listener, error) {
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fault.Wrap(fault.Conflict, "adapter_listen", fmt.Sprintf("the adapter cannot listen at %s", c.Listen), err).
			WithNext("choose another address, or stop what listens there")
	}
	return l, nil
}
