package mcp

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"slurmgate/fault"
)

// protocolError returns the error of a request other than a tool call: lists, resources, prompts. The gate's code is
// in its data.
func protocolError(err error) error {
	code := int64(jsonrpc.CodeInternalError)
	switch fault.KindOf(err) {
	case fault.Validation, fault.NotFound, fault.Conflict, fault.Policy, fault.Capability, fault.Auth:
		code = jsonrpc.CodeInvalidParams
	}
	data, _ := json.Marshal(map[string]string{"code": fault.CodeOf(err), "kind": string(fault.KindOf(err))})
	return &jsonrpc.Error{Code: code, Message: plainLines(fault.Text(err, fault.Words(callText)), maxProse), Data: data}
}

func badArgument(prompt, argument, why string) error {
	return protocolError(fault.Invalid("", fault.Problem{Code: "PROMPT-ARGUMENT", Field: prompt + "." + argument,
		Rule: "the prompt's arguments", Msg: argument + " " + why}))
}
