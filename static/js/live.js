// Live data of a page: one websocket per tab, any number of topics; polling where websockets do not get through.
//
// The server renders first and says up to which number (`seq`) of a topic the page is. Frames carry `from_seq` and
// `seq`; where the chain breaks, or the server says `reset`, the topic's address is fetched: it answers with
// {seq, state, append}. Frames may repeat what a page knows: states are absolute and appended items have keys.

const POLL_MS = 2_000;
const OPEN_MS = 4_000;
//: A connection that lasts this long counts as good; until then each new one only adds to the failures.
const STABLE_MS = 5_000;
const MAX_BACKOFF_MS = 20_000;
//: Close codes that no reconnecting helps against: not logged in, not allowed.
const FINAL_CODES = new Set([4401, 4403]);
//: WebSocket.OPEN, which a browser without websockets does not have.
const OPEN = 1;
const MERGE_DEPTH = { cluster: 3 };

//: Same rule as `webapp.lib.live.merge`.
export function merge(topic, old, fresh, depth = MERGE_DEPTH[topic] ?? 1) {
  const merged = { ...old };
  for (const [key, value] of Object.entries(fresh)) {
    const deeper = depth > 1 && isObject(merged[key]) && isObject(value);
    merged[key] = deeper ? merge(topic, merged[key], value, depth - 1) : value;
  }
  return merged;
}

function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

class Topic {
  constructor({ name, seq, url, state = {}, onState = () => {}, onAppend = () => {}, onSnapshot = () => {} }) {
    Object.assign(this, { name, seq, url, state, onState, onAppend, onSnapshot });
    this.fetching = false;
  }

  //: True unless the chain is broken.
  apply(frame) {
    if (frame.kind === "reset" || frame.from_seq > this.seq) return false;
    if (frame.seq <= this.seq) return true;
    this.seq = frame.seq;
    if (frame.kind === "state") {
      this.state = merge(this.name, this.state, frame.data);
      this.onState(this.state, frame.data);
    } else {
      this.onAppend(frame.data);
    }
    return true;
  }

  async fetch() {
    if (this.fetching) return;
    this.fetching = true;
    try {
      const response = await fetch(this.url, { headers: { Accept: "application/json" } });
      if (!response.ok) throw new Error(`${this.url} answered ${response.status}`);
      const snapshot = await response.json();
      this.seq = snapshot.seq;
      this.state = snapshot.state;
      this.onSnapshot(snapshot);
      this.onState(this.state, this.state);
      this.onAppend(snapshot.append ?? {});
    } finally {
      this.fetching = false;
    }
  }
}

class Connection {
  constructor() {
    this.topics = new Map();
    this.failures = 0;
    this.socket = null;
    this.poll = null;
    addEventListener("pagehide", () => this.close());
    addEventListener("pageshow", (event) => event.persisted && this.open());
  }

  watch(options) {
    const topic = new Topic(options);
    this.topics.set(topic.name, topic);
    if (this.isOpen()) this.subscribe(topic);
    else if (!this.socket && !this.failures) this.open();
    return topic;
  }

  unwatch(name) {
    this.topics.delete(name);
    if (this.isOpen()) this.socket.send(JSON.stringify({ unsubscribe: name }));
  }

  isOpen() {
    return this.socket?.readyState === OPEN;
  }

  open() {
    let socket;
    try {
      socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/live/`);
    } catch {
      this.retry();
      return;
    }
    this.socket = socket;
    const slow = setTimeout(() => socket.close(), OPEN_MS);
    socket.addEventListener("open", () => {
      clearTimeout(slow);
      setTimeout(() => this.socket === socket && (this.failures = 0), STABLE_MS);
      this.stopPolling();
      showStatus("connected");
      for (const topic of this.topics.values()) this.subscribe(topic);
    });
    socket.addEventListener("message", (event) => this.receive(JSON.parse(event.data)));
    socket.addEventListener("close", (event) => {
      clearTimeout(slow);
      if (this.socket !== socket) return;
      this.socket = null;
      if (FINAL_CODES.has(event.code)) this.giveUp();
      else this.retry();
    });
  }

  close() {
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.stopPolling();
  }

  subscribe(topic) {
    this.socket.send(JSON.stringify({ subscribe: topic.name, after: topic.seq }));
  }

  receive(frame) {
    const topic = this.topics.get(frame.topic);
    if (topic && !topic.apply(frame)) topic.fetch().catch(() => this.startPolling());
  }

  retry() {
    this.failures += 1;
    if (this.failures === 1) showStatus("reconnecting");
    else this.startPolling();
    const backoff = Math.min(MAX_BACKOFF_MS, 500 * 2 ** (this.failures - 1));
    setTimeout(() => this.socket || this.open(), backoff * (0.5 + Math.random() / 2));
  }

  giveUp() {
    this.stopPolling();
    showStatus("off");
  }

  startPolling() {
    showStatus("polling");
    if (this.poll) return;
    const turn = async () => {
      if (!document.hidden) {
        const answers = await Promise.allSettled([...this.topics.values()].map((topic) => topic.fetch()));
        if (this.poll) this.judgePoll(answers.every((answer) => answer.status === "fulfilled"));
      }
      if (this.poll) this.poll = setTimeout(turn, POLL_MS);
    };
    this.poll = setTimeout(turn, 0);
  }

  judgePoll(answered) {
    if (answered && this.isOpen()) {
      this.stopPolling();
      showStatus("connected");
    } else {
      showStatus(answered ? "polling" : "reconnecting");
    }
  }

  stopPolling() {
    clearTimeout(this.poll);
    this.poll = null;
  }
}

const WORDS = {
  connected: ["live", "Changes appear at once."],
  reconnecting: ["reconnecting", "The connection is lost and being made again. Nothing is lost meanwhile."],
  polling: ["polling", "The live connection does not get through: the page asks every two seconds instead."],
  off: ["not live", "You are logged out or may no longer see this page: load it again."],
};

function showStatus(status) {
  const dot = document.getElementById("live-dot");
  if (!dot) return;
  const [word, sentence] = WORDS[status];
  dot.hidden = false;
  dot.dataset.status = status;
  dot.title = sentence;
  const text = dot.querySelector(".live-dot-word");
  if (text.textContent !== word) text.textContent = word;
}

export const live = new Connection();
