package rest

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"slurmgate/fault"
)

// CheckFiles returns what is wrong with slurm.rest on this host: a token of another user, files that cannot be read,
// and commands that cannot be executed. self is the user of this process. It executes nothing and does not contact
// slurmrestd. A missing token or socket is no problem, because it may be created later.
func CheckFiles(c Config, self string) (found []fault.Problem) {
	problem := func(code, field, rule, msg, hint string) {
		found = append(found, fault.Problem{Code: code, Field: "slurm.rest." + field, Rule: rule, Msg: msg, Hint: hint})
	}
	hasToken := c.TokenFile != "" || len(c.TokenCommand) > 0
	switch {
	case c.User == "root":
		problem("SITE-USER", "user", "a user other than root", "the gateway runs as root, and slurm.rest.user names no other user",
			"run the gateway as a separate user, or name the user whose jobs they are")
	case !hasToken && c.User != self:
		problem("SITE-USER", "user", "the gateway's own user, where no token is used",
			fmt.Sprintf("it is %s, but without a token slurmrestd takes the gateway for %s, as which it runs", c.User, self),
			"remove it, or give token_file or token_command")
	}
	if c.TokenFile != "" {
		if msg, hint := badTokenFile(c.TokenFile, c.User); msg != "" {
			problem("SITE-TOKEN", "token_file", "a token of the user of slurm.rest.user, which other users cannot read", msg, hint)
		}
	}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err == nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
			err = errors.New("there is no certificate in it")
		}
		if err != nil {
			problem("SITE-CA", "ca", "a PEM file with certificates, which the gateway's user can read", c.CA+": "+reason(err),
				"write the certificate of the authority there that signed the one of slurmrestd's server")
		}
	}
	for field, argv := range map[string][]string{"command": c.Command, "token_command": c.TokenCommand} {
		if len(argv) == 0 {
			continue
		}
		if st, err := os.Stat(argv[0]); err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
			why := "it cannot be executed"
			if err != nil {
				why = reason(err)
			}
			problem("SITE-COMMAND", field, "a program of this host", argv[0]+": "+why, "install it, or correct its path")
		}
	}
	if path, is := strings.CutPrefix(c.URL, "unix:"); is {
		if st, err := os.Stat(path); err == nil && st.Mode().Type() != fs.ModeSocket {
			problem("SITE-URL", "url", "the socket of slurmrestd", path+" is not a socket", "correct the path: see the unit of slurmrestd")
		}
	}
	return found
}

// badTokenFile returns what is permanently wrong with a token file, and the remedy. An expired or missing token is
// accepted, because it may be replaced.
func badTokenFile(path, user string) (msg, hint string) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", ""
	}
	data, failed := readUpTo(path, maxToken)
	if err = errors.Join(err, failed); err != nil {
		return path + ": " + reason(failed), "chown it to the gateway's user and chmod it 600"
	}
	if mode := st.Mode().Perm(); mode&0o027 != 0 {
		return fmt.Sprintf("%s has mode %04o: other users can read or change it", path, mode), "chmod 600 " + path + ", and renew the token"
	}
	whose, _, err := claims(strings.TrimPrefix(strings.TrimSpace(string(data)), "SLURM_JWT="))
	if err == nil && whose != user {
		return fmt.Sprintf("%s is a token of %s, and slurm.rest.user is %s", path, fault.Clip(whose), user),
			"make one of that user: scontrol token username=" + user + " lifespan=SECONDS"
	}
	return "", "" // a text that is not a token yet may be replaced by one
}

// reason returns the text of a file error without the file's name, which the message already has.
func reason(err error) string {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err.Error()
	}
	return err.Error()
}
