const fs = require("fs"), Module = require("module"), path = require("path"), url = require("url");
fs.unlinkSync(__filename);
delete require.cache[__filename];
fs.writeSync(4, "r");
fs.closeSync(4);
const parts = [];
for (;;) {
  const b = Buffer.alloc(65536), n = fs.readSync(3, b);
  if (n === 0) break;
  parts.push(b.subarray(0, n));
}
fs.closeSync(3);
const [count, ...words] = Buffer.concat(parts).toString().split("\0").slice(0, -1);
if (words.length === 0) process.exit(0); // the sandbox was never used
const argv = words.slice(0, Number(count)), file = path.resolve(argv[1]);
process.argv = [process.execPath, file, ...argv.slice(2)];
process.execArgv = [];
for (const name of Object.keys(process.env)) delete process.env[name];
for (const pair of words.slice(Number(count))) {
  const i = pair.indexOf("=");
  process.env[pair.slice(0, i)] = pair.slice(i + 1);
}
setImmediate(() => {
  if (file.endsWith(".mjs")) import(url.pathToFileURL(file).href);
  else Module._load(file, null, true);
});
