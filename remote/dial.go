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

// dial connects to the host, through its jump hosts. closeAll closes it and all the others.
func (c Config) dial(ctx context.Context) (last *ssh.Client, closeAll func(), err error) {
	var open []*ssh.Client
	end := func() {
		for _, client := range open { // the outermost first: what goes through it ends with it, and closing it never blocks
			client.Close()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	for _, hop := range append(c.Jump[:len(c.Jump):len(c.Jump)], c) {
		client, err := hop.dialFrom(ctx, last)
		if err != nil {
			return nil, nil, err
		}
		open = append(open, client)
		last = client
	}
	return last, end, nil
}

// dialFrom connects to one host: from here, or from another one.
func (c Config) dialFrom(ctx context.Context, from *ssh.Client) (*ssh.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, hopTime)
	defer cancel()
	unreachable := func(msg string, err error) error {
		return fault.Wrap(fault.Transport, Unreachable, msg, err).
			WithNext("check host, port and jump hosts in the site file, and the firewalls on the way; the gateway tries again by itself")
	}
	var bad error
	algorithms, check, err := c.hostKeys(&bad)
	if err != nil {
		return nil, fault.Wrap(fault.Transport, BadHostKey, "the host key of "+c.Address+" cannot be checked", err)
	}
	signers, done, err := c.signers()
	if err != nil {
		return nil, fault.Wrap(fault.Transport, BadLogin, "there is nothing to log in with as "+c.name(), err)
	}
	defer done()
	var conn net.Conn
	if from == nil {
		conn, err = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext(ctx, "tcp", c.Address)
	} else {
		conn, err = from.DialContext(ctx, "tcp", c.Address)
	}
	if err != nil && from != nil {
		return nil, unreachable(fmt.Sprintf("%s cannot be reached from the jump host %s", c.Address, from.RemoteAddr()), err)
	}
	if err != nil {
		return nil, unreachable(c.Address+" cannot be reached", err)
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
		return ssh.NewClient(talk, channels, requests), nil
	case bad != nil:
		err = bad
	case ctx.Err() != nil:
		err = unreachable(fmt.Sprintf("%s did not complete the login within %s", c.name(), hopTime), ctx.Err())
	default:
		err = refused(c, err)
	}
	conn.Close()
	return nil, err
}
