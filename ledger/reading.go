package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"slurmgate/fault"
)

// OpenToRead opens an existing ledger for reading, with or without a running gateway. It needs no lock and changes
// nothing; every change is refused with code ledger_read_only. SQLite may have to make the log's files next to the
// ledger; for root it gives them to the ledger's owner.
func OpenToRead(ctx context.Context, path string) (*Ledger, error) {
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil, fault.New(fault.NotFound, "no_ledger", "there is no ledger at "+path)
	}
	if f, err := os.Open(path); errors.Is(err, fs.ErrPermission) {
		return nil, fault.New(fault.Auth, "not_this_user", "only its owner and root can read the ledger "+path).
			WithNext("run the command as the gateway's user or as root")
	} else if err == nil {
		f.Close()
	}
	r, err := open(path, "ro", readers)
	if err != nil {
		return nil, storage(err)
	}
	l := &Ledger{path: path, now: time.Now, w: r, r: r}
	l.stopped.Store(new(error(fault.New(fault.Conflict, "ledger_read_only",
		"no gateway is running, and the ledger is open for reading only").
		WithNext("start the gateway: systemctl start slurmgate"))))
	if err := l.known(ctx); err != nil {
		l.Close()
		return nil, fault.Wrap(kindOf(err), codeOf(err), "cannot open the ledger "+path, err)
	}
	return l, nil
}

// known reads what Open reads, of a ledger with this program's own schema.
func (l *Ledger) known(ctx context.Context) error {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	if err := l.r.QueryRowContext(ctx, "PRAGMA user_version").Scan(&l.schema); err != nil {
		return err
	}
	if l.schema != len(names) {
		return fault.New(fault.Conflict, "ledger_schema", fmt.Sprintf("the ledger has schema %d; this slurmgate reads %d",
			l.schema, len(names))).WithNext("use the version of slurmgate that wrote it, or start this one's gateway, which upgrades an older " +
			"ledger")
	}
	if err := l.r.QueryRowContext(ctx, "SELECT id FROM gateway").Scan(&l.id); err != nil {
		return err
	}
	return l.recallBase(ctx)
}
