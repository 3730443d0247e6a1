package rest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// answer holds the common members of every answer of slurmrestd, without those that its request asks for.
type answer struct {
	status   int
	cluster  string // meta.slurm.cluster
	release  string // meta.slurm.release, e.g. "24.11.5"
	storage  string // meta.plugin.accounting_storage, e.g. "accounting_storage/slurmdbd"
	user     string // meta.client.user: the user as whom slurmrestd acts for the client
	errors   []problem
	warnings []problem

	reusable bool // the connection
}

// problem is one error or warning of an answer.
type problem struct {
	Number      int    `json:"error_number"` // of slurm_errno.h; missing or -1: it has none
	Text        string `json:"error"`        // Slurm's text for the number
	Description string `json:"description"`
	Source      string `json:"source"` // the function that reported it
}

func (p problem) String() string {
	text := cmp.Or(p.Description, p.Text, p.Source)
	if p.Text != "" && !strings.Contains(text, p.Text) {
		text += ": " + p.Text // the description often names only the attempt
	}
	if p.Number != 0 {
		text = strings.TrimSpace(fmt.Sprintf("%s (error %d)", text, p.Number))
	}
	return text
}

// answered reports whether the number is one of slurmctld's own errors, and not one of the connection to it.
func (p problem) answered() bool { return p.Number >= 2000 && p.Number < 5000 }

// complaints joins the errors into a text for people.
func (a answer) complaints() string {
	var texts []string
	for _, p := range a.errors {
		texts = append(texts, p.String())
	}
	return shown(strings.Join(texts, "; "))
}

var errTrailing = errors.New("there is text after the answer")

// read decodes one whole answer: exactly one JSON object. Members without a decoder in want are skipped.
func read(r io.Reader, want members) (a answer, err error) {
	d := newDecoder(r)
	all := members{
		"meta":     a.readMeta,
		"errors":   func(d *jsontext.Decoder) error { return readProblems(d, &a.errors) },
		"warnings": func(d *jsontext.Decoder) error { return readProblems(d, &a.warnings) },
	}
	maps.Copy(all, want)
	if err := object(d, all); err != nil {
		return a, err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return a, cmp.Or(err, errTrailing)
	}
	return a, nil
}

// object decodes the members of an object that have a decoder in want, and skips the others.
func object(d *jsontext.Decoder, want members) error {
	if err := expect(d, '{'); err != nil {
		return err
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if member := want[name.String()]; member != nil {
			err = member(d)
		} else {
			err = d.SkipValue()
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	return expect(d, '}')
}

// maxProblems bounds the errors, and the warnings, that are stored from one answer.
const maxProblems = 100

func readProblems(d *jsontext.Decoder, to *[]problem) error {
	return each(d, func(d *jsontext.Decoder) error {
		var p problem
		err := json.UnmarshalDecode(d, &p)
		if len(*to) < maxProblems {
			*to = append(*to, p)
		}
		return err
	})
}

func (a *answer) readMeta(d *jsontext.Decoder) error {
	var meta struct {
		Client struct {
			User string `json:"user"`
		} `json:"client"`
		Plugin struct {
			Storage string `json:"accounting_storage"`
		} `json:"plugin"`
		Slurm struct {
			Release string `json:"release"`
			Cluster string `json:"cluster"`
		} `json:"slurm"`
	}
	err := json.UnmarshalDecode(d, &meta)
	a.release, a.cluster, a.storage, a.user = meta.Slurm.Release, meta.Slurm.Cluster, meta.Plugin.Storage, meta.Client.User
	return err
}

// expect reads a delimiter and returns an error for any other token.
func expect(d *jsontext.Decoder, kind jsontext.Kind) error {
	token, err := d.ReadToken()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && token.Kind() != kind {
		err = fmt.Errorf("%s instead of %s", token.Kind(), kind)
	}
	return err
}

// each decodes the elements of an array, one at a time. A null is an empty array.
func each(d *jsontext.Decoder, element func(*jsontext.Decoder) error) error {
	if d.PeekKind() == 'n' {
		return d.SkipValue()
	}
	if err := expect(d, '['); err != nil {
		return err
	}
	for d.PeekKind() != ']' {
		if d.PeekKind() == 0 { // the end, or no JSON
			_, err := d.ReadToken()
			return cmp.Or(err, io.ErrUnexpectedEOF)
		}
		if err := element(d); err != nil {
			return err
		}
	}
	return expect(d, ']')
}
