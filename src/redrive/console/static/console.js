"use strict";

const element = (id) => document.getElementById(id);
const say = (text) => { element("said").textContent = text; };
const when = (ms) => ms > 0 ? new Date(ms).toISOString().slice(0, 19).replace("T", " ") + "Z" : "-";

// The part after # is never sent to a server. It is taken out of the address bar and of the history at once.
let token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
history.replaceState(null, "", location.pathname);

function ask(text) {
  element("login").hidden = false;
  element("causes").hidden = element("again").hidden = true;
  say(text);
}

function row(cause) {
  const line = document.createElement("tr");
  const unknown = cause.unknown ? ` (${cause.unknown} unknown)` : "";
  const cells = [
    cause.topic, cause.reason || "(foreign)", cause.type || "-", cause.group || "-",
    `${cause.unresolved}${unknown}`, cause.resolved, when(cause.first_seen_ms), when(cause.last_seen_ms),
  ];
  cells.forEach((text, index) => {
    const cell = document.createElement("td");
    cell.textContent = text; // never as HTML: it comes from records
    if (index === 4 || index === 5) cell.className = "count";
    line.append(cell);
  });
  return line;
}

async function look() {
  if (!token) {
    ask("Give the token that `redrive console` printed, or the one in its settings.");
    return;
  }
  say("…");
  let answer, said;
  try {
    answer = await fetch("/api/v1/dlq", { headers: { Authorization: `Bearer ${token}` }, credentials: "omit" });
    said = await answer.json();
  } catch (error) {
    element("again").hidden = false;
    say(`No answer: ${error.message}`);
    return;
  }
  if (!answer.ok) {
    if (answer.status === 401) {
      token = "";
      ask(said.detail);
    } else {
      element("again").hidden = false;
      say(said.detail);
    }
    return;
  }
  element("login").hidden = true;
  element("causes").hidden = element("again").hidden = false;
  document.querySelector("#causes tbody").replaceChildren(...said.topics.flatMap((topic) => topic.causes).map(row));
  say([`${said.letters} dead letters, ${said.unresolved} unresolved`, ...said.notes].join(". "));
}

element("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = element("token").value.trim();
  element("token").value = "";
  look();
});
element("again").addEventListener("click", look);
look();
