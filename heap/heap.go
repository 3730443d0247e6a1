// Package heap paces the garbage collector.
//
// Go collects when the heap has grown by as much as lives in it. A gateway keeps little alive and makes much that dies at once, so it would
// collect several times a second, a twentieth of all it does. With room to grow first it collects every few seconds; when much
// is alive, the pace is Go's own, and memory is bounded as ever.
//
// Noun: room (how far the heap may grow before a collection, however little is alive).
package heap

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Room is how many bytes may be in the heap before a collection.
const Room = 48 << 20

// between two looks at what is alive. It changes slowly: with the number of open runs.
const between = 10 * time.Second

// Pace sets the collector's pace, again and again, until ctx ends. Who set GOGC is left alone.
func Pace(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	set := 100
	for {
		if p := Percent(alive()); p < set || p > set+set/4 { // each setting stops the world for a moment
			set = p
			debug.SetGCPercent(p)
		}
		select {
		case <-time.After(between):
		case <-ctx.Done():
			debug.SetGCPercent(100)
			return
		}
	}
}

// Percent is the growth, in percent of the living bytes, that lets the heap become Room bytes large; never less than Go's own 100.
func Percent(living uint64) int {
	living = max(living, 4<<20)
	if 2*living >= Room {
		return 100
	}
	return int(100 * (Room - living) / living)
}

// alive is what the last collection left.
func alive() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return Room // a Go that does not tell
	}
	return s[0].Value.Uint64()
}
