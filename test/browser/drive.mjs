// Drives one Chromium: commands come as lines of JSON on standard input, and
// each is answered with one line on standard output.
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const patience = 120_000; // milliseconds, for a busy machine
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"], timeout: patience });
const page = await (await browser.newContext({ viewport: { width: 1000, height: 1100 } })).newPage();
page.setDefaultTimeout(patience);
const requests = [], complaints = [];
page.on("request", (r) => requests.push(r.url()));
page.on("console", (m) => { if (m.type() === "error" || m.type() === "warning") complaints.push(m.text()); });
page.on("pageerror", (e) => complaints.push(String(e)));
const cdp = await page.context().newCDPSession(page);
let authenticator;

const inline = () => {
  const s = document.createElement("script");
  try { s.textContent = "window.ranInline = true"; } catch (e) { return String(e); }
  document.documentElement.append(s);
  return window.ranInline === true ? "ran" : "did not run";
};

const commands = {
  async authenticator() {
    await cdp.send("WebAuthn.enable");
    const options = { protocol: "ctap2", transport: "usb", hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true };
    ({ authenticatorId: authenticator } = await cdp.send("WebAuthn.addVirtualAuthenticator", { options }));
  },
  async unverified({ on }) { await cdp.send("WebAuthn.setUserVerified", { authenticatorId: authenticator, isUserVerified: !on }); },
  async open({ url }) {
    await page.goto("about:blank"); // else another fragment would load nothing
    await page.goto(url);
    await page.waitForLoadState("networkidle");
    return commands.look();
  },
  async click({ text }) {
    await page.getByRole("button", { name: text, exact: true }).click();
    await page.waitForFunction(() => !document.querySelector("button:disabled"));
    return commands.look();
  },
  async fill({ label, value }) { await page.getByLabel(label).fill(value); },
  async look() {
    const text = (id) => page.locator("#" + id).textContent();
    return {
      url: page.url(), title: await text("title"), lead: await text("lead"), result: await text("result"),
      banner: await text("banner"), hash: await text("hash"), ticket: await text("text"), parts: await page.locator("#parts").innerText(),
      hidden: await page.locator("#ticket, #ticket *").evaluateAll((all) => all.filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 || e.scrollHeight > e.clientHeight + 1 && getComputedStyle(e).overflowY !== "visible").map((e) => e.id || e.tagName)),
      buttons: (await page.getByRole("button").allTextContents()).filter(Boolean),
      elements: await page.locator("#ticket *").evaluateAll((all) => [...new Set(all.map((e) => e.tagName))]),
    };
  },
  async inline() { return { inline: await page.evaluate(inline) }; },
  async markup() { return { markup: await page.evaluate(() => { try { document.body.innerHTML = "<b>x</b>"; return "taken"; } catch (e) { return e.name; } }) }; },
  async elsewhere({ url }) {
    await page.goto(url);
    return { ...(await commands.inline()), ...(await commands.markup()) };
  },
  async screenshot({ file }) { await page.screenshot({ path: file, fullPage: true }); },
  async heard() { return { requests, complaints }; },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...args } = JSON.parse(line);
  let answer;
  try { answer = { ok: true, ...(await commands[name](args)) }; } catch (e) { answer = { ok: false, error: String(e) }; }
  console.log(JSON.stringify(answer));
}
await browser.close();
