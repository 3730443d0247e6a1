package remote

import (
	"context"
	"fmt"
	"net"
	"time"

	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
)

// hopTime bounds connecting to one host, login included.
const hopTime = 20 * time.Second

// dialed is a connection through jump hosts.
type dialed struct {
	*ssh.Client
	closeAll func()    // closes it and the connections to the jump hosts
	until    time.Time // when its certificate ends; zero: never
}

// dial connects to the host, through its jump hosts.
func (c Config) dial(ctx context.Context) (d dialed, err error) {
	if c.Logins != nil {
		select {
		case c.Logins <- struct{}{}:
			defer func() { <-c.Logins }()
		case <-ctx.Done():
			return d, fault.Wrap(fault.Transport, Unreachable, "no connection to "+c.name()+": too many others are being made", ctx.Err())
		}
	}
	var open []*ssh.Client
	end := func() {
		for _, client := range open { // the outermost first: the connections through it end with it, and closing it never blocks
			client.Close()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	for _, hop := range append(c.Jump[:len(c.Jump):len(c.Jump)], c) {
		client, until, err := hop.dialFrom(ctx, d.Client)
		if err != nil {
			return dialed{}, err
		}
		open = append(open, client)
		d.Client = client
		if !until.IsZero() && (d.until.IsZero() || until.Before(d.until)) {
			d.until = until
		}
	}
	d.closeAll = end
	return d, nil
}

// dialFrom connects to one host, from this machine (nil) or from another host.
func (c Config) dialFrom(ctx context.Context, from *ssh.Client) (client *ssh.Client, until time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, hopTime)
	defer cancel()
	unreachable := func(msg string, err error) error {
		return fault.Wrap(fault.Transport, Unreachable, msg, err).
			WithNext("check host, port and jump hosts in the site file, and the firewalls on the way; the gateway tries again by itself")
	}
	var bad error
	algorithms, check, err := c.hostKeys(&bad)
	if err != nil {
		return nil, until, fault.Wrap(fault.Transport, BadHostKey, "the host key of "+c.Address+" cannot be checked", err)
	}
	signers, until, done, err := c.signers(ctx)
	if err != nil {
		return nil, until, err
	}
	defer done()
	var conn net.Conn
	if from == nil {
		conn, err = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext(ctx, "tcp", c.Address)
	} else {
		conn, err = from.DialContext(ctx, "tcp", c.Address)
	}
	if err != nil && from != nil {
		return nil, until, unreachable(fmt.Sprintf("%s cannot be reached from the jump host %s", c.Address, from.RemoteAddr()), err)
	}
	if err != nil {
		return nil, until, unreachable(c.Address+" cannot be reached", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	talk, channels, requests, err := ssh.NewClientConn(conn, c.Address, &ssh.ClientConfig{
		User: c.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(signers...)}, HostKeyCallback: check, HostKeyAlgorithms: algorithms})
	if !stop() && err == nil {
		talk.Close()
		err = ctx.Err()
	}
	switch {
	case err == nil:
		return ssh.NewClient(talk, channels, requests), until, nil
	case bad != nil:
		err = bad
	case ctx.Err() != nil:
		err = unreachable(fmt.Sprintf("%s did not complete the login within %s", c.name(), hopTime), ctx.Err())
	default:
		err = refused(c, err)
	}
	conn.Close()
	return nil, until, err
}
