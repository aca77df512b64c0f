// Pinned plans: kept by name, shown as buttons that go back to a plan or drop it.

export const MOST = 6;

export class Pins {
  #pins = [];
  #changed;
  #goTo;
  #holder = document.getElementById("pins");
  #count = 0;

  constructor(changed, goTo) {
    this.#changed = changed;
    this.#goTo = goTo;
  }

  get all() {
    return this.#pins;
  }

  get isFull() {
    return this.#pins.length >= MOST;
  }

  pin({ values, layout }) {
    if (this.isFull) return;
    this.#count += 1;
    while (this.#pins.some((pin) => pin.name === `plan ${this.#count}`)) this.#count += 1;
    this.restore([...this.#pins, { name: `plan ${this.#count}`, values, layout }]);
  }

  restore(pins) {
    this.#pins = pins;
    this.#draw();
    this.#changed();
  }

  drop(name) {
    this.restore(this.#pins.filter((pin) => pin.name !== name));
  }

  #draw() {
    this.#holder.replaceChildren(...this.#pins.map((pin) => {
      const row = document.createElement("span");
      row.className = "pinned";
      const go = document.createElement("button");
      go.type = "button";
      go.textContent = `Go to ${pin.name}`;
      go.addEventListener("click", () => this.#goTo(pin));
      const drop = document.createElement("button");
      drop.type = "button";
      drop.textContent = "×";
      drop.setAttribute("aria-label", `Remove ${pin.name}`);
      drop.addEventListener("click", () => {
        this.restore(this.#pins.filter((one) => one !== pin));
        document.getElementById("pin").focus();
      });
      row.append(go, drop);
      return row;
    }));
  }
}
