// Says on a page that stays open that its log-in has ended, and leads to the log-in and back. Scripts that are refused
// for that reason dispatch `tidepool:logged-out`.

import { element } from "./dom.js";

function show() {
  if (document.querySelector(".logged-out")) return;
  const address = `/login/?next=${encodeURIComponent(location.pathname + location.search)}${location.hash}`;
  const words = "You are logged out. What you have entered is kept. ";
  const notice = element("div", { className: "alert alert-danger logged-out", role: "alert" }, words, element("a", { href: address }, "Log in again"));
  document.getElementById("main").prepend(notice);
}

document.addEventListener("tidepool:logged-out", show);
