// Add model: settings of a learning-rate policy are shown while that policy is chosen.

const policy = document.getElementById("id_lr_policy");
const parts = [...document.querySelectorAll("[data-policies]")];

function showPolicy() {
  for (const part of parts) {
    const [control] = part.querySelectorAll("input, select");
    const belongs = part.dataset.policies.split(" ").includes(policy.value);
    // A field that does not fit stays visible while it has a value: else nobody could correct it.
    part.hidden = !belongs && !control.value;
  }
}

policy.addEventListener("change", showPolicy);
showPolicy();
