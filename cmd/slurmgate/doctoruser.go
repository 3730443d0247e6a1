package main

import (
	"context"

	"slurmgate/doctor"
	"slurmgate/gate"
	"slurmgate/site"
	"slurmgate/transport"
)

// asUser returns doctor's means to check a cluster where jobs belong to their callers as one user.
func asUser(s *site.Site, user string) (doctor.AsUser, error) {
	h, may := transport.HostsOf(s, user), unixUserOf(s)
	return doctor.AsUser{
		MayRun: func(ctx context.Context) error {
			_, err := may(ctx, s.Name, gate.Principal{Name: "doctor", Method: gate.ByToken, UnixUser: user})
			return err
		},
		Certify: h.Certify,
		Config:  doctorOver(h),
	}, nil
}
