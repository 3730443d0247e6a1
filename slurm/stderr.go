package slurm

import (
	"regexp"
	"strings"
	"sync"

	"slurmgate/run"
)

// knownLines has lines on standard error that are known to be harmless: of a deprecated key in slurm.conf, of a library
// that cannot be preloaded, of Kerberos. An answer that comes with other lines proves which jobs exist, and not which
// are absent.
type knownLines struct {
	mu    sync.Mutex
	noise map[string]bool // each with its program and with its numbers replaced by 0
}

// maxHarmless bounds the lines that are remembered, and those of one answer that are reported.
const maxHarmless = 100

// callFailed matches a line about a failed call, a failed connection or a time-out, from any program. ownFailed matches
// a line of Slurm's own programs about any failure.
var (
	callFailed = regexp.MustCompile(`(?i)\b(slurm|dbd|auth|cred)_[a-z]+|\bpersistinit\b|\brpc\b|\bmunge|\bzero bytes\b|` +
		`\bcommunication\b|\b(connection|shutdown) failure\b|\binsane message\b|\bheader lengths\b|\binterrupted system call\b|` +
		`\b(unable to|can(no|')t|could ?n[o']t|fail(ed|ure) to) (connect|contact|reach|resolve|establish|send|receive|talk|authenticate)\b|` +
		`\bconnection (refused|reset|closed|timed|failed|lost|aborted|error)|\b(connect|send|receive) failure\b|\bnot connected\b|` +
		`\bsocket\b|\btimed?[ -]?out\b|\bno route to\b|\bunreachable\b|\bis down\b|\bunknown host\b|\bname or service\b|` +
		`\bname resolution\b|\bbroken pipe\b|\btalking to the database\b|\bprotocol (authentication )?error\b|\bfatal\b|` +
		`\baccess/permission denied\b|\bstandby mode\b|\brate limit\b|\bunexpected message\b|\bmalformed\b|\bincompatible versions?\b|` +
		`\bsegmentation fault\b|\bcore dumped\b|\bkilled\b|\bcannot allocate\b`)
	ownFailed = regexp.MustCompile(`^s[a-z]+: (error: )?.*(\b[Ff]ail|\b[Uu]nable to\b|\b[Cc](annot|an't|ould ?n[o']t)\b)`)
	pathWord  = regexp.MustCompile(`(^|[\s'"(=])/[^\s'"]*`)
	figures   = regexp.MustCompile(`[0-9]+`)
)

// failedCall reports whether the line means that the program may have received only a part of the answer, or nothing.
// Paths are ignored, because they may contain any words.
func failedCall(line string) bool {
	plain := pathWord.ReplaceAllString(line, "$1")
	return callFailed.MatchString(plain) || ownFailed.MatchString(plain)
}

// answered accepts the output of a query only if no call of its program failed: squeue is known to print half an answer
// and to report the failure only on standard error.
func answered(out Output) bool {
	for line := range strings.Lines(out.Stderr) {
		if failedCall(strings.TrimSpace(line)) {
			return false
		}
	}
	return out.Exit == 0
}

// unexplained returns a record of ClassUnread, which may be any job's, for each line on standard error that is not
// known to be harmless.
func (c *CLI) unexplained(program string, out Output) (jobs []run.Job) {
	told := map[string]bool{}
	for line := range strings.Lines(out.Stderr) {
		if line = strings.TrimSpace(line); line == "" || len(told) == maxHarmless {
			continue
		}
		said := program + ": " + oneLine(line)
		kind := kindOf(said)
		c.harmless.mu.Lock()
		known := c.harmless.noise[kind] || told[kind]
		c.harmless.mu.Unlock()
		if !known {
			told[kind] = true
			jobs = append(jobs, run.Job{Class: run.ClassUnread, Why: said, Beside: true})
		}
	}
	if len(jobs) > 0 {
		c.reportUnread(program, 1, "a line on standard error is not known to be harmless", jobs[0].Why)
	}
	return jobs
}

func kindOf(said string) string { return figures.ReplaceAllString(said, "0") }

// Harmless records that a line, with its program, means nothing; run.Queue has the contract.
func (c *CLI) Harmless(said string) {
	c.harmless.mu.Lock()
	defer c.harmless.mu.Unlock()
	kind := kindOf(said)
	if c.harmless.noise[kind] {
		return
	}
	if len(c.harmless.noise) >= maxHarmless { // the lines differ each time, and their order is not stored
		clear(c.harmless.noise)
	}
	if c.harmless.noise == nil {
		c.harmless.noise = map[string]bool{}
	}
	c.harmless.noise[kind] = true
	if c.cfg.Harmless != nil {
		c.cfg.Harmless(said)
	}
}
