// Packs files into a tar archive, so that a folder is sent as one file.

const BLOCK = 512;
const encoder = new TextEncoder();

//: A name of the format has two parts, with a slash between them that is in neither.
function split(path) {
  if (encoder.encode(path).length <= 100) return ["", path];
  for (let at = path.lastIndexOf("/"); at > 0; at = path.lastIndexOf("/", at - 1)) {
    const parts = [path.slice(0, at), path.slice(at + 1)];
    if (encoder.encode(parts[0]).length <= 155 && encoder.encode(parts[1]).length <= 100) return parts;
  }
  throw new Error(`The path ${path} is too long: pack the folder into a .zip file and drop that file.`);
}

function octal(number, digits) {
  return `${number.toString(8).padStart(digits, "0")}\0`;
}

//: `file`: null for a folder.
function header(path, file) {
  const size = file?.size ?? 0;
  const block = new Uint8Array(BLOCK);
  const put = (offset, text) => block.set(encoder.encode(text), offset);
  const [prefix, name] = split(path);
  put(0, name);
  put(100, octal(file ? 0o644 : 0o755, 7));
  put(108, octal(0, 7));
  put(116, octal(0, 7));
  put(124, octal(size, 11));
  put(136, octal(0, 11));
  put(148, " ".repeat(8));
  put(156, file ? "0" : "5");
  put(257, "ustar\x0000");
  put(345, prefix);
  const checksum = block.reduce((sum, byte) => sum + byte, 0);
  put(148, `${octal(checksum, 6)} `);
  return block;
}

//: `files`: [path, Blob], with null for an empty folder.
export async function packed(files) {
  const parts = files.flatMap(([path, file]) => [header(path, file), ...(file ? [file, new Uint8Array((BLOCK - (file.size % BLOCK)) % BLOCK)] : [])]);
  return new Blob([...parts, new Uint8Array(2 * BLOCK)], { type: "application/x-tar" });
}
