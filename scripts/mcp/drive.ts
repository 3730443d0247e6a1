// A whole run, driven by the generated client alone: drive.ts URL TOKEN FASTQ_GZ
import { readFile } from 'node:fs/promises';
import { client } from './client/client.gen';
import * as api from './client/sdk.gen';

const [url, token, file] = process.argv.slice(2);
client.setConfig({ baseUrl: url, auth: () => token, throwOnError: true });

function must(what: string, ok: unknown, seen?: unknown): asserts ok {
  if (!ok) throw new Error(`${what}: ${JSON.stringify(seen)}`);
  console.log(`✓ ${what}`);
}

const { data: domain } = await api.getDomain();
must(`domain ${domain.domain_id} ${domain.version}`, domain.domain_id === 'genomics', domain);
const { data: tools } = await api.listTools();
must(`${tools.tools.length} tools`, tools.tools.some((t) => t.tool_id === 'seqkit.stats'), tools);

const { data: text } = await api.importArtifact({ body: { text: 'a text of the generated client', label: 'note' } });
must(`a text is ${text.artifact_id}`, text.created, text);
// The bytes go as they are, under their own content type.
const bytes = new Blob([await readFile(file)], { type: 'application/octet-stream' });
const { data: reads } = await api.importArtifact({ body: bytes, query: { label: 'reads.fastq.gz' }, bodySerializer: null, headers: { 'Content-Type': 'application/octet-stream' } } as never);
must(`${reads.size_bytes} bytes are ${reads.artifact_id}, ${reads.type}`, reads.type === 'FASTQ_GZ', reads);

const call = { path: { tool_id: 'seqkit.stats' }, body: { input: { reads: reads.artifact_id } } };
const { data: ran } = await api.runTool(call);
must(`seqkit.stats is ${ran.tool_run_id}`, ran.ok && ran.tool_run_id.startsWith('run_'), ran);
const run_id = ran.tool_run_id;

let result;
for (let i = 0; i < 20; i++) {
  ({ data: result } = await api.collectRun({ path: { run_id }, query: { wait_seconds: 15 } }));
  if (result.ready) break;
}
must(`${run_id} is ${result!.state}`, result!.state === 'succeeded', result);
const artifact_id = result!.artifacts_by_role.stats;
const { data: preview } = await api.previewArtifact({ path: { artifact_id }, query: { max_lines: 2 } });
must(`preview of ${artifact_id}`, preview.text?.startsWith('file\t'), preview);
const { data: content } = await api.readArtifact({ path: { artifact_id }, parseAs: 'text' });
must('content', (content as unknown as string).includes('num_seqs'), content);
const { data: events } = await api.watchRun({ path: { run_id } });
must(`${(events as never as { events: unknown[] }).events.length} events`, (events as never as { over: boolean }).over, events);
const { data: logs } = await api.readLogs({ path: { run_id }, query: { stream: 'log' } });
must('logs', logs.final, logs);
const { data: page } = await api.listRuns({ query: { state: 'succeeded', limit: 5 } });
must('the run is listed', page.runs.some((r) => r.run_id === run_id), page);

const { data: again } = await api.runTool(call);
must('the same request is the same run, and no new job', (again.output as { replayed: boolean }).replayed && again.tool_run_id === run_id, again);
const wrong = await api.runTool({ path: { tool_id: 'seqkit.stats' }, body: { input: {} }, throwOnError: false });
must('bad arguments are VALIDATION_ERROR', wrong.error?.error?.code === 'VALIDATION_ERROR' && wrong.response?.status === 400, wrong.error);
const gone = await api.getRun({ path: { run_id: 'run_00000000000000000000000000' }, throwOnError: false });
must('an unknown run is not_found', gone.error?.title === 'not_found' && gone.response?.status === 404, gone.error);

console.log('a generated client drove a whole run');
