// Package nss looks up users and groups in this host's user database: the sources in nsswitch.conf, such as
// /etc/passwd, LDAP or SSSD. It runs getent and id, because a static binary reads only /etc/passwd. Each look-up has a
// time limit; nothing is cached here.
//
// Nouns: user, group, record (a line of getent).
package nss

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"slurmgate/fault"
)

// Host is the user database of this host. The zero Host is ready to use.
//
// A user or group that does not exist is a NotFound fault; an unknown answer (the directory service hangs, or prints something else) is a
// Transport fault.
type Host struct {
	Dir   string        // of getent and id; "": /usr/bin
	Limit time.Duration // for one program; 0: 3 s
}

const (
	defaultLimit = 3 * time.Second
	drainTime    = 2 * time.Second // for pipes that children of a killed program hold
	maxOutput    = 4 << 20         // bytes; a group's record lists its members
	maxName      = 256             // bytes
	batch        = 100             // users per process
)

// User is a user of this host.
type User struct {
	Name     string
	UID, GID int
	Home     string // home folder
	Shell    string // login shell; "" is /bin/sh
}

// CheckName returns why a text is not accepted as the name of a user or group, or "" if it is. Directories have names
// such as "EXAMPLE\domain users" and "alice@example.org". A name begins with a letter or an underscore, so that it is
// neither an id nor an option.
func CheckName(name string) string {
	first := func(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80 }
	switch {
	case name == "":
		return "it is empty"
	case len(name) > maxName:
		return fmt.Sprintf("it is longer than %d bytes", maxName)
	case !first(name[0]):
		return "it does not begin with a letter or an underscore"
	case strings.TrimSpace(name) != name:
		return "it ends with a space"
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == ':' || r == ',' || r == '\ufffd' }):
		return "it has a colon, a comma or a control character"
	}
	return ""
}

// Users looks many users up by name. Users who do not exist are absent.
func (h Host) Users(ctx context.Context, names ...string) (map[string]User, error) {
	found := map[string]User{}
	for ; len(names) > 0; names = names[min(batch, len(names)):] {
		some := names[:min(batch, len(names))]
		for _, n := range some {
			if msg := CheckName(n); msg != "" {
				return nil, fault.New(fault.Validation, "user_name", strconv.Quote(n)+" is not a user name: "+msg)
			}
		}
		out, exit, err := h.run(ctx, "getent", append([]string{"passwd", "--"}, some...)...)
		if err != nil {
			return nil, err
		}
		if exit != 0 && exit != notFound {
			return nil, unreachable("getent", fmt.Errorf("exit status %d", exit))
		}
		for line := range strings.Lines(string(out)) {
			u, err := parseUser(line)
			if err != nil {
				return nil, unreachable("getent", err)
			}
			found[u.Name] = u
		}
	}
	return found, nil
}

// User looks a user up by name. Some directories answer with another spelling of the name; the result has that
// spelling.
func (h Host) User(ctx context.Context, name string) (User, error) {
	if msg := CheckName(name); msg != "" {
		return User{}, fault.New(fault.Validation, "user_name", strconv.Quote(name)+" is not a user name: "+msg)
	}
	line, err := h.record(ctx, "passwd", name, "user")
	if err != nil {
		return User{}, err
	}
	u, err := parseUser(line)
	if err != nil {
		return User{}, unreachable("getent", err)
	}
	return u, nil
}

// UserOf looks a user up by user id.
func (h Host) UserOf(ctx context.Context, uid int) (User, error) {
	line, err := h.record(ctx, "passwd", strconv.Itoa(uid), "user id")
	if err != nil {
		return User{}, err
	}
	u, err := parseUser(line)
	if err == nil && u.UID != uid {
		err = fmt.Errorf("asked for user id %d, it answered with %d", uid, u.UID)
	}
	if err != nil {
		return User{}, unreachable("getent", err)
	}
	return u, nil
}

// NameOf returns the login name of a user id.
func (h Host) NameOf(ctx context.Context, uid int) (string, error) {
	u, err := h.UserOf(ctx, uid)
	return u.Name, err
}

// GroupID returns the id of a group.
func (h Host) GroupID(ctx context.Context, name string) (int, error) {
	if msg := CheckName(name); msg != "" {
		return -1, fault.New(fault.Validation, "group_name", strconv.Quote(name)+" is not a group name: "+msg)
	}
	line, err := h.record(ctx, "group", name, "group")
	if err != nil {
		return -1, err
	}
	gid, err := parseGroup(line)
	if err != nil {
		return -1, unreachable("getent", err)
	}
	return gid, nil
}

