//go:build !chaos

package main

import "slurmgate/run"

// inject is the identity in every build but the one for the crash campaign.
func inject(p run.Parts) run.Parts { return p }
