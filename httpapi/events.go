package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"slurmgate/fault"
)

const (
	eventsEvery = time.Second      // between two reads of the ledger for one stream
	keepAlive   = 15 * time.Second // a comment, so that proxies keep a quiet stream
	streamTime  = 30 * time.Minute // then a client connects again with Last-Event-ID
)

// events serves GET /v1/runs/{run_id}/events: the history of a run, as JSON, or as a stream of server-sent events
// until the run has ended. The gate allows the read once; the rest of the stream is part of it. While a run's files
// are staged or collected, the stream also has events named progress, without a number, that are stored nowhere.
func (f *face) events(w http.ResponseWriter, req *http.Request, _ endpoint) {
	id := chi.URLParam(req, "run_id")
	after, err := lastSeen(req)
	if err != nil {
		f.malformed(w, req, "slurm.job.get", http.StatusBadRequest, err)
		return
	}
	if f.Events == nil {
		problem(w, fault.New(fault.NotFound, "no_such_path", "this gateway does not serve events"))
		return
	}
	if _, ok := f.call(w, req, "slurm.job.get", map[string]json.RawMessage{"run_id": text(id)}); !ok {
		return
	}
	if !strings.Contains(req.Header.Get("Accept"), "text/event-stream") {
		list, over, err := f.Events(req.Context(), id, after)
		if err != nil {
			f.problem(w, err)
			return
		}
		writeJSON(w, http.StatusOK, "application/json", map[string]any{"run_id": id, "events": orEmpty(list), "over": over})
		return
	}
	if end, ok := f.streaming(w, req); ok {
		defer end()
		f.stream(w, req, id, after)
	}
}

// lastSeen returns the number of the last event the client has: from the header a browser sends when it connects
// again, or from the query.
func lastSeen(req *http.Request) (int64, error) {
	args, err := arguments(req.URL, map[string]string{"after": textType})
	if err != nil {
		return 0, err
	}
	given := req.Header.Get("Last-Event-ID")
	if raw, ok := args["after"]; ok {
		_ = json.Unmarshal(raw, &given) // it is a text
	}
	if given == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(given, 10, 64)
	if err != nil || n < 0 {
		return 0, fault.Invalid("", fault.Problem{Code: "QUERY", Field: "after", Rule: "the number of an event",
			Msg: "the value is not a number"})
	}
	return n, nil
}

func (f *face) stream(w http.ResponseWriter, req *http.Request, id string, after int64) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // makes a proxy pass on each event
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	tick, quiet, end := time.NewTicker(eventsEvery), time.Now(), time.NewTimer(streamTime)
	defer tick.Stop()
	defer end.Stop()
	for {
		list, over, err := f.Events(req.Context(), id, after)
		if err != nil {
			return // the client connects again
		}
		for _, e := range list {
			data, err := json.Marshal(e)
			if err != nil {
				return
			}
			fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", e.Seq, oneLine(e.Type), data)
			after, quiet = e.Seq, time.Now()
		}
		if f.Moving != nil && !over {
			if m := f.Moving(req.Context(), id); m != nil {
				fmt.Fprintf(w, "event: progress\ndata: %s\n\n", m)
				quiet = time.Now()
			}
		}
		if over {
			fmt.Fprintf(w, "event: over\ndata: {}\n\n")
		} else if time.Since(quiet) > keepAlive {
			fmt.Fprint(w, ": nothing new\n\n")
			quiet = time.Now()
		}
		if out.Flush() != nil || over {
			return
		}
		select {
		case <-tick.C:
		case <-req.Context().Done():
			return
		case <-f.stopping:
			return
		case <-end.C:
			return
		}
	}
}
