package notify

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Event is the message to a place. It names no file, no host and no user.
type Event struct {
	Type      string    `json:"type"` // run.over or batch.over
	Timestamp time.Time `json:"timestamp"`
	Data      Ended     `json:"data"`
}

// Ended is a run or a batch that has ended: [EventData] or [BatchData].
type Ended interface {
	eventType() string
	sentence() string     // about the end, for chats
	subject() string      // of a mail
	details() [][2]string // of a mail
}

// EventData describes a run that has ended.
type EventData struct {
	NoticeID   string    `json:"notice_id"`
	GatewayID  string    `json:"gateway_id"`
	RunID      string    `json:"run_id"`
	WaitedAs   string    `json:"alias,omitempty"` // the id under which the run waited for its inputs
	ToolID     string    `json:"tool_id"`
	ProjectID  string    `json:"project_id"`
	State      string    `json:"state"` // succeeded, failed, cancelled
	Reason     string    `json:"reason"`
	Attempt    int       `json:"attempt"`
	SlurmJobID string    `json:"slurm_job_id"`
	FinishedAt time.Time `json:"finished_at"`
}

func (EventData) eventType() string { return "run.over" }

func (d EventData) sentence() string {
	return fmt.Sprintf("%s %s is over: %s", d.ToolID, d.RunID, d.State)
}

func (d EventData) subject() string { return fmt.Sprintf("%s %s: %s", d.ToolID, d.RunID, d.State) }

func (d EventData) details() [][2]string {
	return [][2]string{{"", "The run is over: " + d.State + "."}, {"run", d.RunID}, {"tool", d.ToolID}, {"reason", d.Reason},
		{"attempt", strconv.Itoa(d.Attempt)}, {"Slurm job", d.SlurmJobID}, {"finished", d.FinishedAt.Format(time.RFC3339)}}
}

// BatchData describes a batch that has ended.
type BatchData struct {
	NoticeID   string           `json:"notice_id"`
	GatewayID  string           `json:"gateway_id"`
	BatchID    string           `json:"batch_id"`
	Name       string           `json:"name"`
	ToolID     string           `json:"tool_id"`
	ProjectID  string           `json:"project_id"`
	Rows       int64            `json:"rows"`
	Counts     map[string]int64 `json:"counts"` // rows by state: succeeded, failed, cancelled, refused; states without rows are absent
	FinishedAt time.Time        `json:"finished_at"`
}

func (BatchData) eventType() string { return "batch.over" }

func (d BatchData) sentence() string {
	return fmt.Sprintf("batch %s of %s is over: %s", d.Name, d.ToolID, d.counted())
}

func (d BatchData) subject() string {
	return fmt.Sprintf("batch %s of %s: %s", d.Name, d.ToolID, d.counted())
}

// counted lists the number of rows for each end, as in "30 succeeded, 2 failed".
func (d BatchData) counted() string {
	var words []string
	for _, state := range []string{"succeeded", "failed", "refused", "cancelled"} {
		if n := d.Counts[state]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(words, ", ")
}

func (d BatchData) details() [][2]string {
	return [][2]string{{"", "The batch is over: " + d.counted() + "."}, {"batch", d.Name}, {"id", d.BatchID}, {"tool", d.ToolID},
		{"rows", strconv.FormatInt(d.Rows, 10)}, {"finished", d.FinishedAt.Format(time.RFC3339)}}
}
