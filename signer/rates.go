package signer

import (
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"slurmgate/fault"
)

// limiter bounds the requests of a minute, for each user and for all. A user's own bound is first, so that one user who is asked for again
// and again does not use up everybody's.
type limiter struct {
	perUser int

	mu    sync.Mutex
	all   *rate.Limiter
	users map[string]*rate.Limiter
}

// maxUsers bounds the users whose rate is remembered; those who have their whole rate again are forgotten.
const maxUsers = 10_000

func perMinute(n int) *rate.Limiter {
	return rate.NewLimiter(rate.Every(time.Minute/time.Duration(n)), n)
}

func newLimiter(all, perUser int) *limiter {
	return &limiter{perUser: perUser, all: perMinute(all), users: map[string]*rate.Limiter{}}
}

// take counts a request, or returns a Transport fault with the seconds until there is room.
func (l *limiter) take(user string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.users[user]
	if own == nil {
		if len(l.users) >= maxUsers {
			l.forget(now)
		}
		if len(l.users) >= maxUsers {
			return busy("too many different users were asked for in the last minute", time.Minute)
		}
		own = perMinute(l.perUser)
		l.users[user] = own
	}
	if wait := need(own, now); wait > 0 {
		return busy(fmt.Sprintf("the signer had %d requests for user %s in a minute (per_user_minute)", l.perUser, fault.Clip(user)), wait)
	}
	if wait := need(l.all, now); wait > 0 {
		return busy(fmt.Sprintf("the signer had %d requests in a minute (per_minute)", l.all.Burst()), wait)
	}
	return nil
}

func (l *limiter) forget(now time.Time) {
	for user, r := range l.users {
		if r.TokensAt(now) >= float64(r.Burst()) {
			delete(l.users, user)
		}
	}
}

// need takes one, or returns the time until there is one.
func need(r *rate.Limiter, now time.Time) time.Duration {
	reservation := r.ReserveN(now, 1)
	wait := reservation.DelayFrom(now)
	if wait > 0 {
		reservation.CancelAt(now)
	}
	return wait
}

func busy(msg string, wait time.Duration) error {
	return fault.New(fault.Transport, Busy, msg).WithNext("try again later; the signer's configuration has the rates").
		WithRetry(int(math.Ceil(wait.Seconds())))
}
