// Runs a light tool's program on Node as an isolate would run it.
import { readFileSync } from 'node:fs';

globalThis.stdin = readFileSync(0, 'utf8');
globalThis.argv = [];
globalThis.files = {};
const { default: tool } = await import('./main.mjs');
if (typeof tool === 'function') {
  const out = await tool(JSON.parse(stdin));
  if (out !== undefined) process.stdout.write(JSON.stringify(out) + '\n');
}
