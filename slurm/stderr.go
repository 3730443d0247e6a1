package slurm

import (
	"regexp"
	"strings"
	"sync"

	"slurmgate/run"
)

// beside has the lines on standard error that are known to mean nothing: of a deprecated key in slurm.conf, of a library that cannot be
// preloaded, of Kerberos. An answer with other lines beside it shows what is there, and not what is absent.
type beside struct {
	mu    sync.Mutex
	noise map[string]bool // each with its program, without figures
}

// maxBeside bounds the lines that are remembered, and those of one answer that are told of.
const maxBeside = 100

// callFailed matches a line that names a call, a connection or a time-out that failed, whoever prints it; ownFailed one of Slurm's own
// programs about anything that failed.
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

// failedCall reports whether the line says that the program may have got only a part of the answer, or nothing. A path may have any words
// in it.
func failedCall(line string) bool {
	plain := pathWord.ReplaceAllString(line, "$1")
	return callFailed.MatchString(plain) || ownFailed.MatchString(plain)
}

// answered is the okay of a query that is only good if no call of its program failed: squeue is known to print half an answer and mention
// the failure on standard error alone.
func answered(out Output) bool {
	for line := range strings.Lines(out.Stderr) {
		if failedCall(strings.TrimSpace(line)) {
			return false
		}
	}
	return out.Exit == 0
}

// unexplained gives a record that may be any job's for each line beside an answer that is not known to be harmless.
func (c *CLI) unexplained(program string, out Output) (jobs []run.Job) {
	told := map[string]bool{}
	for line := range strings.Lines(out.Stderr) {
		if line = strings.TrimSpace(line); line == "" || len(told) == maxBeside {
			continue
		}
		said := program + ": " + oneLine(line)
		kind := kindOf(said)
		c.beside.mu.Lock()
		known := c.beside.noise[kind] || told[kind]
		c.beside.mu.Unlock()
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

// Harmless learns that a line means nothing; run.Queue has the contract.
func (c *CLI) Harmless(said string) {
	c.beside.mu.Lock()
	defer c.beside.mu.Unlock()
	kind := kindOf(said)
	if c.beside.noise[kind] {
		return
	}
	if len(c.beside.noise) >= maxBeside { // of words that differ each time: the oldest cannot be told from the newest
		clear(c.beside.noise)
	}
	if c.beside.noise == nil {
		c.beside.noise = map[string]bool{}
	}
	c.beside.noise[kind] = true
	if c.cfg.Harmless != nil {
		c.cfg.Harmless(said)
	}
}
