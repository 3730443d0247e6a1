package signer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
)

// Client sends requests to the signer at a unix socket. It keeps no connection: each request opens one.
type Client struct {
	Socket string        // absolute path
	Limit  time.Duration // for one request; 0: 20 s, because a CA in hardware is slow
}

const clientLimit = 20 * time.Second

// Sign requests a certificate. The certificate is for the key, the user and no more source addresses than the request
// has, and not yet expired; it has no extensions. Its ValidBefore may be sooner than requested.
//
// Errors have the codes of this package. After any of them the same request may be made again.
func (c Client) Sign(ctx context.Context, r Request) (*ssh.Certificate, error) {
	r.About = false
	request, err := line(r)
	if err != nil {
		return nil, misfit("the request for a certificate has a text that is not UTF-8")
	}
	want, err := parseRequest(request)
	if err != nil {
		return nil, err
	}
	a, err := c.ask(ctx, request)
	if err != nil {
		return nil, err
	}
	key, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(a.Certificate))
	cert, ok := key.(*ssh.Certificate)
	if err != nil || !ok || len(rest) > 0 {
		return nil, c.strange("no certificate")
	}
	if msg := unlike(cert, want, time.Now()); msg != "" {
		return nil, c.strange("a certificate " + msg)
	}
	return cert, nil
}

// About returns the signer's configuration. It also shows that the signer answers this user.
func (c Client) About(ctx context.Context) (About, error) {
	a, err := c.ask(ctx, []byte(`{"about":true}`+"\n"))
	switch {
	case err != nil:
		return About{}, err
	case a.About == nil:
		return About{}, c.strange("nothing about itself")
	}
	return *a.About, nil
}

// unlike returns how a certificate differs from the request, "" if it does not. It protects the gateway from a signer
// that mixes requests up, not from a malicious one: a signer can log in as any user.
func unlike(cert *ssh.Certificate, want wanted, now time.Time) string {
	switch {
	case cert.CertType != ssh.UserCert || !bytes.Equal(cert.Key.Marshal(), want.key.Marshal()):
		return "for another key"
	case !slices.Equal(cert.ValidPrincipals, []string{want.User}):
		return "for another user"
	case len(cert.Extensions) > 0 || len(cert.CriticalOptions) != 1 || cert.CriticalOptions[sourceAddress] != want.addresses():
		return "with other options"
	case cert.ValidBefore > uint64(now.Add(want.valid+clockSkew).Unix()) || cert.ValidBefore <= uint64(max(0, now.Unix())):
		return "for another time; compare the clocks of the two processes"
	}
	return ""
}

func (c Client) ask(ctx context.Context, request []byte) (answer, error) {
	ctx, stop := context.WithTimeout(ctx, cmp.Or(c.Limit, clientLimit))
	defer stop()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
	if err != nil {
		return answer{}, c.silent(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	// A signer that does not know this user answers without reading, and then the request cannot be sent: its answer counts.
	_, sent := conn.Write(request)
	data, err := readLine(conn)
	if err != nil {
		return answer{}, c.silent(cmp.Or(ctx.Err(), sent, err))
	}
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		return answer{}, c.strange("no JSON object")
	}
	if a.Error != nil {
		return answer{}, a.Error.fault()
	}
	return a, nil
}

func (c Client) silent(err error) error {
	return away("the signer at "+c.Socket+" does not answer", err).
		WithNext("start it (systemctl start slurmgate-signer); its journal says why it stopped").WithRetry(awaySeconds)
}

func (c Client) strange(what string) error {
	return misfit("the signer at " + c.Socket + " answered with " + what)
}

const (
	awaySeconds = 5
	maxSaid     = 600 // bytes of a message of the signer's
)

// fault returns the error in a signer's answer.
func (f failure) fault() error {
	kind, code := fault.Transport, f.Code
	switch code {
	case Refused:
		kind = fault.Policy
	case Away, Busy, Misfit:
	default:
		code = Misfit
	}
	return fault.New(kind, code, fault.ClipEnd(f.Message, maxSaid)).WithNext(fault.ClipEnd(f.Next, maxSaid)).WithRetry(max(0, f.Retry))
}

// readLine reads one line of at most maxLine bytes, with its end.
func readLine(r io.Reader) ([]byte, error) {
	data, err := bufio.NewReader(io.LimitReader(r, maxLine)).ReadBytes('\n')
	switch {
	case err == nil:
		return data, nil
	case errors.Is(err, io.EOF) && len(data) >= maxLine:
		return nil, fmt.Errorf("more than %d bytes without a line end", maxLine)
	case errors.Is(err, io.EOF):
		return nil, io.ErrUnexpectedEOF
	}
	return nil, err
}
