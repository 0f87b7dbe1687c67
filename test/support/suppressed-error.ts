/**
 * The compiler of the tests (swc 1.16) names its helper for an error that is thrown while another is under way wrongly, so a
 * test that fails, and whose fleet then does not end well either, would show neither. Importing this file puts the name there.
 */
class BothErrors extends Error {
  constructor(disposal: Error, body: Error) {
    super(`${body.message}\n\nand then:\n${disposal.message}`, { cause: body });
    this.name = body.name;
    if (body.stack !== undefined) this.stack = `${body.stack}\n\nand then:\n${disposal.stack ?? disposal.message}`;
  }
}

Object.assign(globalThis, { _SuppressedError: BothErrors });
