package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/policy"
	"slurmgate/site"
)

// Files holds what [Write] writes.
type Files struct {
	Site     string   // text of the site file
	Policy   string   // text of the domain's policies.yaml
	Manifest string   // text of the manifest of a new domain; empty: the domain is copied
	Domain   string   // the domain's folder, absolute
	Commands []string // commands that make the folders
	Open     []string // decisions that the admin still has to make
}

// Compose returns the files, after parsing them with the packages that will read them.
func Compose(f Found, now time.Time) (out Files, err error) {
	p := page{f, now.UTC().Format(time.DateOnly)}
	if out.Site, err = p.render(siteText); err != nil {
		return out, err
	}
	if out.Policy, err = p.render(policyText); err != nil {
		return out, err
	}
	out.Domain = filepath.Join(filepath.Dir(f.Site), p.DomainDir())
	if f.Domain == "" {
		out.Manifest = fmt.Sprintf("# The tools that this gateway serves. Raise the version with every change.\ndomain_id: %s\nversion: "+
			"0.1.0\ntools: []\n", domainID(p.Name))
	} else if own, err := os.ReadFile(filepath.Join(f.Domain, "policies.yaml")); err == nil {
		out.Policy = replaceSection(string(own), out.Policy, "slurm")
	}
	if _, err := site.Parse(f.Site, []byte(out.Site)); err != nil {
		return out, err
	}
	if _, err := policy.Parse(filepath.Join(out.Domain, "policies.yaml"), []byte(out.Policy), os.LookupEnv); err != nil {
		return out, err
	}
	out.Commands = p.folders()
	if f.Apptainer == "" && f.Module == "" {
		out.Open = append(out.Open,
			"apptainer.path in the site file: there is no Apptainer on "+p.Where()+", so its place on the nodes is a guess")
	}
	if len(f.Mounts) > 1 {
		out.Open = append(out.Open, "storage in the site file: "+strings.Join(f.Mounts, ", ")+" are network filesystems too")
	}
	return out, nil
}

// domainID returns the site's name in the form of a domain's id.
func domainID(name string) string {
	if name[0] < 'a' {
		return "site-" + name
	}
	return name
}

// Write writes all files, or nothing. It never replaces a file.
func Write(f Found, files Files) (err error) {
	for _, path := range []string{f.Site, files.Domain} {
		if _, err := os.Lstat(path); err == nil {
			return fault.New(fault.Conflict, "file_exists", path+" already exists").
				WithNext("move it away, or look at what would be written: slurmgate site init --print")
		}
	}
	defer func() {
		if err != nil {
			err = fault.Wrap(fault.Transport, "not_written", "the files cannot be written", err).
				WithNext("run it as a user who may write to " + filepath.Dir(f.Site))
		}
	}()
	if err := os.MkdirAll(filepath.Dir(files.Domain), 0o755); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(filepath.Dir(files.Domain), ".init-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := fill(temp, f.Domain, files); err != nil {
		return err
	}
	if err := os.Rename(temp, files.Domain); err != nil {
		return err
	}
	if err = writeNew(f.Site, files.Site); err == nil && f.Login != nil {
		if err = f.Login.trust(); err != nil {
			err = errors.Join(err, os.Remove(f.Site))
		}
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(files.Domain))
	}
	return nil
}

func fill(dir, domain string, files Files) error {
	if domain != "" {
		if err := os.CopyFS(dir, os.DirFS(domain)); err != nil {
			return err
		}
		if err := os.Remove(filepath.Join(dir, "policies.yaml")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	err := os.MkdirAll(filepath.Join(dir, "toolpacks"), 0o755)
	if files.Manifest != "" {
		err = errors.Join(err, writeNew(filepath.Join(dir, "manifest.yaml"), files.Manifest),
			writeNew(filepath.Join(dir, "images.lock.yaml"), "version: 1\nimages: []\n"))
	}
	return errors.Join(err, writeNew(filepath.Join(dir, "policies.yaml"), files.Policy), os.Chmod(dir, 0o755))
}

func writeNew(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Sync(), file.Close())
}
