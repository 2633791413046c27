// Live data of a page: one websocket per tab, any number of topics; polling where websockets do not get through.
//
// The server renders first and says up to which number (`seq`) of a topic the page is. Frames carry `from_seq` and
// `seq`; where the chain breaks, or the server says `reset`, the topic's address is fetched: it answers with
// {seq, state, append}. Frames may repeat what a page knows: states are absolute and appended items have keys.

import { CONSTANTS } from "./constants.js";

export const CLUSTER_TOPIC = CONSTANTS.clusterTopic;
const POLL_MS = 2_000;
//: Topics that one turn of polling fetches, each by a request; a page with more takes them in turn.
const POLLED_AT_ONCE = 4;
const OPEN_MS = 4_000;
//: A connection that lasts this long counts as good; until then each new one only adds to the failures.
const STABLE_MS = 5_000;
const MAX_BACKOFF_MS = 20_000;
//: A tab that nobody has looked at for this long asks for nothing more until somebody does.
const HIDDEN_MS = 10_000;
//: Close codes that no reconnecting helps against: not logged in, not allowed.
const FINAL_CODES = new Set(CONSTANTS.finalCloseCodes);
//: WebSocket.OPEN, which a browser without websockets does not have.
const OPEN = 1;

//: Same rule as `core.live.merge`.
function merge(topic, old, fresh, depth = CONSTANTS.mergeDepths[topic] ?? 1) {
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

//: Fields that change with every step and reading: news of these alone can wait.
const CALM = new Set(CONSTANTS.calmFields);

//: News is urgent if it says of a job, a slot or a host more than that: who holds which GPU, or what becomes of a job.
export function isUrgent(news) {
  const { slots, jobs, ...rest } = news;
  if (Array.isArray(jobs)) return true;
  const parts = [rest, ...Object.values(slots ?? {}), ...Object.values(jobs ?? {})];
  return parts.some((part) => Object.keys(part).some((name) => !CALM.has(name)));
}

export function jobTopic(number) {
  return `${CONSTANTS.jobTopicPrefix}${number}`;
}

export function jobOfTopic(name) {
  return name.slice(CONSTANTS.jobTopicPrefix.length);
}

class Topic {
  //: `read` answers what `url` would, where that takes more than one request. Without both only the topic's number is fetched.
  constructor({ name, seq, url = `/live/${name}.json`, read, state = {}, onState = () => {}, onAppend = () => {}, onSnapshot = () => {} }) {
    Object.assign(this, { name, seq, url, state, onState, onAppend, onSnapshot, read: read ?? (() => fetchJson(url)) });
    this.fetching = false;
    this.onFetched = () => {};
    //: The server has answered the subscription: nothing is missed from there on.
    this.isFollowed = false;
    //: Whether its last fetch failed.
    this.isBehind = false;
  }

  //: True unless the chain is broken.
  apply(frame) {
    if (frame.kind === "newest") {
      this.onState(frame.data, frame.data); // has no number: whoever misses one gets the next
      return true;
    }
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
      const snapshot = await this.read();
      this.seq = snapshot.seq;
      this.state = snapshot.state;
      this.onSnapshot(snapshot);
      this.onState(this.state, this.state);
      this.onAppend(snapshot.append ?? {});
    } finally {
      this.fetching = false;
    }
    this.onFetched();
  }
}

//: Asking again does not help: logged out, or what the page shows may no longer be seen. The message says why.
export class Refused extends Error {}

//: The server's sentence in the answer to a refused request, or "".
async function sentenceOf(response) {
  const told = await response.json().catch(() => ({}));
  return told.error ?? "";
}

export async function fetchJson(url, options = {}) {
  const response = await fetch(url, { ...options, headers: { Accept: "application/json" } });
  if (response.status === 401) document.dispatchEvent(new CustomEvent("tidepool:logged-out"));
  if (response.redirected || [401, 403, 404].includes(response.status)) throw new Refused(await sentenceOf(response));
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
  return response.json();
}

//: Calls `work` at once, but at most once in a while, however often it is asked to, once the last call is done, and not while
//: nobody looks.
export function atMostEvery(milliseconds, work) {
  let isDue = false;
  let last = Promise.resolve();
  let next = 0;
  return function soon() {
    if (isDue) return;
    isDue = true;
    setTimeout(async () => {
      await last;
      isDue = false;
      if (document.hidden) {
        document.addEventListener("visibilitychange", soon, { once: true });
        return;
      }
      next = performance.now() + milliseconds;
      last = Promise.resolve(work()).catch(() => {}); // the next piece of news asks again
    }, next - performance.now());
  };
}

class Connection {
  constructor() {
    this.topics = new Map();
    this.failures = 0;
    this.socket = null;
    this.poll = null;
    this.retryTimer = null;
    this.hiddenTimer = null;
    this.hiddenMs = HIDDEN_MS;
    this.isOver = false;
    addEventListener("pagehide", () => this.rest());
    addEventListener("pageshow", (event) => event.persisted && this.wake());
    addEventListener("online", () => this.wake());
    document.addEventListener("visibilitychange", () => this.followVisibility());
  }

