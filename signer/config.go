package signer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"strings"

	"slurmgate/fault"
	"slurmgate/nss"
	"slurmgate/policy/yamldoc"
)

// Config is the signer's configuration, one strict YAML file.
type Config struct {
	CA              CA       // the key that signs
	Socket          string   // absolute, at most 107 bytes; default /run/slurmgate-signer/signer.sock
	SocketGroup     string   // the only group that can reach the socket; default: every user can, and only GatewayUsers get an answer
	GatewayUsers    []string // login names of those who may ask, by SO_PEERCRED
	Minutes         int      // the most that a certificate is valid, 1..60; default 5
	MinUID, MaxUID  int      // user ids for which certificates are signed, 1..4294967294; default 1000..59999
	Users, Groups   []string // only these users, and members of these groups; both empty: all within the bounds
	RefuseUsers     []string // users for whom none is signed
	RefuseGroups    []string // groups for whose members none is signed; default: those that may commonly become root
	RefuseShells    []string // login shells without a login, by name or path; default nologin, false
	PerMinute       int      // requests of all users, 1..100000; default 120
	PerUserMinute   int      // requests of one user, 1..PerMinute; default 12
	SourceAddresses []string // addresses and networks that a certificate may be used from, as sshd sees the gateway
	Log             string   // absolute: a line of JSON for each certificate; default /var/log/slurmgate-signer/certificates.log

	nets []netip.Prefix // of SourceAddresses
}

// CA is the key of the certificate authority: in a file, or in an SSH agent.
type CA struct {
	Key       string // absolute: the private key
	Agent     string // absolute: the agent's socket
	PublicKey string // absolute: file of the public key that the agent is to sign with
}

// RefuseGroups are refused unless the configuration has another list.
var RefuseGroups = []string{"sudo", "wheel", "admin", "root", "adm", "docker", "lxd", "libvirt", "disk", "shadow"}

const (
	defaultSocket  = "/run/slurmgate-signer/signer.sock"
	defaultLog     = "/var/log/slurmgate-signer/certificates.log"
	maxSocketPath  = 107 // bytes, unix(7)
	maxID          = 1<<32 - 2
	maxConfigBytes = 1 << 20
)

