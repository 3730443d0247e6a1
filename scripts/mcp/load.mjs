// 500 calls each way, with the clients that the protocol's own people publish: load.mjs URL TOKEN SERVER ARTIFACT
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import * as modern from '@modelcontextprotocol/client';
import * as modernStdio from '@modelcontextprotocol/client/stdio';

const [url, token, server, artifact] = process.argv.slice(2);
const calls = 500, atOnce = 25;
const requestInit = { headers: { Authorization: `Bearer ${token}` } };
const info = { name: 'load', version: '1.0.0' };

async function drive(name, client, transport) {
  await client.connect(transport);
  const start = Date.now(), took = [];
  let next = 0, failed = 0;
  await Promise.all(Array.from({ length: atOnce }, async () => {
    while (next++ < calls) {
      const t = Date.now();
      const r = await client.callTool({ name: 'artifact_preview_text', arguments: { artifact_id: artifact } });
      took.push(Date.now() - t);
      if (r.isError || r.structuredContent?.text !== 'hello\n') failed++;
    }
  }));
  await client.close();
  took.sort((a, b) => a - b);
  if (took.length !== calls || failed > 0) throw new Error(`${name}: ${failed} of ${took.length} calls failed`);
  console.log(`load ${name}: ${took.length} calls, ${atOnce} at a time, 0 errors, median ${took[calls / 2]} ms, p99 ${took[Math.floor(calls * 0.99)]} ms, ${Date.now() - start} ms in all`);
}

await drive('http, sdk 1 (revision 2025-11-25)', new Client(info), new StreamableHTTPClientTransport(new URL(url), { requestInit }));
await drive('stdio, sdk 1 (revision 2025-11-25)', new Client(info), new StdioClientTransport({ command: server, args: ['-stdio'] }));
await drive('http, client 2', new modern.Client(info), new modern.StreamableHTTPClientTransport(new URL(url), { requestInit }));
await drive('stdio, client 2', new modern.Client(info), new modernStdio.StdioClientTransport({ command: server, args: ['-stdio'] }));
