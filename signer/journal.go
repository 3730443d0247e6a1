package signer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
)

// journal is the file that has a line of JSON for every certificate, and for every user who got none. It is opened
// for each line, so that logrotate needs to signal no process.
type journal struct {
	path string
	mu   sync.Mutex
}

// entry is a line of the journal.
type entry struct {
	Time            string   `json:"time"` // RFC 3339, UTC
	Event           string   `json:"event"`
	Serial          string   `json:"serial,omitempty"` // decimal; too large for a JSON number
	KeyID           string   `json:"key_id,omitempty"`
	Principal       string   `json:"principal"`
	UID             int      `json:"uid,omitzero"`
	Gateway         string   `json:"gateway"`
	Run             string   `json:"run"`
	Caller          string   `json:"caller"`
	AskedBy         int      `json:"asked_by_uid"`
	SourceAddresses []string `json:"source_addresses"`
	NotBefore       string   `json:"not_before,omitempty"`
	NotAfter        string   `json:"not_after,omitempty"`
	PublicKey       string   `json:"public_key"` // fingerprint
	CA              string   `json:"ca,omitempty"`
	Reason          string   `json:"reason,omitempty"`
}

const (
	signedEvent  = "signed"
	refusedEvent = "refused"
)

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func entryOf(w wanted, asker int, now time.Time) entry {
	return entry{Time: utc(now), Principal: w.User, Gateway: w.Gateway, Run: w.RunID, Caller: w.Caller, AskedBy: asker,
		SourceAddresses: w.SourceAddresses, PublicKey: ssh.FingerprintSHA256(w.key)}
}

// signed adds what a certificate has.
func (e entry) signed(cert *ssh.Certificate, uid int) entry {
	e.Event, e.UID, e.Serial, e.KeyID = signedEvent, uid, strconv.FormatUint(cert.Serial, 10), cert.KeyId
	e.NotBefore, e.NotAfter = utc(time.Unix(int64(cert.ValidAfter), 0)), utc(time.Unix(int64(cert.ValidBefore), 0))
	e.CA = ssh.FingerprintSHA256(cert.SignatureKey)
	return e
}

// write appends a line and returns when it is on the disk. After an error the file has no part of it.
func (j *journal) write(e entry) error {
	data, err := line(e)
	if err != nil {
		return away("the signer's log cannot be written", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.append(data); err != nil {
		return away("the signer's log cannot be written, so it signs nothing", err).
			WithNext("make room for " + j.path + " on the signer's host, or correct its rights")
	}
	return nil
}

func (j *journal) append(data []byte) (err error) {
	f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", j.path)
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Truncate(st.Size()))
	}
	return nil
}

// check makes sure that the file can be written, and that only root and this user can change it.
func (j *journal) check() error {
	f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fault.Wrap(fault.Validation, "signer_log", "the signer's log cannot be written", err).
			WithNext("make the folder " + filepath.Dir(j.path) + " and give it to the signer's user")
	}
	if err := f.Close(); err != nil {
		return away("the signer's log cannot be written", err)
	}
	return unalterable(j.path)
}
