// The page: joins controls, connection, pins and address, and puts what comes back into its places.

import { Connection } from "./connection.js";
import { Pins } from "./pins.js";
import { hashOf, stateOf } from "./share.js";
import { Controls } from "./sliders.js";

const REST = 350; // milliseconds without a change after which intervals are asked for
const HEARD = 1000; // milliseconds without a change after which the summary is read out
const FIGURES = ["front", "energy", "time", "money", "roofline", "thermal"];
const at = (id) => document.getElementById(id);
const seen = new Set(FIGURES); // until it is known what is on the screen
let watching = false;
const wanted = new Map(); // numbers of the address whose controls are on their way
let moved = "";
let width = 480;
let ownLayout = {};
let before = null;
let restTimer = 0;
let heardTimer = 0;
let failure = ""; // why there is no picture of where the controls stand
const refused = new Set(); // what was asked for in vain; told until something else is asked for

const controls = new Controls((path, started) => {
  moved = path;
  refused.clear();
  draw(started);
}, refuse);
const pins = new Pins(() => {
  refused.clear();
  sendPins();
  draw(0);
}, (pin) => goTo(pin));

const connection = new Connection({
  opened() {
    at("connection").textContent = "Connected.";
    document.body.classList.remove("cut");
    sendPins();
    for (const path of wanted.keys()) connection.send({ kind: "knob", path });
    draw(0);
  },
  closed() {
    at("connection").textContent = "The connection is lost: the explorer has stopped, or is busy. Trying again…";
    document.body.classList.add("cut");
    if (at("optimize").disabled) cutOff();
  },
  received,
});

function request() {
  const state = controls.state;
  for (const [path, value] of wanted) state.values[path] = value;
  return { ...state, moved, front: at("objective").value, width, seen: [...seen] };
}

function isAskedFor(path) {
  const { values, layout } = request();
  return Object.hasOwn(values, path) || Object.hasOwn(layout, path);
}

// Only what is on the screen is drawn while a control moves. What comes onto it is drawn of the same plan, which rests:
// to ask for its intervals again would move the page, and so could go on for ever.
const screen = new IntersectionObserver((entries) => {
  if (!watching) seen.clear();
  watching = true;
  let isNew = false;
  for (const { target, isIntersecting } of entries) {
    isNew ||= isIntersecting && !seen.has(target.id);
    if (isIntersecting) seen.add(target.id);
    else seen.delete(target.id);
  }
  if (isNew) show(0);
});
for (const name of FIGURES) screen.observe(at(name));

// Measured when it changes: asking for it after each picture would lay the page out twice.
new ResizeObserver(([entry]) => {
  const inner = Math.min(Math.max(Math.floor(entry.contentRect.width), 240), 1200);
  if (inner === width) return;
  width = inner;
  show(0);
}).observe(at("energy"));

function show(started) {
  connection.show(request(), started);
}

function draw(started) {
  show(started);
  clearTimeout(restTimer);
  restTimer = setTimeout(rest, REST);
}

// Once the controls rest and their picture is here: intervals, and the state in the address.
function rest() {
  if (connection.isDrawing) {
    restTimer = setTimeout(rest, REST);
    return;
  }
  if (failure) return;
  connection.show({ ...request(), seen: FIGURES }, 0);
  connection.send({ ...request(), kind: "settled" });
  history.replaceState(null, "", hashOf(request(), pins.all, ownLayout) || location.pathname);
}

function sendPins() {
  connection.send({ kind: "pins", pins: pins.all });
}

function received(answer, isNewest) {
  if (answer.kind === "picture") {
    place(answer.parts);
    if (isNewest) settled(answer);
  } else if (answer.kind === "intervals") {
    place(answer.parts);
  } else if (answer.kind === "error") {
    if (answer.path !== undefined) {
      // A number without a control is refused twice: as a control, and in the state; the second answer is late.
      if (answer.request !== "state" || isAskedFor(answer.path)) drop(answer.path, answer.message);
    } else if (answer.number) fail(answer.message);
    else refuse(answer.message);
    if (answer.request === "optimize") at("optimize").disabled = false;
  } else if (answer.kind === "knob") {
    const knob = controls.add(answer.path, answer.html);
    if (knob && wanted.has(answer.path)) knob.set(wanted.get(answer.path));
    else knob?.slider.focus();
    wanted.delete(answer.path);
  } else if (answer.kind === "progress") {
    at("found").textContent = `Searching: ${answer.message} …`;
  } else if (answer.kind === "optimized") {
    found(answer);
  }
}

