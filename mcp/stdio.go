package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Serve speaks the protocol on in and out, one JSON-RPC message per line, until in or ctx ends. A line that is not a message – too
// long, not JSON, not a request – is answered as the protocol requires and does not end the session.
func Serve(ctx context.Context, s *sdk.Server, in io.Reader, out io.Writer) error {
	w := &lines{w: out, answered: make(chan struct{}, 1)}
	r, feed := io.Pipe()
	go func() {
		err := messages(in, feed, w)
		w.settle(ctx) // a client that writes everything at once and closes still gets its answers
		feed.CloseWithError(err)
	}()
	err := s.Run(ctx, &sdk.IOTransport{Reader: r, Writer: w, MaxLineLength: 2 * maxBody})
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

// settleTime bounds the wait for answers after the end of the input: a little more than the longest wait of a call.
const settleTime = 45 * time.Second

// lines writes complete lines, from several goroutines, and counts the requests without an answer.
type lines struct {
	mu       sync.Mutex
	w        io.Writer
	open     int
	answered chan struct{} // poked by each answer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.w.Write(p)
	if _, isRequest := methodOf(p); !isRequest {
		l.open--
		select {
		case l.answered <- struct{}{}:
		default:
		}
	}
	return n, err
}

func (l *lines) asked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
}

// settle waits until every request has its answer.
func (l *lines) settle(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, settleTime)
	defer stop()
	for {
		l.mu.Lock()
		open := l.open
		l.mu.Unlock()
		if open <= 0 {
			return
		}
		select {
		case <-l.answered:
		case <-ctx.Done():
			return
		}
	}
}

// methodOf returns a message's method, and whether it has an id.
func methodOf(line []byte) (hasID, has bool) {
	var m struct {
		Method *string         `json:"method"`
		ID     json.RawMessage `json:"id"`
	}
	_ = json.Unmarshal(line, &m) // it is known to be a message
	return len(m.ID) > 0, m.Method != nil
}

func (l *lines) Close() error { return nil }

// messages passes on the lines of in that are messages, and answers the others. It stores only one line.
func messages(in io.Reader, feed io.Writer, answers *lines) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		line, tooLong, err := readLine(r)
		switch {
		case tooLong != nil:
			refuse(answers, tooLong.found(), -32600, fmt.Sprintf("the message is longer than %d bytes. Next: pass less; a file comes in by its "+
				"path", maxBody))
		case len(bytes.TrimSpace(line)) == 0:
		default:
			if code, why := malformed(line); why != "" {
				refuse(answers, json.RawMessage("null"), code, why)
			} else {
				if hasID, isRequest := methodOf(line); hasID && isRequest {
					answers.asked()
				}
				if _, err := feed.Write(append(line, '\n')); err != nil {
					return err
				}
			}
		}
		if err != nil {
			return err
		}
	}
}

// readLine reads up to the end of a line. Of a line that is too long it stores only the request's id.
func readLine(r *bufio.Reader) (line []byte, tooLong *idFinder, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if tooLong == nil {
			line = append(line, part...)
		} else {
			tooLong.read(part)
		}
		if len(line) > maxBody {
			tooLong = &idFinder{}
			tooLong.read(line)
			line = nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimRight(line, "\r\n"), tooLong, err
		}
	}
}

// malformed returns what is wrong with a line that is not a JSON-RPC message.
func malformed(line []byte) (code int, why string) {
	if !json.Valid(line) {
		return -32700, "the line is not JSON"
	}
	var m struct {
		Version string          `json:"jsonrpc"`
		Method  *string         `json:"method"`
		ID      json.RawMessage `json:"id"`
		Result  json.RawMessage `json:"result"`
		Error   json.RawMessage `json:"error"`
		Params  json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(line, &m); err != nil || m.Version != "2.0" {
		return -32600, `the line is not one message of JSON-RPC "2.0"`
	}
	switch {
	case m.Method == nil && m.Result == nil && m.Error == nil:
		return -32600, "the message has no method"
	case len(m.ID) > 0 && !isID(m.ID) && (m.Method != nil || string(m.ID) != "null"): // an error may answer a message without an id
		return -32600, "the id is neither a string nor a whole number"
	case len(m.Params) > 0 && m.Params[0] != '{' && string(m.Params) != "null":
		return -32602, "params is not an object"
	}
	return 0, ""
}

// isID reports whether a request may have this id: another would be returned changed, or, if it is null, not at all.
func isID(raw json.RawMessage) bool {
	if raw[0] == '"' {
		return true
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return err == nil && n <= 1<<53-1 && n >= -(1<<53-1)
}

func refuse(w *lines, id json.RawMessage, code int, why string) {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": why}})
	if err == nil {
		w.asked()                       // it was not counted; its answer is
		_, _ = w.Write(append(b, '\n')) // the client is gone if this fails
	}
}
