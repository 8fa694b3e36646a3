"use strict";
const form = document.getElementById("filter");
const rows = document.getElementById("tasks");
const more = document.getElementById("more");
const said = document.getElementById("said");
const one = document.getElementById("one");
let cursor = null;

async function ask(path, method) {
  const token = form.elements.token.value;
  const headers = token ? { authorization: "Bearer " + token } : {};
  const response = await fetch(path, { method, headers });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || response.statusText);
  return answer;
}

function cell(row, text, kind) {
  const made = row.insertCell();
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function fill(row, task) {
  row.replaceChildren();
  const id = document.createElement("button");
  id.textContent = task.id.slice(0, 14) + "…";
  id.title = "Show this task";
  id.onclick = () => attempt(async () => detail(await ask("/api/tasks/" + task.id, "GET")));
  cell(row, "", "id").append(id);
  cell(row, task.createdAt.replace("T", " ").replace(/\.\d+Z$/, ""), "time");
  cell(row, task.state, "state");
  cell(row, task.server);
  cell(row, task.tool);
  cell(row, task.ownerName || task.owner, "owner");
  cell(row, task.statusMessage || "", "says");
  const last = cell(row, "");
  if (!["queued", "running", "input_required", "held"].includes(task.state)) return;
  const button = document.createElement("button");
  button.textContent = "Cancel";
  button.className = "cancel";
  button.onclick = () => attempt(async () => {
    if (!confirm("Cancel this run of " + task.tool + "?")) return;
    button.disabled = true;
    try {
      const answer = await ask("/api/tasks/" + task.id + "/cancel", "POST");
      // Nothing is left of a held call that is over.
      if (task.state === "held") return fill(row, answer);
      // The server has a moment to stop; then the row says what came of it.
      await new Promise((done) => setTimeout(done, 1500));
      fill(row, await ask("/api/tasks/" + task.id, "GET"));
    } finally {
      button.disabled = false;
    }
  });
  last.append(button);
}

function detail(task) {
  const list = one.querySelector("dl");
  list.replaceChildren();
  one.querySelector("h2").textContent = task.tool;
  const { facts, ...rest } = task;
  for (const [name, value] of [...Object.entries(rest), ...Object.entries(facts || {})]) {
    if (value === null || value === undefined) continue;
    const term = document.createElement("dt");
    term.textContent = name.replace("dev.raincheck/", "");
    const text = document.createElement("dd");
    text.textContent = typeof value === "object" ? JSON.stringify(value) : value;
    list.append(term, text);
  }
  one.hidden = false;
  one.scrollIntoView({ block: "nearest" });
}

async function attempt(work) {
  said.textContent = "";
  try { await work(); } catch (error) { said.textContent = error.message; }
}

function show(from) {
  return attempt(async () => {
    const query = new URLSearchParams();
    for (const name of ["state", "tool", "owner"]) {
      if (form.elements[name].value) query.set(name, form.elements[name].value.trim());
    }
    const state = query.get("state");
    const held = new URLSearchParams(query);
    held.delete("state");
    const { held: calls } = from || (state && state !== "held") ? { held: [] } : await ask("/api/held?" + held, "GET");
    if (from) query.set("cursor", from);
    const page = state === "held" ? { tasks: [] } : await ask("/api/tasks?" + query, "GET");
    if (!from) rows.replaceChildren();
    for (const call of calls) fill(rows.insertRow(), call);
    for (const task of page.tasks) fill(rows.insertRow(), task);
    cursor = page.nextCursor || null;
    more.hidden = !cursor;
    if (!from && !calls.length && !page.tasks.length && !cursor) said.textContent = "There are none.";
  });
}

form.onsubmit = (event) => { event.preventDefault(); show(null); };
one.querySelector("button").onclick = () => { one.hidden = true; };
more.onclick = () => show(cursor);
show(null);
