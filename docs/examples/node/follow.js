// Follows an agent until it sleeps, then prints its transcript: node follow.js TARGET TENANT AGENT
// The rules are those of docs/following.md; the stream may be cut anywhere, and no row is missed.
import { credentials, loadPackageDefinition } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';

const protos = new URL('../../../protos', import.meta.url).pathname;
const options = { keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true, includeDirs: [protos] };
const files = ['agent_service', 'event_service'].map((name) => `sagentry/api/agent/v1/${name}.proto`);
const api = loadPackageDefinition(loadSync(files, options)).sagentry.api.agent.v1;
const [target, tenant, agentId] = process.argv.slice(2);
const scope = { scoped: { tenant } };
const [agents, events] = [api.AgentService, api.EventService].map((Stub) => new Stub(target, credentials.createInsecure()));
const [rows, growing] = [new Map(), new Map()]; // display_message_id → row; message_id/part_index → bytes
let [cursor, sequence, change] = [undefined, null, 0];
const pause = () => new Promise((resume) => setTimeout(resume, 100));
const upsert = (row) => (rows.get(row.display_message_id)?.change ?? -1) < row.change && rows.set(row.display_message_id, row);
const page = (request) => new Promise((resolve, reject) => {
  agents.ListDisplayMessages(request, { deadline: Date.now() + 30_000 }, (error, found) => (error ? reject(error) : resolve(found)));
});
async function readRows() { // what the stream does not tell: at the beginning, and behind each snapshot
  for (let token = 'first'; token !== '';) {
    const order = 'DISPLAY_MESSAGE_ORDER_CHANGE_ASCENDING';
    const found = await page({ scope, conversation_id: agentId, order, after: change }).catch(pause);
    if (!found) continue; // cut: again
    found.display_messages.forEach(upsert);
    change = Math.max(change, ...found.display_messages.map((row) => row.change));
    token = found.next_page_token;
  }
}
async function take({ item: kind, snapshot, event, delta, end }) { // says whether to stop
  if (kind === 'snapshot') {
    sequence = null; // its events are numbered anew
    if (snapshot.reset) growing.clear();
    for (const { message_id: id, parts } of snapshot.growing_messages)
      parts.forEach((part, n) => growing.set(`${id}/${n}`, Buffer.from((part.text ?? part.thinking)?.text ?? part.tool_call?.arguments_json ?? '')));
    if (snapshot.last_piece) await readRows();
    return snapshot.agent?.status === 'AGENT_STATUS_ASLEEP';
  }
  if (kind === 'event' && (sequence === null || event.sequence > sequence)) { // not had before the cut
    sequence = event.sequence;
    if (event[event.kind]?.display_message) upsert(event[event.kind].display_message);
    const { message_id: whole } = event.message_completed?.message ?? event.message_truncated ?? {};
    if (whole) for (const key of growing.keys()) if (key.startsWith(`${whole}/`)) growing.delete(key);
    return event.kind === 'agent_stopped';
  }
  const [key, piece] = [`${delta?.message_id}/${delta?.part_index}`, delta?.text ?? delta?.arguments];
  const had = growing.get(key) ?? Buffer.alloc(0);
  if (piece?.offset === had.length) growing.set(key, Buffer.concat([had, Buffer.from(piece.text)]));
  return kind === 'end' && !end.reconnect;
}
for (let stop = false; !stop; await pause()) try {
  const stream = events.SubscribeEvents({ scope, agent_id: agentId, from_cursor: cursor });
  for await (const response of stream) {
    for (const item of response.items) stop ||= await take(item);
    [cursor, sequence] = [response.cursor, response.last_sequence]; // only now: it names the whole response
    if (stop) stream.cancel();
  }
} catch (error) { if (!stop && ![1, 2, 4, 13, 14].includes(error.code)) throw error; } // how a cut shows itself
await readRows();
for (const row of [...rows.values()].sort((a, b) => a.position - b.position)) console.log(JSON.stringify([row.position, row.change, row.content[row.content.body]?.text ?? '']));
