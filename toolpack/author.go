package toolpack

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"slurmgate/fault"
)

// What an author starts from: the schema for editors, the runners to put into images, and a first pack.

//go:embed toolpack.schema.json
var formatSchema string

//go:embed runners/run.py
var pythonRunner string

//go:embed runners/run.mjs
var nodeRunner string

// FormatSchema returns the JSON Schema (2020-12) of a *.tool.yaml, for editors. It accepts everything that loads; the
// loader has more rules.
func FormatSchema() string { return formatSchema }

// Runner returns the program that calls a module's function, and its path in an image. A kind that needs none is a
// NotFound fault.
func Runner(kind string) (text, path string, err error) {
	switch kind {
	case "python":
		return pythonRunner, runnerDir + "/run.py", nil
	case "node":
		return nodeRunner, runnerDir + "/run.mjs", nil
	}
	return "", "", fault.New(fault.NotFound, "no_runner", `there is no runner for "`+clip(kind)+`"`).
		WithNext("python and node have one; a php script is run directly")
}

// StarterKinds returns the kinds of execution a first pack can have.
func StarterKinds() []string { return []string{"cli", "python", "node", "php"} }

var starters = map[string]struct{ output, execution string }{
	"cli": {"{role: count, type: TEXT, label: line count, srcRelpath: out/count.txt}", `execution:
  kind: cli
  # One element is one argument; a prefix, or -- before it, prevents that a caller's text is taken for an option. Templates see params, inputs, outputs and resources.
  cmd: [grep, -c, "--regexp={{ params.pattern }}", --, "{{ inputs.text }}"]
  stdout: out/count.txt
`},
	"python": {"{role: count, type: JSON, label: line count, srcRelpath: out/count.json}", `execution:
  kind: python
  # The function count of /opt/tool/%[1]s.py in the image; "slurmgate tool runner python" prints the program that calls it.
  module: "%[1]s:count"
`},
	"node": {"{role: count, type: JSON, label: line count, srcRelpath: out/count.json}", `execution:
  kind: node
  # The export count of /opt/tool/%[1]s.mjs in the image; "slurmgate tool runner node" prints the program that calls it.
  module: "%[1]s.mjs:count"
`},
	"php": {"{role: count, type: JSON, label: line count, srcRelpath: out/count.json}", `execution:
  kind: php
  # /opt/tool/%[1]s.php in the image is called with two paths: the arguments (JSON) and the result it writes.
  script: %[1]s.php
`},
}

// Starter returns a first pack that loads unchanged: it counts the lines of a text that match a pattern.
func Starter(id, kind string) (string, error) {
	s, ok := starters[kind]
	switch {
	case !packID.MatchString(id) || len(id) > 128:
		return "", fault.Invalid("", fault.Problem{Code: "PACK-ID", Field: "id", Rule: idRule, Msg: `"` + clip(id) + `" is not a tool id`})
	case !ok || !slices.Contains(StarterKinds(), kind):
		return "", fault.Invalid("", fault.Problem{Code: "PACK-EXECUTION-KIND", Field: "kind",
			Rule: "one of " + strings.Join(StarterKinds(), ", "), Msg: `there is no starter of kind "` + clip(kind) + `"`})
	}
	name := strings.ReplaceAll(id, ".", "_")
	execution := s.execution
	if strings.Contains(execution, "%[1]s") {
		execution = fmt.Sprintf(execution, name)
	}
	image, _, _ := strings.Cut(id, ".")
	return fmt.Sprintf(starter, id, s.output, image) + execution, nil
}

const starter = `# A first toolpack; change every line but abiVersion. Check it with: slurmgate tool check FOLDER
# For an editor: run "slurmgate tool schema >toolpack.schema.json" and remove one space after # in the next line
#  yaml-language-server: $schema=toolpack.schema.json
id: %s
version: 1.0.0
abiVersion: v1
contractVersion: v1
planKind: slurm
displayName: Count lines
description: Counts the lines of a text that match a pattern.
deterministic: true
timeoutMs: 900000
limits: {maxInputBytes: 1073741824, maxOutputBytes: 1048576}
inputSchema:
  type: object
  required: [text]
  properties:
    text: {type: string, pattern: "^art_[0-9A-HJKMNP-TV-Z]{26}$", description: artifact_id of the text}
    pattern: {type: string, minLength: 1, maxLength: 200, default: ".", description: the pattern to look for}
outputSchema:
  type: object
  required: [count]
inputs:
  - {role: text, param: text, types: [TEXT], destRelpath: in/text}
declaredOutputs:
  - %s
container: {image: %s} # a name of images.lock.yaml
resources: {cpus: 1, memMb: 512, timeLimitSeconds: 900}
`
