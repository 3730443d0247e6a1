package site

// As returns a cluster where jobs belong to their callers as one user sees it: the user's Slurm and files are those
// of a login node, and the gateway's login there is the user's. Its credentials are the signer's certificates, so it
// names no key.
func (s *Site) As(user string) (*Site, error) {
	jobs, login, err := s.UserFolders(user)
	if err != nil {
		return nil, err
	}
	as, c := *s, s.Slurm.Caller.SSH
	to := SSH{Endpoint: Endpoint{Host: c.Host, Port: c.Port, User: user, KnownHosts: c.KnownHosts}, Jump: c.Jump}
	images := s.LoginFolders().ImageStore
	as.Slurm.RunAs, as.Slurm.Caller = RunAsSelf, nil
	as.Slurm.Transport, as.Slurm.SSH, as.Slurm.REST = TransportSSH, &to, nil
	shell := true
	as.Storage.Transport, as.Storage.RunsDir = TransportSFTP, jobs
	as.Storage.Login = &Folders{RunsDir: login, ImageStore: images}
	as.Storage.SFTP = &SFTP{SSH: to, RunsDir: login, ImageStore: images, Connections: defaultConnectionsSFTP, Shell: &shell}
	return &as, nil
}
