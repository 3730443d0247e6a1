// The most frequent words of a text.
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";

export async function count({ args, inputs }) {
  const seen = new Map();
  let lines = 0;
  for await (const line of createInterface({ input: createReadStream(inputs.text.path) })) {
    lines++;
    for (const word of line.toLowerCase().match(/\p{L}+/gu) ?? []) seen.set(word, (seen.get(word) ?? 0) + 1);
  }
  const words = [...seen].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1));
  return { lines, distinct: words.length, top: words.slice(0, args.top).map(([word, count]) => ({ word, count })) };
}
