package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// far is what befalls a case whose gateway is elsewhere, beside everything else.
type far struct {
	weather weather
	cutSend time.Duration // all connections are cut so long after sbatch began, when positive
	sftp    string        // how the SFTP server misbehaves: full, small, large; empty: not at all
	lift    time.Duration // after the submission began
}

func (f far) String() string {
	var parts []string
	for _, c := range f.weather.cuts {
		parts = append(parts, fmt.Sprintf("cut after %d bytes %s", c.after, map[bool]string{true: "down", false: "up"}[c.down]))
	}
	if f.cutSend > 0 {
		parts = append(parts, fmt.Sprintf("cut %s after sbatch began", f.cutSend))
	}
	if f.weather.moves {
		parts = append(parts, "then another login node")
	}
	if f.weather.delay > 0 {
		parts = append(parts, fmt.Sprintf("%s round trips", 2*f.weather.delay))
	}
	if f.weather.lost > 0 {
		parts = append(parts, fmt.Sprintf("%d %% arrive late", f.weather.lost))
	}
	if f.sftp != "" {
		parts = append(parts, "sftp "+f.sftp)
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("%s for %s", strings.Join(parts, ", "), f.lift)
}

// deal gives each case a transport, and those over SSH what may happen to connections. It changes nothing else of a case, so that a case is
// the same whatever the transports are. An outage of every second block is one of the network, and the block's cases go over it.
func deal(seed uint64, list []testCase, over []carrier) []testCase {
	var remote []carrier
	for _, c := range over {
		if c.far() {
			remote = append(remote, c)
		}
	}
	for i := range list {
		c := &list[i]
		c.carrier = over[c.n%len(over)]
		if c.block >= 0 && c.block%2 == 0 && len(remote) > 0 {
			c.carrier = remote[c.n%len(remote)]
			c.outage = drawNetwork(newSource(seed, -1-c.block))
		}
		if c.carrier.far() {
			c.far = drawFar(newSource(^seed, c.n))
		}
	}
	return list
}

// drawFar is one of the faults of a connection, or none.
func drawFar(r source) (f far) {
	f.lift = r.between(4*time.Second, 10*time.Second)
	switch r.IntN(8) {
	case 0, 1, 2:
		for range 1 + r.IntN(3) {
			f.weather.cuts = append(f.weather.cuts, cut{r.chance(50), r.anyByte()})
		}
		f.weather.moves = r.chance(40)
	case 3:
		f.weather.delay = 100 * time.Millisecond
	case 4:
		f.weather.lost = 5
	case 5:
		f.cutSend, f.weather.moves = r.between(1, 100*time.Millisecond), r.chance(40)
	case 6:
		f.sftp = []string{"full", "small", "large"}[r.IntN(3)]
	}
	return f
}

// anyByte is where a connection is cut: in the handshake, or later, where a run's files and sends pass.
func (r source) anyByte() int64 {
	if r.chance(25) {
		return r.Int64N(handshake)
	}
	return handshake + int64(math.Exp(r.Float64()*math.Log(100_000)))
}

// handshake is about how many bytes pass in each direction before the first command.
const handshake = 3000

// drawNetwork is an outage of the way to the cluster.
func drawNetwork(r source) outage {
	o := outage{when: []string{"before", "receipt", "later"}[r.IntN(3)], wait: r.between(0, 3*time.Second),
		hold: r.between(time.Second, 6*time.Second)}
	each := func(verb string) (steps [][]string) {
		for _, s := range servers {
			steps = append(steps, []string{verb, s})
		}
		return steps
	}
	again := func(args ...string) [][]string { return append(serve("restart", args...), each("cut")...) }
	switch r.IntN(6) {
	case 0:
		o.name, o.on, o.off = "sshd stopped", append(each("stop"), each("cut")...), serve("start")
	case 1:
		o.name, o.on = "sshd restarted", again()
	case 2:
		o.name, o.on, o.off = "MaxSessions 1, MaxStartups 1", again("-o", "MaxSessions=1", "-o", "MaxStartups=1:100:1"), again()
	case 3:
		o.name, o.on, o.off = "host key changed", again("-h", "/etc/devcluster/ssh/other_host"), again()
	case 4:
		o.name, o.on, o.off = "hosts blocked", each("block"), each("unblock")
	case 5:
		o.name, o.hold = "5 % loss", 10*time.Second
		o.on, o.off = [][]string{{"lose", "5"}}, [][]string{{"lose", "0"}}
	}
	return o
}

var servers = []string{"sshd", "sshd-dtn", "sshd-login2"}

// serve starts the sshds with further arguments, and with chaos/liar before their SFTP servers.
func serve(verb string, args ...string) (steps [][]string) {
	for _, s := range servers {
		at := sharedDir
		if s == "sshd-dtn" {
			at = "/data" + at
		}
		steps = append(steps, append([]string{verb, s, "-o", "Subsystem=sftp " + at + "/liar"}, args...))
	}
	return steps
}

// lose makes all hosts of the cluster that have an sshd lose a share of what arrives.
const lose = `set -e
for ns in "" dtn; do
  in=(${ns:+ip netns exec "$ns"})
  "${in[@]}" nft delete table inet chaos 2>/dev/null || true
  [[ $1 == 0 ]] || "${in[@]}" nft "table inet chaos { chain in { type filter hook input priority 0; tcp dport 22 numgen random mod 100 < $1 drop; }
    chain out { type filter hook output priority 0; tcp sport 22 numgen random mod 100 < $1 drop; }; }"
done`
