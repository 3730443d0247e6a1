package sftp

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"

	"slurmgate/fault"
	"slurmgate/remote"
	"slurmgate/staging"
)

// The scripts are constant. Their parameters are arguments, or come on standard input.
var (
	//go:embed common.sh
	common string
	//go:embed inputs.sh
	inputScript string
	//go:embed control.sh
	controlScript string
	//go:embed outputs.sh
	outputScript string
	//go:embed removal.sh
	removalScript string
)

// inBash is the script for the far /bin/sh: it starts bash with the script of an operation as the first argument.
const inBash = `exec /bin/bash -c "$@"`

const (
	maxArgs   = 64 << 10 // bytes of arguments; longer lists go to standard input
	maxAnswer = 16 << 20
)

// shelled is the far side with a shell.
type shelled struct {
	cfg   Config
	asked examinations
}

func newShelled(cfg Config) *shelled {
	return &shelled{cfg: cfg, asked: examinations{running: map[string]*examining{}, waiting: map[string]*examining{}}}
}

// call is one operation of a script.
type call struct {
	script string
	name   string
	args   []string
	stdin  io.Reader
	limit  int64
	writes bool // it must not start after its caller has given up
}

// Exit codes of the scripts; common.sh has them too.
const (
	exitAway          = 70
	exitNoAttempt     = 71
	exitNoControl     = 72
	exitForeign       = 73
	exitAhead         = 74
	exitFailed        = 75
	exitUnusable      = 76
	exitNoOutput      = 80
	exitOutputSymlink = 81
	exitUnreadable    = 82
)

// refusal is a script's reason for ending early.
type refusal struct {
	exit int
	text string
}

func (r *refusal) Error() string { return r.text }

// run executes one operation. An error is a fault or a refusal. An answer is always whole.
func (s *shelled) run(ctx context.Context, c call) ([]byte, error) {
	args := append([]string{common + c.script + "\nstart \"$@\"\n", "slurmgate", s.cfg.LoginRunsDir, s.cfg.GatewayID,
		strings.ToLower(rand.Text()), c.name}, c.args...)
	length := 0
	for _, a := range c.args {
		length += len(a) + 8
	}
	if length > maxArgs {
		args = append(args[:len(args)-len(c.args)], "list")
		c.stdin = strings.NewReader(strings.Join(c.args, "\x00") + "\x00")
	}
	out, err := s.cfg.Shell.Run(ctx, remote.Call{Script: inBash, Args: args, Stdin: c.stdin, Limit: max(c.limit, 4<<10), Once: c.writes})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	case out.Exit != 0:
		return nil, &refusal{out.Exit, strings.TrimSpace(out.Stderr)}
	}
	return out.Stdout, nil
}

// fault converts an error of run to a fault about an attempt.
func (s *shelled) fault(msg, runID string, n int, name string, err error) error {
	r, is := err.(*refusal)
	if !is {
		return staging.Failed(msg, err)
	}
	why := fmt.Errorf("the login node says: %s", fault.Clip(r.text))
	switch r.exit {
	case exitAway:
		if r.text == "unmarked" {
			return staging.Unmarked(s.cfg.LoginRunsDir, s.cfg.GatewayID)
		}
		return fault.Wrap(fault.Transport, "runs_dir_unavailable",
			"runs_dir "+s.cfg.LoginRunsDir+" is missing on the login node, or no longer the same folder", why).
			WithNext("check that the shared filesystem is mounted there")
	case exitNoAttempt:
		return staging.AttemptMissing(runID, n, why)
	case exitNoControl:
		return staging.ControlMissing(runID, n, name, why)
	case exitForeign:
		return staging.ForeignEntry(msg, why)
	case exitAhead:
		return fault.Wrap(fault.Conflict, "workspace_ahead_of_ledger", fault.Clip(r.text), nil).
			WithNext("find out which ledger opened this attempt: was a backup restored, or does a second gateway run? Nothing is sent until then")
	case exitUnusable:
		return fault.New(fault.Validation, "runs_dir", "runs_dir "+s.cfg.LoginRunsDir+" on the login node "+fault.Clip(r.text)).
			WithNext("make it a folder of the user that the gateway logs in as, mode 0700")
	case exitFailed:
		for _, full := range []string{"No space left on device", "Disk quota exceeded", "File too large"} {
			if strings.Contains(r.text, full) {
				return staging.DiskFull(msg, errors.New("the login node says: "+full)) // dd names a long path before it, where a text is cut
			}
		}
		return fault.Wrap(fault.Transport, "filesystem", msg, why)
	}
	return fault.Wrap(fault.Transport, "far_shell",
		fmt.Sprintf("%s: the script on the login node ended with status %d", msg, r.exit), why).
		WithNext("check that the login node has bash 4.4 or newer and coreutils in /usr/bin")
}

// mark marks runs_dir.
func (s *shelled) mark(ctx context.Context) ([]byte, error) {
	marked, content := "0", []byte(s.cfg.GatewayID+"\n")
	if s.cfg.Marked {
		marked = "1"
	}
	out, err := s.run(ctx, call{name: "mark", args: append([]string{marked}, sized(content)...), stdin: bytes.NewReader(content),
		limit: 8 << 10, writes: true})
	return out, s.fault("runs_dir cannot be marked", "", 0, "", err)
}
