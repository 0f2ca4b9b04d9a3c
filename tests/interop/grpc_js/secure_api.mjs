// What a stock client sees of a service over TLS with a token: @grpc/grpc-js, and no proto of ours:
// messages are learnt by reflection. Run by secure_api.py with FORETOKEN_ENDPOINT, FORETOKEN_CACERT,
// FORETOKEN_TOKEN and FT_NODE_MODULES set. One line per check.
import fs from 'node:fs';
import path from 'node:path';
import {createRequire} from 'node:module';

const require = createRequire(path.join(process.env.FT_NODE_MODULES, 'x.js'));
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const endpoint = process.env.FORETOKEN_ENDPOINT;
const tls = grpc.credentials.createSsl(fs.readFileSync(process.env.FORETOKEN_CACERT));
const options = {keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true};

let failed = 0;
function check(name, ok, detail = '') {
  failed += ok ? 0 : 1;
  console.log(`${ok ? 'ok    ' : 'FAILED'} grpc-js: ${name} ${ok ? '' : JSON.stringify(detail)}`);
}

function metadata() {
  const m = new grpc.Metadata();
  m.set('authorization', `Bearer ${process.env.FORETOKEN_TOKEN}`);
  return m;
}

// ---- reflection, by hand: a request is a field or two, a response is looked through --------------

function varint(n) {
  const out = [];
  for (; n > 127; n = Math.floor(n / 128)) out.push((n & 127) | 128);
  return Buffer.from([...out, n]);
}

const field = (number, bytes) => Buffer.concat([varint(number * 8 + 2), varint(bytes.length), bytes]);

// [number, bytes] of each length-delimited field
function fields(buffer) {
  const out = [];
  let at = 0;
  const next = () => {
    let n = 0, scale = 1, byte;
    do { byte = buffer[at++]; n += (byte & 127) * scale; scale *= 128; } while (byte > 127);
    return n;
  };
  while (at < buffer.length) {
    const tag = next();
    const n = next();
    if (tag % 8 === 2) { out.push([tag >> 3, buffer.subarray(at, at + n)]); at += n; }
  }
  return out;
}

const raw = {requestStream: true, responseStream: true, requestSerialize: (b) => b,
             responseDeserialize: (b) => b, requestDeserialize: (b) => b, responseSerialize: (b) => b};

function reflect(request, withToken = true) {
  const Client = grpc.makeGenericClientConstructor(
      {info: {...raw, path: '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo'}}, 'r');
  const client = new Client(endpoint, tls);
  return new Promise((resolve, reject) => {
    const call = client.info(withToken ? metadata() : new grpc.Metadata());
    call.on('data', resolve);
    call.on('error', reject);
    call.write(request);
    call.end();
  }).finally(() => client.close());
}

async function learn(...symbols) {
  const files = new Map();
  for (const symbol of symbols) {
    const [, answer] = fields(await reflect(field(4, Buffer.from(symbol)))).find(([n]) => n === 4);
    for (const [, file] of fields(answer))
      files.set(fields(file).find(([n]) => n === 1)[1].toString(), file);
  }
  const set = Buffer.concat([...files.values()].map((file) => field(1, file)));
  return grpc.loadPackageDefinition(loader.loadFileDescriptorSetFromBuffer(set, options));
}

const refused = await reflect(field(7, Buffer.from('*')), false).catch((error) => error);
check('reflection without a token', refused.code === grpc.status.UNAUTHENTICATED, String(refused));
const [, list] = fields(await reflect(field(7, Buffer.from('*')))).find(([n]) => n === 6);
const services = fields(list).map(([, service]) => fields(service)[0][1].toString());
check('lists services', services.includes('foretoken.v1.Inference') &&
      services.includes('grpc.health.v1.Health'), services);
const {foretoken, grpc: standard} = await learn('foretoken.v1.Inference', 'grpc.health.v1.Health');

// ---- health and text ---------------------------------------------------------------------------

const health = new standard.health.v1.Health(endpoint, tls);
const status = await new Promise((resolve) =>
    health.Check({service: 'foretoken.v1.Inference'}, (error, reply) => resolve(error ?? reply)));
check('reads health without a token', status.status === 'SERVING', status);

function generate(credentials, withToken) {
  const client = new foretoken.v1.Inference(endpoint, credentials);
  return new Promise((resolve) => {
    const out = {text: '', n: 0};
    const call = client.Generate(
        {text: 'Once upon a time', stream: true, sampling_params: {temperature: 0, max_tokens: 24}},
        withToken ? metadata() : new grpc.Metadata(), {deadline: Date.now() + 20000});
    call.on('data', (reply) => { out.text += reply.text; out.n++; });
    call.on('error', () => {});
    call.on('status', (s) => { client.close(); resolve({...out, code: s.code, details: s.details}); });
  });
}

const told = await generate(tls, true);
check('streams text', told.code === grpc.status.OK && told.n > 3 && told.text.length > 10, told);
const stranger = await generate(tls, false);
check('no token', stranger.code === grpc.status.UNAUTHENTICATED, stranger);
const plain = await generate(grpc.credentials.createInsecure(), true);
check('plain client on a TLS port', plain.code === grpc.status.UNAVAILABLE, plain);
health.close();
process.exit(failed ? 1 : 0);
