// The page of a run that validates: once it is over, the page is read again with what it measured.

const job = document.getElementById("job");
const isOver = () => ["SUCCEEDED", "FAILED", "CANCELLED"].includes(job.dataset.state);

new MutationObserver(() => isOver() && location.reload()).observe(job, { attributeFilter: ["data-state"] });
