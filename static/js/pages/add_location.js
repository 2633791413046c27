// The page that adds the code of a template: a folder of the server, or an upload.

import "../folders.js";
import { watchUploadField } from "../upload_field.js";

watchUploadField(document.getElementById("location-form"));
