package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"slurmgate/app"
	"slurmgate/gate"
)

// contract holds requests and answers against the OpenAPI document. It is a transport: whatever a test sends through it is checked.
type contract struct {
	t    testing.TB
	next http.RoundTripper
	doc  struct {
		Paths      map[string]map[string]operation
		Components struct {
			Responses map[string]answerForm
		}
	}
	paths   []pathForm
	schemas *jsonschema.Compiler

	mu   sync.Mutex
	seen map[string]bool // operationId and status
}

type operation struct {
	OperationID string
	Parameters  []parameter
	RequestBody *struct {
		Required bool
		Content  map[string]struct{ Schema json.RawMessage }
	}
	Responses map[string]answerForm
}

// answerForm is an answer of the document, or refers to one of its components.
type answerForm struct {
	Ref     string `json:"$ref"`
	Content map[string]struct{ Schema json.RawMessage }
}

type parameter struct {
	Ref      string `json:"$ref"` // or a parameter of the components
	Name, In string
	Required bool
	Schema   json.RawMessage
}

type pathForm struct {
	template string
	form     *regexp.Regexp
}

func newContract(t testing.TB, next http.RoundTripper) *contract {
	t.Helper()
	c := &contract{t: t, next: next, schemas: jsonschema.NewCompiler(), seen: map[string]bool{}}
	text := documentOf(t)
	must(t, json.Unmarshal(text, &c.doc))
	doc := value(jsonschema.UnmarshalJSON(bytes.NewReader(text)))(t)
	c.schemas.DefaultDraft(jsonschema.Draft2020)
	c.schemas.AssertFormat()
	must(t, c.schemas.AddResource("openapi:", doc))
	param := regexp.MustCompile(`\\\{[a-z_]+\\\}`)
	for template := range c.doc.Paths {
		c.paths = append(c.paths, pathForm{template, regexp.MustCompile("^" + param.ReplaceAllString(regexp.QuoteMeta(template),
			"[^/:]+") + "$")})
	}
	return c
}

// documentOf returns the document of the gateway's operations.
func documentOf(t testing.TB) []byte {
	t.Helper()
	var list []gate.Tool
	for _, o := range new(app.Gateway).Operations() {
		list = append(list, o.Tool())
	}
	r := value(gate.NewRegistry(list...))(t)
	text := value(Document(r))(t)
	return text
}

func (c *contract) operation(method, path string) (at string, op operation, found bool) {
	for _, p := range c.paths {
		if p.form.MatchString(path) {
			op, found = c.doc.Paths[p.template][strings.ToLower(method)]
			return "openapi:#/paths/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").
				Replace(p.template) + "/" + strings.ToLower(method), op, found
		}
	}
	return "", op, false
}

// RoundTrip implements http.RoundTripper. A request that the server accepted must be one the document allows; the answer must be one in
// any case.
func (c *contract) RoundTrip(req *http.Request) (*http.Response, error) {
	var sent []byte
	if req.Body != nil {
		sent, _ = io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(sent))
	}
	res, err := c.next.RoundTrip(req)
	if err != nil {
		return res, err
	}
	at, op, found := c.operation(req.Method, req.URL.Path)
	if !found {
		if res.StatusCode < 400 {
			c.t.Errorf("%s %s is served and not in the document", req.Method, req.URL.Path)
		}
		return res, nil
	}
	status := fmt.Sprint(res.StatusCode)
	c.mu.Lock()
	c.seen[op.OperationID+" "+status] = true
	c.mu.Unlock()
	if res.StatusCode < 400 {
		c.request(at, op, req, sent)
	}
	form, ok := op.Responses[status]
	if !ok {
		c.t.Errorf("%s: status %d is not in the document", op.OperationID, res.StatusCode)
	}
	at += "/responses/" + status
	if form.Ref != "" {
		at = "openapi:" + form.Ref
		form = c.doc.Components.Responses[path.Base(form.Ref)]
	}
	typ, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if len(form.Content) == 0 {
		return res, nil
	}
	media, ok := form.Content[typ]
	if !ok {
		c.t.Errorf("%s %s: type %q is not in the document", op.OperationID, status, typ)
	}
	if ok && strings.HasSuffix(typ, "json") && media.Schema != nil {
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		res.Body = io.NopCloser(bytes.NewReader(body))
		if err != nil {
			return res, err
		}
		c.check(at+"/content/"+strings.ReplaceAll(strings.ReplaceAll(typ, "/", "~1"), "+", "%2B")+"/schema", op.OperationID+" "+status, body)
	}
	return res, nil
}

func (c *contract) request(at string, op operation, req *http.Request, sent []byte) {
	known := map[string]bool{}
	for i, p := range op.Parameters {
		known[p.In+" "+p.Name] = true
		if v := req.URL.Query().Get(p.Name); p.In == "query" && v != "" {
			switch {
			case bytes.Contains(p.Schema, []byte(`"array"`)): // each value is an element: style form, explode
				b, _ := json.Marshal(req.URL.Query()[p.Name])
				v = string(b)
			case bytes.Contains(p.Schema, []byte(`"string"`)):
				b, _ := json.Marshal(v)
				v = string(b)
			}
			c.check(fmt.Sprintf("%s/parameters/%d/schema", at, i), op.OperationID+" "+p.Name, []byte(v))
		}
	}
	for name := range req.URL.Query() {
		if !known["query "+name] {
			c.t.Errorf("%s: query %s is taken and not in the document", op.OperationID, name)
		}
	}
	switch {
	case op.RequestBody == nil && len(sent) > 0:
		c.t.Errorf("%s: a body is taken and not in the document", op.OperationID)
	case op.RequestBody != nil && (len(sent) > 0 || op.RequestBody.Required):
		typ, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
		if _, ok := op.RequestBody.Content[typ]; !ok {
			c.t.Errorf("%s: a body of type %q is taken and not in the document", op.OperationID, typ)
		} else if typ == "application/json" {
			c.check(at+"/requestBody/content/application~1json/schema", op.OperationID+" request", sent)
		}
	}
}

func (c *contract) check(ref, what string, body []byte) {
	c.mu.Lock()
	schema, err := c.schemas.Compile(ref)
	c.mu.Unlock()
	if err != nil {
		c.t.Errorf("%s: %v", what, err)
		return
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err == nil {
		err = schema.Validate(doc)
	}
	if err != nil {
		c.t.Errorf("%s does not match the document: %v\n%.600s", what, err, body)
	}
}

// unseen returns the operations that got no request.
func (c *contract) unseen() (out []string) {
	for _, ops := range c.doc.Paths {
		for _, op := range ops {
			seen := false
			for s := range c.seen {
				seen = seen || strings.HasPrefix(s, op.OperationID+" 2")
			}
			if !seen {
				out = append(out, op.OperationID)
			}
		}
	}
	return out
}

// The requests in steps that are not routes are in the document; routes are in it anyway.
func TestRequestsAreThere(t *testing.T) {
	c := newContract(t, nil)
	for _, r := range requests() {
		if _, _, found := c.operation(r.Method, pathArgument.ReplaceAllString(r.Path, "x")); !found {
			t.Errorf("%s: %s %s is not in the document", r.Operation, r.Method, r.Path)
		}
	}
}
