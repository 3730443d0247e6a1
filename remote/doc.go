// Package remote reaches hosts of a cluster over SSH: it runs constant shell scripts there and opens SFTP channels.
//
// Nouns: a [Host] is a login node or a data host with the user, keys and jump hosts that lead to it. The kept connection is the one that
// all calls of a host share. A call is one run of a script. A mark is a random word that separates what a script prints from what the login
// shell's profile prints.
//
// The only command that is ever sent is /bin/sh -s, two words that every login shell understands alike. Script and arguments follow on
// standard input, as one line of base64 (frame.go draws it), so a login shell never reads any of them.
//
// An error says whether the script may have been started, see [NotStarted]. With [Call.Once] that is certain until the far shell has been
// told to start it.
package remote
