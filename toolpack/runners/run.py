"""Calls one function of a tool in a container of slurmgate.

    run.py pkg.mod:callable ARGS.json RESULT.json

The module is looked for in /opt/tool, then where Python looks. The function may be async. It gets the request, a dict:

    tool_id, tool_version
    args       the call's arguments, defaults filled in
    inputs     role -> {path, artifact_id, checksum_sha256, type, label}
    outputs    role -> {path, type, label}: the files the tool writes itself, but for the result
    resources  cpus, memMb, timeLimitSeconds
    result     the path of the output that receives what the function returns

With payload: arguments in the toolpack it gets args alone. What it returns is written as JSON. An exception ends the run as failed, with its traceback in stderr.
"""

import asyncio
import importlib
import inspect
import json
import sys


def main(target, args_file, result_file):
    sys.path[0] = "/opt/tool"
    name, _, path = target.partition(":")
    with open(args_file, encoding="utf-8") as f:
        request = json.load(f)
    function = importlib.import_module(name)
    for part in path.split("."):
        function = getattr(function, part)
    result = function(request)
    if inspect.isawaitable(result):
        result = asyncio.run(awaited(result))
    text = json.dumps(result, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    with open(result_file, "w", encoding="utf-8") as f:
        f.write(text + "\n")


async def awaited(result):
    return await result


if __name__ == "__main__":
    main(*sys.argv[1:])
