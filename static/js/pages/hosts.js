// The hosts: rendered anew by the server whenever one of them reports, comes or goes, or a GPU is reassigned.

import { ask } from "../ask.js";
import { whileBusy } from "../busy.js";
import { readJson } from "../figure.js";
import { renewer } from "../fresh.js";
import { CLUSTER_TOPIC, isUrgent, live } from "../live.js";
import { followReadings, READINGS_MS } from "../readings.js";
import { say } from "../toasts.js";

const panels = document.getElementById("hosts");
const renew = renewer(panels);

//: Busy only until the question is here: a button that is asked again right after "Cancel" asks again.
async function askAndSend(form, button) {
  const answer = await whileBusy(button, async () => {
    const response = await fetch(form.dataset.question, { headers: { Accept: "application/json" } });
    return { ok: response.ok, said: await response.json() };
  });
  if (answer && !answer.ok) say(answer.said.error, { kind: "error" });
  else if (answer && (await ask(answer.said))) form.submit();
}

panels.addEventListener("submit", (event) => {
  if (!event.target.dataset.question) return;
  event.preventDefault();
  askAndSend(event.target, event.submitter).catch(() => say("The server did not answer. Nothing was changed: try again.", { kind: "error" }));
});

live.watch({
  name: CLUSTER_TOPIC,
  seq: readJson("live-cluster"),
  onState: (_, news) => (news.slots || news.hosts) && renew(isUrgent(news)),
  onSnapshot: () => renew(true),
});
followReadings(panels);
setInterval(() => renew(false), READINGS_MS);
document.documentElement.dataset.ready = "yes";
