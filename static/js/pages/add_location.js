// The page that adds the folder of a template: picks it among the server's.

import "../folders.js";
