//go:build chaos

package main

import "slurmgate/chaos/seams"

var inject = seams.FromEnvironment()
