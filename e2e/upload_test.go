package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"
)

// cutBody gives the first bytes of a body and then breaks the line off.
type cutBody struct {
	io.Reader
	off context.CancelFunc
}

func (c cutBody) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if err == io.EOF {
		time.Sleep(300 * time.Millisecond) // what was sent arrives
		c.off()
		return n, context.Canceled
	}
	return n, err
}

// part sends bytes of an upload, all that are left or, when to is below their number, some of them before the line breaks.
func (p *port) part(data []byte, at, to int) (status int, answer map[string]any) {
	p.t.Helper()
	ctx, off := context.WithTimeout(p.t.Context(), patience)
	defer off()
	body := io.Reader(bytes.NewReader(data[at:]))
	if to < len(data) {
		body = cutBody{bytes.NewReader(data[at:to]), off}
	}
	url := fmt.Sprintf("%s/v1/artifacts?label=reads&upload_key=of-monday&offset=%d", p.url, at)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	must(p.t, err)
	req.ContentLength = int64(len(data) - at)
	for name, value := range map[string]string{"Authorization": "Bearer " + p.token, "Content-Type": "application/octet-stream",
		"Expect": "100-continue"} {
		req.Header.Set(name, value)
	}
	client := http.Client{Transport: &http.Transport{ExpectContinueTimeout: 10 * time.Second, DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	must(p.t, json.NewDecoder(res.Body).Decode(&answer))
	return res.StatusCode, answer
}

// stored asks for how much of the upload the gateway has, as whoever sent it does: at a wrong byte.
func (p *port) stored(data []byte) (n int) {
	p.t.Helper()
	until(p.t, patience, "upload that can go on", func() bool {
		status, answer := p.part(data, 1, len(data))
		details, _ := answer["details"].(map[string]any)
		if status != http.StatusConflict || answer["code"] != "upload_offset" { // the gateway has not seen yet that the line is gone
			return false
		}
		n = int(details["offset"].(float64))
		sum := sha256.Sum256(data[:n])
		same(p.t, "checksum of what is stored", details["sha256"].(string), hex.EncodeToString(sum[:]))
		return true
	})
	return n
}

// An upload whose line breaks goes on where it was, and after a kill of the gateway where it last was durable; what is asked again is
// answered before the body is sent.
//
// proves DATA-05
func TestUploadGoesOn(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics")
	p := s.openPort(t)
	data := make([]byte, 400<<20)
	_, _ = rand.NewChaCha8([32]byte{19}).Read(data)
	first := 60 << 20
	p.part(data, 0, first)
	have := p.stored(data)
	if have == 0 || have > first {
		t.Fatalf("%d bytes are stored of %d that were sent", have, first)
	}
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		p.part(data, have, len(data)-1) // the last byte never comes
	}()
	time.Sleep(4 * time.Second)
	p.by.signal("KILL")
	p.by.ended(t)
	<-killed
	s.serve()
	again := p.stored(data)
	if again < have {
		t.Errorf("%d bytes are stored after the kill, and %d were before", again, have)
	}
	t.Logf("stored: %d, after the kill %d of %d", have, again, len(data))
	status, made := p.part(data, again, len(data))
	sum := sha256.Sum256(data)
	if status != http.StatusCreated || made["checksum_sha256"] != hex.EncodeToString(sum[:]) || made["size_bytes"] != float64(len(data)) {
		t.Errorf("%d %v", status, made)
	}
	if left := shell(t, "lab", `find "$1" -name 'part-*' | wc -l`, s.dir); left != "0" {
		t.Errorf("%s parts are left", left)
	}
}
