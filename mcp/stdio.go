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

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	maxLine    = 8 * maxBody      // of a line that is read whole, to answer it under its id
	settleTime = 45 * time.Second // to wait for answers after the end of the input: a little more than the longest wait of a call
)

// Serve speaks the protocol on in and out, one JSON-RPC message per line, until in or ctx ends.
func Serve(ctx context.Context, s *sdk.Server, in io.Reader, out io.Writer) error {
	l := &lines{out: out, incoming: make(chan jsonrpc.Message), closed: make(chan struct{}), answered: make(chan struct{}, 1)}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	go func() {
		l.read(in)
		l.settle(ctx) // a client that writes everything at once and closes still gets its answers
		close(l.incoming)
	}()
	err := s.Run(ctx, l)
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

// lines is a connection whose messages are lines. The SDK's own ends the session at a line that is not a message –
// too long, not JSON, not a request – without an answer; here it is answered as the protocol requires, and the
// session continues.
type lines struct {
	incoming chan jsonrpc.Message // closed at the end of the input
	closed   chan struct{}
	close    func()

	mu       sync.Mutex
	out      io.Writer
	open     int           // requests without an answer
	answered chan struct{} // poked by each answer
}

// Connect implements sdk.Transport.
func (l *lines) Connect(context.Context) (sdk.Connection, error) { return l, nil }

// SessionID implements sdk.Connection.
func (l *lines) SessionID() string { return "" }

// Close implements sdk.Connection.
func (l *lines) Close() error {
	l.close()
	return nil
}

// Read implements sdk.Connection.
func (l *lines) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m, ok := <-l.incoming:
		if ok {
			return m, nil
		}
	case <-l.closed:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return nil, io.EOF
}

// Write implements sdk.Connection.
func (l *lines) Write(_ context.Context, m jsonrpc.Message) error {
	b, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	_, isAnswer := m.(*jsonrpc.Response)
	return l.write(b, isAnswer)
}

func (l *lines) write(b []byte, isAnswer bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if isAnswer {
		l.open--
		select {
		case l.answered <- struct{}{}:
		default:
		}
	}
	_, err := l.out.Write(append(b, '\n'))
	return err
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

// read passes on the messages of in and answers every other line, until in or the connection ends.
func (l *lines) read(in io.Reader) {
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := readLine(r)
		if len(bytes.TrimSpace(line)) > 0 {
			m, bad := decode(line)
			if bad != nil {
				l.refuse(line, bad)
			} else if !l.pass(m) {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass sends a message to the session; false when it has ended.
func (l *lines) pass(m jsonrpc.Message) bool {
	if req, ok := m.(*jsonrpc.Request); ok && req.IsCall() {
		l.mu.Lock()
		l.open++
		l.mu.Unlock()
	}
	select {
	case l.incoming <- m:
		return true
	case <-l.closed:
		return false
	}
}

// readLine reads up to the end of a line. Of one that is longer than maxLine it returns the beginning.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part[:min(len(part), maxLine-len(line))]...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimRight(line, "\r\n"), err
		}
	}
}

// decode reads a line. A request has a string or a whole number for its id: another would be returned changed, or, if it is null, not at
// all.
func decode(line []byte) (jsonrpc.Message, *jsonrpc.Error) {
	var m struct {
		Method *string         `json:"method"`
		ID     json.RawMessage `json:"id"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
		Params json.RawMessage `json:"params"`
	}
	bad := func(code int64, why string) (jsonrpc.Message, *jsonrpc.Error) {
		return nil, &jsonrpc.Error{Code: code, Message: why}
	}
	switch {
	case len(line) > maxBody:
		return bad(jsonrpc.CodeInvalidRequest,
			fmt.Sprintf("the message is longer than %d bytes. Next: pass less; a file comes in by its path", maxBody))
	case !json.Valid(line):
		return bad(jsonrpc.CodeParseError, "the line is not JSON")
	}
	out, err := jsonrpc.DecodeMessage(line)
	if uerr := json.Unmarshal(line, &m); err == nil {
		err = uerr
	}
	switch {
	case len(m.ID) > 0 && !isID(m.ID) && (m.Method != nil || string(m.ID) != "null"): // an error may answer a message without an id
		return bad(jsonrpc.CodeInvalidRequest, "the id is neither a string nor a whole number")
	case err != nil:
		return bad(jsonrpc.CodeInvalidRequest, `the line is not one message of JSON-RPC "2.0"`)
	case m.Method == nil && m.Result == nil && m.Error == nil:
		return bad(jsonrpc.CodeInvalidRequest, "the message has no method")
	case len(m.Params) > 0 && m.Params[0] != '{' && string(m.Params) != "null":
		return bad(jsonrpc.CodeInvalidParams, "params is not an object")
	}
	return out, nil
}

func isID(raw json.RawMessage) bool {
	if raw[0] == '"' {
		return true
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return err == nil && n <= 1<<53-1 && n >= -(1<<53-1)
}

// refuse answers a line that is not a message. A line that is only too long is answered under its own id: its client waits for that.
func (l *lines) refuse(line []byte, why *jsonrpc.Error) {
	var m struct {
		ID json.RawMessage `json:"id"`
	}
	if len(line) <= maxBody || json.Unmarshal(line, &m) != nil || len(m.ID) == 0 || !isID(m.ID) {
		m.ID = json.RawMessage("null")
	}
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": why})
	if err == nil {
		_ = l.write(b, false) // this fails when the client has disconnected
	}
}
