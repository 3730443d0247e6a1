package doctor

import (
	"context"

	"github.com/pkg/sftp"

	"slurmgate/fault"
	"slurmgate/remote"
)

// Ways holds how one cluster is reached: its Slurm, its folders and its images. A host that is nil has no part in it.
type Ways struct {
	OpenSlurm func() (Slurm, error)
	Login     func() (*remote.Host, error) // the login node, where Slurm's commands are elsewhere
	REST      func() []fault.Problem       // what of slurm.rest cannot be used on this host, where slurmrestd takes the place of the commands
	JobsOf    string                       // the user of Slurm to whom the gateway's jobs belong; empty: this process's
	Users     bool                         // jobs and folders of runs belong to their callers

	Data       func() (*remote.Host, error) // the host of the SFTP server, where the folders are elsewhere
	DataHost   bool                         // that is another host, or another login, than the login node
	Files      func(context.Context, func(*sftp.Client) error) error
	Shell      func() (*remote.Host, error) // the host whose shell works on those folders
	ScriptHost string                       // the name of the host that runs scripts: the login node, or without one that of Shell
	RunsDir    string                       // storage.runs_dir, where it is a folder of the gateway on this host

	// VerifyImages hashes an image of the cluster's store, where the store is, and returns its path as jobs see it.
	VerifyImages func() (func(ctx context.Context, digest string) (path string, err error), error)
	// Registered returns an error if a file or folder in place is not as it was registered with a state; nil: it is.
	Registered func(ctx context.Context, path, state string) error
}

// What a check is about, for [Check.Only].

func loginNode(w Ways) bool { return w.Login != nil }

func overREST(w Ways) bool { return w.REST != nil }

func byCommands(w Ways) bool { return w.REST == nil }

func asCaller(w Ways) bool { return w.Users }

func asSelf(w Ways) bool { return !w.Users }

func selfByCommands(w Ways) bool { return asSelf(w) && byCommands(w) }

func sftpFiles(w Ways) bool { return w.Data != nil }

func sftpRuns(w Ways) bool { return w.Data != nil && !w.Users }

func dataHost(w Ways) bool { return w.DataHost }

// dataShell holds where the SFTP server's host has a shell and there is no login node.
func dataShell(w Ways) bool { return w.Shell != nil && w.Login == nil }
