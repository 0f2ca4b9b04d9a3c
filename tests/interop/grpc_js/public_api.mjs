// Checks the public services with @grpc/grpc-js, messages loaded from proto/ at run time. Run by
// test_grpc_js.sh with FORETOKEN_ENDPOINT set and @grpc/* on the module path. One line per check.
import path from 'node:path';
import {fileURLToPath} from 'node:url';
import {createRequire} from 'node:module';

const require = createRequire(path.join(process.env.FT_NODE_MODULES, 'x.js'));
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '../../..');
const loaded = loader.loadSync(
    ['foretoken/v1/inference.proto', 'foretoken/v1/admin.proto'],
    {includeDirs: [path.join(root, 'proto')], keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true});
const {foretoken} = grpc.loadPackageDefinition(loaded);
const endpoint = process.env.FORETOKEN_ENDPOINT;
const credentials = grpc.credentials.createInsecure();
const inference = new foretoken.v1.Inference(endpoint, credentials);
const admin = new foretoken.v1.Admin(endpoint, credentials);

let failed = 0;
function check(name, ok, detail = '') {
  failed += ok ? 0 : 1;
  console.log(`${ok ? 'ok    ' : 'FAILED'} ${name} ${ok ? '' : JSON.stringify(detail)}`);
}

function unary(client, method, message = {}) {
  return new Promise((resolve, reject) =>
      client[method](message, (error, reply) => error ? reject(error) : resolve(reply)));
}

function request(sampling = {}, speculative = {}) {
  return {
    text: 'Once upon a time',
    stream: true,
    sampling_params: {temperature: 0, max_tokens: 48, ...sampling},
    speculative_params: speculative,
  };
}

// {ids, text, last, n, status} once the stream ended; on_message may cancel the call.
function generate(message, options = {}, on_message = () => {}) {
  return new Promise((resolve) => {
    const out = {ids: [], text: '', last: null, n: 0, status: null};
    const call = inference.Generate(message, options);
    call.on('data', (reply) => {
      out.ids.push(...reply.token_ids);
      out.text += reply.text;
      out.last = reply;
      out.n++;
      on_message(call);
    });
    call.on('error', () => {});  // the status says it too
    call.on('status', (status) => resolve({...out, status}));
  });
}

const info = await unary(inference, 'GetModelInfo');
check('model info names both models', info.target.name && info.draft.name, info);

const streamed = await generate(request());
check('streams in several messages', streamed.n > 5, streamed.n);
check('status OK', streamed.status.code === grpc.status.OK, streamed.status);
check('exactly max_tokens', streamed.ids.length === 48, streamed.ids.length);
check('finish reason', streamed.last.finish_reason === 'FINISH_REASON_LENGTH', streamed.last);
check('speculative statistics', streamed.last.speculative.num_draft_tokens > 0, streamed.last);
const plain = await generate(request({}, {enabled: false}));
check('plain equals speculative', plain.text === streamed.text && plain.text.length > 48, plain.text);

const tokens = await unary(inference, 'Tokenize', {text: 'Once upon a time'});
const text = await unary(inference, 'Detokenize',
                         {token_ids: tokens.token_ids, skip_special_tokens: true});
check('tokens and back', text.text === 'Once upon a time', text);

const bad = await generate(request({temperature: -1}));
check('bad field is named', bad.status.code === grpc.status.INVALID_ARGUMENT &&
      bad.status.details.includes('temperature is -1'), bad.status);
const late = await generate(request({max_tokens: 900}), {deadline: Date.now() + 30});
check('deadline', late.status.code === grpc.status.DEADLINE_EXCEEDED, late.status);
const cancelled = await generate(request({max_tokens: 900}), {}, (call) => call.cancel());
check('cancel', cancelled.status.code === grpc.status.CANCELLED, cancelled.status);

const many = await Promise.all(Array.from({length: 24}, (_, i) =>
    generate(request({}, {num_speculative_tokens: i % 6}))));
check('24 at once equal one alone', many.every((one) => one.text === streamed.text));
const stats = await unary(admin, 'GetStats');
check('nothing is left running', stats.num_requests_running === 0, stats);
inference.close();
admin.close();
process.exit(failed ? 1 : 0);
