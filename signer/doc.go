// Package signer issues the short SSH user certificates that the gateway logs in with as the person who asked (slurm.run_as: caller).
//
// It runs as a separate process under a separate user. It alone can use the key of the certificate authority (CA), and it
// decides by its own configuration for whom it signs, whatever the gateway requests: an attacker with the gateway's rights
// gets no certificate for root, for a system user or for a member of a group that may become root.
//
// Nouns: the [Server] answers requests at a unix socket, each connection with one request and one answer. The CA is the key
// that signs, in a file or in an SSH agent. The guard decides whether a user may have a certificate. The journal is the file
// that has a line for every certificate before it is sent. A [Client] is the gateway's side of the socket.
package signer
