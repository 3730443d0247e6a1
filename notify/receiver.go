package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
)

// ReceiverPrefix starts the URL, and the origin, of a named receiver of the site.
const ReceiverPrefix = "receiver:"

// Receiver is a named place. Its URL is a secret, like that of an incoming webhook of Slack or Teams: it is in a file
// of the site, and in no record, answer or log.
type Receiver struct {
	File   string // with the URL in its first line; read again for each try
	Secret string // file with a shared secret, whsec_BASE64: requests also have a signature v1; empty: no secret
	Text   bool   // it gets {"text":"…"}, for chats, instead of an event
}

// address reads the URL. Its error contains no part of the URL.
func (r Receiver) address() (string, error) {
	text, err := line(r.File)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(text)
	if err != nil || len(text) > MaxURL || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" ||
		strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("its file must contain one https or http URL of at most %d bytes", MaxURL)
	}
	return text, nil
}

// shared returns the signature v1 (HMAC-SHA256) of the signed bytes, with a space before it; empty without a shared
// secret.
func (r Receiver) shared(signed []byte) (string, error) {
	if r.Secret == "" {
		return "", nil
	}
	text, err := line(r.Secret)
	if err != nil {
		return "", err
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_"))
	if err != nil || len(key) < 24 || len(key) > 64 || !strings.HasPrefix(text, "whsec_") {
		return "", errors.New("its file must contain whsec_ and 24 to 64 bytes in base64")
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(signed)
	return " v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), nil
}

// line reads a file of one line. It refuses a file that is readable for all users.
func line(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", errors.New("its file cannot be opened")
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Mode().Perm()&0o007 != 0 {
		return "", errors.New("its file is not a regular file, or everybody may read or write it")
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxURL+2))
	if err != nil {
		return "", errors.New("its file cannot be read")
	}
	return strings.TrimSpace(string(data)), nil
}
