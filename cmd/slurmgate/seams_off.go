//go:build !chaos

package main

import "slurmgate/run"

// seams is the identity in every build but the one of the crash tests (build tag chaos), which dies at named
// places around each side effect.
func seams(p run.Parts) run.Parts { return p }
