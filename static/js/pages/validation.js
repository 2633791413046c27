// The page of a run that validates: once it is over, the page is read again with what it measured.

import { isOver } from "../words.js";

const job = document.getElementById("job");
new MutationObserver(() => isOver(job.dataset.state) && location.reload()).observe(job, { attributeFilter: ["data-state"] });