  watch(options) {
    const topic = new Topic(options);
    if (this.topics.size >= CONSTANTS.maxTopics) return topic; // a page with more goes without the rest
    this.topics.set(topic.name, topic);
    // Events that arrived during the fetch were not applied: continue from the fetched number.
    topic.onFetched = () => this.isOpen() && this.topics.has(topic.name) && this.subscribe(topic);
    if (this.isOpen()) this.subscribe(topic);
    else if (!this.failures && !document.hidden) this.wake();
    return topic;
  }

  unwatch(name) {
    this.topics.delete(name);
    if (!this.isOpen()) return;
    this.socket.send(JSON.stringify({ unsubscribe: name }));
    this.settle();
  }

  followVisibility() {
    clearTimeout(this.hiddenTimer);
    if (document.hidden) this.hiddenTimer = setTimeout(() => this.rest(), this.hiddenMs);
    else this.wake();
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
      if (this.socket !== socket) {
        socket.close();
        return;
      }
      setTimeout(() => {
        if (this.socket === socket) this.failures = 0;
      }, STABLE_MS);
      this.stopPolling();
      for (const topic of this.topics.values()) topic.isFollowed = false;
      for (const topic of this.topics.values()) this.subscribe(topic);
    });
    socket.addEventListener("message", (event) => this.receive(JSON.parse(event.data)));
    socket.addEventListener("close", (event) => {
      clearTimeout(slow);
      if (this.socket !== socket) return;
      this.socket = null;
      if (event.code === CONSTANTS.loggedOutCloseCode) document.dispatchEvent(new CustomEvent("tidepool:logged-out"));
      if (FINAL_CODES.has(event.code)) this.giveUp();
      else this.retry();
    });
  }

  //: Asks for nothing until `wake`, which goes on after the number that each topic has.
  rest() {
    const socket = this.socket;
    this.socket = null;
    this.failures = 0;
    clearTimeout(this.retryTimer);
    // One that is still being opened closes itself then: browsers complain when it is closed before.
    if (socket?.readyState === OPEN) socket.close();
    this.stopPolling();
  }

  wake() {
    if (this.socket || this.isOver || !this.topics.size) return;
    clearTimeout(this.retryTimer);
    this.open();
  }

  subscribe(topic) {
    this.socket.send(JSON.stringify({ subscribe: topic.name, after: topic.seq }));
  }

  receive(frame) {
    const topic = this.topics.get(frame.topic);
    if (!topic) return;
    if (!topic.isFollowed) {
      topic.isFollowed = true;
      this.settle();
    }
    if (!topic.apply(frame)) this.fetch(topic).then((answered) => answered || this.startPolling());
  }

  //: Live is what follows all its topics.
  settle() {
    if (this.isOpen() && !this.poll && [...this.topics.values()].every((topic) => topic.isFollowed)) {
      showStatus("connected");
    }
  }

  retry() {
    this.failures += 1;
    if (this.failures === 1) showStatus("reconnecting");
    else this.startPolling();
    const backoff = Math.min(MAX_BACKOFF_MS, 500 * 2 ** (this.failures - 1));
    clearTimeout(this.retryTimer);
    this.retryTimer = setTimeout(() => this.wake(), backoff * (0.5 + Math.random() / 2));
  }

  giveUp() {
    this.isOver = true;
    this.rest();
    showStatus("off");
  }

  //: False if there was no answer. A topic that is refused is dropped; without any the page says that it is not live.
  async fetch(topic) {
    try {
      await topic.fetch();
      topic.isBehind = false;
    } catch (error) {
      topic.isBehind = !(error instanceof Refused);
      if (topic.isBehind) return false;
      this.unwatch(topic.name);
      if (!this.topics.size) this.giveUp();
    }
    return true;
  }

  startPolling() {
    showStatus("polling");
    if (this.poll) return;
    let waiting = [];
    const turn = async () => {
      if (!document.hidden) {
        // A page with many topics asks for each less often, and for some of them in every turn: first for those behind.
        if (!waiting.length) waiting = [...this.topics.values()].sort((one, other) => other.isBehind - one.isBehind);
        const topics = waiting.splice(0, POLLED_AT_ONCE).filter(({ name }) => this.topics.has(name));
        const answers = await Promise.all(topics.map((topic) => this.fetch(topic)));
        if (this.poll) this.judgePoll(answers.every(Boolean));
      }
      if (this.poll) this.poll = setTimeout(turn, POLL_MS);
    };
    this.poll = setTimeout(turn, 0);
  }

  judgePoll(answered) {
    if (answered && this.isOpen() && ![...this.topics.values()].some(({ isBehind }) => isBehind)) {
      this.stopPolling();
      this.settle();
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
  connected: ["live", "Changes appear immediately."],
  reconnecting: ["reconnecting", "The connection was lost and is being restored. No changes are lost."],
  polling: ["polling", "The live connection is blocked: the page checks for changes every few seconds."],
  off: ["not live", "You are logged out or may no longer see this page: reload the page."],
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
