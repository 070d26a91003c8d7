// Uses servers behind the gateway as one of the world's clients would: reads a part
// (see part in client_test.go) on standard input, writes what came of each step.
import { readFile, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const part = JSON.parse(await new Response(process.stdin).text());
const info = { name: 'matrix', version: '1' };
const headers = { Authorization: `Bearer ${part.token}` };

// answer fills in those fields of a form that the part has something for.
const answer = async ({ params }) => ({
  action: 'accept',
  content: Object.fromEntries(Object.entries(part.answer).filter(([field]) => field in params.requestedSchema.properties)),
});

// An sdk is a client of the first or the second SDK: both have the same methods.
async function sdk(v2) {
  const capabilities = { elicitation: {} };
  let client, Transport;
  if (v2) {
    const m = await import('@modelcontextprotocol/client');
    const mode = part.era === 'modern' ? { pin: '2026-07-28' } : 'legacy';
    client = new m.Client(info, { capabilities, versionNegotiation: { mode } });
    client.setRequestHandler('elicitation/create', answer);
    Transport = m.StreamableHTTPClientTransport;
  } else {
    const [c, t, types] = await Promise.all(['client/index.js', 'client/streamableHttp.js', 'types.js'].map((f) => import('@modelcontextprotocol/sdk/' + f)));
    client = new c.Client(info, { capabilities });
    client.setRequestHandler(types.ElicitRequestSchema, answer);
    Transport = t.StreamableHTTPClientTransport;
  }
  await client.connect(new Transport(new URL(part.url), { requestInit: { headers } }));
  return {
    list: async () => {
      const all = [];
      for (let cursor; ; ) {
        const page = await client.listTools(cursor ? { cursor } : {});
        all.push(...page.tools);
        if (!(cursor = page.nextCursor)) return { tools: all };
      }
    },
    call: (name, args) => client.callTool({ name, arguments: args }),
    elicit: (name, args) => client.callTool({ name, arguments: args }),
    resource: (uri) => client.readResource({ uri }),
    prompt: (name, args) => client.getPrompt({ name, arguments: args }),
    close: () => client.close(),
  };
}

// inspector is the Inspector's command line, each command as its own run.
async function inspector() {
  const { runCli } = await import('../node_modules/@modelcontextprotocol/inspector/clients/cli/build/index.js');
  const file = join(await mkdtemp(join(tmpdir(), 'matrix')), 'out.json');
  const run = async (method, ...more) => {
    await runCli(['node', 'inspector', part.url, '--transport', 'http', '--header', `Authorization: ${headers.Authorization}`,
      '--protocol-era', part.era, '--method', method, '--quiet', '--output', file, ...more]);
    return JSON.parse(await readFile(file, 'utf8'));
  };
  const pairs = (flag, args) => (Object.keys(args).length ? [flag, ...Object.entries(args).map(([k, v]) => `${k}=${v}`)] : []);
  return {
    list: () => run('tools/list'),
    call: (name, args) => run('tools/call', '--tool-name', name, '--tool-args-json', JSON.stringify(args)),
    resource: (uri) => run('resources/read', '--uri', uri),
    prompt: (name, args) => run('prompts/get', '--prompt-name', name, ...pairs('--prompt-args', args)),
    close: async () => {},
  };
}

const client = part.client === 'inspector' ? await inspector() : await sdk(part.client === 'v2');
const seen = [];
for (const step of part.steps) {
  const one = { server: step.server, ability: step.ability };
  try {
    one.result = await client[step.ability](step.name, step.args ?? {});
  } catch (e) {
    one.error = String(e?.message ?? e);
  }
  seen.push(one);
}
await client.close();
await new Promise((done) => process.stdout.write(JSON.stringify(seen), done));
process.exit(0);
