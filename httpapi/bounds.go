package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
)

// Bounds of one caller's requests.
const (
	smallBody    = 64 << 10 // bytes; a larger body takes a slot
	largeBodies  = 128      // in memory at a time
	largePerUser = 16       // of these, of one caller
	largeWait    = 5 * time.Second
	drainTime    = time.Second // for the rest of a body that is not read
)

// timed limits the time for the body of each request. When it has arrived, the connection has no deadline any more: a
// call may take longer.
func timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.ContentLength != 0 {
			control := http.NewResponseController(w)
			_ = control.SetReadDeadline(time.Now().Add(bodyTime)) // a recorder in a test has none
			req.Body = &timedBody{req.Body, control}
		}
		next.ServeHTTP(w, req)
	})
}

type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// leaveBody leaves the client of a request that is refused before its body is read only a moment to send the body.
// For a request without a body the server waits already for the connection's next request; a deadline would end the
// contexts of all requests that follow.
func leaveBody(w http.ResponseWriter, req *http.Request) {
	if req.ContentLength == 0 {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTime))
}

// largeBody bounds the memory that one caller's bodies take: a large one waits for its turn before it is read, and for memory before it is
// decoded. Uploads are not held in memory.
func (f *face) largeBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if n := req.ContentLength; n >= 0 && n <= smallBody || isUpload(req) {
			next.ServeHTTP(w, req)
			return
		}
		caller := CallerOf(req.Context()).Key()
		if err := f.bodies.Take(req.Context(), caller, largeWait); err != nil {
			leaveBody(w, req)
			w.Header().Set("Connection", "close")
			problem(w, err)
			return
		}
		defer f.bodies.Release(caller)
		ctx, release := f.Gate.Holding(req.Context(), CallerOf(req.Context()))
		defer release()
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

// queued lets requests that are no calls wait for a slot as calls do.
func (f *face) queued(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		leave, err := f.Gate.Enter(req.Context(), CallerOf(req.Context()))
		if err != nil {
			problem(w, err)
			return
		}
		defer leave()
		next(w, req)
	}
}

// streaming bounds what one caller has open that may last as long as its client likes: event streams, uploads, downloads.
func (f *face) streaming(w http.ResponseWriter, req *http.Request) (end func(), ok bool) {
	caller := CallerOf(req.Context()).Key()
	if f.streams.Add(caller) {
		return func() { f.streams.Remove(caller) }, true
	}
	leaveBody(w, req)
	problem(w, fault.New(fault.Transport, "too_many_streams",
		fmt.Sprintf("you have %d event streams, uploads and downloads open already", f.Streams)).
		WithNext("close some, or repeat the request when some have ended").WithRetry(retryIn))
	return nil, false
}

func newBodies() *gate.Turns { return gate.NewTurns(largeBodies, largePerUser) }
