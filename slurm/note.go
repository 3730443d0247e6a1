package slurm

import (
	"fmt"
	"strings"

	"slurmgate/run"
)

// maxNote bounds each word of a job's comment, in bytes after escaping. The id of the principal is always whole.
const maxNote = 160

// note returns the job's comment, for squeue and sacct: which tool it runs and for whom. Only people read it; a job is
// found again by its name.
//
//	slurmgate,tool=samtools.flagstat,by=user:alice,id=prn_0D6C7B2A49E1F35880A2C6D41B
func note(job run.JobSpec) string {
	text := "slurmgate,tool=" + noted(job.ToolID)
	if job.Principal.Name != "" {
		text += ",by=" + noted(job.Principal.Name)
	}
	if job.Principal.ID != "" {
		text += ",id=" + noted(job.Principal.ID)
	}
	return text
}

// noted escapes a word: every byte but ASCII letters, digits and a few signs becomes %XX. A word cut at maxNote ends
// with ~.
func noted(word string) string {
	var b strings.Builder
	for _, c := range []byte(word) {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._:/@#+-", c) >= 0
		if b.Len() > maxNote-3 {
			return b.String() + "~"
		}
		if plain {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
