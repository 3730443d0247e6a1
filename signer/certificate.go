package signer

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
)

const (
	sourceAddress = "source-address" // critical option, PROTOCOL.certkeys of OpenSSH
	clockSkew     = time.Minute      // sshd's clock may be behind by that much
)

// certificate returns the certificate to sign: for one user and from certain addresses, without any extension. So
// sshd allows no terminal and forwards nothing.
func (w wanted) certificate(now time.Time) (*ssh.Certificate, error) {
	var serial [8]byte
	if _, err := rand.Read(serial[:]); err != nil {
		return nil, fault.Wrap(fault.Internal, "random", "no random number for a serial", err)
	}
	return &ssh.Certificate{Key: w.key, CertType: ssh.UserCert, Serial: binary.BigEndian.Uint64(serial[:]), KeyId: w.keyID(),
		ValidPrincipals: []string{w.User}, ValidAfter: uint64(now.Add(-clockSkew).Unix()), ValidBefore: uint64(now.Add(w.valid).Unix()),
		Permissions: ssh.Permissions{CriticalOptions: map[string]string{sourceAddress: w.addresses()}}}, nil
}

// keyID returns the text that sshd logs at each login.
func (w wanted) keyID() string {
	return "slurmgate gateway=" + word(w.Gateway) + " run=" + word(w.RunID) + " caller=" + word(w.Caller)
}

// word makes a text a single word of printable ASCII, at most maxWord bytes: what else it has is escaped as %XX.
func word(text string) string {
	var b strings.Builder
	for i := range len(text) {
		next := text[i : i+1]
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '%' || c == '=' || c == '"' || c == '\\' {
			next = fmt.Sprintf("%%%02X", c)
		}
		if b.Len()+len(next) > maxWord {
			break
		}
		b.WriteString(next)
	}
	return b.String()
}
