package retention

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"slurmgate/fault"
)

// Secret is a text to find and erase, in every form in which programs write it. It is in memory only, and never part
// of a message, a record or an argument.
type Secret struct {
	forms   [][]byte // the longest first
	base64s [][]byte // its certain part in base64, whatever is before and after it
	mark    []byte   // what replaces it
}

// Bounds of a secret, in bytes: a shorter one would match other text, a longer one is a document.
const (
	SecretLeast = 8
	SecretMost  = 16 << 10
)

// Mark starts the replacement of a secret in texts; the id of the erasure and "]" follow.
const Mark = "[erased:"

// NewSecret prepares the search for a text. A line end after it is not part of it. id is the erasure's.
func NewSecret(text []byte, id string) (*Secret, error) {
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	if n := len(text); n < SecretLeast || n > SecretMost {
		return nil, fault.New(fault.Validation, "secret_length", fmt.Sprintf("the secret has %d bytes; %d to %d are possible", n,
			SecretLeast, SecretMost)).WithNext("give the whole secret, and nothing else, on standard input or in a file")
	}
	if spread := len(slices.Compact(slices.Sorted(slices.Values(text)))); spread < 4 {
		return nil, fault.New(fault.Validation, "secret_common", "the secret has fewer than 4 different characters, so it "+
			"would be found in many other texts").WithNext("give the whole secret, and nothing else")
	}
	s := &Secret{mark: []byte(Mark + id + "]")}
	add := func(forms ...string) {
		for _, f := range forms {
			if !slices.ContainsFunc(s.forms, func(g []byte) bool { return string(g) == f }) {
				s.forms = append(s.forms, []byte(f))
			}
		}
	}
	plain := string(text)
	single := []string{plain, strings.ReplaceAll(plain, "\n", "\r\n")}
	for _, quote := range []string{`'\''`, `'"'"'`, `\'`} {
		single = append(single, strings.ReplaceAll(plain, "'", quote))
	}
	single = append(single, escaped(plain, "\\\"$`"), escaped(plain, " \\\"$`'|&;()<>*?[]#~=%!{}"))
	for _, f := range single { // a shell's form may be in JSON, and that in JSON again
		once := jsonForms(f)
		add(f)
		add(once...)
		for _, g := range once {
			add(jsonForms(g)...)
		}
	}
	for _, f := range []string{url.QueryEscape(plain), url.PathEscape(plain), percent(text)} {
		add(f, lowerEscapes(f))
	}
	add(hex.EncodeToString(text), strings.ToUpper(hex.EncodeToString(text)))
	slices.SortFunc(s.forms, func(a, b []byte) int { return len(b) - len(a) })
	for before := range 3 {
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			whole := e.EncodeToString(append(make([]byte, before), text...))
			first := (before*8 + 5) / 6          // characters that depend on what is before
			last := (before + len(text)) * 8 / 6 // those after depend on the bytes that follow
			core := []byte(whole[first:min(last, len(whole))])
			if len(core) >= SecretLeast && !slices.ContainsFunc(s.base64s, func(g []byte) bool { return bytes.Equal(g, core) }) {
				s.base64s = append(s.base64s, core)
			}
		}
	}
	return s, nil
}

// escaped puts a backslash before each of the characters.
func escaped(s, chars string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune(chars, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// jsonForms returns a text inside a JSON string, as encoders write it: plain, with the characters of HTML escaped,
// and in ASCII.
func jsonForms(s string) (out []string) {
	for _, html := range []bool{false, true} {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(html)
		if e.Encode(s) != nil {
			continue
		}
		text := strings.TrimSuffix(b.String(), "\n")
		text = text[1 : len(text)-1]
		out = append(out, text, strings.ReplaceAll(text, "/", `\/`))
	}
	var ascii strings.Builder
	for _, r := range out[0] {
		switch {
		case r < 0x80:
			ascii.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&ascii, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			fmt.Fprintf(&ascii, `\u%04x`, r)
		}
	}
	return append(out, ascii.String())
}

// percent escapes every byte but letters, digits and - . _ ~.
func percent(text []byte) string {
	var b strings.Builder
	for _, c := range text {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// lowerEscapes writes the digits of %XX in lower case.
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}

// In reports whether a text has the secret.
func (s *Secret) In(b []byte) bool {
	for _, list := range [][][]byte{s.forms, s.base64s} {
		for _, f := range list {
			if bytes.Contains(b, f) {
				return true
			}
		}
	}
	return false
}

// Redact returns a text without the secret, and how often it occurred.
func (s *Secret) Redact(b []byte) (out []byte, n int) {
	out = b
	for _, f := range s.forms {
		if c := bytes.Count(out, f); c > 0 {
			out, n = bytes.ReplaceAll(out, f, s.mark), n+c
		}
	}
	for _, f := range s.base64s {
		for at := bytes.Index(out, f); at >= 0; at = bytes.Index(out, f) {
			from, to := at, at+len(f)
			for i := 0; i < 2 && from > 0 && inBase64(out[from-1]); i++ { // these have a part of the first and the last byte
				from--
			}
			for i := 0; i < 2 && to < len(out) && inBase64(out[to]); i++ {
				to++
			}
			out, n = slices.Concat(out[:from], s.mark, out[to:]), n+1
		}
	}
	return out, n
}

func inBase64(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("+/-_", c) >= 0
}

const (
	searchPiece  = 1 << 20
	inflatedMost = 8 << 30 // of one gzip file
)

// Search reports whether a file has the secret, in its bytes or, for gzip, in its content. whole is false if a part
// could not be searched. open is called once or twice.
func (s *Secret) Search(ctx context.Context, open func() (io.ReadCloser, error)) (found, whole bool, err error) {
	r, err := open()
	if err != nil {
		return false, false, err
	}
	defer r.Close()
	head := make([]byte, 2)
	n, _ := io.ReadFull(r, head)
	found, err = s.searchStream(ctx, io.MultiReader(bytes.NewReader(head[:n]), r))
	if found || err != nil || string(head[:n]) != "\x1f\x8b" {
		return found, true, err
	}
	again, err := open()
	if err != nil {
		return false, false, err
	}
	defer again.Close()
	z, err := gzip.NewReader(again)
	if err != nil {
		return false, true, nil // it only begins like gzip
	}
	limited := &io.LimitedReader{R: z, N: inflatedMost}
	found, err = s.searchStream(ctx, limited)
	if ctx.Err() != nil {
		return found, false, err
	}
	return found, err == nil && limited.N > 0, nil // a damaged file ends early
}

func (s *Secret) searchStream(ctx context.Context, r io.Reader) (bool, error) {
	longest := len(s.forms[0])
	for _, f := range s.base64s {
		longest = max(longest, len(f))
	}
	buf := make([]byte, 0, searchPiece+longest)
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		var err error
		for full := len(buf) + searchPiece; len(buf) < full && err == nil; { // not io.ReadFull: it hides that a file ends too early
			var n int
			n, err = r.Read(buf[len(buf):full])
			buf = buf[:len(buf)+n]
		}
		if s.In(buf) {
			return true, nil
		}
		switch {
		case err == io.EOF:
			return false, nil
		case err != nil:
			return false, err
		}
		keep := min(len(buf), longest-1)
		buf = append(buf[:0], buf[len(buf)-keep:]...)
	}
}
