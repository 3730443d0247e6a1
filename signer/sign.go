package signer

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
)

// handle answers one request. Every certificate is in the log before it is sent.
func (s *Server) handle(ctx context.Context, data []byte, asker int) (answer, error) {
	want, err := parseRequest(data)
	if err != nil {
		return answer{}, err
	}
	if want.About {
		return answer{About: &About{PublicKey: s.ca.line(), Minutes: s.config.Minutes, SourceAddresses: s.config.SourceAddresses}}, nil
	}
	if err := s.fromHere(want); err != nil {
		return answer{}, err
	}
	if err := s.rates.take(want.User, s.now()); err != nil {
		s.busy.Do(func() { s.log.Warn("a rate is used up", "user", want.User, "run", want.RunID, "err", err) })
		return answer{}, err
	}
	cert, err := s.sign(ctx, want, asker)
	if err != nil {
		return answer{}, err
	}
	return answer{Certificate: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(cert))),
		NotAfter: utc(time.Unix(int64(cert.ValidBefore), 0))}, nil
}

// fromHere refuses addresses that the configuration does not have.
func (s *Server) fromHere(want wanted) error {
	for i, n := range want.nets {
		if !within(n, s.config.nets) {
			return fault.New(fault.Transport, Misfit, fmt.Sprintf("the signer does not sign for the source address %s",
				fault.Clip(want.SourceAddresses[i]))).WithNext("add it to source_addresses of the signer's configuration, or remove it from " +
				"slurm.caller.source_addresses in the site file")
		}
	}
	return nil
}

func (s *Server) sign(ctx context.Context, want wanted, asker int) (*ssh.Certificate, error) {
	now := s.now()
	want.valid = min(want.valid, time.Duration(s.config.Minutes)*time.Minute)
	e := entryOf(want, asker, now)
	u, err := s.guard.admit(ctx, want.User)
	if fault.Is(err, fault.Policy) {
		e.Event, e.Reason = refusedEvent, fault.Prose(err)
		s.log.Warn("no certificate", "user", want.User, "run", want.RunID, "caller", want.Caller, "reason", e.Reason)
		if failed := s.journal.write(e); failed != nil {
			s.log.Error("the log cannot be written", "err", failed)
		}
	}
	if err != nil {
		return nil, err
	}
	cert, err := want.certificate(now)
	if err != nil {
		return nil, err
	}
	if err := s.ca.sign(ctx, cert); err != nil {
		s.log.Error("the CA's key cannot be used", "err", err)
		return nil, away("the signer cannot use the CA's key", err)
	}
	if err := s.journal.write(e.signed(cert, u.UID)); err != nil {
		s.log.Error("the log cannot be written", "err", err)
		return nil, err
	}
	s.log.Info("certificate", "user", want.User, "run", want.RunID, "caller", want.Caller, "serial", cert.Serial,
		"minutes", want.valid.Minutes())
	return cert, nil
}
