package run

import (
	"regexp"
	"strings"
)

// NeverStarts is the reason of a run whose job waits in Slurm for something that does not happen by itself.
const NeverStarts = "never_starts"

// hopeless has Slurm's reasons for a pending job that time does not resolve, and who can resolve them. A limit for all
// jobs of a user, an account or a QOS together is not among them: it has room again when others end.
var hopeless = []struct {
	why  *regexp.Regexp
	text string
}{
	{regexp.MustCompile(`^QOS(Max.*PerJob.*|Min.*)$`), "the job asks for what its QOS does not allow one job. " + askLess + " or another QOS"},
	{regexp.MustCompile(`^Assoc(Max.*PerJob.*|Min.*)$`), "the job asks for more than its account or user may use in one job. " + askLess +
		" or another account"},
	{regexp.MustCompile(`^Partition(Time|Node)Limit$`), "the job asks for more time or nodes than its partition allows. " + askLess +
		" or another partition"},
	{regexp.MustCompile(`^(AccountNotAllowed|InvalidAccount)$`), "the account may not be used for this job. " + askOther + "account"},
	{regexp.MustCompile(`^(QOSNotAllowed|InvalidQOS)$`), "the QOS may not be used for this job. " + askOther + "QOS"},
	{regexp.MustCompile(`^DependencyNeverSatisfied$`), "the job depends on another one that did not end as it should. slurmgate asks for no " +
		"dependency: a person or a job_submit plugin of the site added it, and an administrator can remove it (scontrol update dependency=)"},
	{regexp.MustCompile(`^(JobHeldAdmin|JobHoldMaxRequeue|launch[_ ]failed[_ ]requeued[_ ]held)$`), "the job is held, and an administrator can " +
		"release it (scontrol release)"},
	{regexp.MustCompile(`^JobHeldUser$`), "a user has held the job, and that user or an administrator can release it (scontrol release)"},
}

const (
	askLess  = "An administrator can change the limit or the job; the caller can cancel the run and ask for less,"
	askOther = "An administrator can allow it or change the job; the caller can cancel the run and ask for another "
)

// pendingReason returns the reason and the detail of a run whose job waits in Slurm for why.
func pendingReason(why string) (reason, detail string) {
	for _, h := range hopeless {
		if h.why.MatchString(strings.TrimSpace(why)) {
			return NeverStarts, "Slurm says " + why + ": " + h.text
		}
	}
	return "waiting_in_slurm", why
}
