package rest

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"slurmgate/fault"
)

// TokenFault is the code of a token that cannot be read or must not be used.
const TokenFault = "rest_token"

const (
	maxToken      = 16 << 10         // bytes
	tokenTime     = 30 * time.Second // time limit of the token command
	leastLifetime = 30 * time.Second // a token that ends sooner is replaced
)

// tokens holds the token for the calls: none, one from a file, or the output of a command. A new token is read before
// the old one ends.
type tokens struct {
	file    string
	command []string
	user    string
	now     func() time.Time

	mu    sync.Mutex
	token string
	ends  time.Time // zero: never
	renew time.Time // when a new one is read; zero: never
	stamp string    // the state of its file when it was read
}

func newTokens(c Config) *tokens {
	return &tokens{file: c.TokenFile, command: c.TokenCommand, user: c.User, now: time.Now}
}

// get returns the token to send, or "" if none is needed. An error is a Transport fault: nothing is sent without a
// token.
func (t *tokens) get(ctx context.Context) (string, error) {
	if t.file == "" && len(t.command) == 0 {
		return "", nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.token == "" || !t.renew.IsZero() && !t.now().Before(t.renew)
	if due || t.file != "" && t.stamp != stampOf(t.file) {
		if err := t.read(ctx); err != nil && (t.token == "" || t.ended()) {
			return "", err
		}
	}
	if t.ended() {
		return "", t.fault(fmt.Errorf("it ended at %s", t.ends.UTC().Format(time.RFC3339)))
	}
	return t.token, nil
}

func (t *tokens) ended() bool { return !t.ends.IsZero() && !t.now().Before(t.ends) }

// replace reads a new token after slurmrestd refused bad, and reports whether there is another one.
func (t *tokens) replace(ctx context.Context, bad string) bool {
	if t.file == "" && len(t.command) == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != bad {
		return true
	}
	return t.read(ctx) == nil && t.token != bad
}

// read reads the current token and stores it if the gateway may use it.
func (t *tokens) read(ctx context.Context) error {
	text, stamp, err := t.source(ctx)
	if err != nil {
		return t.fault(err)
	}
	token := strings.TrimPrefix(strings.TrimSpace(text), "SLURM_JWT=")
	user, ends, err := claims(token)
	switch {
	case err != nil:
		return t.fault(err)
	case user != t.user:
		return t.fault(fmt.Errorf("it is one of the user %s, and slurm.rest.user is %s", fault.Clip(user), t.user))
	case !ends.IsZero() && !t.now().Before(ends):
		return t.fault(fmt.Errorf("it ended at %s", ends.UTC().Format(time.RFC3339)))
	}
	t.token, t.ends, t.stamp, t.renew = token, ends, stamp, time.Time{}
	if !ends.IsZero() {
		t.renew = ends.Add(-max(leastLifetime, ends.Sub(t.now())/4))
	}
	return nil
}

func (t *tokens) source(ctx context.Context) (text, stamp string, err error) {
	if t.file != "" {
		stamp = stampOf(t.file)
		data, err := readUpTo(t.file, maxToken)
		return string(data), stamp, err
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTime)
	defer cancel()
	var out, said tail
	cmd := exec.CommandContext(ctx, t.command[0], t.command[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = environ(), "/", time.Second
	cmd.Stdout, cmd.Stderr = &out, &said
	out.limit = maxToken
	if err := cmd.Run(); err != nil {
		return "", "", errors.Join(err, errors.New(shown(said.String())))
	}
	return out.String(), "", nil
}

// fault wraps err with the source of the token. The token itself is in no message.
func (t *tokens) fault(err error) error {
	from := "slurm.rest.token_file (" + t.file + ")"
	if t.file == "" {
		from = "slurm.rest.token_command"
	}
	return fault.Wrap(fault.Transport, TokenFault, "the token of "+from+" cannot be used", err).WithNext(
		"make a new one for the user " + t.user + ": scontrol token username=" + t.user + " lifespan=SECONDS")
}

// claims returns the user of a JWT, and when it ends (zero: never). It does not check the signature.
func claims(token string) (user string, ends time.Time, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", ends, errors.New("it is no JSON Web Token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return "", ends, errors.New("it is no JSON Web Token")
	}
	var c struct {
		Sun      string   `json:"sun"`
		Username string   `json:"username"`
		Exp      *float64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &c); err != nil {
		return "", ends, errors.New("its claims cannot be read")
	}
	switch {
	case c.Sun == "" && c.Username == "":
		return "", ends, errors.New("it names no user (claims sun, username)")
	case c.Sun != "" && c.Username != "" && c.Sun != c.Username:
		return "", ends, errors.New("its claims sun and username name two users")
	case c.Exp != nil && (*c.Exp <= 0 || *c.Exp > 1<<40):
		return "", ends, errors.New("its end cannot be read (claim exp)")
	case c.Exp != nil:
		ends = time.Unix(int64(*c.Exp), 0)
	}
	return c.Sun + strings.TrimPrefix(c.Username, c.Sun), ends, nil
}

// stampOf returns a text that changes when the file does.
func stampOf(path string) string {
	st, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		sys = new(syscall.Stat_t)
	}
	return fmt.Sprint(st.ModTime().UnixNano(), st.Size(), sys.Ino)
}

// readUpTo reads a file of at most limit bytes, without surrounding space. A larger file is an error.
func readUpTo(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it is larger than %d bytes", limit)
	}
	return bytes.TrimSpace(data), err
}
