// Runs before the first paint, so that a dark page never flashes white.
(() => {
  const choice = localStorage.getItem("tidepool-theme") || "auto";
  const dark = choice === "dark" || (choice === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.bsTheme = dark ? "dark" : "light";
})();
