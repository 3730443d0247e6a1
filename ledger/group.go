package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"slurmgate/fault"
)

// A commit waits for the disk, and costs the same for one change as for fifty. So changes that arrive while one group is being
// committed share the next transaction. One that is refused leaves the others alone: all are undone then, and carried out again, each in
// a savepoint of its own. That is seldom, and a savepoint copies every page that is changed in it. Nobody waits for a group to fill. Of
// the callers of a group, the first carries it out; there is no goroutine for it.

// maxGroup bounds what a failed commit takes with it, and how long the first of a group waits for the last.
const maxGroup = 64

// group holds the changes that wait.
type group struct {
	mu      sync.Mutex
	waiting []*change
	leading bool  // somebody carries out a group
	tail    *tail // of the transaction under way; its leader's
}

// change is one caller's part of a transaction.
type change struct {
	do   func(context.Context, *sql.Conn) error // may be called twice; what the first call did in the database is undone then
	err  error
	turn chan bool // true: lead the next group, which begins with this change; false: it is done
}

// tx runs do in an immediate transaction of the writer, possibly together with others' changes, and returns when it is durable. Once
// begun it is carried through even if the caller gives up: a half-known commit would be worse than a late one. do works
// with the context it is given, through the connection it is given. After a failure of the disk nothing is carried out any more, see [Ledger.Stopped].
func (l *Ledger) tx(ctx context.Context, do func(context.Context, *sql.Conn) error) error {
	if err := ctx.Err(); err != nil {
		return fault.Wrap(fault.Canceled, "ledger.tx", "", "", err)
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

// take takes the changes of the next group out of those that wait.
func (g *group) take() []*change {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), maxGroup)
	mine := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	return mine
}

// passOn ends a group: its other changes are done, and the first that waits leads.
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

// commit carries out a group in one transaction. Its error is that of the whole; a change alone refused has its own.
func (l *Ledger) commit(changes []*change) error {
	// The context has no end, so that the driver starts no goroutine to watch it.
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

// transact carries out the parts of a group and commits. It tells whether a part returned an error, which ended the transaction.
func (l *Ledger) transact(ctx context.Context, conn *sql.Conn, changes []*change, part func(*change, context.Context, *sql.Conn) error) (refused bool, err error) {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return false, err
	}
	l.group.tail = nil
	for _, c := range changes {
		if err = part(c, ctx, conn); err != nil {
			refused = true
			break
		}
		if c.err != nil { // what it did is undone
			l.group.tail = nil
		}
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		_, _ = conn.ExecContext(ctx, "ROLLBACK") // SQLite may have done so itself; the first error is the one that matters
	}
	return refused, err
}

// apart carries out one change in a savepoint. An error returned means that the transaction is no more; that of the change alone is in it.
func (c *change) apart(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, "SAVEPOINT part"); err != nil {
		return err
	}
	if c.err = c.safely(ctx, conn); c.err != nil {
		if _, err := conn.ExecContext(ctx, "ROLLBACK TO part"); err != nil {
			return c.err // a full disk, say, ends the whole transaction
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
