/** Answers whose JSON text is made by us: an input must come back byte for byte, which no serializer can promise. */

interface Reply {
  code(status: number): Reply;
  type(contentType: string): Reply;
  header(name: string, value: string): Reply;
  send(body: string): PromiseLike<unknown>;
}

/** Sends JSON text as it is. `reply` is the reply of a route. */
export async function sendJson(
  reply: unknown,
  body: string,
  { status = 200, etag }: { readonly status?: number; readonly etag?: string } = {},
): Promise<void> {
  const answer = (reply as Reply).code(status).type('application/json; charset=utf-8');
  await (etag === undefined ? answer : answer.header('etag', etag)).send(body);
}
