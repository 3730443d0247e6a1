package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// far describes the faults of a case's connections, in addition to all others.
type far struct {
	networkFaults networkFaults
	cutSend       time.Duration // all connections are cut so long after sbatch began, or slurmrestd was asked to submit, when positive
	sftp          string        // how the SFTP server misbehaves: full, small, large; empty: not at all
	lift          time.Duration // after the submission began

	daemon string        // what happens to slurmrestd when it is asked to submit: killed, restarted, paused; empty: nothing
	after  time.Duration // so long after
	hold   time.Duration // until it is there again
	token  time.Duration // the gateway's token ends so soon; 0: it does not

	signer   string // what happens to the signer or to the user whose run it is; empty: nothing
	namesake bool   // another user has a job of the run's name
}

func (f far) String() string {
	var parts []string
	for _, c := range f.networkFaults.cuts {
		parts = append(parts, fmt.Sprintf("cut after %d bytes %s", c.after, map[bool]string{true: "down", false: "up"}[c.down]))
	}
	if f.cutSend > 0 {
		parts = append(parts, fmt.Sprintf("cut %s after sbatch began", f.cutSend))
	}
	if f.networkFaults.moves {
		parts = append(parts, "then another login node")
	}
	if f.networkFaults.delay > 0 {
		parts = append(parts, fmt.Sprintf("%s round trips", 2*f.networkFaults.delay))
	}
	if f.networkFaults.lost > 0 {
		parts = append(parts, fmt.Sprintf("%d %% arrive late", f.networkFaults.lost))
	}
	if f.sftp != "" {
		parts = append(parts, "sftp "+f.sftp)
	}
	if f.daemon != "" {
		parts = append(parts, fmt.Sprintf("slurmrestd %s %s after a submit began, back after %s", f.daemon, f.after, f.hold))
	}
	if f.token > 0 {
		parts = append(parts, fmt.Sprintf("the token ends after %s", f.token))
	}
	switch {
	case f.signer == userLocked:
		parts = append(parts, fmt.Sprintf("%s after %s", f.signer, f.after))
	case f.signer != "":
		parts = append(parts, fmt.Sprintf("signer %s %s after the start, for %s", f.signer, f.after, f.hold))
	}
	if f.namesake {
		parts = append(parts, "another user's job of the name")
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
		if c.ssh() {
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
		switch r := newSource(^seed, c.n); {
		case c.carrier.rest():
			c.far = drawREST(r, c.carrier.far(), c.block >= 0)
		case c.carrier == caller:
			c.far = drawCaller(r, c.block >= 0)
		case c.carrier.far():
			c.far = drawFar(r)
		}
	}
	return list
}

// drawFar draws one of the faults of a connection, or none.
func drawFar(r source) (f far) {
	f.lift = r.between(4*time.Second, 10*time.Second)
	switch r.IntN(8) {
	case 0, 1, 2:
		for range 1 + r.IntN(3) {
			f.networkFaults.cuts = append(f.networkFaults.cuts, cut{r.chance(50), r.anyByte()})
		}
		f.networkFaults.moves = r.chance(40)
	case 3:
		f.networkFaults.delay = 100 * time.Millisecond
	case 4:
		f.networkFaults.lost = 5
	case 5:
		f.cutSend, f.networkFaults.moves = r.between(1, 100*time.Millisecond), r.chance(40)
	case 6:
		f.sftp = []string{"full", "small", "large"}[r.IntN(3)]
	}
	return f
}

// drawREST draws one of the faults of a way through slurmrestd, or none. Cases of a group share the cluster's outage,
// and their slurmrestd and token are left alone.
func drawREST(r source, sftp, group bool) (f far) {
	f = drawFar(r)
	if !sftp {
		f.sftp, f.networkFaults.moves = "", false
	}
	for i := range f.networkFaults.cuts { // there is no handshake, and most requests are short
		f.networkFaults.cuts[i].after = int64(math.Exp(r.Float64() * math.Log(60_000)))
	}
	if group || r.chance(40) {
		return f
	}
	f = far{lift: f.lift, after: r.between(0, 60*time.Millisecond)}
	switch r.IntN(5) {
	case 0, 1:
		f.daemon, f.hold = "killed", r.between(0, 3*time.Second)
	case 2:
		f.daemon, f.hold = "restarted", r.between(0, time.Second)
	case 3:
		f.daemon, f.hold = "paused", r.between(time.Second, 12*time.Second)
	case 4:
		f = far{lift: f.lift, token: r.between(time.Second, 3*time.Second)}
	}
	return f
}

// anyByte draws where a connection is cut: in the handshake, or later, where a run's files and sends pass.
func (r source) anyByte() int64 {
	if r.chance(25) {
		return r.Int64N(handshake)
	}
	return handshake + int64(math.Exp(r.Float64()*math.Log(100_000)))
}

// handshake is the approximate number of bytes in each direction before the first command.
const handshake = 3000

// drawNetwork draws an outage of the way to the cluster.
func drawNetwork(r source) outage {
	o := outage{network: true, when: []string{"before", "receipt", "later"}[r.IntN(3)], wait: r.between(0, 3*time.Second),
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
		o.name, o.on, o.off = "sshd stopped", append(each("stop"), []string{"sever"}), serve("start")
	case 1:
		o.name, o.on = "sshd restarted", again()
	case 2:
		o.name, o.on, o.off = "MaxSessions 1, MaxStartups 1", again("-o", "MaxSessions=1", "-o", "MaxStartups=1:100:1"), again()
	case 3:
		o.name, o.on, o.off = "host key changed", again("-h", "/etc/devcluster/ssh/other_host"), again()
	case 4:
		o.name, o.drops = "hosts blocked", true
		o.on, o.off = [][]string{{"lose", "100"}}, [][]string{{"lose", "0"}}
	case 5:
		o.name, o.drops, o.hold = "5 % loss", true, 10*time.Second
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

// lose makes all hosts of the cluster that have an sshd lose a share of what arrives and leaves, and counts it by the other end's port. It
// prints what was counted before.
const lose = `set -e
some="numgen random mod 100 < $1"
[[ $1 != 100 ]] || some=
for ns in "" dtn; do
  in=(${ns:+ip netns exec "$ns"})
  "${in[@]}" nft -n list set inet chaos lost 2>/dev/null || true
  "${in[@]}" nft delete table inet chaos 2>/dev/null || true
  [[ $1 == 0 ]] || "${in[@]}" nft "table inet chaos { set lost { type inet_service; flags dynamic; size 65535; }
    chain in { type filter hook input priority 0; tcp dport 22 $some update @lost { tcp sport counter } drop; }
    chain out { type filter hook output priority 0; tcp sport 22 $some update @lost { tcp dport counter } drop; }; }"
done`

var lostPackets = regexp.MustCompile(`(\d+) counter packets (\d+) `)

// dropped reads what lose counted: packets by port.
func dropped(text string) map[int]int {
	byPort := map[int]int{}
	for _, m := range lostPackets.FindAllStringSubmatch(text, -1) {
		port, _ := strconv.Atoi(m[1])
		n, _ := strconv.Atoi(m[2])
		byPort[port] += n
	}
	return byPort
}
