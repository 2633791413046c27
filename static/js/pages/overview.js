// The overview: the pool, and the viewer's trainings. The server renders all of it anew when the cluster's topic says so.

import { showPool } from "../pool.js";
import { clock } from "../words.js";

showPool(document.getElementById("now"), document.querySelector('[data-chart="gpus"]'), (news) => news.slots || news.hosts || news.jobs);
document.documentElement.dataset.ready = clock(new Date());
