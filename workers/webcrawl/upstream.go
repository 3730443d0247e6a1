package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
)

// upstreamBytes bounds an answer of the API. The gateway takes 8 MiB.
const upstreamBytes = 4 << 20

// upstream is the API that does the work:
//
//	POST BASE/v1/scrape   {"url","formats"}              → {"data":{…page…}}
//	POST BASE/v1/crawl    {"url","formats","maxPages"?}  → {"data":[{…page…}…]}
//
// A page has markdown, html, text or content, and url and title, which may also be in its metadata as sourceURL and title.
type upstream struct {
	base   string
	key    string // empty: file has it
	file   string
	client *http.Client

	mu   sync.Mutex
	seen []string // keys that this process has had: none of them may leave it
}

func newUpstream(base, key, file string) (*upstream, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("FIRECRAWL_BASE_URL must be an http or https address without user, query and fragment")
	}
	if (key == "") == (file == "") {
		return nil, errors.New("set either FIRECRAWL_API_KEY or FIRECRAWL_API_KEY_FILE")
	}
	// A redirect would take the request to a place that the configuration does not name.
	up := &upstream{base: strings.TrimSuffix(base, "/"), key: key, file: file, client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	_, err = up.secret()
	return up, err
}

// secret returns the key.
func (u *upstream) secret() (string, error) {
	text := u.key
	if u.file != "" {
		data, err := os.ReadFile(u.file)
		if err != nil {
			return "", errors.New("the file of FIRECRAWL_API_KEY_FILE cannot be read")
		}
		text = string(data)
	}
	key, err := checkKey(text)
	if err != nil {
		return "", err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !slices.Contains(u.seen, key) {
		u.seen = append(u.seen, key)
	}
	return key, nil
}

func (u *upstream) known() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.seen)
}

// output holds the tools' result.
type output struct {
	SourceURL string `json:"source_url"`
	Items     []item `json:"items"`
	Stats     stats  `json:"stats"`
}

type item struct {
	URL     string `json:"url"`
	Title   string `json:"title"`
	Content string `json:"content"`
	Format  string `json:"format"`
}

type stats struct {
	Pages int `json:"pages"`
}

// page is one of the API's.
type page struct {
	URL      string `json:"url"`
	Title    string `json:"title"`
	Markdown string `json:"markdown"`
	HTML     string `json:"html"`
	Text     string `json:"text"`
	Content  string `json:"content"`
	Metadata struct {
		Title     string `json:"title"`
		SourceURL string `json:"sourceURL"`
	} `json:"metadata"`
}

// fetch has a call done. Its errors are failures of the contract, and contain nothing of the API's answer.
func (u *upstream) fetch(ctx context.Context, in input) (*output, error) {
	key, err := u.secret()
	if err != nil {
		return nil, &failure{Code: "INTERNAL", Message: err.Error(), Details: map[string]any{}}
	}
	body, err := json.Marshal(struct {
		URL      string   `json:"url"`
		Formats  []string `json:"formats"`
		MaxPages *int     `json:"maxPages,omitempty"`
	}{in.URL, in.Formats, in.MaxPages})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.base+"/v1/"+in.Mode, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := u.client.Do(req)
	if err != nil {
		return nil, unreached(ctx)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, refused(resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, upstreamBytes+1))
	switch {
	case err != nil:
		return nil, unreached(ctx)
	case len(data) > upstreamBytes:
		return nil, failed(false, "the upstream's answer has more than %d bytes", upstreamBytes)
	}
	pages, err := readPages(data, in.Mode)
	if err != nil {
		return nil, failed(true, "the upstream's answer is not what its API promises")
	}
	return in.output(pages), nil
}

// refused maps a status: a key may be replaced and a server recover, but a faulty request stays faulty.
func refused(status int) *failure {
	f := failed(status == http.StatusUnauthorized || status >= 500, "the upstream answered with status %d", status)
	f.Details["status"] = status
	return f
}

func unreached(ctx context.Context) *failure {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return late()
	}
	return failed(true, "the upstream cannot be reached, or ended the connection")
}

func failed(retryable bool, format string, args ...any) *failure {
	return &failure{Code: "UPSTREAM_ERROR", Message: fmt.Sprintf(format, args...), Retryable: retryable, Details: map[string]any{}}
}

func readPages(data []byte, mode string) ([]page, error) {
	var many struct {
		Data []page `json:"data"`
	}
	if mode == "crawl" {
		err := json.Unmarshal(data, &many)
		if err == nil && many.Data == nil {
			err = errors.New("no data")
		}
		return many.Data, err
	}
	var one struct {
		Data *page `json:"data"`
	}
	if err := json.Unmarshal(data, &one); err != nil || one.Data == nil {
		return nil, errors.Join(err, errors.New("no data"))
	}
	return []page{*one.Data}, nil
}

// output makes an item of each format of each page.
func (in input) output(pages []page) *output {
	out := &output{SourceURL: in.URL, Items: []item{}, Stats: stats{Pages: len(pages)}}
	for _, p := range pages {
		for _, format := range in.Formats {
			content := map[string]string{"markdown": first(p.Markdown, p.Content), "html": p.HTML, "text": p.Text}[format]
			if content == "" {
				continue
			}
			out.Items = append(out.Items, item{URL: first(p.URL, p.Metadata.SourceURL, in.URL), Title: first(p.Title, p.Metadata.Title),
				Content: content, Format: format})
		}
	}
	return out
}

func first(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}
