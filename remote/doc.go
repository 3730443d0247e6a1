// Package remote reaches hosts of a cluster over SSH: it runs constant shell scripts there and opens SFTP channels.
//
// Nouns: a [Host] is a login node or a data host with the user, keys and jump hosts that lead to it. The kept
// connection is the one that all calls of a host share. A call is one run of a script. A mark is a random word that
// separates a script's output from that of the login shell's profile.
//
// The only command is /bin/sh -s, two words that every login shell reads the same way. Script and arguments follow on
// standard input, as one line of base64 (see frame.go), so a login shell never interprets them.
//
// An error shows whether the script may have been started, see [NotStarted]. With [Call.Once] this is certain until the
// start line was sent.
package remote