// Load reads the file and checks everything that can be known from it alone; all mistakes come in one Validation fault.
func Load(file string) (Config, error) {
	f, err := os.Open(file)
	if err != nil {
		kind := fault.Validation
		if errors.Is(err, os.ErrNotExist) {
			kind = fault.NotFound
		}
		return Config{}, fault.Wrap(kind, "signer_config", "the signer's configuration cannot be read", err).
			WithNext("write it; docs/run/callers.md has an example")
	}
	defer f.Close()
	if err := unalterable(file); err != nil {
		return Config{}, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err != nil {
		return Config{}, fault.Wrap(fault.Validation, "signer_config", "the signer's configuration cannot be read", err)
	}
	return Parse(file, data)
}

// Parse is [Load] for the text of a file.
func Parse(file string, data []byte) (Config, error) {
	r := &yamldoc.Reader{File: file, Prefix: "SIGNER"}
	o := r.Parse(data).Object("ca", "socket", "socket_group", "gateway_users", "minutes", "min_uid", "max_uid", "users", "groups",
		"refuse_users", "refuse_groups", "refuse_shells", "per_minute", "per_user_minute", "source_addresses", "log")
	c := Config{
		CA:            readCA(o.Need("ca")),
		Socket:        filePath(o.Opt("socket"), defaultSocket),
		SocketGroup:   group(o.Opt("socket_group")),
		GatewayUsers:  names(o.Need("gateway_users"), nil),
		Minutes:       number(o.Opt("minutes"), maxMinutes, 5),
		MinUID:        number(o.Opt("min_uid"), maxID, 1000),
		MaxUID:        number(o.Opt("max_uid"), maxID, 59999),
		Users:         names(o.Opt("users"), nil),
		Groups:        names(o.Opt("groups"), nil),
		RefuseUsers:   names(o.Opt("refuse_users"), nil),
		RefuseGroups:  names(o.Opt("refuse_groups"), RefuseGroups),
		RefuseShells:  shells(o.Opt("refuse_shells")),
		PerMinute:     number(o.Opt("per_minute"), 100_000, 120),
		PerUserMinute: number(o.Opt("per_user_minute"), 100_000, 12),
		Log:           filePath(o.Opt("log"), defaultLog),
	}
	if v := o.Opt("gateway_users"); isEmpty(v) {
		v.Fail("NAME", "at least one", "the list is empty", "name the user that the gateway runs as")
	}
	c.SourceAddresses, c.nets = networks(o.Need("source_addresses"))
	if len(c.Socket) > maxSocketPath {
		o.Opt("socket").Fail("PATH", fmt.Sprintf("at most %d bytes", maxSocketPath), "the path is too long", "")
	}
	if c.MinUID > c.MaxUID {
		o.Opt("min_uid").Fail("RANGE", "at most max_uid", fmt.Sprintf("%d is above max_uid, %d", c.MinUID, c.MaxUID), "")
	}
	if c.PerUserMinute > c.PerMinute && o.Opt("per_user_minute").Exists() {
		o.Opt("per_user_minute").Fail("RANGE", "at most per_minute", fmt.Sprintf("%d is above per_minute, %d", c.PerUserMinute, c.PerMinute), "")
	}
	c.PerUserMinute = min(c.PerUserMinute, c.PerMinute)
	if p := r.Problems(); len(p) > 0 {
		return Config{}, fault.Invalid("the signer's configuration has mistakes", p...)
	}
	return c, nil
}

func readCA(v yamldoc.Value) CA {
	o := v.Object("key", "agent", "public_key")
	key, agent, public := o.Opt("key"), o.Opt("agent"), o.Opt("public_key")
	switch {
	case !v.Exists():
	case key.Exists() == agent.Exists():
		v.Fail("CA", "either key or agent", map[bool]string{true: "both are set", false: "neither is set"}[key.Exists()],
			"name the file of the private key, or the socket of an SSH agent that holds it")
	case agent.Exists() && !public.Exists():
		v.Fail("REQUIRED", "required with agent", "public_key is missing", "name the file of the public key that the agent is to sign with")
	case key.Exists() && public.Exists():
		public.Fail("CA", "only with agent", "the key in the file has its public half", "remove it")
	}
	return CA{filePath(key, ""), filePath(agent, ""), filePath(public, "")}
}

// filePath reads the path of one file.
func filePath(v yamldoc.Value, otherwise string) string {
	if !v.Exists() {
		return otherwise
	}
	text := v.Text()
	if text != "" && (!path.IsAbs(text) || path.Clean(text) != text || strings.ContainsAny(text, "\n\x00")) || text == "" && v.IsText() {
		v.Fail("PATH", "an absolute path without . and ..", fmt.Sprintf("%q is not such a path", fault.Clip(text)), "")
	}
	return text
}

func number(v yamldoc.Value, most int64, otherwise int) int {
	if !v.Exists() {
		return otherwise
	}
	return int(v.Int(1, most))
}

const nameRule = "a name of a user or group: it begins with a letter or an underscore and has no colon, comma or control character"

func names(v yamldoc.Value, otherwise []string) []string {
	if !v.Exists() {
		return otherwise
	}
	return v.Words("NAME", nameRule, func(s string) bool { return nss.CheckName(s) == "" })
}

func group(v yamldoc.Value) string {
	name := v.Text()
	if msg := nss.CheckName(name); v.Exists() && msg != "" {
		v.Fail("NAME", nameRule, fmt.Sprintf("%q is no group name", fault.Clip(name)), "")
	}
	return name
}

func shells(v yamldoc.Value) []string {
	if !v.Exists() {
		return []string{"nologin", "false"}
	}
	return v.Words("SHELL", "the name or the absolute path of a program", func(s string) bool {
		return s != "" && (path.IsAbs(s) || !strings.Contains(s, "/"))
	})
}

// isEmpty reports whether a value is a list of nothing.
func isEmpty(v yamldoc.Value) bool {
	list := v.List()
	return list != nil && len(list) == 0
}

// networks reads source_addresses, of which there must be one.
func networks(v yamldoc.Value) (texts []string, nets []netip.Prefix) {
	texts = v.Words("ADDRESS", "an address, or a network such as 192.0.2.0/24", func(s string) bool {
		n, err := parseNetwork(s)
		if err == nil {
			nets = append(nets, n)
		}
		return err == nil
	})
	if isEmpty(v) {
		v.Fail("ADDRESS", "at least one", "the list is empty", "name the addresses that sshd sees the gateway come from")
	}
	return texts, nets
}

// IsRoot is the code of the error of a signer that runs as root.
const IsRoot = "signer_root"

// Callers checks that this process may be a signer, and returns the user ids that may send requests.
func (c Config) Callers(ctx context.Context, users Directory) ([]int, error) {
	if os.Geteuid() == 0 {
		return nil, fault.New(fault.Validation, IsRoot, "the signer does not run as root").
			WithNext("run it as a separate user, such as slurmgate-signer")
	}
	return uids(ctx, users, c.GatewayUsers)
}
