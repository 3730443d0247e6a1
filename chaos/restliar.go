package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// restLiar is a proxy of a slurmrestd. It passes calls on, unless a flag of the site sets a fault: the flags of sbatch,
// squeue, sacct and scancel hold for the calls that do the same, so that the scenarios are those of the commands
// (wrapper.sh).
type restLiar struct {
	s        *site
	listener net.Listener
	client   http.Client

	mu    sync.Mutex
	calls map[string]int // that a flag with a number has held for
}

func newRESTLiar(s *site) (*restLiar, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.path(s.rest.socket))
	}
	r := &restLiar{s: s, listener: l, client: http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}},
		calls: map[string]int{}}
	go http.Serve(l, r)
	return r, nil
}

func (l *restLiar) address() string { return l.listener.Addr().String() }

// forget resets the counts of calls.
func (l *restLiar) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.calls)
}

// command returns Slurm's command for the effect of a call.
func command(method, path string) string {
	switch {
	case method == http.MethodPost:
		return "sbatch"
	case method == http.MethodDelete:
		return "scancel"
	case strings.HasPrefix(path, "/slurmdb/") && strings.Contains(path, "/jobs"):
		return "sacct"
	case strings.HasPrefix(path, "/slurm/") && strings.Contains(path, "/jobs"):
		return "squeue"
	}
	return ""
}

func (l *restLiar) flagFile(program string) string { return l.s.path(l.s.flags() + "/" + program) }

// mood reads how a call misbehaves.
func (l *restLiar) mood(program string) (mode, arg string) {
	data, err := os.ReadFile(l.flagFile(program))
	if program == "" || err != nil {
		return "", ""
	}
	words := append(strings.Fields(string(data)), "", "", "")
	l.mu.Lock()
	defer l.mu.Unlock()
	if most, err := strconv.Atoi(words[2]); err == nil {
		if l.calls[program] >= most {
			return "", ""
		}
		l.calls[program]++
	}
	return words[0], words[1]
}

// reply is a whole answer.
type reply struct {
	status int
	body   []byte
}

// pass passes a call on.
func (l *restLiar) pass(r *http.Request, body []byte) (reply, error) {
	req, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, "http://slurmrestd"+r.URL.RequestURI(),
		bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header = r.Header
	res, err := l.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, data}, err
}

// refusal returns an answer with an error of Slurm's.
func refusal(status, number int, text string) reply {
	body, err := json.Marshal(map[string]any{"meta": map[string]any{}, "warnings": []any{}, "jobs": []any{},
		"errors": []any{map[string]any{"error_number": number, "error": text, "description": text, "source": "chaos"}}})
	if err != nil {
		panic(err)
	}
	return reply{status, body}
}

// without returns the answer with an empty list of jobs.
func (r reply) without() reply {
	var doc map[string]json.RawMessage
	if json.Unmarshal(r.body, &doc) != nil || doc["jobs"] == nil {
		return r
	}
	doc["jobs"] = json.RawMessage("[]")
	body, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return reply{r.status, body}
}

const unknownError = 99999 // a number that Slurm does not have

var errSilent = errors.New("no answer")

// ServeHTTP answers one call.
func (l *restLiar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // half a request: slurmrestd does nothing with one either
	}
	program := command(r.Method, r.URL.Path)
	mode, arg := l.mood(program)
	a, part, err := l.answer(r, body, program, mode, arg)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(a.body)))
	w.WriteHeader(a.status)
	w.Write(a.body[:part])
	if part < len(a.body) {
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// answer returns the answer to a call, and how many of its bytes are sent.
func (l *restLiar) answer(r *http.Request, body []byte, program, mode, arg string) (a reply, part int, err error) {
	whole := func(a reply, err error) (reply, int, error) { return a, len(a.body), err }
	seconds, _ := strconv.ParseFloat(arg, 64)
	pause := func() { time.Sleep(time.Duration(seconds * float64(time.Second))) }
	there := func() bool {
		_, err := os.Stat(l.flagFile(program))
		return err == nil
	}
	switch mode {
	case "hang":
		for there() {
			time.Sleep(100 * time.Millisecond)
		}
		return whole(l.pass(r, body))
	case "stuck", "slow":
		pause()
		return whole(l.pass(r, body))
	case "linger":
		a, err := l.pass(r, body)
		pause()
		return whole(a, err)
	case "unreachable":
		return whole(refusal(500, 1800, "Unable to contact slurm controller (connect failure)"), nil)
	case "lie":
		return whole(refusal(200, unknownError, "something went wrong"), nil)
	case "fail":
		return whole(refusal(500, unknownError, "something went wrong"), nil)
	case "hide": // fails until the job has its claim, then shows nothing
		if _, err := os.Stat(l.s.path(arg)); err != nil {
			return whole(refusal(500, unknownError, "something went wrong"), nil)
		}
	case "lost", "garbage", "cut", "complain":
		if a, err = l.pass(r, body); err != nil {
			return a, 0, err
		}
	case "two", "twolost":
		for range 2 {
			if a, err = l.pass(r, body); err != nil {
				return a, 0, err
			}
		}
	}
	switch {
	case mode == "lost" || mode == "twolost":
		return a, 0, errSilent
	case mode == "garbage":
		return whole(reply{200, []byte("Welcome to the cluster!\n\x01\xff")}, nil)
	case mode == "cut":
		return a, len(a.body) - 1, nil
	case mode == "complain":
		return whole(refusal(500, unknownError, "something went wrong"), nil)
	case mode == "two":
		return whole(a, nil)
	case mode == "nothing" && program == "sbatch":
		return whole(refusal(500, unknownError, "something went wrong"), nil)
	}
	if a, err = l.pass(r, body); err != nil {
		return a, 0, err
	}
	switch mode {
	case "nothing", "hide":
		return whole(a.without(), nil)
	case "half":
		percent, _ := strconv.Atoi(arg)
		return a, len(a.body) * percent / 100, nil
	case "completing":
		a.body = bytes.ReplaceAll(a.body, []byte(`"RUNNING"`), []byte(`"COMPLETING"`))
	case "strange":
		a.body = bytes.ReplaceAll(a.body, []byte(`"RUNNING"`), []byte(`"DREAMING"`))
	}
	return whole(a, nil)
}
