"use strict";
const form = document.getElementById("filter");
const rows = document.getElementById("tasks");
const more = document.getElementById("more");
const said = document.getElementById("said");
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
  cell(row, task.createdAt.replace("T", " ").replace(/\.\d+Z$/, ""), "time");
  cell(row, task.state, "state");
  cell(row, task.server);
  cell(row, task.tool);
  cell(row, task.owner, "owner");
  cell(row, task.statusMessage || "");
  const last = cell(row, "");
  if (!["queued", "running", "input_required"].includes(task.state)) return;
  const button = document.createElement("button");
  button.textContent = "Cancel";
  button.onclick = () => attempt(async () => {
    if (!confirm("Cancel this run of " + task.tool + "?")) return;
    button.disabled = true;
    fill(row, await ask("/api/tasks/" + task.id + "/cancel", "POST"));
  });
  last.append(button);
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
    if (from) query.set("cursor", from);
    const page = await ask("/api/tasks?" + query, "GET");
    if (!from) rows.replaceChildren();
    for (const task of page.tasks) fill(rows.insertRow(), task);
    cursor = page.nextCursor || null;
    more.hidden = !cursor;
    if (!from && !page.tasks.length && !cursor) said.textContent = "There are none.";
  });
}

form.onsubmit = (event) => { event.preventDefault(); show(null); };
more.onclick = () => show(cursor);
show(null);
