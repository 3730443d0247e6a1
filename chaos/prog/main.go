// Command chaosprog is the program of the crash campaign's runs, in its own container. It leaves a record that
// only an execution can leave, and an output that identifies its run:
//
//	chaosprog TOKEN WORK_MS EXIT_CODE
//
// One line is appended to /work/out/record and synced before anything else: the token, a random id of this execution and
// the time. Then it works for WORK_MS milliseconds, writes /work/out/result, which package chaos can compute from the
// token and the input, and ends with EXIT_CODE. With a negative WORK_MS it works until it is stopped.
package main

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	token, work, code := os.Args[1], number(os.Args[2]), number(os.Args[3])
	record, err := os.OpenFile("/work/out/record", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	check(err)
	_, err = fmt.Fprintf(record, "%s %s %s\n", token, rand.Text(), time.Now().UTC().Format(time.RFC3339Nano))
	check(err)
	check(record.Sync())
	check(record.Close())
	for work < 0 {
		time.Sleep(time.Hour)
	}
	time.Sleep(time.Duration(work) * time.Millisecond)
	seed, err := os.ReadFile("/work/in/seed")
	check(err)
	check(os.WriteFile("/work/out/result", fmt.Appendf(nil, "token %s\ninput %x\ncode %d\n", token, sha256.Sum256(seed), code), 0o600))
	os.Exit(code)
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	check(err)
	return n
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaosprog:", err)
		os.Exit(99)
	}
}
