package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rpcs holds the daemons' counts so far: slurmctld by user and by type, slurmdbd by type.
type rpcs struct {
	mine int            // slurmctld's, of this user
	ctld map[string]int // by type
	dbd  map[string]int
}

// A line of sdiag and sacctmgr: "	REQUEST_PARTITION_INFO   ( 2009) count:1   ave_time:108 …".
var counted = regexp.MustCompile(`(?m)^\s+(\S+)\s+\(\s*\d+\)\s+count:(\d+)`)

// countRPCs reads the counters of both daemons and leaves out its own requests, which are known by their types.
func countRPCs(ctx context.Context) (rpcs, error) {
	out, err := exec.CommandContext(ctx, "sdiag").Output()
	if err != nil {
		return rpcs{}, fmt.Errorf("sdiag: %w", err)
	}
	types, users, ok := strings.Cut(string(out), "Remote Procedure Call statistics by user")
	if !ok {
		return rpcs{}, fmt.Errorf("sdiag shows no statistics by user")
	}
	r := rpcs{ctld: table(types)}
	r.mine = table(users)[user] - r.ctld["REQUEST_STATS_INFO"] // no other process of this cluster runs sdiag
	delete(r.ctld, "REQUEST_STATS_INFO")
	if out, err = exec.CommandContext(ctx, "sacctmgr", "show", "stats").Output(); err != nil {
		return rpcs{}, fmt.Errorf("sacctmgr show stats: %w", err)
	}
	types, _, _ = strings.Cut(string(out), "Remote Procedure Call statistics by user")
	r.dbd = map[string]int{}
	for name, n := range table(types) {
		// What clients ask for; the rest opens and closes connections, or comes from slurmctld.
		if strings.HasPrefix(name, "DBD_GET_") && name != "DBD_GET_STATS" {
			r.dbd[name] = n
		}
	}
	return r, nil
}

func table(text string) map[string]int {
	m := map[string]int{}
	for _, f := range counted.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(f[2])
		m[f[1]] += n
	}
	return m
}

// since returns the difference between two counts.
func (r rpcs) since(before rpcs) rpcs {
	return rpcs{mine: r.mine - before.mine, ctld: minus(r.ctld, before.ctld), dbd: minus(r.dbd, before.dbd)}
}

func minus(a, b map[string]int) map[string]int {
	d := map[string]int{}
	for k, n := range a {
		if n != b[k] {
			d[k] = n - b[k]
		}
	}
	return d
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// words lists the types that were counted, for people.
func words(m map[string]int) string {
	var out []string
	for k, n := range m {
		out = append(out, fmt.Sprintf("%s:%d", k, n))
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}
