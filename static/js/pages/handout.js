// Copies what is shown only once.

for (const button of document.querySelectorAll("[data-copy]")) {
  const secret = button.parentElement.querySelector("[data-secret]");
  const word = button.querySelector("[data-copy-word]");
  // Browsers have a clipboard for pages over TLS, or of this machine; elsewhere the text is selected.
  button.hidden = false;
  button.addEventListener("click", async () => {
    secret.select();
    try {
      await navigator.clipboard.writeText(secret.value);
      word.textContent = "Copied";
    } catch {
      word.textContent = "Selected: press Ctrl C";
    }
  });
}

document.getElementById("made")?.focus();
