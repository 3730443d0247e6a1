//go:build !chaos

package main

import "slurmgate/run"

// inject returns p unchanged in every build but the one for the crash campaign.
func inject(p run.Parts) run.Parts { return p }
