// The page of approvers' passkeys. A link's fragment is the right to one
// ceremony; ?ticket=ID asks for a login first. Whatever comes from a ticket is
// only ever set as textContent.
"use strict";

const $ = (id) => document.getElementById(id);
const base = "/console/passkeys";
const ticketID = new URLSearchParams(location.search).get("ticket");
let token = location.hash.slice(1);
let session = ""; // of a login on this page; in memory only
if (token) history.replaceState(null, "", location.pathname); // not for the history

// Ceremonies carry bytes as base64url.
const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

class Refusal extends Error {
  constructor(said) { super(said.message || "the gateway refused"); this.hint = said.hint || ""; }
}

async function ask(method, path, body) {
  const headers = { "Content-Type": "application/json" };
  if (session) headers.Authorization = "Bearer " + session;
  const response = await fetch(path, { method, headers, body: body && JSON.stringify(body), credentials: "omit", cache: "no-store", redirect: "error" });
  const said = await response.json().catch(() => ({ message: "the gateway answered " + response.status }));
  if (!response.ok) throw new Refusal(said);
  return said;
}

function show(title, lead) {
  $("title").textContent = title;
  $("lead").textContent = lead || "";
  $("lead").hidden = !lead;
}

function result(words, good) {
  $("result").textContent = words;
  $("result").className = good ? "good" : "bad";
}

function failed(error) {
  const words = error.name === "NotAllowedError" ? "The passkey was not used: canceled, or it took too long." : error.message;
  result(error.hint ? words + " (" + error.hint + ")" : words, false);
}

function over(words) {
  $("actions").hidden = true;
  result(words, true);
}

// button shows what a click does. Errors are shown, and the click can be repeated.
function button(label, act) {
  $("actions").hidden = false;
  $("act").textContent = label;
  $("act").onclick = () => run($("act"), act);
}

async function run(pressed, act) {
  pressed.disabled = true;
  result("", true);
  try { await act(); } catch (error) { failed(error); } finally { pressed.disabled = false; }
}

function list(id, facts) {
  $(id).replaceChildren(...facts.flatMap((f) => {
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = f.label;
    dd.textContent = f.text;
    return [dt, dd];
  }));
}

function showCard(c) {
  $("ticket").hidden = false;
  $("banner").textContent = c.irreversible ? "CANNOT BE UNDONE · " + c.level.toUpperCase() : "RISK · " + c.level.toUpperCase();
  $("reasons").replaceChildren(...c.reasons.map((r) => {
    const li = document.createElement("li");
    li.textContent = r;
    return li;
  }));
  list("parts", c.parts);
  list("facts", c.facts);
  $("hash").textContent = c.hash;
  $("text").textContent = c.text;
}

const descriptors = (all) => (all || []).map((d) => ({ ...d, id: bytes(d.id) }));

async function assert(options) {
  const got = await navigator.credentials.get({
    publicKey: { ...options, challenge: bytes(options.challenge), allowCredentials: descriptors(options.allowCredentials) },
  });
  const r = got.response;
  return {
    id: got.id, rawId: text(got.rawId), type: got.type, clientExtensionResults: got.getClientExtensionResults(),
    response: {
      clientDataJSON: text(r.clientDataJSON), authenticatorData: text(r.authenticatorData), signature: text(r.signature),
      ...(r.userHandle ? { userHandle: text(r.userHandle) } : {}),
    },
  };
}

async function create(options) {
  const got = await navigator.credentials.create({
    publicKey: {
      ...options, challenge: bytes(options.challenge), user: { ...options.user, id: bytes(options.user.id) },
      excludeCredentials: descriptors(options.excludeCredentials),
    },
  });
  const r = got.response;
  return {
    id: got.id, rawId: text(got.rawId), type: got.type, clientExtensionResults: got.getClientExtensionResults(),
    response: {
      clientDataJSON: text(r.clientDataJSON), attestationObject: text(r.attestationObject),
      transports: r.getTransports ? r.getTransports() : [],
    },
  };
}

