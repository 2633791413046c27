// Many trainings: a line of the parallel coordinates and its row of the table find each other.

import { pointAtEachOther } from "../parallel.js";

const area = document.querySelector(".parallel");
pointAtEachOther(area, () => area?.querySelector(".parallel-lines"), document.getElementById("differences"), "job");
