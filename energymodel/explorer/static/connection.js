// The connection to the explorer: sends the newest state, and only that, while an answer is under way.

const MEASURES = 500;

export class Connection {
  #socket = null;
  #number = 0;
  #waiting = null;
  #inFlight = null;
  #handlers;
  #tries = 0;

  constructor(handlers) {
    this.#handlers = handlers;
    this.#open();
  }

  #open() {
    const address = new URL("live", document.baseURI);
    address.protocol = "ws:";
    address.hash = "";
    const socket = new WebSocket(address);
    this.#socket = socket;
    socket.onopen = () => {
      this.#tries = 0;
      this.#inFlight = null;
      this.#handlers.opened();
    };
    socket.onmessage = (event) => this.#receive(JSON.parse(event.data));
    socket.onclose = () => {
      this.#handlers.closed();
      this.#tries += 1;
      setTimeout(() => this.#open(), Math.min(500 * this.#tries, 5000));
    };
  }

  get isOpen() {
    return this.#socket.readyState === WebSocket.OPEN;
  }

  get isDrawing() {
    return this.isOpen && Boolean(this.#inFlight || this.#waiting);
  }

  // Sends a request that is answered for itself.
  send(message) {
    if (!this.isOpen) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  // Asks for the picture of a state. `started` is when the input came that caused it.
  show(message, started) {
    this.#waiting = { message, started };
    this.#next();
  }

  #next() {
    if (this.#inFlight || !this.#waiting || !this.isOpen) return;
    const { message, started } = this.#waiting;
    this.#waiting = null;
    this.#number += 1;
    this.#inFlight = { number: this.#number, started, sent: performance.now() };
    this.send({ ...message, kind: "state", number: this.#number });
  }

  #receive(answer) {
    const flight = this.#inFlight;
    const isMine = flight && answer.number === flight.number && (answer.kind === "picture" || answer.kind === "error");
    const received = performance.now();
    if (isMine) this.#inFlight = null;
    this.#handlers.received(answer, !this.#waiting);
    if (!isMine) return;
    this.#next();
    if (answer.kind === "picture" && flight.started) {
      this.#measure(flight.started, { ...answer.milliseconds, sent: flight.sent, received, placed: performance.now() });
    }
  }

  // From the input to the frame in which its picture is on the screen, for benchmarks/explorer_latency.py.
  #measure(start, detail) {
    requestAnimationFrame(() => requestAnimationFrame(() => {
      if (performance.getEntriesByName("energymodel-picture").length >= MEASURES) {
        performance.clearMeasures("energymodel-picture");
      }
      performance.measure("energymodel-picture", { start, end: performance.now(), detail });
    }));
  }
}