function place(parts) {
  for (const [id, html] of Object.entries(parts)) {
    const holder = at(id);
    if (id === "compare") holder.hidden = html === "";
    holder.innerHTML = html;
  }
}

// Where the controls go to; an older picture is not of where they stand, and leaves them.
function settled(answer) {
  controls.settle(answer.values, answer.layout, answer.replicas);
  controls.notes(answer.notes);
  moved = "";
  failure = "";
  tell();
  ownLayout = answer.ownLayout;
  clearTimeout(heardTimer);
  heardTimer = setTimeout(() => { at("summary").textContent = answer.summary; }, HEARD);
}

function fail(message) {
  failure = message;
  tell();
}

function refuse(message) {
  refused.add(message);
  tell();
}

function tell() {
  const told = [...refused, failure].join(" ").trim();
  at("error").textContent = told;
  at("error").hidden = told === "";
}

// Goes on without what cannot be: a number, a field of the layout, or a pinned plan.
function drop(path, message) {
  wanted.delete(path);
  controls.drop(path);
  if (path.startsWith("pins.")) pins.drop(path.slice("pins.".length));
  refuse(message);
  draw(0);
}

function found(answer) {
  at("optimize").disabled = false;
  const list = document.createElement("ul");
  list.replaceChildren(...answer.changes.map((words) => {
    const item = document.createElement("li");
    item.textContent = words;
    return item;
  }));
  at("found").replaceChildren(document.createTextNode(answer.message), list);
  if (!answer.values) return;
  before = controls.state;
  at("undo").hidden = false;
  goTo(answer);
}

function cutOff() {
  at("optimize").disabled = false;
  at("found").textContent = "There is no connection, and so no search. Start it again once the page is connected.";
}

function goTo({ values, layout }) {
  refused.clear();
  wanted.clear();
  for (const [path, value] of Object.entries(values)) {
    if (controls.has(path)) continue;
    wanted.set(path, value);
    connection.send({ kind: "knob", path });
  }
  controls.set(values, layout);
  moved = "";
  draw(0);
}

async function save(path) {
  const message = JSON.stringify({ ...request(), kind: "state" });
  const response = await fetch(path, { method: "POST", body: message }).catch(() => null);
  if (!response) return refuse("Nothing is saved: the explorer does not answer. Try again once the page is connected.");
  if (!response.ok) return refuse(await response.text());
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition"))?.[1] ?? path;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function say(button, words) {
  const usual = button.textContent;
  button.textContent = words;
  setTimeout(() => { button.textContent = usual; }, 1500);
}

at("pin").addEventListener("click", () => {
  if (pins.isFull) return refuse("Six plans are pinned. Remove one first.");
  pins.pin(controls.state);
});
at("share").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    say(at("share"), "Copied");
  } catch {
    refuse(`The browser does not let the page copy. The link is in its address bar: ${location.href}`);
  }
});
at("save").addEventListener("click", () => save("scenario.toml"));
at("report").addEventListener("click", () => save("report.html"));
at("reset").addEventListener("click", () => goTo({ values: {}, layout: {} }));
at("optimize").addEventListener("click", () => {
  at("optimize").disabled = true;
  at("found").textContent = "Searching …";
  const sent = connection.send({ ...request(), kind: "optimize", minimize: at("minimize").value });
  if (!sent) cutOff();
});
at("undo").addEventListener("click", () => {
  at("undo").hidden = true;
  if (before) goTo(before);
});
at("add").addEventListener("click", () => {
  const path = at("other").value.trim();
  if (!path) return;
  if (controls.has(path)) refuse(`${path} has a control already.`);
  else if (!connection.send({ kind: "knob", path })) {
    return refuse("There is no connection, and so no new control. Add it once the page is connected.");
  }
  at("other").value = "";
});
at("other").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  at("add").click();
});
at("objective").addEventListener("change", (event) => draw(event.timeStamp));
at("knobs").addEventListener("submit", (event) => event.preventDefault());
at("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address holds the state
  at("results").focus();
});
addEventListener("hashchange", () => restore());

function restore() {
  const state = stateOf(location.hash);
  pins.restore(state.pins);
  goTo(state);
  for (const sentence of state.refused) refuse(sentence);
}
restore();
