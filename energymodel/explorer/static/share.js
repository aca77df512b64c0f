// The state of the page as the part of its address behind #: values by path, the layout, and pinned plans.

import { MOST } from "./pins.js";

const LAYOUT = "layout.";
const PIN = "pin";
const LONGEST = 31_000; // bytes of a state with its pins, so that the explorer takes a message with it

function written({ values, layout }, parameters) {
  for (const [path, value] of Object.entries(values)) parameters.append(path, String(value));
  for (const [field, name] of Object.entries(layout)) parameters.append(LAYOUT + field, name);
  return parameters;
}

function read(parameters, refused) {
  const state = { values: {}, layout: {} };
  for (const [key, text] of parameters) {
    if (key === PIN || key === "name") continue;
    if (key.startsWith(LAYOUT)) state.layout[key.slice(LAYOUT.length)] = text;
    else if (text.trim() === "") continue; // the place of a page
    else if (Number.isFinite(Number(text))) state.values[key] = Number(text);
    else refused.push(`${key}: ${text} is not a finite number.`);
  }
  return state;
}

export function hashOf(state, pins, ownLayout) {
  const changed = ({ values, layout }) => ({
    values,
    layout: Object.fromEntries(Object.entries(layout).filter(([field, name]) => ownLayout[field] !== name)),
  });
  const parameters = written(changed(state), new URLSearchParams());
  for (const pin of pins) {
    parameters.append(PIN, written(changed(pin), new URLSearchParams({ name: pin.name })).toString());
  }
  const text = parameters.toString();
  return text ? `#${text}` : "";
}

export function stateOf(hash) {
  const parameters = new URLSearchParams(hash.replace(/^#/, ""));
  const refused = [];
  const pins = parameters.getAll(PIN).map((text) => {
    const inner = new URLSearchParams(text);
    return { name: inner.get("name") ?? "plan", ...read(inner, refused) };
  });
  if (pins.length > MOST) refused.push(`The link has ${pins.length} pinned plans; only the first ${MOST} are shown.`);
  const state = { ...read(parameters, refused), pins: pins.slice(0, MOST) };
  const bytes = new TextEncoder().encode(JSON.stringify(state)).length;
  if (bytes <= LONGEST) return { ...state, refused };
  return { values: {}, layout: {}, pins: [], refused: [`The link holds ${bytes} bytes, and at most ${LONGEST} can be read: nothing of it is used.`] };
}
