package rest

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"slurmgate/fault"
	"slurmgate/slurm"
)

// SubmitProbe posts a probe job, as [slurm.CLI.SubmitProbe] does with sbatch. It costs one RPC.
func (s *Slurm) SubmitProbe(ctx context.Context, p slurm.NodeProbe) (id string, err error) {
	if err := s.budget.Spend(ctx, 1); err != nil {
		return "", err
	}
	v, err := s.client.negotiated(ctx)
	if err != nil {
		return "", err
	}
	body, err := v.body(append(slurm.ProbeArgs(p), p.Script), []byte(p.Text))
	if err != nil {
		return "", fault.Wrap(fault.Validation, "probe_refused", "the probe job cannot be sent through slurmrestd", err)
	}
	var made submitted
	_, err = s.client.call(ctx, request{method: http.MethodPost, path: "/slurm/" + v.name + "/job/submit", body: body,
		members: made.members()})
	if len(made.ids) > 0 {
		return strconv.FormatInt(made.ids[0], 10), nil
	}
	if err == nil {
		err = fault.New(fault.Transport, "probe_refused", "slurmrestd's answer names no job: "+strings.TrimSpace(made.message))
	}
	return "", err
}
