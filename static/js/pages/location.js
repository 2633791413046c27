// Add location: the folder can be picked instead of typed.

import { browseInto } from "../folders.js";

const form = document.getElementById("location-form");
const opener = form.querySelector("[data-browse]");

opener.addEventListener("click", () => browseInto(document.getElementById(opener.dataset.browse), opener.dataset.what, form.dataset.folders));
