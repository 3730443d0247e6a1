package rest

import (
	"bytes"
	"io"
	"testing"

	"slurmgate/run"
)

// No bytes make the decoders of the queue and of accounting panic, hang, or accept a part of an answer as whole. Every
// job that they return satisfies the ports.
func FuzzJobs(f *testing.F) {
	f.Add([]byte(queue(aJob)), uint16(0), byte('x'))
	for _, name := range []string{"jobs-24.11-v0.0.40.json.gz", "jobs-26.05-v0.0.45.json.gz", "slurmdb-jobs-24.11-v0.0.40.json.gz",
		"slurmdb-jobs-24.11-v0.0.42.json.gz"} {
		body := recording(f, name)
		f.Add(body[:min(len(body), 6_000)], uint16(500), byte('"'))
	}
	f.Add([]byte(`{"jobs":[{"job_id":{"set":true,"number":1e400},"job_id":[[[[]]]],"name":"sg-\ud800","job_state":[null]}]}`), uint16(1), byte(0))
	f.Add([]byte(`{"jobs":[{"job_id":7,"name":""}]}`), uint16(98), byte('/')) // a job without a name may be the sought one
	f.Fuzz(func(t *testing.T, text []byte, at uint16, with byte) {
		if n := int(at); n < len(text) {
			text = bytes.Clone(text)
			text[n] = with
		}
		for _, of := range []source{queued, accounted, measured} {
			list := newJobs(of, "lab", map[string]bool{"7": true}, 0)
			a, err := read(bytes.NewReader(text), members{"jobs": list.read, "last_update": list.readUpdate})
			if err != nil {
				continue
			}
			if len(a.errors) > maxProblems || len(a.warnings) > maxProblems || len(list.found) > maxJobs {
				t.Fatal("a stored value exceeds its bound")
			}
			for _, j := range list.found {
				unread := j.Class == run.ClassUnread
				if j.Name == "" && j.ID != "7" || j.Class == "" || unread && j.Why == "" || !unread && (j.ID == "" || j.State == "") {
					t.Fatalf("from a stray answer the job is %+v, want a whole one or one that is unread", j)
				}
			}
			cut := newJobs(of, "lab", nil, 0)
			body := bytes.TrimRight(text, " \t\r\n")
			if _, err := read(io.LimitReader(bytes.NewReader(body), int64(len(body)-1)), members{"jobs": cut.read}); err == nil {
				t.Fatal("an answer without its last byte was accepted")
			}
		}
	})
}

// No bytes make the decoders of partitions, nodes and accounts panic.
func FuzzSurvey(f *testing.F) {
	for _, name := range []string{"partitions-24.11-v0.0.40.json.gz", "nodes-26.05-v0.0.45.json.gz",
		"slurmdb-associations-24.11-v0.0.42.json.gz",
		"slurmdb-qos-24.11-v0.0.40.json.gz"} {
		f.Add(recording(f, name))
	}
	f.Add([]byte(`{"partitions":[{"nodes":{"total":-1},"flags":"a,b","maximums":{"time":{"set":true}}}],"nodes":[{"cpus":1e300}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var parts []partition
		var nodes []node
		var all []association
		var found []quality
		_, err := read(bytes.NewReader(text), members{"partitions": into(&parts), "nodes": into(&nodes), "associations": into(&all),
			"qos": into(&found)})
		if err != nil {
			return
		}
		for _, n := range nodes {
			if n.sinfo() == "" {
				t.Fatal("a node without a state")
			}
		}
		for _, q := range found {
			if n := q.Limits.Max.Jobs.Per.User.limit(); n != nil && *n < 0 {
				t.Fatalf("the limit of jobs per user is %d, want none or at least 0", *n)
			}
		}
	})
}
