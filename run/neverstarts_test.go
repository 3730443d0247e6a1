package run

import (
	"strings"
	"testing"
)

// A pending reason that time does not resolve names who can change it. A reason that may pass is shown as it is.
func TestPendingReasons(t *testing.T) {
	for _, why := range []string{"QOSMaxWallDurationPerJobLimit", "QOSMaxCpuPerJobLimit", "QOSMaxMemoryPerJob", "QOSMinCpuNotSatisfied",
		"AssocMaxWallDurationPerJobLimit", "AssocMaxCpuPerJobLimit", "PartitionTimeLimit", "PartitionNodeLimit", "DependencyNeverSatisfied",
		"AccountNotAllowed", "InvalidQOS", "JobHeldAdmin", "JobHeldUser"} {
		reason, detail := pendingReason(why)
		if reason != NeverStarts || !strings.HasPrefix(detail, "Slurm says "+why+": ") || !strings.Contains(detail, "dministrator can") {
			t.Errorf("pendingReason(%s) = %s, %q; want %s with Slurm's word and who can change it", why, reason, detail, NeverStarts)
		}
	}
	for _, why := range []string{"QOSMaxCpuPerUserLimit", "QOSGrpCpuLimit", "AssocGrpCpuLimit", "AssocMaxJobsLimit", "PartitionDown",
		"Priority", "ReqNodeNotAvail, UnavailableNodes:n1", "Dependency", "BeginTime"} {
		if reason, detail := pendingReason(why); reason != "waiting_in_slurm" || detail != why {
			t.Errorf("pendingReason(%s) = %s, %q; want waiting_in_slurm and the word alone", why, reason, detail)
		}
	}
}
