package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/ledger"
	"slurmgate/nss"
	"slurmgate/site"
	"slurmgate/staging"
	"slurmgate/transport"
)

// lockState creates the state folder if need be and takes the gateway's lock: one process at a time has the ledger open.
func lockState(ctx context.Context, s *site.Site, how start) (*ledger.Lock, error) {
	if err := mayCreate(ctx, s, how); err != nil {
		return nil, err
	}
	dir := s.Gateway.StateDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.Wrap(fault.Validation, "state_dir", "cannot create gateway.state_dir", err).
			WithNext("create it as an admin, owned by this user")
	}
	if err := ownFolder(dir); err != nil {
		return nil, err
	}
	return ledger.TakeLock(filepath.Join(dir, "gateway.lock"))
}

// openLedger opens the ledger of a site, whose lock the caller has. A new ledger in the place of a lost one continues
// the gateway that a runs_dir belongs to, so that the claims in it still count.
func openLedger(ctx context.Context, s *site.Site, how start) (*ledger.Ledger, error) {
	_, missing := os.Stat(ledgerFile(s))
	id := "gw-" + uuid.NewString()
	if how == anew {
		id = cmp.Or(transport.Mark(ctx, s), id)
	}
	l, err := ledger.Open(ctx, ledgerFile(s), ledger.Options{Filesystem: staging.Filesystem,
		NewID: func() string { return id }})
	if err != nil || missing == nil || how != anew {
		return l, err
	}
	if err := l.Restored(ctx, nil, "none: a new ledger"); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// ownFolder refuses a state folder that other users can write to, because they could replace the ledger, and one of
// another user: not even root becomes the gateway of another user's ledger, because its files, and its jobs, would then
// be root's.
func ownFolder(dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return nil // other problems are reported when it is used
	}
	if int(st.Uid) == os.Geteuid() {
		if st.Mode&0o022 == 0 {
			return nil
		}
		return fault.New(fault.Validation, "state_dir",
			fmt.Sprintf("gateway.state_dir %s has mode %04o: other users can write to it", dir, st.Mode&0o7777)).
			WithNext("chmod 700 " + dir)
	}
	owner := fmt.Sprint("uid ", st.Uid)
	if name, err := (nss.Host{}).NameOf(context.Background(), int(st.Uid)); err == nil {
		owner = name
	}
	return fault.New(fault.Auth, "not_this_user",
		fmt.Sprintf("no gateway that you may use is running, and only %[2]s, the owner of gateway.state_dir %[1]s, can start one", dir, owner)).
		WithNext("start the gateway (systemctl start slurmgate), or run slurmgate as " + owner)
}
