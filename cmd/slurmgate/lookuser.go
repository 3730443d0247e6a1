package main

import (
	"context"
	"time"

	"golang.org/x/crypto/ssh"

	"slurmgate/doctor"
	"slurmgate/gate"
	"slurmgate/site"
)

// asUser is how doctor looks as one user of a cluster where jobs belong to their callers.
func asUser(s *site.Site, user string) (doctor.AsUser, error) {
	h, may := quietHosts(), unixUserOf(s)
	h.certified = func(ctx context.Context) (ssh.Signer, time.Time, error) {
		return certificateOf(ctx, s, user, "", "doctor")
	}
	return doctor.AsUser{
		MayRun: func(ctx context.Context) error {
			_, err := may(ctx, s.Name, gate.Principal{Name: "doctor", Method: gate.ByToken, UnixUser: user})
			return err
		},
		Certify: func(ctx context.Context) error {
			_, _, err := h.certified(ctx)
			return err
		},
		Config: doctorOver(h),
	}, nil
}
