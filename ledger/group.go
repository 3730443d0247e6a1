package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"slurmgate/fault"
)

// A commit waits for the disk and costs the same for one change as for fifty. So changes that arrive while one group
// is being committed share the next transaction. A refused change does not affect the others: all are undone and
// carried out again, each in its own savepoint. That is rare, and a savepoint copies every page changed in it. No
// change waits for a group to fill. The first caller of a group carries it out; there is no goroutine for it.

// maxGroup bounds how many changes a failed commit affects, and how long the first of a group waits for the last.
const maxGroup = 64

// group has the waiting changes.
type group struct {
	mu      sync.Mutex
	waiting []*change
	leading bool  // a caller is carrying out a group
	tail    *tail // of the current transaction; owned by its leader
}

// change is one caller's part of a transaction.
type change struct {
	do   func(context.Context, *sql.Conn) error // may be called twice; what the first call did in the database is undone then
	err  error
	turn chan bool // true: lead the next group, which begins with this change; false: it is done
}

// tx runs do in an immediate transaction of the writer, possibly together with others' changes, and returns when it is durable. Once
// begun it is completed even if the caller gives up: a commit with an unknown outcome would be worse than a late one. do uses
// the context and the connection it is given, and changes nothing that it reads: where another change is refused, it is
// undone and carried out again. After a disk failure no change is carried out, see [Ledger.Stopped].
func (l *Ledger) tx(ctx context.Context, do func(context.Context, *sql.Conn) error) error {
	if err := ctx.Err(); err != nil {
		return fault.Wrap(fault.Canceled, "", "", err)
	}
	g, c := &l.group, &change{do: do, turn: make(chan bool, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, c)
	lead := !g.leading
	g.leading = true
	g.mu.Unlock()
	if !lead && !<-c.turn {
		return storage(c.err)
	}
	mine := g.take()
	err := l.Stopped()
	if err == nil {
		err = l.commit(mine)
		for _, c := range mine {
			l.watch(c.err)
		}
		l.watch(err)
	}
	if err != nil {
		for _, c := range mine {
			c.err = err
		}
	}
	g.passOn(mine[1:])
	return storage(c.err)
}

// take removes the changes of the next group from the waiting ones.
func (g *group) take() []*change {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), maxGroup)
	mine := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	return mine
}

// passOn ends a group: it wakes the callers of its other changes, and makes the first waiting one the next leader.
func (g *group) passOn(others []*change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range others {
		c.turn <- false
	}
	if g.leading = len(g.waiting) > 0; g.leading {
		g.waiting[0].turn <- true
	}
}

// commit carries out a group in one transaction. Its error is that of the whole group; a single refused change has its own.
func (l *Ledger) commit(changes []*change) error {
	// The context is never cancelled, so that the driver starts no goroutine to watch it.
	ctx := context.Background()
	conn, err := l.w.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // back to the pool
	refused, err := l.transact(ctx, conn, changes, (*change).safely)
	if refused && len(changes) > 1 && !broken(err) {
		_, err = l.transact(ctx, conn, changes, (*change).apart)
	}
	return err
}

// transact carries out the parts of a group and commits. It reports whether a part returned an error, which ended the transaction.
func (l *Ledger) transact(ctx context.Context, conn *sql.Conn, changes []*change, part func(*change, context.Context, *sql.Conn) error) (
	refused bool, err error) {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return false, err
	}
	l.group.tail = nil
	for _, c := range changes {
		if err = part(c, ctx, conn); err != nil {
			refused = true
			break
		}
		if c.err != nil { // its changes are undone
			l.group.tail = nil
		}
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		_, _ = conn.ExecContext(ctx, "ROLLBACK") // SQLite may have rolled back itself; the first error is the one that matters
	}
	return refused, err
}

// apart carries out one change in a savepoint. A returned error means that the transaction has ended; the change's own error is in c.err.
func (c *change) apart(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, "SAVEPOINT part"); err != nil {
		return err
	}
	if c.err = c.safely(ctx, conn); c.err != nil {
		if _, err := conn.ExecContext(ctx, "ROLLBACK TO part"); err != nil {
			return c.err // a full disk, for example, ends the whole transaction
		}
	}
	_, err := conn.ExecContext(ctx, "RELEASE part")
	return err
}

// safely turns a panic into an error: the others of the group wait for its end.
func (c *change) safely(ctx context.Context, conn *sql.Conn) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return c.do(ctx, conn)
}
