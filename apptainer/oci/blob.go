package oci

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// blob is a file of a registry or of a web server, named by its digest.
type blob struct {
	digest string // 64 hex
	size   int64  // -1: unknown
	most   int64  // greatest allowed size in bytes
	url    string // empty: of the registry
}

const tries = 6 // attempts in a row without a byte, each after a longer pause

// fetch downloads a blob to the cache, whole and verified, and returns its path. It continues an earlier incomplete
// download.
func (p *Puller) fetch(ctx context.Context, r *Resolved, cache string, b blob, step func(int64)) (string, error) {
	whole, part := filepath.Join(cache, b.digest), filepath.Join(cache, b.digest+".part")
	if f, err := open(whole, unix.O_RDONLY); err == nil {
		h := sha256.New()
		n, err := io.Copy(h, f)
		f.Close()
		if err == nil && hex.EncodeToString(h.Sum(nil)) == b.digest {
			step(n)
			return whole, nil
		}
		os.Remove(whole) // damaged since
	}
	f, err := open(part, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return "", cacheFault(err)
	}
	defer f.Close()
	d := download{Puller: p, r: r, blob: b, file: f, hash: sha256.New(), step: step}
	if err := d.run(ctx); err != nil {
		return "", err
	}
	if err := errors.Join(f.Sync(), os.Rename(part, whole)); err != nil {
		return "", cacheFault(err)
	}
	return whole, nil
}

// open opens a file of the cache, and refuses symbolic links.
func open(path string, flags int) (*os.File, error) {
	return os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
}

func cacheFault(err error) error {
	if errors.Is(err, unix.ENOSPC) {
		return fault.New(fault.Transport, "IMAGE-CACHE", "the disk of the gateway's state_dir is full").
			WithNext("make room there, and pull again: it continues where it was interrupted")
	}
	return fault.Wrap(fault.Transport, "IMAGE-CACHE", "cannot write the cache of images below the gateway's state_dir", err).
		WithNext("check that this user may write to gateway.state_dir, and that its disk has free space")
}

// download is the transfer of one blob.
type download struct {
	*Puller
	r    *Resolved
	blob blob
	file *os.File
	hash hash.Hash
	got  int64 // bytes in file and hash
	step func(int64)
}

func (d *download) run(ctx context.Context) error {
	n, err := io.Copy(d.hash, d.file) // of an earlier pull
	if err != nil {
		return cacheFault(err)
	}
	d.got = n
	d.step(n)
	continued := n > 0
	for failed := 0; ; {
		before := d.got
		err := d.attempt(ctx)
		if err == nil {
			sum := hex.EncodeToString(d.hash.Sum(nil))
			if sum == d.blob.digest {
				return nil
			}
			if err := d.again(); err != nil {
				return err
			}
			if continued { // the earlier part may be wrong
				continued = false
				continue
			}
			return lie(fmt.Sprintf("the bytes of %s have sha256:%s instead of sha256:%s", d.what(), sum, d.blob.digest))
		}
		if failed++; d.got > before {
			failed = 0
		}
		if k := fault.KindOf(err); ctx.Err() != nil || failed >= tries || k != fault.Transport && k != fault.Timeout {
			return err
		}
		if fault.CodeOf(err) == "IMAGE-CACHE" {
			return err
		}
		select {
		case <-ctx.Done():
			return failure("cannot download "+d.what(), ctx.Err())
		case <-time.After(d.pause() << failed):
		}
	}
}

// again restarts the download at the first byte.
func (d *download) again() error {
	d.step(-d.got)
	d.hash.Reset()
	d.got = 0
	_, err := d.file.Seek(0, io.SeekStart)
	if err = errors.Join(err, d.file.Truncate(0)); err != nil {
		return cacheFault(err)
	}
	return nil
}

func (d *download) what() string {
	if d.blob.url != "" {
		return d.blob.url
	}
	return "the layer sha256:" + d.blob.digest
}

