package rest

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"slurmgate/fault"
	"slurmgate/slurm"
)

// Slurm's numbers for a job that cannot be cancelled because there is nothing to cancel.
const (
	invalidJobID = 2017 // ESLURM_INVALID_JOB_ID
	alreadyDone  = 2021 // ESLURM_ALREADY_DONE
	signalFailed = 2172 // ESLURM_JOB_SIGNAL_FAILED: for example, the name or user does not match
)

// Cancel asks Slurm to cancel the job that has both this id and this name; run.Canceller has the contract. From Slurm
// 24.05 on slurmctld compares id, name and user itself. Before 24.05 the job is read first, so another job that has the
// id by then is not cancelled.
func (s *Slurm) Cancel(ctx context.Context, id, name, shown string) error {
	ids, err := slurm.Cancelled(id, name, shown)
	if err != nil {
		return err
	}
	name = cmp.Or(shown, name)
	v, err := s.client.negotiated(ctx)
	if err != nil {
		return err
	}
	if v.kills {
		return s.cancelByName(ctx, v, ids, name)
	}
	for _, id := range ids {
		err = cmp.Or(err, s.cancelByID(ctx, v, id, name))
	}
	return err
}

// cancelByName cancels the jobs and lets slurmctld compare their name and user. It costs one RPC for any number of
// tasks.
func (s *Slurm) cancelByName(ctx context.Context, v version, ids []string, name string) error {
	if err := s.budget.Spend(ctx, 1); err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"jobs": ids, "job_name": name, "user_name": s.cfg.User, "signal": "KILL"},
		json.Deterministic(true))
	if err != nil {
		return fault.Wrap(fault.Internal, "", "cannot encode", err)
	}
	var left []problem
	_, err = s.client.call(ctx, request{method: "DELETE", path: "/slurm/" + v.name + "/jobs/", body: body, members: members{
		"status": func(d *jsontext.Decoder) error {
			return each(d, func(d *jsontext.Decoder) error {
				var status struct {
					Error struct {
						Code    int    `json:"code"`
						Text    string `json:"string"`
						Message string `json:"message"`
					} `json:"error"`
				}
				err := json.UnmarshalDecode(d, &status)
				if e := status.Error; e.Code != 0 {
					left = append(left, problem{Number: e.Code, Text: e.Text, Description: e.Message})
				}
				return err
			})
		}}})
	return cancelled(append(left, problemsOf(err)...), err)
}

// cancelByID checks the job's name and user, then cancels the job by its id. It costs two RPCs.
func (s *Slurm) cancelByID(ctx context.Context, v version, id, name string) error {
	if err := s.budget.Spend(ctx, 2); err != nil {
		return err
	}
	ours := false
	_, err := s.client.call(ctx, request{method: "GET", path: "/slurm/" + v.name + "/job/" + id, members: members{
		"jobs": func(d *jsontext.Decoder) error {
			return each(d, func(d *jsontext.Decoder) error {
				var job struct {
					Name string `json:"name"`
					User string `json:"user_name"`
				}
				err := json.UnmarshalDecode(d, &job)
				ours = ours || job.Name == name && job.User == s.cfg.User
				return err
			})
		}}})
	if err != nil || !ours {
		return cancelled(problemsOf(err), err)
	}
	_, err = s.client.call(ctx, request{method: "DELETE", path: "/slurm/" + v.name + "/job/" + id})
	return cancelled(problemsOf(err), err)
}

// cancelled returns nil if no job is left to cancel, else the fault.
func cancelled(problems []problem, err error) error {
	for _, p := range problems {
		gone := p.Number == invalidJobID || p.Number == alreadyDone
		other := p.Number == signalFailed && strings.Contains(p.Description, " != filter ")
		if !gone && !other {
			return fault.New(fault.Transport, Refused, fmt.Sprintf("the job was not cancelled: %s", shown(p.String())))
		}
	}
	if len(problems) > 0 {
		return nil
	}
	return err
}
