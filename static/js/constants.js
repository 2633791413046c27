// Constants that the server shares with the scripts: webapp/script_constants.py makes them, and each page carries them.

export const CONSTANTS = JSON.parse(document.getElementById("script-constants").textContent);