// attempt requests the missing bytes.
func (d *download) attempt(ctx context.Context) error {
	if d.blob.size >= 0 && d.got > d.blob.size {
		if err := d.again(); err != nil {
			return err
		}
	}
	if d.got == d.blob.size {
		return nil
	}
	url := d.blob.url
	if url == "" {
		url = d.r.source.repo.Scheme() + "://" + d.r.source.host() + "/v2/" + d.r.source.repo.RepositoryStr() + "/blobs/sha256:" + d.blob.digest
	}
	most := d.blob.most
	if d.blob.size >= 0 {
		most = d.blob.size
	}
	req, err := http.NewRequestWithContext(withLimit(ctx, most+1), http.MethodGet, url, nil)
	if err != nil {
		return failure("cannot download "+d.what(), err)
	}
	if d.got > 0 {
		req.Header.Set("Range", "bytes="+strconv.FormatInt(d.got, 10)+"-")
	}
	res, err := d.r.http.Do(req)
	if err != nil {
		return failure("cannot download "+d.what(), err)
	}
	defer res.Body.Close()
	if err := d.begin(res); err != nil {
		return err
	}
	return d.copy(res, most)
}

// begin decides by an answer's header where its bytes belong.
func (d *download) begin(res *http.Response) error {
	switch {
	case res.StatusCode == http.StatusRequestedRangeNotSatisfiable && d.got > 0:
		if d.blob.size < 0 && strings.HasSuffix(res.Header.Get("Content-Range"), "*/"+strconv.FormatInt(d.got, 10)) {
			res.Body = http.NoBody // the file was already complete
			return nil
		}
		if err := d.again(); err != nil {
			return err
		}
		return fault.New(fault.Transport, "IMAGE-REGISTRY", "the registry does not go on with "+d.what())
	case res.StatusCode == http.StatusPartialContent:
		if !strings.HasPrefix(res.Header.Get("Content-Range"), "bytes "+strconv.FormatInt(d.got, 10)+"-") {
			if err := d.again(); err != nil {
				return err
			}
			return fault.New(fault.Transport, "IMAGE-REGISTRY", "the registry sent another part of "+d.what()+" than it was asked for")
		}
	case res.StatusCode == http.StatusOK && d.got > 0: // the server does not support ranges
		return d.again()
	}
	return answered(res, d.what())
}

// copy appends an answer's body.
func (d *download) copy(res *http.Response, most int64) error {
	if n := res.ContentLength; n > most-d.got || d.blob.size >= 0 && n >= 0 && n != d.blob.size-d.got {
		return d.tooMuch(d.got+n, most)
	}
	buf := make([]byte, 256<<10)
	for {
		n, err := res.Body.Read(buf)
		if d.got+int64(n) > most {
			return d.tooMuch(d.got+int64(n), most)
		}
		if _, werr := d.file.Write(buf[:n]); werr != nil {
			return cacheFault(werr)
		}
		d.hash.Write(buf[:n])
		d.got += int64(n)
		d.step(int64(n))
		switch {
		case errors.Is(err, errTooLarge):
			return d.tooMuch(d.got, most)
		case err == io.EOF && d.blob.size >= 0 && d.got < d.blob.size:
			msg := fmt.Sprintf("the connection ended after %d of the %d bytes of %s", d.got, d.blob.size, d.what())
			return fault.New(fault.Transport, "IMAGE-REGISTRY", msg).WithNext("pull again: it continues where it was interrupted")
		case err == io.EOF:
			return nil
		case err != nil:
			return failure("cannot download "+d.what(), err)
		}
	}
}

func (d *download) tooMuch(n, most int64) error {
	if d.blob.size >= 0 {
		return lie(fmt.Sprintf("%s has %d bytes by its manifest, but the registry sends another number (%d)", d.what(), d.blob.size, n))
	}
	return tooLarge(fmt.Sprintf("%s has more than %d MiB", d.what(), most>>20))
}

func tooLarge(msg string) error {
	return fault.New(fault.Policy, "IMAGE-SIZE", msg).WithNext("raise images.max_mb in the site file if this image is wanted")
}

// clean removes parts of earlier pulls that were not continued for a week.
func clean(cache string, now time.Time) {
	entries, _ := os.ReadDir(cache)
	for _, e := range entries {
		if st, err := e.Info(); err == nil && st.Mode()&fs.ModeDir == 0 && e.Name() != lockName && now.Sub(st.ModTime()) > 7*24*time.Hour {
			os.Remove(filepath.Join(cache, e.Name()))
		}
	}
}
