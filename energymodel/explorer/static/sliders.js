// The controls: sliders with their number fields, and the fields of the layout.

const STEPS = 1000;

class Knob {
  constructor(root, changed, refuse) {
    this.root = root;
    const data = root.dataset;
    this.path = data.path;
    this.low = Number(data.low);
    this.high = Number(data.high);
    this.own = Number(data.own);
    this.origin = Number(data.origin);
    this.per = Number(data.per);
    this.size = Number(data.size);
    this.zero = Number(data.zero);
    this.unit = data.unit;
    this.log = data.log === "1";
    this.step = Number(data.step ?? 0);
    this.slider = root.querySelector("input[type=range]");
    this.field = root.querySelector("input[type=number]");
    this.note = root.querySelector(".note");
    this.value = this.own;
    this.isTyping = false;
    this.slider.addEventListener("input", (event) => {
      this.value = this.#whole(this.#atPosition(Number(this.slider.value)));
      this.#write(this.value);
      changed(this, event.timeStamp);
    });
    this.slider.addEventListener("keydown", (event) => this.#key(event));
    this.slider.addEventListener("blur", () => this.#place(this.value));
    this.field.addEventListener("input", () => { this.isTyping = true; });
    this.field.addEventListener("blur", () => {
      this.isTyping = false;
      this.#write(this.value);
    });
    this.field.addEventListener("change", (event) => {
      this.isTyping = false;
      const typed = Number(this.field.value);
      if (this.field.value.trim() === "" || !Number.isFinite(typed)) return this.#write(this.value);
      const wanted = (typed * this.size + this.zero) * this.per + this.origin;
      this.value = Math.min(Math.max(wanted, this.low), this.high);
      this.#place(this.value);
      this.#write(this.value);
      changed(this, event.timeStamp);
      if (this.value !== wanted) refuse(`${this.field.ariaLabel}: ${typed} is outside the range of the slider, ${this.field.min} to ${this.field.max}.`);
    });
    this.#place(this.value);
    this.#write(this.value);
  }

  // Arrow keys move by a hundredth of the way, so that a plan is reached in some presses; with Shift by a thousandth.
  #key(event) {
    const ways = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };
    const way = ways[event.key];
    if (!way || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const position = Number(this.slider.value) + way * (event.shiftKey ? 1 : STEPS / 100);
    this.slider.value = Math.min(Math.max(position, 0), STEPS);
    this.slider.dispatchEvent(new Event("input", { bubbles: true }));
  }

  #atPosition(position) {
    const share = position / STEPS;
    if (this.log) {
      const least = this.low - this.origin;
      return this.origin + least * ((this.high - this.origin) / least) ** share;
    }
    return this.low + share * (this.high - this.low);
  }

  #whole(value) {
    const rounded = this.step ? Math.round(value / this.step) * this.step : value;
    return Math.min(Math.max(rounded, this.low), this.high);
  }

  #place(value) {
    const share = this.log
      ? Math.log((value - this.origin) / (this.low - this.origin)) / Math.log((this.high - this.origin) / (this.low - this.origin))
      : (value - this.low) / (this.high - this.low);
    this.slider.value = share * STEPS;
  }

  #write(value) {
    const reading = (value - this.origin) / this.per;
    const shown = Number(((reading - this.zero) / this.size).toPrecision(6));
    this.field.value = shown;
    this.slider.setAttribute("aria-valuetext", `${shown} ${this.unit}`.trim());
    this.root.classList.toggle("moved", !this.isOwn);
  }

  get isOwn() {
    return Math.abs(this.value - this.own) <= 1e-12 * Math.max(Math.abs(this.own), Math.abs(this.value));
  }

  // A value that the explorer settled at; what a finger or a key holds, or is being typed, stays where it is.
  settle(value) {
    if (this.isTyping) {
      this.value = value;
      return this.#place(value);
    }
    if (document.activeElement === this.slider) {
      this.value = value;
      return this.#write(value);
    }
    this.set(value);
  }

  set(value) {
    this.value = value;
    this.#place(value);
    this.#write(value);
  }
}

export class Controls {
  #knobs = new Map();
  #layout = new Map();
  #drawn = "";
  #changed;
  #refuse;

  // `changed` is called with the path of a number or field that moved, `refuse` with why it did not move as asked.
  constructor(changed, refuse) {
    this.#changed = changed;
    this.#refuse = refuse;
    for (const root of document.querySelectorAll(".knob")) this.#adopt(root);
  }

  #adopt(root) {
    const knob = new Knob(root, (moved, started) => this.#changed(moved.path, started), this.#refuse);
    this.#knobs.set(knob.path, knob);
    return knob;
  }

  has(path) {
    return this.#knobs.has(path);
  }

  // Adds the control of another number, with a button that takes it away.
  add(path, html) {
    if (this.has(path)) return;
    const holder = document.getElementById("added");
    holder.insertAdjacentHTML("beforeend", html);
    const knob = this.#adopt(holder.lastElementChild);
    knob.root.querySelector(".remove")?.addEventListener("click", () => {
      this.#knobs.delete(path);
      knob.root.remove();
      this.#changed(path, 0);
    });
    return knob;
  }

  // The numbers that are not the scenario's own, and the layout by field.
  get state() {
    const values = {};
    for (const knob of this.#knobs.values()) if (!knob.isOwn) values[knob.path] = knob.value;
    return { values, layout: Object.fromEntries(this.#layout) };
  }

  set(values, layout) {
    for (const knob of this.#knobs.values()) knob.set(values[knob.path] ?? knob.own);
    this.#layout = new Map(Object.entries(layout ?? {}));
    this.#drawn = "";
  }

  // Back to the scenario's own.
  drop(path) {
    const knob = this.#knobs.get(path);
    knob?.set(knob.own);
    this.#layout.delete(path);
  }

  settle(values, layout, replicas) {
    for (const [path, value] of Object.entries(values)) this.#knobs.get(path)?.settle(value);
    this.#drawLayout(layout, replicas);
  }

  notes(notes) {
    for (const [path, words] of Object.entries(notes)) {
      const knob = this.#knobs.get(path);
      if (knob) knob.note.textContent = words;
    }
  }

  #drawLayout(fields, replicas) {
    const drawn = JSON.stringify([fields, replicas]);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    const holder = document.getElementById("layout");
    const listed = fields.map(([field]) => `layout-${field}`);
    for (const select of holder.querySelectorAll("select")) {
      if (!listed.includes(select.id)) select.parentNode.remove();
    }
    for (const [field, label, options] of fields) {
      let select = document.getElementById(`layout-${field}`);
      if (!select) {
        const row = document.createElement("p");
        row.innerHTML = "<label></label><select></select>";
        row.firstChild.textContent = label;
        row.firstChild.htmlFor = `layout-${field}`;
        select = row.lastChild;
        select.id = `layout-${field}`;
        select.addEventListener("change", (event) => {
          this.#layout.set(field, select.value);
          this.#changed(field, event.timeStamp);
        });
        holder.append(row);
      }
      const names = options.map(([name]) => name);
      if (names.join("|") !== [...select.options].map((one) => one.value).join("|")) {
        select.replaceChildren(...names.map((name) => new Option(name, name)));
      }
      const chosen = options.find(([, isChosen]) => isChosen)[0];
      if (select.value !== chosen) select.value = chosen;
      this.#layout.set(field, chosen);
    }
    let follows = document.getElementById("replicas");
    if (!follows) {
      follows = document.createElement("p");
      follows.id = "replicas";
      follows.className = "note";
    }
    holder.append(follows);
    follows.textContent = `Data parallel: ${replicas}, follows from chips and layout`;
  }
}
