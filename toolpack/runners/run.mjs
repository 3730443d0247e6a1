// Calls one function of a tool in a container of slurmgate.
//
//     run.mjs MODULE[:export] ARGS.json RESULT.json
//
// MODULE is a file below /opt/tool (lib/x.mjs) or a package there; without an export it is the default one. The function gets
// the request – tool_id, tool_version, args, inputs, outputs, resources, result, as in run.py – and may be async; with
// payload: arguments in the toolpack it gets args alone. What it returns is written as JSON. An exception ends the run as failed.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [target, argsFile, resultFile] = process.argv.slice(2);
const [name, what = "default"] = target.split(":");
const file = "/opt/tool/" + name;
const module = await import(pathToFileURL(existsSync(file) ? file : createRequire("/opt/tool/").resolve(name)).href);
const result = await module[what](JSON.parse(readFileSync(argsFile, "utf8")));
if (result === undefined) throw new Error(target + " returned nothing");
writeFileSync(resultFile, JSON.stringify(result) + "\n");
