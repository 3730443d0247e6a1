//go:build cluster && !clusterlong

package slurm

// waitForRelease: Slurm holds a requeued job back for 2 minutes; only the long campaign waits for its second
// start. A release by hand is an operator's privilege.
const waitForRelease = false