// enrol makes a passkey; where one is enrolled, that one confirms first.
function enrol(offer) {
  show("Enrol a passkey for " + offer.admin, offer.confirm
    ? "First confirm with a passkey that is enrolled already, then make the new one, “" + offer.label + "”."
    : "From now on, what cannot be undone is approved by " + offer.admin + " with a passkey only.");
  let confirmed;
  const make = () => button("Create passkey", async () => {
    const made = await create(offer.create);
    try {
      await ask("POST", base + "/finish", { token, create: made, ...(confirmed ? { confirm: confirmed } : {}) });
    } catch (error) { await again(error); return; }
    over("Enrolled. You can close this page.");
  });
  if (!offer.confirm) { make(); return; }
  button("Confirm with a passkey", async () => {
    confirmed = await assert(offer.confirm);
    make();
  });
}

function confirm(offer) {
  show("Confirm that it is you", "Somebody who is logged in as " + offer.admin + " wants to change who may decide. If that is not you, close this page and tell your operator.");
  button("Confirm with a passkey", async () => {
    const confirmed = await assert(offer.confirm);
    try {
      await ask("POST", base + "/finish", { token, confirm: confirmed });
    } catch (error) { await again(error); return; }
    over("Confirmed, for five minutes. You can close this page.");
  });
}

function sign(offer) {
  show("Sign an approval", "Read it first: your passkey signs exactly this call, once.");
  showCard(offer.card);
  button("Approve with a passkey", async () => {
    const signed = await assert(offer.sign);
    let done;
    try {
      done = await ask("POST", base + "/finish", { token, sign: signed, ...($("reason").value ? { reason: $("reason").value } : {}) });
    } catch (error) { await again(error); return; }
    $("reject").hidden = $("why").hidden = true;
    over(done.state === "approved" ? "Approved and signed. You can close this page." : "Signed. The ticket is " + done.state + ".");
  });
}

// again gets a new challenge after a refusal: each serves for one answer.
async function again(error) {
  failed(error);
  try { await begin(); } catch { $("actions").hidden = true; }
}

async function begin() {
  const offer = await ask("POST", base + "/begin", { token });
  $("who").textContent = offer.admin;
  ({ add: enrol, confirm, sign })[offer.kind](offer);
}

// decide shows a ticket after a login on this page.
async function decide() {
  const reject = async () => {
    const t = await ask("POST", "/api/v1/approvals/" + encodeURIComponent(ticketID) + "/reject", { reason: $("reason").value });
    over("The ticket is " + t.state + ".");
  };
  const link = await ask("POST", "/api/v1/passkeys/links", { kind: "sign", ticket: ticketID });
  if (link.needed) {
    token = new URL(link.url).hash.slice(1);
    await begin();
  } else {
    const t = await ask("GET", "/api/v1/approvals/" + encodeURIComponent(ticketID));
    show("Decide a ticket", "No signature is needed for this one.");
    $("ticket").hidden = false;
    $("banner").textContent = "RISK · " + t.risk.level.toUpperCase();
    $("hash").textContent = t.hash;
    $("text").textContent = t.text;
    if (t.state !== "pending") { result("The ticket is " + t.state + ".", false); return; }
    button("Approve", async () => {
      const done = await ask("POST", "/api/v1/approvals/" + encodeURIComponent(ticketID) + "/approve", { reason: $("reason").value });
      over("The ticket is " + done.state + ".");
    });
    $("why").hidden = false;
  }
  $("reject").hidden = $("why").hidden = false;
  $("reject").onclick = () => run($("reject"), reject);
}

function login() {
  show("Log in to decide", "Ticket " + ticketID);
  $("login").hidden = false;
  $("login").onsubmit = (event) => {
    event.preventDefault();
    run($("login").querySelector("button"), async () => {
      const name = $("name").value;
      session = (await ask("POST", "/api/v1/login", { name, password: $("password").value })).token;
      $("password").value = "";
      $("login").hidden = true;
      $("who").textContent = name;
      await decide();
    });
  };
}

async function start() {
  if (!window.PublicKeyCredential) throw new Error("This browser has no passkeys here. Open the page in another one, over https or on localhost.");
  if (token) await begin();
  else if (ticketID) login();
  else show("Nothing to do", "Ask for a link: sallyport passkeys add, or sallyport approvals approve TICKET.");
}

start().catch((error) => { show("This did not work", ""); failed(error); });