// GroupsOf returns the ids of a user's groups, including the primary group.
func (h Host) GroupsOf(ctx context.Context, user string) ([]int, error) {
	if msg := CheckName(user); msg != "" {
		return nil, fault.New(fault.NotFound, "no_user", "the name of user "+strconv.Quote(user)+" cannot be looked up: "+msg)
	}
	out, exit, err := h.run(ctx, "id", "-G", "--", user)
	if err != nil {
		return nil, err
	}
	if exit != 0 {
		return nil, unreachable("id", fmt.Errorf("exit status %d", exit))
	}
	ids, err := parseIDs(string(out))
	if err != nil {
		return nil, unreachable("id", err)
	}
	return ids, nil
}

// notFound is getent's exit status if there is no such record (getent(1)).
const notFound = 2

// record returns the one line that getent prints for a key.
func (h Host) record(ctx context.Context, database, key, what string) (string, error) {
	out, exit, err := h.run(ctx, "getent", database, "--", key)
	switch {
	case err != nil:
		return "", err
	case exit == notFound:
		return "", fault.New(fault.NotFound, "no_"+strings.ReplaceAll(what, " ", "_"), "this host has no "+what+" "+key)
	case exit != 0:
		return "", unreachable("getent", fmt.Errorf("exit status %d", exit))
	}
	if bytes.Count(out, []byte("\n")) != 1 {
		return "", unreachable("getent", fmt.Errorf("it did not print one line for %s %s", database, key))
	}
	return string(out), nil
}

// run runs a program and waits for it, at most until the time limit. If the program ended by itself, err is nil and
// exit is its status.
func (h Host) run(ctx context.Context, program string, args ...string) (out []byte, exit int, err error) {
	dir, limit := h.Dir, h.Limit
	if dir == "" {
		dir = "/usr/bin"
	}
	if limit == 0 {
		limit = defaultLimit
	}
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, program), args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = drainTime
	var printed bounded
	cmd.Stdout = &printed
	err = cmd.Run()
	ended, _ := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return nil, 0, unreachable(program, fmt.Errorf("no answer within %s", limit))
	case printed.over:
		return nil, 0, unreachable(program, fmt.Errorf("it printed more than %d bytes", maxOutput))
	case ended != nil && ended.Exited():
		return printed.bytes, ended.ExitCode(), nil
	case err != nil:
		return nil, 0, unreachable(program, err)
	}
	return printed.bytes, 0, nil
}

// bounded stores at most maxOutput bytes; a program that prints more fails.
type bounded struct {
	bytes []byte
	over  bool
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if len(b.bytes)+len(p) > maxOutput {
		b.over = true
		return 0, errors.New("output limit")
	}
	b.bytes = append(b.bytes, p...)
	return len(p), nil
}

func unreachable(program string, err error) error {
	return fault.Wrap(fault.Transport, "directory_unreachable", "users and groups cannot be looked up with "+program, err).
		WithNext("try again in a few seconds; if it persists, ask the administrator of this host whether its directory service answers").
		WithRetry(retrySeconds)
}

const retrySeconds = 5

// parseUser parses a line of passwd(5): name:password:uid:gid:comment:home:shell.
func parseUser(line string) (User, error) {
	f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
	if len(f) != 7 || f[0] == "" {
		return User{}, errors.New("its answer is not a line of passwd(5)")
	}
	uid, err := parseID(f[2])
	if err != nil {
		return User{}, err
	}
	gid, err := parseID(f[3])
	return User{f[0], uid, gid, f[5], f[6]}, err
}

// parseGroup returns the id in a line of group(5): name:password:gid:members.
func parseGroup(line string) (int, error) {
	f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
	if len(f) != 4 || f[0] == "" {
		return -1, errors.New("its answer is not a line of group(5)")
	}
	return parseID(f[2])
}

// parseIDs parses the line that id -G prints.
func parseIDs(out string) (ids []int, err error) {
	line, rest, ended := strings.Cut(out, "\n")
	if !ended || rest != "" {
		return nil, errors.New("it did not print one line")
	}
	for _, f := range strings.Split(line, " ") {
		id, err := parseID(f)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// parseID parses a user or group id. It refuses 4294967295, which is -1 and no valid id.
func parseID(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == 1<<32-1 || strconv.FormatUint(n, 10) != s {
		return -1, fmt.Errorf("%q in its answer is not an id", fault.Clip(s))
	}
	return int(n), nil
}
